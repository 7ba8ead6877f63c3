"""What would happen if a pod were resized in place on a node, after the given pods were admitted: ``mooring resize``.

Nothing is guessed: the engine decides about the resize and about every size that is tried. A refusal has a stable code
and plain words; the kubelet's own message stands beside them letter for letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Literal

from msgspec import field, structs

from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, make_plan, start_error
from mooring.answers.base.pods import Named, find, pods_of
from mooring.answers.resize.sizes import CPU, LargestAmountsPart, Wanted, asking, largest_of, resize_advice, resizing_of
from mooring.documents import plan as parts
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import OUT_OF, Placement, Rejection
from mooring.engine.core.errors import InputError
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.cpumanager.state import PreAssignment
from mooring.engine.extensions import cpu_resize, memory_resize
from mooring.engine.extensions import cpu_resize as cpu_change
from mooring.engine.kubelet.events import Resizing
from mooring.engine.kubelet.kubelet import Kubelet, shared_cpus
from mooring.engine.node.admission import TOPOLOGY_AFFINITY_ERROR
from mooring.engine.node.resizing import resize_state
from mooring.engine.node.resources import BEYOND_NODE, BY_CPU_POLICY, BY_MEMORY_POLICY, delay_left
from mooring.engine.node.settings import Settings
from mooring.explanations import reason as code
from mooring.explanations.phrases import plural
from mooring.explanations.reason import Reason
from mooring.explanations.why import ACCEPTED, why_beyond_node, why_out_of
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import resized_pod


class ResizedPlacePart(parts.DocumentPart):
    """Exclusive CPUs and NUMA nodes of the memory."""

    cpus: parts.CPUList
    mems: parts.NodeList


class PendingReleasePart(parts.DocumentPart):
    """A release that waits for its delay."""

    cpus: Annotated[parts.CPUList, parts.told("What it has when the delay is over.")]
    delay_milliseconds: parts.Count


class ResizedContainerPart(parts.DocumentPart):
    """A container of the pod."""

    name: str
    has: Annotated[dict[str, str], parts.told("Requests of cpu and memory before.")]
    asks: Annotated[dict[str, str], parts.told("The request; empty for a container that is not resized.")]
    before: Annotated[
        ResizedPlacePart | None,
        parts.told("Exclusive CPUs and NUMA nodes of the memory before; null when the pod does not run."),
    ] = None
    after: Annotated[
        ResizedPlacePart | None, parts.told("The same afterwards; CPUs that are released later are still included.")
    ] = None
    baseline: Annotated[parts.CPUList, parts.told("The baseline: what it got at admission; it never has less.")] = ""
    pending: Annotated[PendingReleasePart | None, parts.told("A release that waits for its delay.")] = None
    largest: Annotated[
        LargestAmountsPart | None,
        parts.told("The largest amounts that it can have now; null for what was not asked about."),
    ] = None


class ResizeDocument(parts.DocumentPart, kw_only=True):
    """What mooring resize -o json prints: what would happen if a pod were resized in place."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Resize"] = "Resize"
    kubelet: parts.KubeletRelease
    machine: str
    start_error: Annotated[str, parts.told("The kubelet's message when it would not start.")]
    uid: str
    namespace: str
    name: str
    qos: parts.QoSName
    runs: Annotated[bool, parts.told("Whether the pod runs on the node.")] = False
    not_running: Annotated[str, parts.told("Why it does not.")]
    accepted: Annotated[bool, parts.told("Whether it gets what is requested, or has it already.")] = False
    condition: Annotated[str, parts.one_of("", "PodResizePending", "PodResizeInProgress")] = ""
    reason: Annotated[str, parts.one_of("", "Deferred", "Infeasible")] = ""
    message: Annotated[str, parts.told("The kubelet's words.")] = ""
    refused_by: Annotated[str, parts.told("The reason of the check that refused it, such as OutOfcpu.")] = ""
    code: parts.Code = ""
    why: Annotated[str, parts.told("One sentence in plain words.")] = ""
    remedy: Annotated[str, parts.told("What can be done.")] = ""
    events: Annotated[list[str], parts.told("Names of the kubelet's events.")] = field(default_factory=list)
    containers: list[ResizedContainerPart]
    shared_pool: Annotated[parts.CPUList, parts.told("The shared pool afterwards.")] = ""
    findings: list[parts.FindingPart]


def resize_of(question: Question, name: str, asked: Iterable[Wanted]) -> tuple[AnyPlan, ResizeDocument]:
    """Admit the pods of a question, then resize one of them; return the node before it, and the answer.

    Args:
        question: about the node.
        name: ``[NAMESPACE/]POD[/CONTAINER]``; empty for the only pod.
        asked: amounts.

    Raises:
        InputError: the name means nothing or too much, or the API server refuses such a resize.
    """
    plan = make_plan(question)
    named = _named(plan, name)
    pod = named.pod
    wanted = resizing_of(pod, named.container, asked)
    asked_of, gates = wanted.containers, PodGates.of_node(question.config, question.mooring)
    changed = resized_pod(pod, wanted, gates)
    standing = next((one for one in plan.answers if one.pod.uid == pod.uid), None)
    document = ResizeDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=start_error(plan),
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=pod.qos.value,
        not_running=standing.why if standing is not None else "",
        containers=[
            ResizedContainerPart(
                one.name, _amounts(one.requests), _amounts(asked_of[one.name].requests) if one.name in asked_of else {}
            )
            for one in pod.containers
        ],
        findings=parts.finding_parts(plan.findings),
    )
    if isinstance(plan, RefusedPlan) or pod.uid not in plan.kubelet.node.active:
        return plan, document
    kubelet = plan.kubelet
    before = resize_state(kubelet.node, pod.uid).containers
    after, answer = kubelet.resize(changed)
    document = structs.replace(
        document,
        runs=True,
        not_running="",
        accepted=not answer.reason,
        condition=answer.condition,
        reason=answer.reason,
        message=answer.message,
        events=list(answer.events),
        containers=[
            structs.replace(
                part,
                before=_place(before[name]),
                after=_place(answer.containers[name]),
                baseline=str(answer.baseline.get(name, "")),
                pending=_pending(answer.releases[name], after.node.moment) if name in answer.releases else None,
                largest=largest_of(kubelet, pod, name, asked_of[name], gates) if name in asked_of else None,
            )
            for part in document.containers
            for name in (part.name,)
        ],
        shared_pool=str(shared_cpus(after)),
    )
    if answer.rejection is None:
        return plan, document
    why = _why_refused(answer.rejection, kubelet.settings, changed)
    remedy = resize_advice(why, question, kubelet, changed, lambda: _other_sizes(kubelet, pod, wanted, gates))
    refused_by = answer.rejection.reason
    return plan, structs.replace(document, refused_by=refused_by, code=why.code, why=why.sentence, remedy=remedy)


def _pending(release: PreAssignment, now: Moment) -> PendingReleasePart:
    return PendingReleasePart(str(CPUSet(release.cpus)), delay_left(release, now) // 10**6)


def _place(placement: Placement) -> ResizedPlacePart:
    return ResizedPlacePart(str(placement.cpus), ",".join(map(str, placement.mems)))


def _amounts(requests: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in requests.items() if name in ("cpu", "memory")}


def _named(plan: AnyPlan, name: str) -> Named:
    pods = pods_of(plan)
    if name:
        return find(pods, name)
    if len(pods) == 1:
        return Named(pods[0])
    if not pods:
        raise InputError("there is no pod to resize", source="POD", remedy="give pods with -f or --active")
    remedy = f"name one of them, such as {Named(pods[0]).full}"
    raise InputError(f"is missing, and there are {len(pods)} pods", source="POD", remedy=remedy)


def _other_sizes(kubelet: Kubelet, pod: Pod, wanted: Resizing, gates: PodGates) -> Iterator[str]:
    """Yield the number of CPUs nearest to the wanted one that is accepted, where only that is to change."""
    if len(wanted.containers) != 1:
        return
    ((name, amounts),) = wanted.containers.items()
    if list(amounts.requests) != [CPU]:
        return
    fits = asking(kubelet, pod, name, amounts, gates)
    now = next(one for one in pod.containers if one.name == name).requests.get(CPU, Quantity.of_milli(0)).milli // 1000
    asked = -(-amounts.requests[CPU].milli // 1000)
    most = kubelet.settings.reservation.allocatable(CPU) // 1000
    sizes = (count for count in range(1, most + 1) if count not in (now, asked) and (count > now) == (asked > now))
    for count in sorted(sizes, key=lambda one: (abs(one - asked), -one)):
        if fits(CPU, Quantity.of_milli(1000 * count)):
            yield f"request {plural(count, 'CPU')} for {name}"
            return


_REASONS: dict[str, Reason] = {
    BY_CPU_POLICY: Reason(
        code.RESIZE_BY_POLICY,
        "Under CPU manager policy static the CPU of a Guaranteed pod cannot be resized.",
        "Recreate the pod, or enable InPlacePodVerticalScalingExclusiveCPUs and the extension exclusive-resize.",
    ),
    BY_MEMORY_POLICY: Reason(
        code.RESIZE_BY_POLICY,
        "Under memory manager policy Static the memory of a Guaranteed pod cannot be resized.",
        "Recreate the pod, or enable InPlacePodVerticalScalingExclusiveMemory and the extension exclusive-resize.",
    ),
    "plr_feature_gate_off": Reason(
        code.NO_POD_LEVEL_RESIZE,
        "Resources of the pod as a whole cannot be resized on this node.",
        "Enable InPlacePodLevelResourcesVerticalScaling, or resize the containers.",
    ),
    cpu_change.PROHIBITED: Reason(
        code.BELOW_BASELINE,
        "The container would have fewer CPUs than it got when it was admitted, and these it keeps.",
        "Request at least as many, or recreate the pod.",
    ),
    cpu_change.HIDDEN_SIBLINGS: Reason(
        code.HIDDEN_SIBLINGS,
        "The other threads of the container's cores are hidden, and they are chosen with the CPUs, once.",
        "Recreate the pod with the number of CPUs that it needs.",
    ),
    cpu_change.INCONSISTENT: Reason(
        code.BETWEEN_POOLS,
        "A running container cannot move between the shared pool and CPUs of its own.",
        "Request a whole number of CPUs where it has its own, and for a fraction where it has none.",
    ),
    cpu_change.NO_BASELINE: Reason(
        code.WITHOUT_BASELINE,
        "The state does not record the container's baseline.",
        "Restart the kubelet with InPlacePodVerticalScalingExclusiveCPUs, or recreate the pod.",
    ),
    cpu_resize.NOT_RESIZED: Reason(
        code.NO_ROOM_BESIDE,
        "The CPUs that are missing cannot be taken beside those that the container has.",
        "Request less, or remove a pod.",
    ),
    TOPOLOGY_AFFINITY_ERROR: Reason(
        code.NO_ROOM_BESIDE,
        "The pod keeps what it has, and the topology manager finds no place around that which its policy accepts.",
        "Request less, or remove a pod from the same NUMA nodes.",
    ),
    memory_resize.PROHIBITED: Reason(
        code.LESS_MEMORY,
        "The container has memory of NUMA nodes to itself, which cannot shrink while it runs.",
        "Leave the memory as it is, or recreate the pod.",
    ),
}
"""By the detail that the engine gives, or by the kubelet's reason."""


def _why_refused(rejection: Rejection, settings: Settings, changed: Pod) -> Reason:
    """Return why a resize was refused."""
    known = _REASONS.get(rejection.reason)
    is_policy = rejection.reason in (BY_CPU_POLICY, BY_MEMORY_POLICY)
    if is_policy and settings.release.rules.static_policies_refuse_every_resize:
        sentence = "Up to v1.33 the static policies refuse every resize of a Guaranteed pod, whatever changes."
        return replace(_REASONS[BY_CPU_POLICY], sentence=sentence)
    if known is not None:
        return known
    if rejection.shortage is not None and rejection.reason == BEYOND_NODE:
        return why_beyond_node(rejection.shortage)
    if rejection.reason.startswith(OUT_OF):
        found = why_out_of(rejection)
        sentence = found.sentence.replace(ACCEPTED, "No resource manager objects, but")
        return Reason(found.code, sentence, found.remedy)
    if rejection.reason == "SMTAlignmentError":
        cpu = settings.cpu
        if cpu and any(exclusive_cpus(changed, one, cpu.gates) % cpu.group_size for one in changed.containers):
            return Reason(
                code.NO_WHOLE_CORES, "With full-pcpus-only CPUs come as whole cores.", "Request the next multiple."
            )
        return Reason(code.TOO_FEW_WHOLE_CORES, "Too few CPUs on whole cores are free.", "Request less.")
    return Reason(code.RESIZE_NOT_SERVED, "A resource manager cannot give the pod what it requests.")
