"""Why a pod was placed, shared, rejected or not resized, in one sentence with its code; and if a node would admit it.

Made from the facts that the engine reported during the decision and from the machine; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import OUT_OF, Rejection
from mooring.engine.core.pod import Pod, PodLevelGates, QoS
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.extensions import cpu_resize, memory_resize
from mooring.engine.kubelet import admit as admitting
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, Load, PodShape, admit, decide, out_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision, admission
from mooring.engine.node.resources import BEYOND_NODE, BY_CPU_POLICY, BY_MEMORY_POLICY
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.merge import NONE
from mooring.explanations import codes as code
from mooring.explanations.chapters import POD_LEVEL_MANAGERS, Circumstances, devices_of, follows_words, why_left_out
from mooring.explanations.codes import Reason
from mooring.explanations.phrases import joined, nodes, nodes_of, plural, size
from mooring.explanations.remarks import spoken_remarks
from mooring.explanations.why_allocation import why_affinity, why_smt, why_unexpected, with_withheld
from mooring.explanations.why_resources import why_empty_shared_pool
from mooring.lazy import dataclass, replace

_ACCEPTED = "The resource managers admit it, but"
"""Begins every sentence about the node resources check, which comes after the managers."""

_WHOLE_NUMBER = "For exclusive CPUs: request a whole number of them."


def why(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for one decision of the managers."""
    if decision.endless is not None:
        return Reason(
            code.NEVER_RETURNS,
            f"The kubelet never returns from this admission (known defect {decision.endless.defect}); "
            "nothing is decided.",
            "Restart the kubelet without distribute-cpus-across-numa, or drain the node first so that no core is "
            "half used.",
        )
    if decision.admitted:
        return _why_admitted(decision, circumstances)
    match decision.reason:
        case "SMTAlignmentError":
            reason = why_smt(decision, circumstances)
        case "EmptyPodSharedPoolError":
            reason = why_empty_shared_pool(circumstances)
        case admission.TOPOLOGY_AFFINITY_ERROR:
            reason = why_affinity(decision, circumstances)
        case admitting.POD_LEVEL_NOT_SUPPORTED:
            reason = Reason(
                code.NO_POD_LEVEL_RESOURCES,
                "It has resources of its own, and the gate PodLevelResources of the kubelet is off.",
                "Turn the gate on, or leave spec.resources out.",
            )
        case _:
            reason = why_unexpected(decision, circumstances)
    return reason if circumstances.settings.plugins is None else with_withheld(reason, circumstances.facts)


def why_crash(crash: str) -> Reason:
    """Return the reason for a pod on which the kubelet crashes."""
    return Reason(
        code.CRASHES,
        f"The kubelet crashes on this admission: {crash.removesuffix(': the kubelet crashes here')}.",
        "Keep the pod away from this node: the kubelet crashes again on every attempt.",
    )


def why_out_of(rejection: Rejection) -> Reason:
    """Return the reason for a refusal of the node resources check, which comes after the managers."""
    short = rejection.shortage
    if short is None:
        return Reason(code.OUT_OF_ANOTHER_RESOURCE, f"{_ACCEPTED} too little of the resource is left on the node.")
    resource, requested, used, capacity = short.resource, short.requested, short.used, short.capacity
    if resource == "pods":
        return Reason(
            code.OUT_OF_PODS,
            f"{_ACCEPTED} the node already runs {used} pods, and runs {capacity} at most (maxPods, podsPerCore).",
            "Remove a pod, or raise the lower one of maxPods and podsPerCore times the CPUs.",
        )
    known = {"cpu": code.OUT_OF_CPU, "memory": code.OUT_OF_MEMORY}.get(resource, code.OUT_OF_ANOTHER_RESOURCE)
    asks = f"{_ACCEPTED} it requests {amount_of(resource, requested)}"
    advice = f"Request less, or {'use a larger node' if requested > capacity else 'remove a pod'}."
    if not used:
        sentence = f"{asks}, more than the {amount_of(resource, capacity)} that are allocatable on the node."
    else:
        left, whole = (amount_of(resource, amount, of=False) for amount in (max(capacity - used, 0), capacity))
        sentence = f"{asks}, and the node has only {left} of its allocatable {whole} left."
    return Reason(known, sentence, advice)


def amount_of(resource: str, amount: int, *, of: bool = True) -> str:
    """Return an amount in the units of the check: thousandths of a CPU, bytes, or pieces."""
    if resource == "cpu":
        number = f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
        return f"{number} CPU{'' if amount == 1000 else 's'}"
    in_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    text = size(amount) if in_bytes else str(amount)
    return f"{text} of {resource}" if of else text


def _why_admitted(decision: Decision, circumstances: Circumstances, shared: Reason | None = None) -> Reason:
    """Return the reason for what the managers accept.

    Args:
        decision: about a pod, or the part of it that is about one container.
        circumstances: of the decision.
        shared: why nothing of it has exclusive CPUs, as a clause; by default why no container of the pod has.
    """
    topology = circumstances.settings.topology
    held = [placement.cpus for placement in decision.containers.values() if placement.cpus]
    if not held or topology is None:
        why_shared = shared or _why_shared(circumstances)
        cpus = replace(why_shared, sentence=f"It runs in the shared pool: {why_shared.sentence}.")
    else:
        every = reduce(or_, held, CPUSet(decision.pod.cpus.mask))
        comes = "comes" if len(every) == 1 else "come"
        where = nodes(nodes_of(topology, every.mask))
        remarks = "".join(f"; {remark.sentence}" for remark in spoken_remarks(decision, circumstances, topology))
        sentence = f"Its {plural(len(every), 'exclusive CPU')} {comes} from {where}{remarks}."
        cpus = Reason(code.PARTITION if decision.pod.cpus else code.EXCLUSIVE_CPUS, sentence)
    parts = [cpus.sentence]
    tied = sorted({node for placement in decision.containers.values() for node in placement.mems})
    if tied:
        parts.append(f"Its memory is pinned to {nodes(tied)}.")
    for resource, devices in devices_of(decision).items():
        near = {node for device in devices.values() for node in device.numa or ()}
        gets = f"It gets {joined(list(devices))} of {resource}"
        where = f" on {nodes(near)}" if near else ""
        parts.append(f"{gets}{where}{follows_words(resource, circumstances.chapters)}.")
    return Reason(cpus.code, " ".join(parts), cpus.remedy)


def why_container(decision: Decision, circumstances: Circumstances, container: str) -> Reason | None:
    """Return the reason for what one container of an admitted pod has; None where the reason for the pod is its own.

    It is where no container has exclusive CPUs, and where the pod has them as a whole.
    """
    if decision.pod.cpus or not any(placement.cpus for placement in decision.containers.values()):
        return None
    because = next((one.because for one in circumstances.chapters if one.container == container), None)
    if because is None:
        return None
    alone = replace(
        decision,
        containers={container: decision.containers[container]},
        devices={name: devices for name, devices in decision.devices.items() if name == container},
    )
    return _why_admitted(alone, circumstances, Reason(code.SHARED_BY_AMOUNT, because, _WHOLE_NUMBER))


def _why_shared(circumstances: Circumstances) -> Reason:
    """Return why no container of the pod has exclusive CPUs; the sentence is a clause."""
    pod, settings = circumstances.pod, circumstances.settings
    if settings.cpu is None:
        return Reason(
            code.SHARED_BY_POLICY,
            "the CPU manager policy is none, so no container gets exclusive CPUs",
            "For exclusive CPUs: set cpuManagerPolicy to static, reserve CPUs for the system, and drain the node.",
        )
    if pod.qos is not QoS.GUARANTEED:
        return Reason(
            code.SHARED_BY_QOS,
            f"its QoS class is {pod.qos.value}{_qos_faults(pod, settings.pod_level)}, and only Guaranteed pods get "
            "exclusive CPUs",
            _for_guaranteed(pod, settings.pod_level),
        )
    if settings.pod_level.leaves_out(pod):
        has_gate = POD_LEVEL_MANAGERS in settings.gates.values
        or_enable = f", or enable the feature gate {POD_LEVEL_MANAGERS}" if has_gate else ""
        return Reason(
            code.SHARED_BY_GATE,
            f"it has pod-level resources, and {why_left_out(settings)}",
            f"For exclusive CPUs: remove spec.resources{or_enable}.",
        )
    if any(exclusive_cpus(pod, container, settings.pod_level) < 0 for container in pod.containers):
        return Reason(
            code.SHARED_BY_AMOUNT,
            "a cpu request exceeds 64 bits, so that the kubelet counts a negative number of CPUs and allocates none",
            "For exclusive CPUs: request a whole number of them that a machine can have.",
        )
    if settings.pod_level.manages(pod):
        as_a_whole = settings.pod_scope and settings.topology_policy != NONE
        who = "the pod as a whole does not request a" if as_a_whole else "no container requests a"
        clause = f"{who} whole number of CPUs" + ("" if as_a_whole else " with requests equal to limits")
    else:
        clause = "no container requests a whole number of CPUs"
    return Reason(code.SHARED_BY_AMOUNT, clause, _WHOLE_NUMBER)


def _qos_faults(pod: Pod, gates: PodLevelGates) -> str:
    """Return which containers, by which amounts, keep a pod from being Guaranteed, in parentheses."""
    owners = [(one.name, one.requests, one.limits) for one in pod.containers]
    if gates.resources and pod.is_pod_level and pod.resources is not None:
        owners = [("spec.resources", pod.resources.requests, pod.resources.limits)]
    found: dict[tuple[str, ...], list[str]] = {}
    for owner, requests, limits in owners:
        absent = [name for name in ("cpu", "memory") if not (name in limits and limits[name].nano)]
        faults = [f"no {joined(absent)} limit{'s' if len(absent) > 1 else ''}"] if absent else []
        faults += [
            f"a {name} request of {requests.get(name, 0)} below the limit of {limits[name]}"
            for name in ("cpu", "memory")
            if name not in absent and requests.get(name) != limits[name]
        ]
        if faults:
            found.setdefault(tuple(faults), []).append(owner)
    parts = [
        f"{joined(names)} {'has' if len(names) == 1 else 'have'} {joined(faults)}" for faults, names in found.items()
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _for_guaranteed(pod: Pod, gates: PodLevelGates) -> str:
    """Return what makes a pod Guaranteed; pod-level resources, where there are some, alone decide that."""
    containers = (
        "give every container, including init containers and sidecars, cpu and memory limits, and either no requests "
        "or equal ones"
    )
    if not (gates.resources and pod.is_pod_level):
        return f"For exclusive CPUs: {containers}."
    if gates.leaves_out(pod):
        return f"For exclusive CPUs: remove spec.resources, and {containers}."
    return "For exclusive CPUs: set cpu and memory in spec.resources, with requests equal to the limits."


_NOT_RESIZED: dict[str, Reason] = {
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
    cpu_resize.PROHIBITED: Reason(
        code.BELOW_BASELINE,
        "The container would have fewer CPUs than it got when it was admitted, and these it keeps.",
        "Request at least as many, or recreate the pod.",
    ),
    cpu_resize.HIDDEN_SIBLINGS: Reason(
        code.HIDDEN_SIBLINGS,
        "The other threads of the container's cores are hidden, and they are chosen with the CPUs, once.",
        "Recreate the pod with the number of CPUs that it needs.",
    ),
    cpu_resize.INCONSISTENT: Reason(
        code.BETWEEN_POOLS,
        "A running container cannot move between the shared pool and CPUs of its own.",
        "Request a whole number of CPUs where it has its own, and for a fraction where it has none.",
    ),
    cpu_resize.NO_BASELINE: Reason(
        code.WITHOUT_BASELINE,
        "The state does not record the container's baseline.",
        "Restart the kubelet with InPlacePodVerticalScalingExclusiveCPUs, or recreate the pod.",
    ),
    cpu_resize.NOT_RESIZED: Reason(
        code.NO_ROOM_BESIDE,
        "The CPUs that are missing cannot be taken beside those that the container has.",
        "Request less, or remove a pod.",
    ),
    admission.TOPOLOGY_AFFINITY_ERROR: Reason(
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


def why_not_resized(rejection: Rejection, settings: Settings, changed: Pod) -> Reason:
    """Return why a pod is not resized in place.

    Args:
        rejection: of the resize.
        settings: of the kubelet.
        changed: the pod with the resources that it is to have.
    """
    known = _NOT_RESIZED.get(rejection.reason)
    is_policy = rejection.reason in (BY_CPU_POLICY, BY_MEMORY_POLICY)
    if is_policy and settings.release.rules.static_policies_refuse_every_resize:
        sentence = "Up to v1.33 the static policies refuse every resize of a Guaranteed pod, whatever changes."
        return replace(_NOT_RESIZED[BY_CPU_POLICY], sentence=sentence)
    if known is not None:
        return known
    if rejection.shortage is not None and rejection.reason == BEYOND_NODE:
        # More than the whole node has, which kubelets up to v1.35 refuse for good
        short = rejection.shortage
        asked, has = (amount_of(short.resource, amount) for amount in (short.requested, short.capacity))
        return Reason(
            code.OUT_OF_CPU if short.resource == "cpu" else code.OUT_OF_MEMORY,
            f"The pod would request {asked}, more than the {has} that the whole node has for pods.",
            "Request less, or use a larger node.",
        )
    if rejection.reason.startswith(OUT_OF):
        found = why_out_of(rejection)
        sentence = found.sentence.replace(_ACCEPTED, "No resource manager objects, but")
        return Reason(found.code, sentence, found.remedy)
    if rejection.reason == "SMTAlignmentError":
        cpu = settings.cpu
        if cpu and any(exclusive_cpus(changed, one, cpu.gates) % cpu.group_size for one in changed.containers):
            return Reason(
                code.NO_WHOLE_CORES, "With full-pcpus-only CPUs come as whole cores.", "Request the next multiple."
            )
        return Reason(code.TOO_FEW_WHOLE_CORES, "Too few CPUs on whole cores are free.", "Request less.")
    return Reason(code.RESIZE_NOT_SERVED, "A resource manager cannot give the pod what it requests.")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a node's kubelet would do with a pod."""

    code: str = ""
    """Of the cause of a refusal; empty when it admits the pod."""
    reason: str = ""
    """The kubelet's reason of a refusal; empty when it would crash or never return."""

    @property
    def admitted(self) -> bool:
        """Whether it would admit the pod."""
        return not self.code


ADMITTED = Prediction()


def predicted(kubelet: Kubelet, pod: Pod) -> tuple[Kubelet, Prediction]:
    """Ask the managers of a node.

    Returns:
        The kubelet with the pod, its containers started; of no use when it is refused.
    """
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.admitted:
        return after, ADMITTED
    facts: list[object] = []
    if not result.crash:
        decide(kubelet, pod, observer=facts.append)
    return after, prediction_of(result, after, facts)


def prediction_of(result: AdmitResult, after: Kubelet, facts: Sequence[object]) -> Prediction:
    """Return an answer about a pod as a prediction.

    Args:
        result: the answer.
        after: the kubelet that gave it.
        facts: what the engine found meanwhile.
    """
    if result.admitted:
        return ADMITTED
    kubelet_reason = result.decision.reason if result.out_of is None else result.out_of.reason
    return Prediction(reason_of(result, after, facts).code, "" if result.crash else kubelet_reason)


def reason_of(result: AdmitResult, after: Kubelet, facts: Sequence[object]) -> Reason:
    """Return why a pod is not admitted; arguments as for :func:`prediction_of`."""
    if result.crash:
        return why_crash(result.crash)
    if result.out_of is not None:
        return why_out_of(result.out_of)
    node = after.node
    circumstances = Circumstances(after.settings, result.pod, facts, node.memory, node.providers.devices)
    return why(result.decision, circumstances)


def check(shape: PodShape, load: Load, settings: Settings) -> Prediction:
    """Make the node resources check."""
    refused = out_of(shape.requests, dict(load.used), load.pods, settings)
    return ADMITTED if refused is None else Prediction(why_out_of(refused).code, refused.reason)
