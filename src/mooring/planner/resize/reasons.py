"""Why a resize is refused, with a stable code and plain words.

The kubelet's own words stand beside them and are told letter for letter.
"""

from __future__ import annotations

from mooring.core.decision import Rejection
from mooring.explain import reason as code
from mooring.explain.reason import Reason
from mooring.explain.why import ACCEPTED, why_out_of
from mooring.extensions import cpu_change, cpu_resize, memory_resize
from mooring.node.admission import TOPOLOGY_AFFINITY_ERROR

_REASONS: dict[str, Reason] = {
    "guaranteed_pod_cpu_manager_static_policy": Reason(
        code.RESIZE_BY_POLICY,
        "Under CPU manager policy static the CPU of a Guaranteed pod cannot be resized.",
        "Create the pod anew, or switch on InPlacePodVerticalScalingExclusiveCPUs and the extension exclusive-resize.",
    ),
    "guaranteed_pod_memory_manager_static_policy": Reason(
        code.RESIZE_BY_POLICY,
        "Under memory manager policy Static the memory of a Guaranteed pod cannot be resized.",
        "Create the pod anew, or switch on InPlacePodVerticalScalingExclusiveMemory and the extension "
        "exclusive-resize.",
    ),
    "plr_feature_gate_off": Reason(
        code.NO_POD_LEVEL_RESIZE,
        "Resources of the pod as a whole cannot be resized on this node.",
        "Switch on InPlacePodLevelResourcesVerticalScaling, or resize the containers.",
    ),
    cpu_change.PROHIBITED: Reason(
        code.BELOW_BASELINE,
        "The container would have fewer CPUs than it got when it was admitted, and these it keeps.",
        "Ask for at least as many, or create the pod anew.",
    ),
    cpu_change.HIDDEN_SIBLINGS: Reason(
        code.HIDDEN_SIBLINGS,
        "The other threads of the container's cores are hidden, and they are chosen with the CPUs, once.",
        "Create the pod anew with the number of CPUs that it is to have.",
    ),
    cpu_change.INCONSISTENT: Reason(
        code.BETWEEN_POOLS,
        "A running container cannot move between the shared pool and CPUs of its own.",
        "Ask for a whole number of CPUs where it has its own, and for a fraction where it has none.",
    ),
    cpu_change.NO_BASELINE: Reason(
        code.WITHOUT_BASELINE,
        "The state does not tell which CPUs the container got at first.",
        "Restart the kubelet with InPlacePodVerticalScalingExclusiveCPUs, or create the pod anew.",
    ),
    cpu_resize.NOT_RESIZED: Reason(
        code.NO_ROOM_BESIDE,
        "The CPUs that are missing cannot be taken beside those that the container has.",
        "Ask for less, or remove a pod.",
    ),
    TOPOLOGY_AFFINITY_ERROR: Reason(
        code.NO_ROOM_BESIDE,
        "The pod keeps what it has, and the topology manager finds no place around that which its policy accepts.",
        "Ask for less, or remove a pod from the same NUMA nodes.",
    ),
    memory_resize.PROHIBITED: Reason(
        code.LESS_MEMORY,
        "The container has memory of NUMA nodes to itself, which cannot shrink while it runs.",
        "Leave the memory as it is, or create the pod anew.",
    ),
}
"""By the detail that the engine gives, or by the kubelet's reason."""


def why_refused(rejection: Rejection) -> Reason:
    """Return why a resize was refused."""
    known = _REASONS.get(rejection.reason)
    if known is not None:
        return known
    if rejection.reason.startswith("OutOf"):
        found = why_out_of(rejection)
        sentence = found.sentence.replace(ACCEPTED, "No resource manager objects, but")
        return Reason(found.code, sentence, found.remedy)
    if rejection.reason == "SMTAlignmentError":
        if "not multiple" in rejection.message:
            return Reason(
                code.NO_WHOLE_CORES, "With full-pcpus-only CPUs come as whole cores.", "Ask for the next multiple."
            )
        return Reason(code.TOO_FEW_WHOLE_CORES, "Too few CPUs on whole cores are free.", "Ask for less.")
    return Reason(code.RESIZE_NOT_SERVED, "A resource manager cannot give the pod what it asks for.")
