"""Why the topology manager did not admit a pod, in plain words.

Every figure comes from the facts of the merge that failed, and every claim is checked against them before it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mooring.core.bits import members
from mooring.core.topology import Topology
from mooring.cpumanager.facts import CPUHintsAsked
from mooring.devicemanager.facts import DeviceHintsAsked
from mooring.explain import reason as code
from mooring.explain.chapters import Circumstances
from mooring.explain.opinions import CPU, MEMORY
from mooring.explain.phrases import (
    count,
    fewest_nodes,
    joined,
    node_sets,
    nodes,
    nodes_of,
    only,
    per_node,
    who,
)
from mooring.explain.reason import Reason
from mooring.explain.story import Opinion
from mooring.explain.why_memory import MAKE_ROOM, nothing_to_share, why_memory
from mooring.node import Decision
from mooring.topologymanager.merge import SINGLE_NUMA_NODE


def why_affinity(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a pod that the topology policy does not admit."""
    chapter, policy = circumstances.refused_in, circumstances.settings.topology_policy
    if chapter is None or not chapter.opinions:
        return Reason(
            code.PULLED_APART, f"The topology policy {policy} found no set of NUMA nodes that suits every resource."
        )
    subject = who(chapter.container)
    stuck = [opinion for opinion in chapter.opinions if not opinion.suffices]
    if not stuck:
        return Reason(
            code.PULLED_APART,
            f"{subject} {_conflict(chapter.opinions, policy)}.",
            "Free one of the resources where the others are, or use topologyManagerPolicy best-effort, which takes "
            "the nearest that there is.",
        )
    first, *others = stuck
    cause = _clause(first, decision, circumstances)
    sentence = f"{subject} {cause.sentence}."
    if others:
        sentence += f" Its {joined([_label(one.resource) for one in others])} alone would be refused as well."
    return replace(cause, sentence=sentence)


def _label(name: str) -> str:
    return "CPUs" if name == CPU else name


def _conflict(opinions: Sequence[Opinion], policy: str) -> str:
    """Say that every resource could be served well, but not all in the same place."""
    parts = [
        f"its {_label(opinion.resource)} on {node_sets(_wanted(opinion, policy))}"
        for opinion in opinions
        if not opinion.indifferent
    ]
    return f"could have {', '.join(parts)}; no choice suits all of them, and {policy} admits nothing else"


def _wanted(opinion: Opinion, policy: str) -> list[int]:
    """Return the sets of NUMA nodes that the policy would admit; of more than can be listed just one."""
    if policy != SINGLE_NUMA_NODE:
        return list(opinion.preferred)
    return [1 << node for node in members(opinion.alone)]


def _clause(opinion: Opinion, decision: Decision, circumstances: Circumstances) -> Reason:
    """Return what is wrong with one resource; the sentence is a clause without its subject."""
    if opinion.resource == CPU:
        topology, asked = circumstances.settings.topology, opinion.asked
        if topology is None or not isinstance(asked, CPUHintsAsked):
            return nothing_to_share("no cpus available")
        cause = _cpus(asked, opinion.narrowest, topology, decision, circumstances)
        return replace(cause, sentence=f"asks for {count(asked.need, 'exclusive CPU')}, {cause.sentence}")
    if opinion.resource == MEMORY:
        return why_memory(opinion, decision, circumstances)
    return _devices(opinion, circumstances)


def _devices(opinion: Opinion, circumstances: Circumstances) -> Reason:
    asked, name = opinion.asked, opinion.resource
    need, free, held = (asked.need, len(asked.free), asked.held) if isinstance(asked, DeviceHintsAsked) else (0, 0, 0)
    asks = f"asks for {need} of {name}"
    if opinion.narrowest:
        policy = circumstances.settings.topology_policy
        return Reason(
            code.DEVICES_APART,
            f"{asks}, which {policy} would have nearer to each other than those that are left",
            f"Ask for fewer of them, {MAKE_ROOM[0].lower()}{MAKE_ROOM[1:]}, or use topologyManagerPolicy best-effort.",
        )
    if held:
        return Reason(
            code.HOLDS_ANOTHER_NUMBER,
            f"{asks}, but holds {held} since it was admitted before, and another number is impossible",
            "Delete the pod, so that its controller makes a new one.",
        )
    return Reason(
        code.NOT_ENOUGH_DEVICES,
        f"{asks}, but {only(free)} left",
        "Ask for fewer of them, or remove a pod that holds some." if free else "Remove a pod that holds some.",
    )


def _cpus(
    asked: CPUHintsAsked, now: int, topology: Topology, decision: Decision, circumstances: Circumstances
) -> Reason:
    policy = circumstances.settings.topology_policy
    if asked.mismatch:
        return _mismatch(asked)
    usable = (asked.available | asked.reusable).bit_count()
    if usable < asked.need:
        return Reason(
            code.NOT_ENOUGH_CPUS,
            f"but {only(usable)} free on the whole node",
            "Ask for fewer CPUs, or remove a pod." if usable else "Remove a pod.",
        )
    largest = max(mask.bit_count() for mask in topology.numa.values())
    if policy == SINGLE_NUMA_NODE and largest < asked.need:
        return Reason(
            code.LARGER_THAN_A_NODE,
            "and no NUMA node of this machine has that many",
            "Split the container into parts that fit one NUMA node, or use topologyManagerPolicy restricted, which "
            "allows as many NUMA nodes as an empty machine would need.",
        )
    if asked.reusable:
        return _pinned(asked, now, topology, policy)
    if asked.available == _held(asked, decision):
        where = nodes(nodes_of(topology, asked.available))
        return Reason(
            code.HELD_ELSEWHERE,
            f"and those that it holds already are on {where}, which {policy} refuses when it is admitted again",
            "Delete the pod, so that its controller makes a new one that is placed anew.",
        )
    return _scattered(asked, now, topology, policy)


def _held(asked: CPUHintsAsked, decision: Decision) -> int:
    """Return what the container, or the pod's containers together, have in the state."""
    held = 0
    for name, placement in decision.containers.items():
        if asked.container in ("", name):
            held |= placement.cpus.mask
    return held


def _mismatch(asked: CPUHintsAsked) -> Reason:
    clause = "but one of its containers holds another number of CPUs than it asks for since it was admitted before"
    if asked.container:
        clause = (
            f"but holds {asked.available.bit_count()} since it was admitted before, and the kubelet takes another "
            "number for impossible"
        )
    return Reason(code.HOLDS_ANOTHER_NUMBER, clause, "Delete the pod, so that its controller makes a new one.")


def _pinned(asked: CPUHintsAsked, now: int, topology: Topology, policy: str) -> Reason:
    """Say that CPUs of the pod's earlier containers pin it to their nodes (kubernetes/kubernetes#123816)."""
    home = nodes_of(topology, asked.reusable)
    whose = "an init container of the pod got its CPUs" if asked.container else "containers of the pod have CPUs"
    stay = f"and the kubelet makes it stay on {nodes(home)}, where {whose}"
    advice = (
        "Give the init container a fraction of a CPU so that it shares, or as many CPUs as the later container needs, "
        "so that the same CPUs serve both."
        if asked.container
        else "Delete the pod, so that its controller makes a new one that is placed anew."
    )
    inside = topology.cpus_in_numa(sum(1 << node for node in home if node >= 0))
    usable = (inside & (asked.available | asked.reusable)).bit_count()
    if policy != SINGLE_NUMA_NODE:
        clause = f"{stay}: it would take {_wider(asked, now, topology)}, and {policy} refuses that"
    elif len(home) > 1:
        clause = f"{stay}; single-numa-node allows only one"
    else:
        free = _free(topology, asked.available)
        better = [node for node, number in free.items() if number >= asked.need and node not in home]
        although = f", although {nodes(better)} {'has' if len(better) == 1 else 'have'} enough" if better else ""
        clause = f"{stay}; counting those, {usable} can be had there{although}"
    return Reason(code.PINNED_BY_EARLIER, clause, advice)


def _scattered(asked: CPUHintsAsked, now: int, topology: Topology, policy: str) -> Reason:
    free = _free(topology, asked.available)
    listed = f"free are {per_node(free)}"
    advice = f"{MAKE_ROOM}, ask for fewer CPUs, or use topologyManagerPolicy best-effort."
    if policy == SINGLE_NUMA_NODE:
        return Reason(code.NO_SINGLE_NODE, f"and no single NUMA node has that many free: {listed}", advice)
    return Reason(
        code.TOO_MANY_NODES,
        f"for which it would take {_wider(asked, now, topology)}, and {policy} refuses that: {listed}",
        advice,
    )


def _wider(asked: CPUHintsAsked, now: int, topology: Topology) -> str:
    """Return how many nodes it takes now, and how many have so many CPUs at all."""
    fewest = fewest_nodes(topology, asked.need)
    if not fewest < now:
        return "other NUMA nodes than it prefers"
    has = "has" if fewest == 1 else "have"
    return f"{count(now, 'NUMA node')} although {fewest} {has} that many CPUs (used and reserved ones counted)"


def _free(topology: Topology, available: int) -> dict[int, int]:
    return {node: (mask & available).bit_count() for node, mask in topology.numa.items()}
