"""Why the topology manager did not admit a pod, in plain words.

Every figure comes from the facts of the merge that failed, and every claim is checked against them before it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE
from mooring.explanations import reason as code
from mooring.explanations.chapters import Circumstances
from mooring.explanations.opinions import CPU, MEMORY, why_followed
from mooring.explanations.phrases import fewest_nodes, joined, node_sets, nodes, nodes_of, only, per_node, plural, who
from mooring.explanations.reason import Reason
from mooring.explanations.story import Opinion
from mooring.explanations.why_allocation import fewer_cpus, no_common_node, why_devices
from mooring.explanations.why_memory import MAKE_ROOM, nothing_to_share, why_memory
from mooring.lazy import replace

_LABELS = {CPU: "CPUs"}


def why_affinity(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a pod that the topology policy does not admit."""
    chapter, policy = circumstances.refused_in, circumstances.settings.topology_policy
    followed = why_followed(chapter, policy) if chapter is not None else None
    if followed is not None:
        return followed
    if chapter is None or not chapter.opinions:
        return Reason(
            code.PULLED_APART, f"Topology manager policy {policy} found no set of NUMA nodes that suits every resource."
        )
    subject = who(chapter.container)
    stuck = [opinion for opinion in chapter.opinions if not opinion.suffices]
    if not stuck:
        far = no_common_node(chapter.opinions, circumstances)
        if far is not None:
            return replace(far, sentence=f"{subject} {far.sentence}.")
        return Reason(
            code.PULLED_APART,
            f"{subject} {_conflict(chapter.opinions, policy)}.",
            "Free one of the resources on the NUMA nodes of the others, or use topologyManagerPolicy best-effort, "
            "which accepts the best set available.",
        )
    first, *others = stuck
    cause = _clause(first, decision, circumstances)
    sentence = f"{subject} {cause.sentence}."
    if others:
        sentence += (
            f" Its {joined([_LABELS.get(one.resource, one.resource) for one in others])} alone would be rejected, too."
        )
    return replace(cause, sentence=sentence)


def _conflict(opinions: Sequence[Opinion], policy: str) -> str:
    """Say that every resource could be served well, but not all in the same place; and what is short where one is."""
    wanted = {_LABELS.get(one.resource, one.resource): _wanted(one, policy) for one in opinions if not one.indifferent}
    places: dict[str, list[str]] = {}
    for label, sets in wanted.items():
        places.setdefault(node_sets(sets), []).append(label)
    parts = "; ".join(f"{joined(labels)} on {sets}" for sets, labels in places.items())
    clause = f"can get {parts}, but no set of NUMA nodes suits all of them, which {policy} requires"
    rare = min(wanted.values(), key=len)
    short = [label for label, sets in wanted.items() if not {*sets} & {*rare}]
    if not short or any(mask.bit_count() != 1 for sets in wanted.values() for mask in sets):
        return clause
    where = nodes(mask.bit_length() - 1 for mask in rare)
    return f"{clause}: {where} {'lacks' if len(rare) == 1 else 'lack'} free {joined(short)}"


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
            return nothing_to_share(CPU)
        cause = _cpus(asked, opinion.narrowest, topology, decision, circumstances)
        return replace(cause, sentence=f"requests {plural(asked.need, 'exclusive CPU')}{cause.sentence}")
    if opinion.resource == MEMORY:
        return why_memory(opinion, decision, circumstances)
    return why_devices(opinion, circumstances)


def _cpus(
    asked: CPUHintsAsked, now: int, topology: Topology, decision: Decision, circumstances: Circumstances
) -> Reason:
    policy = circumstances.settings.topology_policy
    again = "Delete the pod, so that its controller creates a new one."
    if asked.mismatch:
        clause = ", but one of its containers already holds a different number of CPUs from its earlier admission"
        if asked.container:
            number = asked.available.bit_count()
            clause = (
                f", but already holds {number} from its earlier admission, and the kubelet does not change that number"
            )
        return Reason(code.HOLDS_ANOTHER_NUMBER, clause, again)
    usable = (asked.available | asked.reusable).bit_count()
    if usable < asked.need:
        return Reason(
            code.NOT_ENOUGH_CPUS,
            f", but {only(usable)} free on the whole node",
            fewer_cpus(asked.need, usable, circumstances),
        )
    largest = max(mask.bit_count() for mask in topology.numa.values())
    if policy == SINGLE_NUMA_NODE and largest < asked.need:
        return Reason(
            code.LARGER_THAN_A_NODE,
            ", more than any NUMA node of this machine has",
            "Split the container into parts that fit one NUMA node, or use topologyManagerPolicy restricted, which "
            "allows as many NUMA nodes as the request needs on an empty machine.",
        )
    if asked.reusable:
        return _pinned(asked, now, topology, policy)
    held = (one.cpus.mask for name, one in decision.containers.items() if asked.container in ("", name))
    if asked.available == reduce(or_, held, 0):
        where = nodes(nodes_of(topology, asked.available))
        return Reason(
            code.HELD_ELSEWHERE,
            f" and already holds them on {where}, which {policy} rejects when the pod is admitted again",
            again,
        )
    return _scattered(asked, now, topology, circumstances)


def _pinned(asked: CPUHintsAsked, now: int, topology: Topology, policy: str) -> Reason:
    """Say that CPUs of the pod's earlier containers pin it to their nodes (kubernetes/kubernetes#123816)."""
    home = nodes_of(topology, asked.reusable)
    whose = "an init container of the pod got its CPUs" if asked.container else "containers of the pod have CPUs"
    stay = f", and the kubelet keeps it on {nodes(home)}, where {whose}"
    advice = (
        "Request a fraction of a CPU for the init container, so that it runs in the shared pool, or as many CPUs as "
        "the later container requests, so that the same CPUs serve both."
        if asked.container
        else "Delete the pod, so that its controller creates a new one."
    )
    inside = topology.cpus_in_numa(NUMAMask(sum(1 << node for node in home if node >= 0)))
    usable = (inside & (asked.available | asked.reusable)).bit_count()
    if policy != SINGLE_NUMA_NODE:
        clause = f"{stay}; they take {_wider(asked, now, topology)}, so {policy} rejects them"
    elif len(home) > 1:
        clause = f"{stay}; single-numa-node allows only one node"
    else:
        free = {node: (mask & asked.available).bit_count() for node, mask in topology.numa.items()}
        better = [node for node, number in free.items() if number >= asked.need and node not in home]
        although = f", although {nodes(better)} {'has' if len(better) == 1 else 'have'} enough" if better else ""
        clause = f"{stay}; including those, {usable} {'is' if usable == 1 else 'are'} available there{although}"
    return Reason(code.PINNED_BY_EARLIER, clause, advice)


def _scattered(asked: CPUHintsAsked, now: int, topology: Topology, circumstances: Circumstances) -> Reason:
    policy, cpu = circumstances.settings.topology_policy, circumstances.settings.cpu
    free = {node: (mask & asked.available).bit_count() for node, mask in topology.numa.items()}
    listed = f"free: {per_node(free)}"
    advice = f"{MAKE_ROOM}, request fewer CPUs, or use topologyManagerPolicy best-effort."
    reserved = cpu.reserved if cpu is not None else 0
    if policy == SINGLE_NUMA_NODE and fewest_nodes(topology, asked.need, reserved) != 1:
        advice = "Request fewer CPUs, reserve fewer, or use topologyManagerPolicy best-effort."
    if policy == SINGLE_NUMA_NODE:
        return Reason(code.NO_SINGLE_NODE, f", but no NUMA node has that many free ({listed})", advice)
    return Reason(
        code.TOO_MANY_NODES, f"; they take {_wider(asked, now, topology)}, so {policy} rejects them ({listed})", advice
    )


def _wider(asked: CPUHintsAsked, now: int, topology: Topology) -> str:
    """Return how many nodes it takes now, and how many on an empty machine."""
    fewest = fewest_nodes(topology, asked.need)
    if not fewest < now:
        return "other NUMA nodes than it prefers"
    return f"{plural(now, 'NUMA node')} now and {fewest} on an empty machine (reserved CPUs counted)"
