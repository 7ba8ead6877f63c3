"""``mooring resize -o json``: the answer as a document."""

from __future__ import annotations

from mooring.answers.resize.largest import Largest
from mooring.answers.resize.resize import ResizeAnswer
from mooring.documents.parts import finding_parts
from mooring.documents.resize import (
    LargestAmountsPart,
    PendingReleasePart,
    ResizedContainerPart,
    ResizeDocument,
    ResizedPlacePart,
)
from mooring.engine.core.decision import Placement
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod, ResourceList
from mooring.engine.kubelet.events import Amounts
from mooring.engine.node.resize.feasibility import Resize


def resize_document(resized: ResizeAnswer) -> ResizeDocument:
    """Return the document."""
    plan, pod, answer, reason = resized.plan, resized.pod, resized.answer, resized.reason
    standing = resized.standing
    return ResizeDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=plan.refusal.message if plan.refusal is not None else "",
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos.value,
        runs=answer is not None,
        not_running=standing.why if standing is not None and answer is None else "",
        accepted=resized.is_yes,
        condition=answer.condition if answer is not None else "",
        reason=answer.reason if answer is not None else "",
        message=answer.message if answer is not None else "",
        refused_by=answer.rejection.reason if answer is not None and answer.rejection is not None else "",
        code=reason.code if reason is not None else "",
        why=reason.sentence if reason is not None else "",
        remedy=reason.remedy if reason is not None else "",
        events=list(answer.events) if answer is not None else [],
        containers=[_container(resized, pod, one.name, answer) for one in pod.containers],
        shared_pool=str(answer.shared_pool) if answer is not None else "",
        findings=finding_parts(plan.findings),
    )


def _container(resized: ResizeAnswer, pod: Pod, name: str, answer: Resize | None) -> ResizedContainerPart:
    container = next(one for one in pod.containers if one.name == name)
    release = answer.releases.get(name) if answer is not None else None
    pending = None
    if release is not None:
        pending = PendingReleasePart(str(release.cpus), release.left(_now(resized)) // 10**6)
    return ResizedContainerPart(
        name=name,
        has=_amounts(container.requests),
        asks=_asked(resized.asked.containers.get(name)),
        before=_place(resized.before[name]) if name in resized.before else None,
        after=_place(answer.containers[name]) if answer is not None else None,
        baseline=str(answer.baseline[name]) if answer is not None and name in answer.baseline else "",
        pending=pending,
        largest=_largest(resized.largest[name]) if name in resized.largest else None,
    )


def _now(resized: ResizeAnswer) -> Moment:
    if resized.after is None:
        raise AssertionError("what is pending was decided by a kubelet")
    return resized.after.node.moment


def _place(placement: Placement) -> ResizedPlacePart:
    return ResizedPlacePart(str(placement.cpus), ",".join(map(str, placement.mems)))


def _amounts(requests: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in requests.items() if name in ("cpu", "memory")}


def _asked(amounts: Amounts | None) -> dict[str, str]:
    return _amounts(amounts.requests) if amounts is not None else {}


def _largest(largest: Largest) -> LargestAmountsPart:
    return LargestAmountsPart(largest.cpus, largest.memory, largest.milli_cpus)
