"""Why a pod got no memory: refused by the topology manager in a merge, or by the memory manager after it."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.memorymanager import static as memory_static
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryHintsAsked, MemoryPinningFailed
from mooring.engine.memorymanager.pod_partition import shared_pool_error
from mooring.engine.memorymanager.policy import MEMORY, container_requests, pod_requests
from mooring.engine.memorymanager.state import free_in
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE
from mooring.explanations import reason as code
from mooring.explanations.chapters import Circumstances
from mooring.explanations.phrases import amounts_text, joined, nodes, per_node, plural, sizes, who
from mooring.explanations.reason import Reason
from mooring.explanations.story import Opinion

MAKE_ROOM = "Remove a pod, start this pod earlier"
_KEEP_GROUPS = (
    "Remove the pods whose memory spans several NUMA nodes, or run them on another node: a NUMA node in a group serves "
    "only containers of that group."
)
_REMOVE_OR_LESS_MEMORY = "Request less memory, or remove a pod."
_KEEP_APART = (
    "Remove the pods that use these NUMA nodes: a NUMA node that serves containers alone or in another group cannot "
    "join a group."
)


def why_memory(opinion: Opinion, decision: Decision, circumstances: Circumstances) -> Reason:
    """Return what is wrong with the memory in a merge; the sentence is a clause without its subject."""
    asked, policy = opinion.asked, circumstances.settings.topology_policy
    if not isinstance(asked, MemoryHintsAsked):
        if not opinion.narrowest:
            return nothing_to_share(used_up_memory(circumstances))
        held = {node for placement in decision.containers.values() for node in placement.mems}
        return Reason(
            code.HELD_ELSEWHERE,
            f"already holds memory on {nodes(held)}, which {policy} rejects when the pod is admitted again",
            "Delete the pod, so that its controller creates a new one.",
        )
    if policy == SINGLE_NUMA_NODE:
        return _no_single_node(asked)
    asks, now = f"requests {amounts_text(asked.requests)}", plural(opinion.narrowest, "NUMA node")
    clause = f"{asks}, which takes {now} now and fewer on an empty machine; {policy} rejects that"
    if _is_grouped(asked):
        groups = joined([nodes(group) for group in asked.groups])
        serve = "serve other containers as one group" if len(asked.groups) == 1 else "serve other containers as groups"
        return Reason(code.MEMORY_GROUP_CONFLICT, f"{clause}: {groups} {serve}", _KEEP_GROUPS)
    return Reason(
        code.TOO_MANY_NODES_FOR_MEMORY,
        clause,
        f"{MAKE_ROOM}, request less memory, or use topologyManagerPolicy best-effort.",
    )


def used_up_memory(circumstances: Circumstances) -> str:
    """Return the memory type of which the containers of a pod-level pod leave nothing to share."""
    pod, policy = circumstances.pod, circumstances.settings.memory
    asked = pod_requests(pod, policy.gates) if policy is not None else {}
    return shared_pool_error(pod, asked, policy.gates)[1] if policy is not None and not isinstance(asked, str) else ""


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
    parts += [f"{nodes(group)} serve other containers as one group" for group in asked.groups]
    listed = f" ({'; '.join(parts)})" if parts else ""
    clause = f"requests {amounts_text(asked.requests, text)}, but no single NUMA node can provide that{listed}"
    if _is_grouped(asked):
        return Reason(code.MEMORY_GROUP_CONFLICT, clause, _KEEP_GROUPS)
    return Reason(
        code.NO_SINGLE_NODE_FOR_MEMORY,
        clause,
        "Request less memory, remove a pod, or use topologyManagerPolicy best-effort.",
    )


def _is_grouped(asked: MemoryHintsAsked) -> bool:
    """Tell whether one node would do, had it not joined a group."""
    return any(_has_enough(asked, node) for group in asked.groups for node in group)


def _has_enough(asked: MemoryHintsAsked, node: int) -> bool:
    free = asked.free.get(node, {})
    return all(free.get(resource, 0) >= amount for resource, amount in asked.requests.items())


def why_no_memory(message: str, circumstances: Circumstances) -> Reason:
    """Return the reason for a pod to which the memory manager could give no memory.

    Args:
        message: of the memory manager.
        circumstances: of the decision.
    """
    failed = circumstances.refusal(MemoryAssigned)
    container, affinity = (failed.container, failed.affinity) if failed is not None else ("", None)
    requests = _requests(container, circumstances)
    if not requests and message in (memory_static.NO_DEFAULT, memory_static.VIOLATION):
        # The reason for a container without memory requests (rule empty-memory-request-is-served, up to v1.36).
        name, release = who(container), circumstances.settings.release.name
        if message == memory_static.VIOLATION:
            chosen = nodes(members(affinity)) if affinity else "NUMA nodes"
            sentence = f"{name} requests no memory, but was given {chosen}, which serve other containers"
        else:
            sentence = f"{name} requests no memory, and kubelet {release} finds no NUMA nodes for such a container"
        return Reason(code.NOT_SERVED, f"{sentence}.", "Give the container a memory request that equals its limit.")
    asks = f"{who(container)} requests {amounts_text(requests)}" if requests else f"{who(container)} requests memory"
    if failed is None and circumstances.refusal(MemoryPinningFailed) is None:
        cause = Reason(code.NOT_SERVED, _not_served(message))
    else:
        cause = _no_memory(message, affinity, requests, circumstances)
    return Reason(cause.code, f"{asks}{cause.sentence}.", cause.remedy)


def _no_memory(message: str, affinity: int | None, requests: Mapping[str, int], circumstances: Circumstances) -> Reason:
    """Return what is wrong; the sentence is the end of one."""
    chosen = nodes(members(affinity)) if affinity else "the NUMA nodes chosen for it"
    if message == memory_static.NO_PREFERRED_DEFAULT:
        return Reason(
            code.TOO_MANY_NODES_FOR_MEMORY,
            ", which takes more NUMA nodes now than on an empty machine; the topology manager allows no more",
            _REMOVE_OR_LESS_MEMORY,
        )
    if message == memory_static.VIOLATION:
        return Reason(
            code.MEMORY_GROUP_CONFLICT,
            f"; {chosen} must form a group for it, but some of them already serve other containers outside that group",
            _KEEP_APART,
        )
    nowhere = _short_everywhere(requests, circumstances)
    if nowhere:
        return Reason(code.NOT_ENOUGH_MEMORY, nowhere, _REMOVE_OR_LESS_MEMORY)
    if message == memory_static.NO_DEFAULT:
        return Reason(
            code.MEMORY_GROUP_CONFLICT,
            ", but no set of NUMA nodes can provide that: nodes that serve other containers cannot join a new group",
            _KEEP_APART,
        )
    if message not in (memory_static.NO_EXTENSION, memory_static.NO_PREFERRED_EXTENSION):
        return Reason(code.NOT_SERVED, _not_served(message))
    short = _too_little(chosen, affinity, requests, circumstances)
    limit = (
        "no larger set is allowed"
        if message == memory_static.NO_EXTENSION
        else "a larger set exceeds what it takes on an empty machine"
    )
    if message == memory_static.NO_EXTENSION and MEMORY in requests:
        # All nodes together have enough, so that only their groups can forbid the set of all of them.
        barred = "nodes that serve other containers cannot join a new group"
        return Reason(code.MEMORY_GROUP_CONFLICT, f"; {short}, and {limit}: {barred}", _KEEP_APART)
    return Reason(code.TOO_LITTLE_WHERE_CHOSEN, f"; {short}, and {limit}", _REMOVE_OR_LESS_MEMORY)


def _not_served(message: str) -> str:
    return f", and the memory manager returned an error ({message.removeprefix('[memorymanager] ')})"


def _too_little(chosen: str, affinity: int | None, requests: Mapping[str, int], circumstances: Circumstances) -> str:
    """Say how much the chosen nodes have of what they have too little of."""
    for resource, amount in requests.items() if affinity else ():
        free = free_in(circumstances.memory.nodes, NUMAMask(affinity or 0), resource)
        if free < amount:
            left = f"only {sizes(free, amount)(free)} of {resource}" if free else f"no {resource}"
            return f"{chosen}, chosen for it, {_has(affinity)} {left} free"
    return f"{chosen} cannot provide that"


def _has(nodes_mask: int | None) -> str:
    return "has" if nodes_mask is not None and nodes_mask.bit_count() == 1 else "have"


def _short_everywhere(requests: Mapping[str, int], circumstances: Circumstances) -> str:
    """Say of what the whole node has too little; empty when it has enough of everything."""
    for resource, amount in requests.items():
        tables = [state.memory.get(resource) for state in circumstances.memory.nodes.values()]
        free = sum(table.free for table in tables if table is not None)
        if free < amount:
            left = f"only {sizes(free, amount)(free)} of {resource}" if free else f"no {resource}"
            return f", but {left} is free on the whole node"
    return ""


def _requests(container: str, circumstances: Circumstances) -> Mapping[str, int]:
    policy = circumstances.settings.memory
    if policy is None:
        return {}
    found = [one for one in circumstances.pod.containers if one.name == container]
    asked = (
        container_requests(circumstances.pod, found[0], policy.gates)
        if found
        else pod_requests(circumstances.pod, policy.gates)
    )
    return {} if isinstance(asked, str) else asked


def nothing_to_share(resource: str) -> Reason:
    """Return the clause for an empty shared pool of a pod.

    >>> nothing_to_share("cpu").sentence
    'has containers with exclusive CPUs that use all of its CPUs and leave none for the others to share'
    """
    what = "CPUs" if resource == "cpu" else resource or MEMORY
    return Reason(
        code.NOTHING_TO_SHARE,
        f"has containers with exclusive {what} that use all of its {what} and leave none for the others to share",
        f"Raise the {what} in the pod's own resources, or give every container exclusive {what}.",
    )
