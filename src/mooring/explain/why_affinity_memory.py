"""Why the topology manager did not admit a pod for the sake of its memory, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.explain import reason as code
from mooring.explain.circumstances import Circumstances, last
from mooring.explain.opinions import is_impossible, narrowest
from mooring.explain.phrases import amounts_text, count, joined, nodes, per_node, sizes
from mooring.explain.reason import Reason
from mooring.explain.why_allocation import nothing_to_share
from mooring.memorymanager.facts import MemoryHintsAsked
from mooring.memorymanager.pod_budget import shared_pool_error
from mooring.memorymanager.requests import pod_requests
from mooring.memorymanager.reserved import MEMORY
from mooring.node import Decision
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.merge import SINGLE_NUMA_NODE

MAKE_ROOM = "Make room by removing a pod, let this pod come earlier"
KEEP_GROUPS = (
    "Remove the pods whose memory lies on several NUMA nodes, or keep them on another node: a NUMA node of a group "
    "serves nobody else."
)


def why_memory(hints: AnyHints, facts: Sequence[object], decision: Decision, circumstances: Circumstances) -> Reason:
    """Return what is wrong with the memory; the sentence is a clause without its subject."""
    asked, policy = last(facts, MemoryHintsAsked), circumstances.settings.topology_policy
    if asked is None or asked.hints is None:
        if is_impossible(hints):
            return nothing_to_share(_shared_memory_error(circumstances))
        held = {node for placement in decision.containers.values() for node in placement.mems}
        return Reason(
            code.HELD_ELSEWHERE,
            f"holds memory on {nodes(held)}, which {policy} refuses when it is admitted again",
            "Delete the pod, so that its controller makes a new one that is placed anew.",
        )
    if policy == SINGLE_NUMA_NODE:
        return _no_single_node(asked)
    asks, now = f"asks for {amounts_text(asked.requests)}", count(narrowest(hints), "NUMA node")
    clause = f"{asks}, which takes {now} now and fewer on an empty machine, and {policy} refuses that"
    if _is_grouped(asked):
        groups = joined([nodes(group) for group in asked.groups])
        serve = "serve others as one group" if len(asked.groups) == 1 else "serve others as groups"
        return Reason(code.MEMORY_GROUP_CONFLICT, f"{clause}: {groups} {serve}", KEEP_GROUPS)
    return Reason(
        code.TOO_MANY_NODES_FOR_MEMORY,
        clause,
        f"{MAKE_ROOM}, ask for less memory, or use topologyManagerPolicy best-effort.",
    )


def _shared_memory_error(circumstances: Circumstances) -> str:
    pod, policy = circumstances.pod, circumstances.settings.memory
    asked = pod_requests(pod, policy.gates) if policy is not None else {}
    return shared_pool_error(pod, asked, policy.gates) if policy is not None and not isinstance(asked, str) else ""


def _no_single_node(asked: MemoryHintsAsked) -> Reason:
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
    clause = f"asks for {amounts_text(asked.requests, text)}, and no single NUMA node can give that{listed}"
    if _is_grouped(asked):
        return Reason(code.MEMORY_GROUP_CONFLICT, clause, KEEP_GROUPS)
    return Reason(
        code.NO_SINGLE_NODE_FOR_MEMORY,
        clause,
        "Ask for less memory, make room by removing a pod, or use topologyManagerPolicy best-effort.",
    )


def _is_grouped(asked: MemoryHintsAsked) -> bool:
    """Tell whether one node would do, had it not joined a group."""
    return any(_has_enough(asked, node) for group in asked.groups for node in group)


def _has_enough(asked: MemoryHintsAsked, node: int) -> bool:
    free = asked.free.get(node, {})
    return all(free.get(resource, 0) >= amount for resource, amount in asked.requests.items())
