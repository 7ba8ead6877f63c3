"""Why a manager failed to serve a pod that the topology manager had let through, in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mooring.core.bits import members
from mooring.core.pod import ContainerKind
from mooring.cpumanager.facts import CPUsTaken, WholeCoresChecked
from mooring.memorymanager import static as memory_static
from mooring.memorymanager.facts import MemoryAssigned
from mooring.memorymanager.hints import free_in
from mooring.memorymanager.requests import container_requests, pod_requests
from mooring.node import Decision
from mooring.planner.circumstances import Circumstances, last
from mooring.planner.phrases import amounts_text, count, nodes, only, sizes, who

DEVICES = "requested number of devices unavailable"


def why_smt(decision: Decision, circumstances: Circumstances) -> str:
    """Return the sentence for the check of full-pcpus-only."""
    checked = last(circumstances.facts, WholeCoresChecked)
    if checked is None:
        return "full-pcpus-only gives whole cores only."
    need, group = checked.need, checked.group
    asks = f"{who(checked.container)} asks for {count(need, 'exclusive CPU')}"
    if need % group:
        below, above = need // group * group, (need // group + 1) * group
        advice = f"ask for {below} or {above}" if below else f"ask for {above}"
        return f"{asks}, but full-pcpus-only gives whole cores of {group}{_by_average(circumstances, group)}: {advice}."
    init = [container.name for container in circumstances.pod.containers if container.kind is ContainerKind.INIT]
    left = any(decision.containers[name].cpus for name in init if name in decision.containers)
    uncounted = "; those that its init containers have are not counted" if left else ""
    return (
        f"{asks} in whole cores, but {only(checked.available, 'CPU')} in the shared pool on cores without a reserved "
        f"CPU{uncounted}."
    )


def _by_average(circumstances: Circumstances, group: int) -> str:
    topology = circumstances.settings.topology
    same = topology is None or all(mask.bit_count() == group for mask in topology.cores.values())
    return "" if same else " (the average of this machine's cores)"


def why_empty_shared_pool(decision: Decision) -> str:
    """Return the sentence for a pod whose exclusive containers leave nothing to share (KEP-5526)."""
    return f"The pod as a whole {nothing_to_share(decision.message)}: ask for more in the pod's own resources."


def nothing_to_share(message: str) -> str:
    """Return the clause for the kubelet's text about an empty shared pool of a pod.

    >>> nothing_to_share("pod rejected, pod has shared init containers but no cpus available for them")
    'has containers with CPUs of their own that use up all of its CPUs, so that the others have none to share'
    """
    found = re.search(r"(?:container (\S+) requests equals|no (\S+) available)", message)
    named = (found.group(1) or found.group(2)) if found is not None else "cpu"
    what = "CPUs" if named in ("cpu", "cpus") else named
    return (
        f"has containers with {what} of their own that use up all of its {what}, so that the others have none to share"
    )


def why_unexpected(decision: Decision, circumstances: Circumstances) -> str:
    """Return the sentence for an error that the kubelet itself calls unexpected."""
    if "[memorymanager]" in decision.message:
        return _why_memory(decision, circumstances)
    if DEVICES in decision.message:
        return f"It asks for more devices than are left ({_inner(decision.message)})."
    taken = last(circumstances.facts, CPUsTaken)
    if taken is None or not taken.error:
        return f"A resource manager could not serve it ({_inner(decision.message)})."
    asks = f"{who(taken.container)} asks for {count(taken.need, 'exclusive CPU')}"
    usable = taken.pool.bit_count()
    if taken.need > usable:
        also = ", those of its init containers included" if taken.reusable else ""
        return f"{asks}, but {only(usable)} left{also}."
    return (
        f"{asks} and {usable} can be had, but the kubelet's way of taking them fails on how they lie ({taken.error})."
    )


def _inner(message: str) -> str:
    return message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")


def _why_memory(decision: Decision, circumstances: Circumstances) -> str:
    message = _inner(decision.message)
    failed = last(circumstances.facts, MemoryAssigned)
    if failed is None or not failed.error:
        failed = None
    container = failed.container if failed is not None else ""
    requests = _requests(container, circumstances)
    asks = f"{who(container)} asks for {amounts_text(requests)}" if requests else f"{who(container)} asks for memory"
    affinity = failed.affinity if failed is not None else None
    return f"{asks}{_memory_clause(message, affinity, requests, circumstances)}."


def _memory_clause(
    message: str, affinity: int | None, requests: Mapping[str, int], circumstances: Circumstances
) -> str:
    chosen = nodes(members(affinity)) if affinity else "the NUMA nodes of its choice"
    if message == memory_static.NO_PREFERRED_DEFAULT:
        return ", which takes more NUMA nodes now than on an empty machine, and the topology manager allows no more"
    if message == memory_static.VIOLATION:
        return f"; {chosen} would have to form a group, but some of them serve other containers outside of it"
    nowhere = _short_everywhere(requests, circumstances)
    if nowhere:
        return nowhere
    if message == memory_static.NO_DEFAULT:
        return ", but no set of NUMA nodes can give that: nodes that serve other containers may not join a new group"
    if message == memory_static.NO_EXTENSION:
        return f"; {_too_little(chosen, affinity, requests, circumstances)}, and no wider set may be used"
    if message == memory_static.NO_PREFERRED_EXTENSION:
        short = _too_little(chosen, affinity, requests, circumstances)
        return f"; {short}, and a wider set would be more than it takes on an empty machine"
    return f", and the memory manager could not serve it ({message.removeprefix('[memorymanager] ')})"


def _too_little(chosen: str, affinity: int | None, requests: Mapping[str, int], circumstances: Circumstances) -> str:
    """Say how much the chosen nodes have of what they have too little of."""
    for resource, amount in requests.items() if affinity else ():
        free = free_in(circumstances.memory.nodes, affinity or 0, resource)
        if free < amount:
            left = f"only {sizes(free, amount)(free)} of {resource}" if free else f"no {resource}"
            return f"{chosen}, chosen for it, {_has(affinity)} {left} free"
    return f"{chosen} cannot give that"


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
