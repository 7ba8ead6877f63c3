"""What to do when the kubelet would not start: one sentence for each refusal whose remedy is known.

Source of the texts: kubelet v1.37.1; spec: configuration.md, state-files.md section 4. Source of the advice: the
kubelet's own text, and the reference of KubeletConfiguration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mooring.core.decision import StartRefusal

_DELETE = (
    "Drain the node and delete the {noun} manager's state file ({noun}_manager_state); the pods get other {what} when "
    "they come back."
)


@dataclass(frozen=True, slots=True)
class _Remedy:
    pattern: str
    """Regular expression for the kubelet's text; its group is the manager."""
    advice: str


_REMEDIES = (
    # Options and gates.
    _Remedy(
        r"CPU Manager Policy Alpha-level Options not enabled",
        "Set featureGates: {CPUManagerPolicyAlphaOptions: true}, or leave the option out.",
    ),
    _Remedy(
        r"CPU Manager Policy Beta-level Options not enabled",
        "Remove CPUManagerPolicyBetaOptions: false from featureGates, or leave the option out.",
    ),
    _Remedy(
        r"received unsupported options", "Options need cpuManagerPolicy: static; leave them out under policy none."
    ),
    _Remedy(
        r"unknown CPU Manager Policy option",
        "Known are full-pcpus-only, distribute-cpus-across-numa, align-by-socket, distribute-cpus-across-cores, "
        "strict-cpu-reservation and prefer-align-cpus-by-uncorecache.",
    ),
    _Remedy(
        r"unknown Topology Manager Policy option",
        "Known are prefer-closest-numa-nodes and max-allowable-numa-nodes.",
    ),
    _Remedy(r"can not be used at the same time", "Leave one of the two options out."),
    _Remedy(
        r"single-numa-node policy is incompatible with CPUManager align-by-socket",
        "Use topologyManagerPolicy best-effort or restricted with align-by-socket, or leave the option out.",
    ),
    _Remedy(r"Align by socket is not compatible with hardware", "Leave align-by-socket out on this machine."),
    _Remedy(r"bad value for option .*ParseBool", 'Write "true" or "false" for the option, as text in quotes.'),
    # The reservation.
    _Remedy(
        r"unable to determine reserved CPU resources",
        'The static policy needs CPUs for the system: set reservedSystemCPUs (such as "0"), or cpu in kubeReserved or '
        "systemReserved.",
    ),
    _Remedy(
        r"unable to reserve the required amount of CPUs",
        "The CPUs that are to be reserved cannot be taken from this machine: name them in reservedSystemCPUs.",
    ),
    _Remedy(
        r"reserved-cpus: .* is not a subset of online-cpus", "Name only CPUs that are online in reservedSystemCPUs."
    ),
    _Remedy(
        r"cannot reserve \".*\" resource",
        "Only cpu, memory, ephemeral-storage and pid can be reserved in kubeReserved and systemReserved.",
    ),
    _Remedy(
        r"invalid Node Allocatable configuration",
        "More is reserved than the machine has: lower kubeReserved, systemReserved or evictionHard.",
    ),
    # The topology manager.
    _Remedy(
        r"unsupported on machines with more than \d+ NUMA Nodes",
        'Set topologyManagerPolicyOptions: {max-allowable-numa-nodes: "N"} with at least the machine\'s number of '
        "NUMA nodes.",
    ),
    _Remedy(
        r"error getting NUMA distances from cadvisor",
        "This machine tells no distances: leave prefer-closest-numa-nodes out.",
    ),
    # The memory manager.
    _Remedy(
        r"the total amount .* of type .* is not equal to the value",
        "The sums in reservedMemory must equal kubeReserved + systemReserved + evictionHard memory.available "
        "(100Mi when evictionHard is absent); huge pages cannot be reserved.",
    ),
    _Remedy(
        r"the reserved memory configuration references a NUMA node",
        "Name only NUMA nodes of this machine in reservedMemory.",
    ),
    _Remedy(
        r"should specify the system reserved memory|could not covert a variable of type Quantity",
        "Give reservedMemory with whole numbers of bytes, such as memory: 1Gi.",
    ),
    # State files.
    _Remedy(
        r"start (cpu|memory) manager error: could not restore state from checkpoint: .*configured policy",
        f"Another policy wrote the state file. {_DELETE}",
    ),
    _Remedy(
        r"start (cpu|memory) manager error: could not restore state from checkpoint",
        f"The state file is damaged or of an unknown format. {_DELETE}",
    ),
    _Remedy(
        r"start (cpu) manager error: (?:current set of available CPUs|not all reserved cpus|some of strictly reserved)",
        f"CPUs or reservation are other than when the state file was written: restore them, or start afresh. {_DELETE}",
    ),
    _Remedy(
        r"start (cpu|memory) manager error: (?!unable)",
        f"The state file contradicts itself or the machine. {_DELETE}",
    ),
)
"""The first one whose pattern fits counts."""

_WHAT = {"cpu": "CPUs", "memory": "memory"}


def remedy(refusal: StartRefusal) -> str:
    """Return one or two sentences about what to do, or an empty text when nothing is known.

    >>> text = "unsupported on machines with more than 8 NUMA Nodes"
    >>> remedy(StartRefusal("topologyManager", text)).split(":")[0]
    'Set topologyManagerPolicyOptions'
    """
    for known in _REMEDIES:
        found = re.search(known.pattern, refusal.message)
        if found is not None:
            noun = found.group(1) if found.groups() else ""
            return known.advice.replace("{noun}", noun).replace("{what}", _WHAT.get(noun, ""))
    return ""
