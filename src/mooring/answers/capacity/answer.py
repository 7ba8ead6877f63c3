"""``mooring capacity``: how many more fit, where, what stops the next, fragmentation, and evictions that help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from msgspec import field, structs

from mooring.answers.base.answering import Answer, answered
from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, make_plan, start_error
from mooring.answers.base.plan_document import held_devices, placement_part
from mooring.answers.base.plan_findings import claim_findings, device_findings, pool_findings
from mooring.answers.capacity.eviction import MOST, EvictionPart, Subject, default_limit, evictions, replica
from mooring.answers.capacity.fragmentation import FragmentationPart, fragmentation
from mooring.documents import plan as parts
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import emptied
from mooring.engine.node import Decision
from mooring.engine.node.resources import pod_requests
from mooring.explanations.chapters import Circumstances
from mooring.explanations.probes import place_of, placed

ADMITTED = "admitted"
ALIGNED = "aligned"

EMPTY_REFUSES = "even the empty node refuses it"
NOBODY = "no other pod is on the node"
NOTHING_FOUND = "no eviction was found"


_BY_RESOURCE = parts.told("One object a resource.")


class ShapePart(parts.DocumentPart):
    """The pod that is counted."""

    namespace: str
    name: str
    qos: parts.QoSName
    requests: Annotated[dict[str, int], parts.told("cpu in millicores, all else in whole units.")]


class ReplicaPart(parts.DocumentPart):
    """One pod that fits."""

    name: str
    cpus: parts.CPUList
    cpu_nodes: Annotated[parts.Numbers, parts.told("NUMA nodes of its CPUs.")]
    memory_nodes: Annotated[parts.Numbers, parts.told("NUMA nodes of its memory.")]
    numa_nodes: Annotated[parts.Numbers, parts.told("All NUMA nodes that it is on.")]
    aligned: Annotated[bool | None, parts.told("Whether it touches no more NUMA nodes than it would on an empty node.")]
    containers: dict[str, parts.PlacementPart]
    devices: parts.HeldDeviceTable


Replica: TypeAlias = tuple[Pod, Decision, ReplicaPart]


class NextReplicaPart(parts.DocumentPart):
    """The first pod that does not fit."""

    name: str
    reason: str
    message: str
    why: str
    code: parts.Code
    endless: Annotated[str, parts.told("The name of the defect when the kubelet would never return, else empty.")]
    crash: Annotated[str, parts.told("Why the kubelet would crash, else empty.")]


class AdvicePart(parts.DocumentPart):
    """Which pods to move so that one more fits, or fits on one NUMA node."""

    goal: Annotated[str, parts.one_of("admitted", "aligned"), parts.told("That one more is admitted, or aligned.")]
    replica: Annotated[parts.Count, parts.told("The number of that replica, from 1.")]
    evictions: list[EvictionPart]
    remark: Annotated[str, parts.told("Why there are no evictions.")]


class CapacityDocument(parts.DocumentPart, kw_only=True):
    """What mooring capacity -o json prints: how many more pods of a shape fit."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Capacity"] = "Capacity"
    kubelet: parts.KubeletRelease
    machine: str
    start_error: Annotated[str, parts.told("The kubelet's message if it would not start; else empty.")]
    shape: ShapePart
    count: Annotated[parts.Count, parts.told("How many more fit.")]
    at_least: Annotated[parts.Count, parts.told("How many had to fit.")]
    enough: Annotated[bool, parts.told("Whether at least atLeast fit.")]
    limit: parts.Count
    limited: Annotated[bool, parts.told("Whether counting ended at the limit.")] = False
    replicas: list[ReplicaPart] = field(default_factory=list)
    next: Annotated[
        NextReplicaPart | None,
        parts.told("The first replica that does not fit; null if counting ended at the limit, or none was tried."),
    ] = None
    fragmentation: Annotated[list[FragmentationPart], parts.told("One object a resource.")] = field(
        default_factory=list
    )
    advice: list[AdvicePart] = field(default_factory=list)
    findings: list[parts.FindingPart]


class LargestRequestsDocument(parts.DocumentPart, kw_only=True):
    """What mooring capacity -o json prints without a shape: the largest requests that the node still takes."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["LargestRequests"] = "LargestRequests"
    kubelet: parts.KubeletRelease
    machine: str
    start_error: Annotated[str, parts.told("The kubelet's message if it would not start; else empty.")]
    resources: Annotated[list[FragmentationPart], _BY_RESOURCE]
    findings: list[parts.FindingPart]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer, and the node before and after."""

    shape: Pod
    plan: AnyPlan
    """The node before the first replica, and how it came to be."""
    after: AnyPlan
    """The node with all replicas, and the refused one."""
    document: CapacityDocument
    itself: bool = False
    """Whether the pod is one of those given, and the first to be counted."""

    @property
    def can_be_asked(self) -> bool:
        """Tell whether there is a kubelet that could admit anything."""
        return askable(self.plan) is not None

    @property
    def replicas(self) -> tuple[Answer, ...]:
        """The answers for the replicas that fit."""
        before = len(self.plan.answers)
        return self.after.answers[before : before + self.document.count]


def askable(plan: AnyPlan) -> Kubelet | None:
    """Return the kubelet after a plan, if there is one that could admit anything."""
    if isinstance(plan, RefusedPlan) or (plan.answers and plan.answers[-1].decision.endless is not None):
        return None
    return plan.kubelet.counting(plan.kubelet.used)


def largest_requests(question: Question) -> tuple[AnyPlan, LargestRequestsDocument]:
    """Return the node after the pods of a question, and the largest requests that it still takes."""
    plan = make_plan(question)
    now = askable(plan)
    resources = fragmentation(now, emptied(now, now.node.cpu.offline)) if now is not None else []
    return plan, LargestRequestsDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=start_error(plan),
        resources=resources,
        findings=parts.finding_parts(plan.findings),
    )


def capacity_of(subject: Subject, limit: int | None = None, at_least: int = 1) -> Capacity:
    """Admit replicas of a pod until the kubelet says no, and look at what is left.

    Args:
        subject: the pod, and the question about the node without it.
        limit: how many replicas at most; None for :func:`~mooring.answers.capacity.eviction.default_limit`.
        at_least: how many have to fit.
    """
    pod, question = subject.pod, subject.question
    limit = at_least if limit is None and at_least > MOST else limit
    plan = make_plan(question)
    known = {finding.subject for finding in plan.findings}
    unknown = [finding for finding in device_findings([pod], question.devices) if finding.subject not in known]
    if isinstance(plan, Plan):
        assumed = claim_findings([pod], plan.kubelet, question.claimed)
        unknown += [finding for finding in assumed if finding not in plan.findings]
    plan = replace(plan, findings=(*plan.findings, *unknown))
    document = CapacityDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=start_error(plan),
        shape=ShapePart(pod.namespace, pod.name, pod.qos.value, pod_requests(pod)),
        count=0,
        at_least=at_least,
        enough=at_least == 0,
        limit=limit or 0,
        findings=parts.finding_parts(plan.findings),
    )
    now = askable(plan)
    if isinstance(plan, RefusedPlan) or now is None:
        return Capacity(pod, plan, plan, document, itself=subject.itself)
    empty = emptied(now, now.node.cpu.offline)
    limit = default_limit(now) if limit is None else limit
    on_empty = placed(empty, pod) if empty is not None else None
    fewest = max(len(on_empty.nodes), 1) if on_empty is not None else 1
    found, full, refused, before_spread = _count(now, pod, limit, fewest)
    stopped = answered(full, refused, AdmitMode.TRIAL)[1] if refused is not None else None
    after = _with_replicas(plan, found, full, stopped)
    findings = [*plan.findings]
    if after.emptied_pool is not None and after.emptied_pool not in findings:
        findings.append(after.emptied_pool)
    running, advice = list(now.node.active.values()), list[AdvicePart]()
    spread = next((number for number, (*_, part) in enumerate(found, 1) if not part.aligned), 0)
    if spread and before_spread is not None:
        wanted = found[spread - 1][0]

        def is_aligned(kubelet: Kubelet) -> bool:
            place = placed(kubelet, wanted)
            return place is not None and len(place.nodes) <= fewest

        options = evictions(before_spread, running, wanted, is_aligned)
        advice.append(AdvicePart(ALIGNED, spread, options, _remark(options, running)))
    if refused is not None and on_empty is None:
        advice.append(AdvicePart(ADMITTED, len(found) + 1, [], EMPTY_REFUSES))
    elif refused is not None:
        options = evictions(full, running, refused, lambda kubelet: placed(kubelet, refused) is not None)
        advice.append(AdvicePart(ADMITTED, len(found) + 1, options, _remark(options, running)))
    document = structs.replace(
        document,
        count=len(found),
        enough=len(found) >= at_least,
        limit=limit,
        limited=stopped is None,
        replicas=[part for *_, part in found],
        next=None
        if stopped is None
        else NextReplicaPart(
            name=stopped.pod.name,
            reason=stopped.decision.reason,
            message=stopped.decision.message,
            why=stopped.why,
            code=stopped.code,
            endless=stopped.decision.endless.defect if stopped.decision.endless is not None else "",
            crash=stopped.crash,
        ),
        fragmentation=fragmentation(now, empty),
        advice=advice,
        findings=parts.finding_parts(findings),
    )
    return Capacity(pod, plan, after, document, itself=subject.itself)


def _count(
    kubelet: Kubelet, pod: Pod, limit: int, fewest_nodes: int
) -> tuple[list[Replica], Kubelet, Pod | None, Kubelet | None]:
    """Admit replicas until one is refused or ``limit`` is reached.

    Returns:
        Those that fit; the node with all of them; the one that no longer fits, or None when the limit came first; the
        node before the first that is not aligned, or None when all are.

    Args:
        kubelet: of the node now.
        pod: the shape.
        limit: how many at most.
        fewest_nodes: NUMA nodes that the pod touches on an empty node.
    """
    found: list[Replica] = []
    before_spread: Kubelet | None = None
    for number in range(1, limit + 1):
        one = replica(pod, number, kubelet.node.active)
        after, result = admit(kubelet, one, AdmitMode.TRIAL)
        if not result.admitted:
            return found, kubelet, one, before_spread
        place = place_of(result.decision, kubelet.settings.topology)
        aligned = len(place.nodes) <= fewest_nodes
        if not aligned and before_spread is None:
            before_spread = kubelet
        part = ReplicaPart(
            name=one.name,
            cpus=str(place.cpus),
            cpu_nodes=list(place.cpu_nodes),
            memory_nodes=list(place.memory_nodes),
            numa_nodes=list(place.nodes),
            aligned=aligned,
            containers={name: placement_part(placement) for name, placement in result.decision.containers.items()},
            devices=held_devices(result.decision),
        )
        found.append((one, result.decision, part))
        kubelet = after
    return found, kubelet, None, before_spread


def _with_replicas(plan: Plan, replicas: Iterable[Replica], kubelet: Kubelet, stopped: Answer | None) -> Plan:
    """Return the plan as if the replicas had been part of it; state files are left as they were."""
    answers = [
        Answer(
            pod,
            decision,
            "",
            plan.kubelet.node.providers,
            Circumstances(plan.kubelet.settings, pod, (), kubelet.node.memory),
        )
        for pod, decision, _ in replicas
    ]
    return replace(
        plan,
        answers=(*plan.answers, *answers, *([stopped] if stopped else [])),
        kubelet=kubelet,
        findings=(*plan.findings, *([] if plan.emptied_pool else pool_findings(plan.kubelet, answers, kubelet))),
    )


def _remark(options: Sequence[EvictionPart], running: Sequence[Pod]) -> str:
    if options:
        return ""
    return NOTHING_FOUND if running else NOBODY
