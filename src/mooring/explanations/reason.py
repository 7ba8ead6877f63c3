"""What became of a pod, in one value: a stable code, a sentence, and what can be done; and remedies of refused starts.

The codes 1xx are given here and nowhere else; each has a page (``mooring explain MOOR-101``). A code names a cause, not
the kubelet's reason: too few CPUs are MOOR-101 whichever manager noticed it.

Source of a refused start's texts: kubelets v1.31.14 to v1.37.1; spec: configuration.md, state-files.md section 4,
releases.md sections 2, 3 and 8. Source of the advice: the kubelet's own text, the reference of KubeletConfiguration.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.decision import Cause, StartRefusal
from mooring.lazy import dataclass

NOT_ENOUGH_CPUS = "MOOR-101"
LARGER_THAN_A_NODE = "MOOR-102"
NO_SINGLE_NODE = "MOOR-103"
TOO_MANY_NODES = "MOOR-104"
PINNED_BY_EARLIER = "MOOR-105"
HOLDS_ANOTHER_NUMBER = "MOOR-106"
HELD_ELSEWHERE = "MOOR-107"
PULLED_APART = "MOOR-108"

NOT_ENOUGH_MEMORY = "MOOR-111"
NO_SINGLE_NODE_FOR_MEMORY = "MOOR-112"
TOO_MANY_NODES_FOR_MEMORY = "MOOR-113"
MEMORY_GROUP_CONFLICT = "MOOR-114"
TOO_LITTLE_WHERE_CHOSEN = "MOOR-115"

NO_WHOLE_CORES = "MOOR-121"
TOO_FEW_WHOLE_CORES = "MOOR-122"
NOTHING_TO_SHARE = "MOOR-123"
TAKING_FAILS = "MOOR-124"
WITHHELD = "MOOR-125"

NOT_ENOUGH_DEVICES = "MOOR-131"
DEVICES_APART = "MOOR-132"
MORE_DEVICES_THAN_A_NODE = "MOOR-133"
PINNED_BY_DEVICES = "MOOR-134"
DEVICES_FAR_APART = "MOOR-135"
FAR_FROM_DEVICES = "MOOR-136"
HELD_APART = "MOOR-137"
UNKNOWN_NODES = "MOOR-138"

OUT_OF_CPU = "MOOR-141"
OUT_OF_MEMORY = "MOOR-142"
OUT_OF_PODS = "MOOR-143"
OUT_OF_ANOTHER_RESOURCE = "MOOR-144"
NO_POD_LEVEL_RESOURCES = "MOOR-145"

NEVER_RETURNS = "MOOR-151"
CRASHES = "MOOR-152"
NOT_SERVED = "MOOR-159"

EXCLUSIVE_CPUS = "MOOR-161"
PARTITION = "MOOR-162"
UNHEALTHY_DEVICES = "MOOR-139"

SHARED_BY_POLICY = "MOOR-163"
SHARED_BY_QOS = "MOOR-164"
SHARED_BY_AMOUNT = "MOOR-165"
SHARED_BY_GATE = "MOOR-166"

SPREAD = "MOOR-171"
CACHES_SPLIT = "MOOR-172"
STRANDED_CPUS = "MOOR-173"
UNEVEN_SHARES = "MOOR-174"
CORE_SHARED = "MOOR-175"
NEIGHBOURS_SHARE = "MOOR-176"
MEMORY_GROUP = "MOOR-177"
MEMORY_ELSEWHERE = "MOOR-178"
POOL_EMPTY = "MOOR-179"
DEVICES_SPREAD = "MOOR-180"

RESIZE_BY_POLICY = "MOOR-181"
BELOW_BASELINE = "MOOR-182"
BETWEEN_POOLS = "MOOR-183"
NO_ROOM_BESIDE = "MOOR-184"
NO_POD_LEVEL_RESIZE = "MOOR-185"
WITHOUT_BASELINE = "MOOR-186"
LESS_MEMORY = "MOOR-187"
HIDDEN_SIBLINGS = "MOOR-188"
RESIZE_NOT_SERVED = "MOOR-189"
DEVICES_ELSEWHERE = "MOOR-190"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is."""

    code: str
    sentence: str
    """Plain words; a clause without its subject where it becomes part of a sentence."""
    remedy: str = ""
    """One or two sentences about what to do; empty where nothing is to be done. It is general advice and not tried: it
    names no figure. What is found by asking the engine again is in ``mooring.answers.base.changes``."""


_DELETE = (
    "Drain the node and delete the {noun} manager's state file ({noun}_manager_state); the pods get other {what} when "
    "they are created again."
)

_REMEDIES: Mapping[Cause, str] = {
    Cause.ALPHA_CPU_OPTION: "Set featureGates: {CPUManagerPolicyAlphaOptions: true}, or remove the option.",
    Cause.BETA_CPU_OPTION: "Remove CPUManagerPolicyBetaOptions: false from featureGates, or remove the option.",
    Cause.OPTIONS_WITHOUT_POLICY: "Options need cpuManagerPolicy: static; remove them under policy none.",
    Cause.UNKNOWN_CPU_OPTION: (
        "Known are full-pcpus-only, distribute-cpus-across-numa, align-by-socket, distribute-cpus-across-cores, "
        "strict-cpu-reservation and prefer-align-cpus-by-uncorecache."
    ),
    Cause.UNKNOWN_TOPOLOGY_OPTION: "Known are prefer-closest-numa-nodes and max-allowable-numa-nodes.",
    Cause.OPTIONS_EXCLUDE: "Remove one of the two options.",
    Cause.SOCKET_AND_POLICY: (
        "Use topologyManagerPolicy best-effort or restricted with align-by-socket, or remove the option."
    ),
    Cause.SOCKET_AND_MACHINE: "Remove align-by-socket on this machine.",
    Cause.OPTION_VALUE: 'Write "true" or "false" for the option, as text in quotes.',
    Cause.OPTIONS_GATE: (
        "Remove CPUManagerPolicyOptions: false or TopologyManagerPolicyOptions: false from featureGates, or remove the "
        "options."
    ),
    Cause.NO_RESERVED_CPUS: (
        'The static policy needs CPUs for the system: set reservedSystemCPUs (such as "0"), or cpu in kubeReserved or '
        "systemReserved."
    ),
    Cause.TOO_FEW_CPUS: "This machine cannot provide the CPUs to reserve: name them in reservedSystemCPUs.",
    Cause.CPUS_NOT_ONLINE: "Name only CPUs that are online in reservedSystemCPUs.",
    Cause.NOT_RESERVABLE: (
        "Only cpu, memory, ephemeral-storage and pid can be reserved in kubeReserved and systemReserved."
    ),
    Cause.OVERCOMMITTED: "More is reserved than the machine has: lower kubeReserved, systemReserved or evictionHard.",
    Cause.TOO_MANY_NODES: (
        'Set topologyManagerPolicyOptions: {max-allowable-numa-nodes: "N"} with at least the machine\'s number of '
        "NUMA nodes."
    ),
    Cause.NO_DISTANCES: "This machine reports no NUMA distances: remove prefer-closest-numa-nodes.",
    Cause.TOPOLOGY_OPTION_GROUP: (
        "Enable the feature gate of the option's group, TopologyManagerPolicyBetaOptions or "
        "TopologyManagerPolicyAlphaOptions, or remove the option."
    ),
    Cause.RESERVED_SUM: (
        "The sums in reservedMemory must equal kubeReserved + systemReserved + evictionHard memory.available "
        "(100Mi when evictionHard is absent); huge pages cannot be reserved."
    ),
    Cause.RESERVED_NODE: "Name only NUMA nodes of this machine in reservedMemory.",
    Cause.RESERVED_AMOUNT: "Give reservedMemory with whole numbers of bytes, such as memory: 1Gi.",
    Cause.POLICY_CHANGED: f"Another policy wrote the state file. {_DELETE}",
    Cause.FILE_DAMAGED: f"The state file is damaged or of an unknown format. {_DELETE}",
    Cause.CPUS_CHANGED: (
        f"The CPUs or the reservation differ from those in the state file: restore them, or start over. {_DELETE}"
    ),
    Cause.FILE_CONTRADICTS: f"The state file contradicts itself or the machine. {_DELETE}",
}

_WHAT = {"cpu": "CPUs", "memory": "memory"}


def remedy(refusal: StartRefusal) -> str:
    """Return one or two sentences about what to do, or an empty text when nothing is known.

    >>> from mooring.engine.core.decision import Fault
    >>> remedy(StartRefusal.of("start", Fault("", Cause.OPTIONS_EXCLUDE)))
    'Remove one of the two options.'
    """
    if not refusal.faults:
        return ""
    fault = refusal.faults[0]
    manager = fault.names[0] if fault.names else ""
    return _REMEDIES.get(fault.cause, "").replace("{noun}", manager).replace("{what}", _WHAT.get(manager, ""))
