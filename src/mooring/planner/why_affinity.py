"""Why the topology manager did not admit a pod, in plain words.

Every figure comes from the facts of the merge that failed, and every claim is checked against them before it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.core.topology import Topology
from mooring.cpumanager.facts import CPUHintsAsked
from mooring.devicemanager.hints import device_requests, pod_device_requests
from mooring.memorymanager.facts import MemoryHintsAsked
from mooring.memorymanager.pod_budget import shared_pool_error
from mooring.memorymanager.requests import pod_requests
from mooring.memorymanager.reserved import is_memory
from mooring.node import Decision
from mooring.node.facts import HintsGiven
from mooring.planner.circumstances import Circumstances, last, last_merge
from mooring.planner.opinions import is_impossible, is_indifferent, narrowest, suffices, wanted_sets
from mooring.planner.phrases import (
    amounts_text,
    count,
    fewest_nodes,
    joined,
    node_sets,
    nodes,
    nodes_of,
    only,
    per_node,
    sizes,
    who,
)
from mooring.planner.why_allocation import nothing_to_share
from mooring.topologymanager.distances import NUMAInfo
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.merge import SINGLE_NUMA_NODE

CPU = "cpu"
MEMORY = "memory"


def why_affinity(decision: Decision, circumstances: Circumstances) -> str:
    """Return the sentence for a pod that the topology policy does not admit."""
    facts = last_merge(circumstances.facts)
    given = last(facts, HintsGiven)
    policy, numa = circumstances.settings.topology_policy, circumstances.settings.numa
    if given is None:
        return f"The topology policy {policy} found no set of NUMA nodes that suits every resource."
    hints = _by_provider(given.hints)
    stuck = [name for name, found in hints.items() if not suffices(found, policy, numa)]
    subject = who(given.container)
    if not stuck:
        return f"{subject} {_conflict(hints, policy, numa)}."
    first, *others = stuck
    sentence = f"{subject} {_clause(first, hints[first], facts, decision, circumstances)}."
    if others:
        sentence += f" Its {joined([_label(name) for name in others])} alone would be refused as well."
    return sentence


def _by_provider(hints: Mapping[str, AnyHints | None]) -> dict[str, AnyHints]:
    """Return what has an opinion: cpu first, all types of memory as one (their hints are the same), then devices."""
    found = {name: value for name, value in hints.items() if value is not None}
    merged: dict[str, AnyHints] = {}
    if CPU in found:
        merged[CPU] = found.pop(CPU)
    memory = [name for name in found if is_memory(name)]
    for name in sorted(memory, key=lambda name: (name != MEMORY, name)):
        merged.setdefault(MEMORY, found[name])
        del found[name]
    return {**merged, **dict(sorted(found.items()))}


def _label(name: str) -> str:
    return "CPUs" if name == CPU else name


def _conflict(hints: Mapping[str, AnyHints], policy: str, numa: NUMAInfo) -> str:
    """Say that every resource could be served well, but not all in the same place."""
    parts = [
        f"its {_label(name)} on {node_sets(wanted_sets(found, policy, numa))}"
        for name, found in hints.items()
        if not is_indifferent(found)
    ]
    return f"could have {', '.join(parts)}; no choice suits all of them, and {policy} admits nothing else"


def _clause(
    name: str, hints: AnyHints, facts: Sequence[object], decision: Decision, circumstances: Circumstances
) -> str:
    if name == CPU:
        topology = circumstances.settings.cpu.topology if circumstances.settings.cpu is not None else None
        asked = last(facts, CPUHintsAsked)
        if topology is None or asked is None:
            return nothing_to_share("no cpus available")
        return (
            f"asks for {count(asked.need, 'exclusive CPU')}, {_cpus(asked, hints, topology, decision, circumstances)}"
        )
    if name == MEMORY:
        return _memory(hints, facts, decision, circumstances)
    return _devices(name, hints, facts, circumstances)


def _devices(name: str, hints: AnyHints, facts: Sequence[object], circumstances: Circumstances) -> str:
    policy, state, pod = circumstances.settings.topology_policy, circumstances.devices, circumstances.pod
    given = last(facts, HintsGiven)
    container = given.container if given is not None else ""
    if container:
        wanted = next((device_requests(one, state) for one in pod.containers if one.name == container), {})
        held = state.held_by(pod.uid, container, name)
    else:
        wanted, held = pod_device_requests(pod, state), state.held_by_pod(pod.uid, name)
    asks = f"asks for {wanted.get(name, 0)} of {name}"
    if not is_impossible(hints):
        return f"{asks}, which {policy} would have nearer to each other than those that are left"
    if held:
        return f"{asks}, but holds {len(held)} since it was admitted before, and another number is impossible"
    return f"{asks}, but {only(len(state.available(name)))} left"


def _cpus(
    asked: CPUHintsAsked, hints: AnyHints, topology: Topology, decision: Decision, circumstances: Circumstances
) -> str:
    policy = circumstances.settings.topology_policy
    if asked.mismatch:
        return _mismatch(asked)
    usable = asked.available | asked.reusable
    if usable.bit_count() < asked.need:
        return f"but {only(usable.bit_count())} free on the whole node"
    if policy == SINGLE_NUMA_NODE and max(mask.bit_count() for mask in topology.numa.values()) < asked.need:
        return "and no NUMA node of this machine has that many"
    if asked.reusable:
        return _pinned(asked, hints, topology, policy)
    if asked.available == _held(asked, decision):
        where = nodes(nodes_of(topology, asked.available))
        return f"and those that it holds already are on {where}, which {policy} refuses when it is admitted again"
    return _scattered(asked, hints, topology, policy)


def _held(asked: CPUHintsAsked, decision: Decision) -> int:
    """Return what the container, or the pod's containers together, have in the state."""
    held = 0
    for name, placement in decision.containers.items():
        if asked.container in ("", name):
            held |= placement.cpus.mask
    return held


def _mismatch(asked: CPUHintsAsked) -> str:
    if asked.container:
        return (
            f"but holds {asked.available.bit_count()} since it was admitted before, and the kubelet takes another "
            "number for impossible"
        )
    return "but one of its containers holds another number of CPUs than it asks for since it was admitted before"


def _pinned(asked: CPUHintsAsked, hints: AnyHints, topology: Topology, policy: str) -> str:
    """Say that CPUs of the pod's earlier containers pin it to their nodes (kubernetes/kubernetes#123816)."""
    home = nodes_of(topology, asked.reusable)
    whose = "an init container of the pod got its CPUs" if asked.container else "containers of the pod have CPUs"
    stay = f"and the kubelet makes it stay on {nodes(home)}, where {whose}"
    inside = topology.cpus_in_numa(sum(1 << node for node in home if node >= 0))
    usable = (inside & (asked.available | asked.reusable)).bit_count()
    if policy != SINGLE_NUMA_NODE:
        return f"{stay}: it would take {_wider(asked, hints, topology)}, and {policy} refuses that"
    if len(home) > 1:
        return f"{stay}; single-numa-node allows only one"
    free = _free(topology, asked.available)
    better = [node for node, number in free.items() if number >= asked.need and node not in home]
    although = f", although {nodes(better)} {'has' if len(better) == 1 else 'have'} enough" if better else ""
    return f"{stay}; counting those, {usable} can be had there{although}"


def _scattered(asked: CPUHintsAsked, hints: AnyHints, topology: Topology, policy: str) -> str:
    free = _free(topology, asked.available)
    listed = f"free are {per_node(free)}"
    if policy == SINGLE_NUMA_NODE:
        return f"and no single NUMA node has that many free: {listed}"
    return f"for which it would take {_wider(asked, hints, topology)}, and {policy} refuses that: {listed}"


def _wider(asked: CPUHintsAsked, hints: AnyHints, topology: Topology) -> str:
    """Return how many nodes it takes now, and how many have so many CPUs at all."""
    now = narrowest(hints)
    fewest = fewest_nodes(topology, asked.need)
    if not fewest < now:
        return "other NUMA nodes than it prefers"
    has = "has" if fewest == 1 else "have"
    return f"{count(now, 'NUMA node')} although {fewest} {has} that many CPUs (used and reserved ones counted)"


def _free(topology: Topology, available: int) -> dict[int, int]:
    return {node: (mask & available).bit_count() for node, mask in topology.numa.items()}


def _memory(hints: AnyHints, facts: Sequence[object], decision: Decision, circumstances: Circumstances) -> str:
    asked, policy = last(facts, MemoryHintsAsked), circumstances.settings.topology_policy
    if asked is None or asked.hints is None:
        if is_impossible(hints):
            return nothing_to_share(_shared_memory_error(circumstances))
        held = {node for placement in decision.containers.values() for node in placement.mems}
        return f"holds memory on {nodes(held)}, which {policy} refuses when it is admitted again"
    if policy == SINGLE_NUMA_NODE:
        return _no_single_node(asked)
    asks, now = f"asks for {amounts_text(asked.requests)}", count(narrowest(hints), "NUMA node")
    return f"{asks}, which takes {now} now and fewer on an empty machine, and {policy} refuses that"


def _shared_memory_error(circumstances: Circumstances) -> str:
    pod, policy = circumstances.pod, circumstances.settings.memory
    asked = pod_requests(pod, policy.gates) if policy is not None else {}
    return shared_pool_error(pod, asked, policy.gates) if policy is not None and not isinstance(asked, str) else ""


def _no_single_node(asked: MemoryHintsAsked) -> str:
    """Say what stands against each node: too little is free, or it belongs to a group of several."""
    grouped = {node for group in asked.groups for node in group}
    free = {node: types for node, types in asked.free.items() if node not in grouped}
    short = {
        resource: {node: types.get(resource, 0) for node, types in free.items() if types.get(resource, 0) < amount}
        for resource, amount in asked.requests.items()
    }
    text = sizes(*asked.requests.values(), *(left for lefts in short.values() for left in lefts.values()))
    parts = [
        f"free{'' if resource == MEMORY else f' {resource}'}: {per_node(lefts, text)}"
        for resource, lefts in short.items()
        if lefts
    ]
    parts += [f"{nodes(group)} serve others as one group" for group in asked.groups]
    listed = f" ({'; '.join(parts)})" if parts else ""
    return f"asks for {amounts_text(asked.requests, text)}, and no single NUMA node can give that{listed}"
