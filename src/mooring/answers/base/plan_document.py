"""A plan as a document (``mooring plan -o json``), with decisions and offline CPUs in the names of the recordings.

Source: the format of the conformance recordings (docs/reference/scenarios.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import UNSET

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan
from mooring.cli.output import json_text
from mooring.documents import plan as parts
from mooring.documents.facts import affinity_parts, hint_lists
from mooring.documents.of_kubelet import numa_parts
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.offline import broken_sets, displaced_sets, effective_pool, sets_of
from mooring.engine.kubelet.kubelet import DeferredText, StateTexts, read, reserved_cpus
from mooring.engine.node import Decision, Node
from mooring.engine.node.hotplug import hotplug_findings
from mooring.engine.node.providers import mixed_containers
from mooring.engine.node.resources import Resize, delay_left
from mooring.lazy import lazily

with lazily():
    import mooring.engine.extensions.facts as extension_facts
    from mooring.engine.node import hotplug


def _decision_members(decision: Decision) -> dict[str, Any]:
    """Return the members of an admit result, without the texts of state files."""
    asked = decision.asked or {}
    hints = decision.hints
    return {
        "admitted": decision.admitted,
        "reason": decision.reason,
        "message": decision.message,
        "containers": {name: placement_part(placement) for name, placement in decision.containers.items()},
        "pod": placement_part(decision.pod),
        "affinity": affinity_parts(decision),
        "shared_pool": str(decision.shared_pool),
        "hints": UNSET if hints is None else {name: hint_lists(one, asked.get(name)) for name, one in hints.items()},
        "pod_hints": UNSET if decision.pod_hints is None else hint_lists(decision.pod_hints, asked.get("")),
    }


def decision_fields(decision: Decision) -> dict[str, Any]:
    """Return an admit result with the names of the recordings, without the texts of state files."""
    return _named(_decision_members(decision))


def _named(members: dict[str, Any]) -> dict[str, Any]:
    names = {"shared_pool": "sharedPool", "pod_hints": "podHints", "usable_pool": "usablePool"}
    return {names.get(name, name): value for name, value in members.items() if value is not UNSET}


def state_fields(files: StateTexts, before_start: StateTexts | None = None) -> dict[str, str]:
    """Return the texts of the state files after a step.

    Args:
        files: after the step.
        before_start: before the containers of an admitted pod started; told only where that changed something.
    """
    fields = {"cpuManagerState": files.cpu or "", "memoryManagerState": files.memory or ""}
    if before_start is not None and before_start.memory != files.memory:
        fields["memoryManagerStateAdmitted"] = before_start.memory or ""
    return fields


def resize_fields(answer: Resize, now: Moment) -> dict[str, Any]:
    """Return how things stand with the resize of a pod, without the shared pool and the texts of state files."""
    return {
        "resize": {"condition": answer.condition, "reason": answer.reason, "message": answer.message},
        "containers": {name: placement_part(placement) for name, placement in answer.containers.items()},
        "pending": {
            name: {"cpus": str(CPUSet(release.cpus)), "after": span_text(delay_left(release, now))}
            for name, release in answer.releases.items()
        },
        "baseline": {name: str(cpus) for name, cpus in sorted(answer.baseline.items())},
    }


def span_text(nanoseconds: int) -> str:
    """Return a span of time in the largest unit that says it exactly.

    >>> span_text(5_000_000_000), span_text(2_500_000_000), span_text(0)
    ('5s', '2500ms', '0s')
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{nanoseconds}ns"


def decided(plan: AnyPlan) -> tuple[object, ...]:
    """Return what a plan decides, without what no person sees of it: hints and the texts of state files."""
    start = (plan.refusal.stage, plan.refusal.message) if isinstance(plan, RefusedPlan) else None
    return (start, tuple(decided_about(answer) for answer in plan.answers), tuple(pod.uid for pod in plan.unasked))


def decided_about(answer: Answer) -> tuple[object, ...]:
    """Return what an answer decides about its pod; what a rejected pod held at that moment is no part of it."""
    decision = answer.decision
    held = (decision.containers, decision.pod, held_devices(decision)) if decision.admitted else ()
    endless = decision.endless.defect if decision.endless is not None else ""
    return (decision.uid, decision.admitted, decision.reason, decision.message, endless, answer.crash, held)


def differing(one: AnyPlan, other: AnyPlan) -> set[str]:
    """Return the uids of pods about which two plans decide differently, or only one of them decides."""
    left, right = ({answer.pod.uid: decided_about(answer) for answer in plan.answers} for plan in (one, other))
    return {uid for uid in {*left, *right} if left.get(uid) != right.get(uid)}


def held_devices(decision: Decision) -> parts.HeldDeviceTable:
    """Return the devices of each container: ids, and the NUMA nodes of each device."""
    return {
        container: {
            resource: parts.HeldDevicesPart(
                [device.id for device in devices],
                # Sorted as text, as the recordings have it.
                sorted((sorted(device.numa or ()) for device in devices), key=str),
            )
            for resource, devices in resources.items()
        }
        for container, resources in decision.devices.items()
    }


def placement_part(placement: Placement) -> parts.PlacementPart:
    """Return CPUs and NUMA nodes as texts, empty for none."""
    return parts.PlacementPart(str(placement.cpus), ",".join(map(str, placement.mems)))


_Set = TypeVar("_Set")


def standing_fields(node: Node) -> dict[str, Any]:
    """Return what is offline, the sets that it changes, and findings; nothing on a node whose CPUs are all online."""
    if not (node.cpu.offline or node.cpu.displaced):
        return {}
    return {**_named(_offline_members(node)), "findings": [one.fields() for one in hotplug_findings(node)]}


def _offline_members(node: Node) -> dict[str, Any]:
    """Return what is offline, where containers of the shared pool run, and the sets that lost CPUs or got others."""
    cpu = node.cpu
    return {
        "offline": list_text(cpu.offline),
        "usable_pool": list_text(effective_pool(cpu)),
        "broken": _by_owner(
            (one.pod, one.container, parts.BrokenSetPart(list_text(one.cpus), list_text(one.lost)))
            for one in broken_sets(cpu)
        ),
        "displaced": _by_owner(
            (pod, container, parts.DisplacedSetPart(list_text(sets_of(cpu, pod)[container]), list_text(original)))
            for (pod, container), original in displaced_sets(cpu).items()
        ),
    }


def change_fields(node: Node, change: hotplug.CPUsChanged) -> dict[str, Any]:
    """Return what one step in which CPUs go or come led to, and how things stand."""
    return {
        **_named(_offline_members(node)),
        "findings": [one.fields() for one in hotplug_findings(node)],
        "refused": _by_owner(
            (one.pod, one.container, one.why)
            for one in change.broken
            if isinstance(one, extension_facts.CPUsBroken) and one.why
        ),
        "restored": _by_owner(
            (one.pod, one.container, {"cpus": list_text(one.after), "before": list_text(one.before)})
            for one in change.restored
        ),
    }


def _by_owner(found: Iterable[tuple[str, str, _Set]]) -> dict[str, dict[str, _Set]]:
    """Return owner -> container -> set; the partition of a whole pod is under the empty name."""
    sets: dict[str, dict[str, _Set]] = {}
    for pod, container, one in found:
        sets.setdefault(pod, {})[container] = one
    return sets


def plan_document(plan: AnyPlan, *, with_pods: bool = True) -> parts.PlanDocument:
    """Return the document of a plan.

    Each pod has the members of an admit result of the recordings (docs/reference/scenarios.md).
    """
    document = _without_pods(plan)
    if with_pods and isinstance(plan, Plan):
        document.pods = [_planned_pod(plan, answer) for answer in plan.answers]
    return document


def plan_json(plan: AnyPlan) -> Iterator[str]:
    """Yield the document as indented JSON, pod by pod: of a hundred thousand pods the whole would be most of memory."""
    return json_with_pods(_without_pods(plan), (plan,), "  ")


def json_with_pods(document: object, plans: Sequence[AnyPlan], indent: str) -> Iterator[str]:
    """Yield a document that has plans without their pods as indented JSON with them, pod by pod.

    Args:
        document: has the documents of the plans.
        plans: in the order in which it has them.
        indent: of their members.
    """
    empty = f'\n{indent}"pods": []'
    before, *parts = f"{json_text(document)}\n".split(empty)
    yield before
    for plan, after in zip(plans, parts, strict=True):
        if isinstance(plan, RefusedPlan) or not plan.answers:
            yield f"{empty}{after}"
            continue
        yield empty[:-1]
        for number, answer in enumerate(plan.answers):
            one = json_text(_planned_pod(plan, answer)).replace("\n", f"\n{indent}  ")
            yield f"{',' if number else ''}\n{indent}  {one}"
            # Texts list all pods so far: kept, they take the square of these. A rejected pod does not change them.
            kept = plan.answers[number + 1].files if number + 1 < len(plan.answers) else ()
            for file in answer.files:
                if isinstance(file, DeferredText) and not any(file is one for one in kept):
                    file.forget()
        yield f"\n{indent}]{after}"


def _without_pods(plan: AnyPlan) -> parts.PlanDocument:
    head: dict[str, Any] = {
        "kubelet": plan.release.tag,
        "machine": plan.machine.name,
        "findings": parts.finding_parts(plan.findings),
        "pods": [],
    }
    if isinstance(plan, RefusedPlan):
        return parts.PlanDocument(
            **head,
            shared_pool="",
            start_error=plan.refusal.message,
            start_error_stage=plan.refusal.stage,
            start_error_code=plan.refusal.code,
            remedy=plan.remedy,
        )
    node = plan.kubelet.node
    return parts.PlanDocument(
        **head,
        **(_offline_members(node) if node.cpu.offline or node.cpu.displaced else {}),
        shared_pool=str(node.shared_pool),
        reserved=str(reserved_cpus(plan.kubelet)),
        numa_nodes=numa_parts(plan.kubelet),
        unasked=[pod_part(pod) for pod in plan.unasked] or UNSET,
    )


def pod_part(pod: Pod) -> parts.PodPart:
    """Return the name of a pod."""
    return parts.PodPart(pod.uid, pod.namespace, pod.name)


def _planned_pod(plan: Plan, answer: Answer) -> parts.PlannedPodPart:
    decision, settings, providers = answer.decision, plan.kubelet.settings, plan.kubelet.node.providers
    mixed = mixed_containers(settings, providers, answer.pod) if answer.admitted else ()
    return parts.PlannedPodPart(
        uid=decision.uid,
        namespace=decision.namespace,
        name=decision.name,
        why=answer.why,
        code=answer.code,
        remedy=answer.remedy,
        assumed=list(answer.assumed) or UNSET,
        running=answer.running or UNSET,
        left=answer.pod.uid in plan.left or UNSET,
        endless=UNSET if decision.endless is None else decision.endless.defect,
        crash=answer.crash or UNSET,
        **_decision_members(decision),
        hidden={name: str(cpus) for name, cpus in decision.hidden.items()} or UNSET,
        devices=held_devices(decision) or UNSET,
        cpu_manager_state=read(answer.cpu_file) or "",
        memory_manager_state=(memory := read(answer.memory_file)) or "",
        memory_manager_state_admitted=UNSET
        if (decided := read(answer.memory_file_decided)) == memory
        else decided or "",
        mixed=list(mixed) or UNSET,
    )
