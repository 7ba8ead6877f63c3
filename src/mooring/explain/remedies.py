"""What to do when the kubelet would not start: one sentence for each refusal whose remedy is known.

Source of the texts: kubelets v1.31.14 to v1.37.1; spec: configuration.md, state-files.md section 4, releases.md
sections 2, 3 and 8. Source of the advice: the
kubelet's own text, and the reference of KubeletConfiguration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mooring.engine.core.decision import StartRefusal

_DELETE = (
    "Drain the node and delete the {noun} manager's state file ({noun}_manager_state); the pods get other {what} when "
    "they are created again."
)


@dataclass(frozen=True, slots=True)
class _Remedy:
    code: str
    pattern: str
    """Regular expression for the kubelet's text; its group is the manager."""
    advice: str


_REMEDIES = (
    # Options and gates.
    _Remedy(
        "MOOR-211",
        r"CPU Manager Policy Alpha-level Options not enabled",
        "Set featureGates: {CPUManagerPolicyAlphaOptions: true}, or remove the option.",
    ),
    _Remedy(
        "MOOR-212",
        r"CPU Manager Policy Beta-level Options not enabled",
        "Remove CPUManagerPolicyBetaOptions: false from featureGates, or remove the option.",
    ),
    _Remedy(
        "MOOR-213",
        r"received unsupported options",
        "Options need cpuManagerPolicy: static; remove them under policy none.",
    ),
    _Remedy(
        "MOOR-214",
        r"unknown CPU Manager Policy option",
        "Known are full-pcpus-only, distribute-cpus-across-numa, align-by-socket, distribute-cpus-across-cores, "
        "strict-cpu-reservation and prefer-align-cpus-by-uncorecache.",
    ),
    _Remedy(
        "MOOR-215",
        r"unknown Topology Manager Policy option",
        "Known are prefer-closest-numa-nodes and max-allowable-numa-nodes.",
    ),
    _Remedy("MOOR-216", r"can not be used at the same time", "Remove one of the two options."),
    _Remedy(
        "MOOR-217",
        r"single-numa-node policy is incompatible with CPUManager align-by-socket",
        "Use topologyManagerPolicy best-effort or restricted with align-by-socket, or remove the option.",
    ),
    _Remedy("MOOR-218", r"Align by socket is not compatible with hardware", "Remove align-by-socket on this machine."),
    _Remedy(
        "MOOR-219", r"bad value for option .*ParseBool", 'Write "true" or "false" for the option, as text in quotes.'
    ),
    _Remedy(
        "MOOR-220",
        r"require feature gates .* enabled",
        "Remove CPUManagerPolicyOptions: false or TopologyManagerPolicyOptions: false from featureGates, or remove the "
        "options.",
    ),
    # The reservation.
    _Remedy(
        "MOOR-231",
        r"unable to determine reserved CPU resources",
        'The static policy needs CPUs for the system: set reservedSystemCPUs (such as "0"), or cpu in kubeReserved or '
        "systemReserved.",
    ),
    _Remedy(
        "MOOR-232",
        r"unable to reserve the required amount of CPUs",
        "This machine cannot provide the CPUs to reserve: name them in reservedSystemCPUs.",
    ),
    _Remedy(
        "MOOR-233",
        r"reserved-cpus: .* is not a subset of online-cpus",
        "Name only CPUs that are online in reservedSystemCPUs.",
    ),
    _Remedy(
        "MOOR-234",
        r"cannot reserve \".*\" resource",
        "Only cpu, memory, ephemeral-storage and pid can be reserved in kubeReserved and systemReserved.",
    ),
    _Remedy(
        "MOOR-235",
        r"invalid Node Allocatable configuration",
        "More is reserved than the machine has: lower kubeReserved, systemReserved or evictionHard.",
    ),
    # The topology manager.
    _Remedy(
        "MOOR-241",
        r"unsupported on machines with more than \d+ NUMA Nodes",
        'Set topologyManagerPolicyOptions: {max-allowable-numa-nodes: "N"} with at least the machine\'s number of '
        "NUMA nodes.",
    ),
    _Remedy(
        "MOOR-242",
        r"error getting NUMA distances from cadvisor",
        "This machine reports no NUMA distances: remove prefer-closest-numa-nodes.",
    ),
    _Remedy(
        "MOOR-243",
        r"(?i:topology manager policy (?:alpha|beta)-level options not enabled)",
        "Enable the feature gate of the option's group, TopologyManagerPolicyBetaOptions or "
        "TopologyManagerPolicyAlphaOptions, or remove the option.",
    ),
    # The memory manager.
    _Remedy(
        "MOOR-251",
        r"the total amount .* of type .* is not equal to the value",
        "The sums in reservedMemory must equal kubeReserved + systemReserved + evictionHard memory.available "
        "(100Mi when evictionHard is absent); huge pages cannot be reserved.",
    ),
    _Remedy(
        "MOOR-252",
        r"the reserved memory configuration references a NUMA node",
        "Name only NUMA nodes of this machine in reservedMemory.",
    ),
    _Remedy(
        "MOOR-253",
        r"should specify the system reserved memory|could not covert a variable of type Quantity",
        "Give reservedMemory with whole numbers of bytes, such as memory: 1Gi.",
    ),
    # State files.
    _Remedy(
        "MOOR-261",
        r"start (cpu|memory) manager error: could not restore state from checkpoint: .*configured policy",
        f"Another policy wrote the state file. {_DELETE}",
    ),
    _Remedy(
        "MOOR-262",
        r"start (cpu|memory) manager error: could not restore state from checkpoint",
        f"The state file is damaged or of an unknown format. {_DELETE}",
    ),
    _Remedy(
        "MOOR-263",
        r"start (cpu) manager error: (?:current set of available CPUs|not all reserved cpus|some of strictly reserved)",
        f"The CPUs or the reservation differ from those in the state file: restore them, or start over. {_DELETE}",
    ),
    _Remedy(
        "MOOR-264",
        r"start (cpu|memory) manager error: (?!unable)",
        f"The state file contradicts itself or the machine. {_DELETE}",
    ),
)
"""The first one whose pattern fits counts."""

_OTHER = {
    "flags": "MOOR-210",
    "decode": "MOOR-202",
    "featureGates": "MOOR-202",
    "validation": "MOOR-203",
    "reservation": "MOOR-204",
    "machine": "MOOR-205",
    "kubelet": "MOOR-204",
    "topologyManager": "MOOR-206",
    "deviceManager": "MOOR-207",
    "cpuManager": "MOOR-208",
    "memoryManager": "MOOR-209",
}
"""Stage of the start -> code of a refusal for which no remedy of its own is known."""

_WHAT = {"cpu": "CPUs", "memory": "memory"}


def remedy(refusal: StartRefusal) -> str:
    """Return one or two sentences about what to do, or an empty text when nothing is known.

    >>> text = "unsupported on machines with more than 8 NUMA Nodes"
    >>> remedy(StartRefusal("topologyManager", text)).split(":")[0]
    'Set topologyManagerPolicyOptions'
    """
    known = _known(refusal)
    if known is None:
        return ""
    found = re.search(known.pattern, refusal.message)
    noun = found.group(1) if found is not None and found.groups() else ""
    return known.advice.replace("{noun}", noun).replace("{what}", _WHAT.get(noun, ""))


def refusal_code(refusal: StartRefusal) -> str:
    """Return the stable code of a refusal to start.

    >>> refusal_code(StartRefusal("topologyManager", "unsupported on machines with more than 8 NUMA Nodes"))
    'MOOR-241'
    """
    known = _known(refusal)
    return known.code if known is not None else _OTHER.get(refusal.stage, "MOOR-201")


def _known(refusal: StartRefusal) -> _Remedy | None:
    return next((known for known in _REMEDIES if re.search(known.pattern, refusal.message)), None)
