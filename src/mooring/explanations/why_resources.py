"""Why a pod got no memory or no devices: refused by the topology manager in a merge, or by their manager after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.core.pod import ContainerKind
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.devicemanager.state import NOWHERE
from mooring.engine.memorymanager import static as memory_static
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryHintsAsked, MemoryPinningFailed
from mooring.engine.memorymanager.pod_partition import shared_pool_error
from mooring.engine.memorymanager.policy import MEMORY, container_requests, pod_requests
from mooring.engine.memorymanager.state import free_in
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE
from mooring.explanations import codes as code
from mooring.explanations.chapters import Circumstances
from mooring.explanations.codes import Reason
from mooring.explanations.phrases import amounts_text, device_words, joined, nodes, only, per_node, plural, sizes, who
from mooring.explanations.story import Opinion
from mooring.lazy import replace

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
    return any(
        all(asked.free.get(node, {}).get(resource, 0) >= amount for resource, amount in asked.requests.items())
        for group in asked.groups
        for node in group
    )


def why_no_memory(message: str, circumstances: Circumstances) -> Reason:
    """Return the reason for a pod to which the memory manager could give no memory.

    Args:
        message: of the memory manager.
        circumstances: of the decision.
    """
    failed = circumstances.refusal(MemoryAssigned)
    container, affinity = (failed.container, failed.affinity) if failed is not None else ("", None)
    policy, pod, requests = circumstances.settings.memory, circumstances.pod, dict[str, int]()
    if policy is not None:
        found = next((one for one in pod.containers if one.name == container), None)
        asked = pod_requests(pod, policy.gates) if found is None else container_requests(pod, found, policy.gates)
        requests = {} if isinstance(asked, str) else dict(asked)
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
    tables = circumstances.memory.nodes
    if left := _short(requests, lambda kind: sum(of.free for one in tables.values() if (of := one.memory.get(kind)))):
        return Reason(code.NOT_ENOUGH_MEMORY, f", but {left} is free on the whole node", _REMOVE_OR_LESS_MEMORY)
    if message == memory_static.NO_DEFAULT:
        return Reason(
            code.MEMORY_GROUP_CONFLICT,
            ", but no set of NUMA nodes can provide that: nodes that serve other containers cannot join a new group",
            _KEEP_APART,
        )
    if message not in (memory_static.NO_EXTENSION, memory_static.NO_PREFERRED_EXTENSION):
        return Reason(code.NOT_SERVED, _not_served(message))
    short = f"{chosen} cannot provide that"
    if affinity and (left := _short(requests, lambda kind: free_in(tables, NUMAMask(affinity), kind))):
        short = f"{chosen}, chosen for it, {'has' if affinity.bit_count() == 1 else 'have'} {left} free"
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


def _short(requests: Mapping[str, int], free_of: Callable[[str], int]) -> str:
    """Say how little is free of the first type of which too little is; empty when there is enough of all."""
    for resource, amount in requests.items():
        if (free := free_of(resource)) < amount:
            return f"only {sizes(free, amount)(free)} of {resource}" if free else f"no {resource}"
    return ""


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


def why_devices(opinion: Opinion, circumstances: Circumstances) -> Reason:
    """Return what is wrong with the devices of one resource; the sentence is a clause without its subject."""
    asked, name = opinion.asked, opinion.resource
    if not isinstance(asked, DeviceHintsAsked):
        return Reason(code.NOT_ENOUGH_DEVICES, f"requests {name}, but none is free", "Request fewer of them.")
    words = device_words(name, asked.need)
    tie = _tied(asked, circumstances)
    if opinion.narrowest:
        return tie or _apart(opinion, asked, circumstances)
    if asked.held not in (0, asked.need):
        return Reason(
            code.HOLDS_ANOTHER_NUMBER,
            f"requests {words}, but already holds {asked.held} from its earlier admission, and the kubelet does not "
            "change that number",
            "Delete the pod, so that its controller creates a new one.",
        )
    if found := tie or _unknown_nodes(asked, circumstances):
        return found
    # The whole node has too few, or too few are free.
    total, free = len(circumstances.devices.devices.get(asked.resource, ())), len(asked.free)
    left = "none" if not free else f"only {free}"
    has = f"{left} of {total} {'is' if free < 2 else 'are'} free"
    if total < asked.need:
        has = f"the node has {total or 'none'}"
    if sick := unhealthy_devices(asked.resource, asked.need, circumstances):
        return replace(sick, sentence=f"requests {words}, but {sick.sentence}")
    return Reason(code.NOT_ENOUGH_DEVICES, f"requests {words}, but {has}", fewer_devices(asked.need, total))


def _unknown_nodes(asked: DeviceHintsAsked, circumstances: Circumstances) -> Reason | None:
    """Say that too few of the devices that are free, or that it holds, are on a known NUMA node, as hints need them."""
    known, free, policy = circumstances.settings.numa.nodes, len(asked.free), circumstances.settings.topology_policy
    near = sum(1 for mask in asked.free.values() if mask & known)
    if free < asked.need or near >= asked.need:
        return None
    total = sum(1 for device in circumstances.devices.devices.get(asked.resource, ()) if device.mask & known)
    has = f"it holds {free}" if asked.held else f"{free} {'is' if free == 1 else 'are'} free"
    listed = circumstances.devices.devices.get(asked.resource, ())
    nowhere = [device.id for device in listed if device.id in asked.free and NOWHERE in (device.numa or ())]
    named = joined(nowhere if len(nowhere) < 4 else [*nowhere[:2], f"{len(nowhere) - 2} more"])
    reported = f": the plugin reports NUMA node {NOWHERE} for {named}" if nowhere else ""
    return Reason(
        code.UNKNOWN_NODES,
        f"requests {device_words(asked.resource, asked.need)}; {has}, but {only(near)} on a known NUMA node, which "
        f"{policy} requires{reported}",
        "Let the device plugin report NUMA nodes of the machine for all of them, request fewer, "
        f"{'remove a pod that holds some, ' if total >= asked.need else ''}or use topologyManagerPolicy best-effort.",
    )


def unhealthy_devices(resource: str, need: int, circumstances: Circumstances) -> Reason | None:
    """Say that a node has enough devices and too few healthy ones; a clause. None where health is not the cause.

    After a restart of the kubelet all devices are unhealthy until their plugin registers again (kubelet v1.37.1,
    cm/devicemanager/manager.go, genericDeviceUpdateCallback).
    """
    devices = circumstances.devices.devices.get(resource, ())
    healthy = sum(device.healthy for device in devices)
    if not healthy < need <= len(devices):
        return None
    return Reason(
        code.UNHEALTHY_DEVICES,
        f"{f'only {healthy}' if healthy else 'none'} of {len(devices)} {'is' if healthy < 2 else 'are'} healthy",
        "Start or repair their device plugin, then create the pod again: a rejected pod without a controller stays "
        "Failed.",
    )


def fewer_devices(need: int, total: int) -> str:
    """Return what helps where too few devices are free; no pod is in the way of what the node does not have."""
    if total < need:
        if not total:
            return "Use a node that has some, or start their device plugin."
        return "Request fewer of them, or use a node with more."
    return "Request fewer of them, or remove a pod that holds some."


def _apart(opinion: Opinion, asked: DeviceHintsAsked, circumstances: Circumstances) -> Reason:
    """Say why no set of NUMA nodes that has enough of them satisfies the policy."""
    policy, name = circumstances.settings.topology_policy, opinion.resource
    words = device_words(name, asked.need)
    free = {node: types.get(name, 0) for node, types in opinion.free.items()}
    total = _per_node(circumstances, name, free)
    if policy != SINGLE_NUMA_NODE:
        takes = f"take {plural(opinion.narrowest, 'NUMA node')} now and fewer on an empty machine"
        return Reason(
            code.DEVICES_APART,
            f"requests {words}; they {takes}, so {policy} rejects them (free: {per_node(free)})",
            "Remove a pod that holds some, request fewer of them, or use topologyManagerPolicy best-effort.",
        )
    if max(total.values(), default=0) < asked.need:
        return Reason(
            code.MORE_DEVICES_THAN_A_NODE,
            f"needs {words} on one NUMA node; {_listed(total)}",
            "Request at most as many as one NUMA node has, or use topologyManagerPolicy restricted, which allows as "
            "many NUMA nodes as the request needs on an empty machine. Removing pods does not help.",
        )
    return Reason(
        code.DEVICES_APART,
        f"needs {words} on one NUMA node; {_listed(free, ' free')} (of {per_node(total)})",
        "Remove a pod that holds some, request fewer of them, or use topologyManagerPolicy best-effort.",
    )


def _per_node(circumstances: Circumstances, resource: str, nodes_: Mapping[int, int]) -> dict[int, int]:
    """Return how many devices of a resource each NUMA node has, used ones and unhealthy ones included."""
    devices = circumstances.devices.devices.get(resource, ())
    return {node: sum(1 for device in devices if device.mask >> node & 1) for node in nodes_}


def _listed(amounts: Mapping[int, int], state: str = "") -> str:
    alike = len(set(amounts.values())) == 1
    if alike:
        return f"each node has {next(iter(amounts.values()))}{state}"
    return f"free: {per_node(amounts)}" if state else f"the machine has {per_node(amounts)}"


def _tied(asked: DeviceHintsAsked, circumstances: Circumstances) -> Reason | None:
    """Say that devices which an init container got keep later containers on their NUMA nodes."""
    init = {one.name for one in circumstances.pod.containers if one.kind is ContainerKind.INIT}
    taken = [
        fact
        for fact in circumstances.facts
        if isinstance(fact, DevicesTaken) and fact.pod == asked.pod and fact.resource == asked.resource
    ]
    left = [fact for fact in taken if fact.container in init and fact.container != asked.container and fact.taken]
    home = 0
    for fact in left:
        home |= fact.near
    if not home or not asked.container:
        return None
    there = sum(1 for mask in asked.free.values() if mask & home)
    if there >= asked.need:
        return None
    words = device_words(asked.resource, asked.need)
    return Reason(
        code.PINNED_BY_DEVICES,
        f"needs {words}, and the kubelet keeps it on {nodes(members(home))}, where init container {left[0].container} "
        f"got its devices; including those, {there} {'is' if there == 1 else 'are'} available there",
        "Let the init container request none of them, or as many as the later container, so that the same devices "
        "serve both.",
    )


def no_common_node(opinions: Sequence[Opinion], circumstances: Circumstances) -> Reason | None:
    """Return the reason for devices of several resources of which no NUMA node has enough together; None otherwise."""
    asked = [one.asked for one in opinions if isinstance(one.asked, DeviceHintsAsked) and not one.indifferent]
    if circumstances.settings.topology_policy != SINGLE_NUMA_NODE or len(asked) < 2:
        return None
    every = dict.fromkeys(members(circumstances.settings.numa.nodes), 0)
    totals = {one.resource: _per_node(circumstances, one.resource, every) for one in asked}
    if any(all(totals[one.resource][node] >= one.need for one in asked) for node in every):
        return None
    has = [
        f"{resource}: {per_node({node: count for node, count in table.items() if count})}"
        for resource, table in totals.items()
    ]
    words = joined([device_words(one.resource, one.need) for one in asked])
    together = "both" if len(asked) == 2 else "all of them"
    return Reason(
        code.DEVICES_FAR_APART,
        f"needs {words} on one NUMA node; no NUMA node has {together} ({'; '.join(has)})",
        "Use a node that has these devices on one NUMA node, or topologyManagerPolicy best-effort. Removing pods does "
        "not help.",
    )


def why_empty_shared_pool(circumstances: Circumstances) -> Reason:
    """Return the reason for a pod whose exclusive containers leave nothing to share (KEP-5526)."""
    of_memory = any(isinstance(fact, MemoryPinningFailed) for fact in circumstances.facts)
    cause = nothing_to_share(used_up_memory(circumstances) if of_memory else "cpu")
    return Reason(
        cause.code, f"The pod as a whole {cause.sentence}: request more in the pod's own resources.", cause.remedy
    )
