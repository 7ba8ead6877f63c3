"""What to do when the kubelet would not start: one sentence for each refusal whose remedy is known.

Source of the texts: kubelets v1.31.14 to v1.37.1; spec: configuration.md, state-files.md section 4, releases.md
sections 2, 3 and 8. Source of the advice: the kubelet's own text, and the reference of KubeletConfiguration.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.decision import Cause, StartRefusal

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
