"""What plans decide, to be compared, and what becomes of each running pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, TypeAlias

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, RefusedPlan
from mooring.answers.base.plan_document import differing, placement_part
from mooring.documents.plan import Code, DocumentPart, PlacementPart, PodPart, one_of, told
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import Pod
from mooring.engine.node.node import placements_of
from mooring.explanations.story import PodVerdict


class UpgradedPodPart(DocumentPart, kw_only=True):
    """What becomes of a pod."""

    uid: str
    namespace: str
    name: str
    running: Annotated[bool, told("Whether it runs before; otherwise it is admitted after the restart.")]
    outcome: Annotated[str, one_of("kept", "moved", "admitted", "rejected", "not asked")]
    changed: Annotated[bool, told("Whether the old kubelet, started again, would decide otherwise.")]
    admitted: bool
    reason: Annotated[str, told("The kubelet's; empty for admitted pods.")] = ""
    message: Annotated[str, told("The kubelet's; empty for admitted pods.")] = ""
    why: Annotated[str, told("One sentence for people; empty for admitted pods.")] = ""
    code: Code = ""
    before: Annotated[
        dict[str, PlacementPart],
        told("Container -> its CPUs and memory before the upgrade; empty where it had no place."),
    ]
    pod_before: Annotated[PlacementPart, told("The partition of the pod as a whole.")]
    after: Annotated[
        dict[str, PlacementPart], told("Container -> its CPUs and memory afterwards; empty if not admitted.")
    ]
    pod_after: Annotated[PlacementPart, told("The partition of the pod as a whole.")]

    @property
    def is_affected(self) -> bool:
        """Tell whether the pod does not keep what it has, and a restart of the old kubelet would not do the same."""
        return self.changed and self.outcome != PodVerdict.KEPT

    @property
    def as_pod(self) -> PodPart:
        """Its name."""
        return PodPart(self.uid, self.namespace, self.name)


_Placed: TypeAlias = tuple[Mapping[str, Placement], Placement]
"""What each container has, and the pod as a whole."""
_NOWHERE: _Placed = {}, Placement()


def pod_upgrades(old: AnyPlan, new: AnyPlan, running: Collection[str]) -> Iterator[UpgradedPodPart]:
    """Yield what becomes of the pods of a restart.

    Args:
        old: the restart of the old kubelet.
        new: the restart of the new kubelet on the same files.
        running: uids of the pods that run before.
    """
    before, different = {answer.pod.uid: answer for answer in old.answers}, differing(old, new)
    for answer in new.answers:
        decision, pod = answer.decision, answer.pod
        held = _held(old, new, answer, before.get(pod.uid))
        placed = (decision.containers, decision.pod) if decision.admitted else _NOWHERE
        same = (dict(placed[0]), placed[1]) == (dict(held[0]), held[1])
        outcome = PodVerdict.ADMITTED if not held[0] else PodVerdict.KEPT if same else PodVerdict.MOVED
        outcome = outcome if decision.admitted else PodVerdict.REJECTED
        part = _part(pod, outcome, held, placed, running=answer.running, changed=pod.uid in different)
        if not decision.admitted:
            defect = "" if decision.endless is None else decision.endless.defect
            part.reason = decision.reason or ("crash" if answer.crash else defect)
            part.message, part.why, part.code = decision.message or answer.crash, answer.why, answer.code
        yield part
    unasked_before = {pod.uid for pod in old.unasked}
    for pod in new.unasked:
        is_running = pod.uid in running
        held = placements(old, pod) if is_running else _NOWHERE
        changed = pod.uid not in unasked_before
        yield _part(pod, PodVerdict.NOT_ASKED, held, _NOWHERE, running=is_running, changed=changed)


def _part(
    pod: Pod, outcome: PodVerdict, held: _Placed, placed: _Placed, *, running: bool, changed: bool
) -> UpgradedPodPart:
    return UpgradedPodPart(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        running=running,
        outcome=outcome.value,
        changed=changed,
        admitted=outcome not in (PodVerdict.REJECTED, PodVerdict.NOT_ASKED),
        before={name: placement_part(one) for name, one in held[0].items()},
        pod_before=placement_part(held[1]),
        after={name: placement_part(one) for name, one in placed[0].items()},
        pod_after=placement_part(placed[1]),
    )


def _held(old: AnyPlan, new: AnyPlan, answer: Answer, earlier: Answer | None) -> _Placed:
    """Return what a pod has before the upgrade: by the state files, or as the old kubelet decides about a new pod."""
    if answer.running:
        return placements(new if isinstance(old, RefusedPlan) else old, answer.pod)
    if earlier is None or not earlier.admitted:
        return _NOWHERE
    return earlier.decision.containers, earlier.decision.pod


def placements(plan: AnyPlan, pod: Pod) -> _Placed:
    """Return what a pod has by the state files with which a plan begins."""
    return _NOWHERE if isinstance(plan, RefusedPlan) else placements_of(plan.began.node.providers, pod)
