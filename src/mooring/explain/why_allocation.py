"""Why a manager failed to serve a pod that the topology manager had let through, in plain words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mooring.core.bits import members
from mooring.core.pod import ContainerKind
from mooring.cpumanager.facts import CPUsTaken, WholeCoresChecked
from mooring.devicemanager.facts import DevicesTaken
from mooring.explain import reason as code
from mooring.explain.circumstances import Circumstances, last
from mooring.explain.phrases import amounts_text, count, nodes, only, sizes, who
from mooring.explain.reason import Reason
from mooring.explain.why_plugins import withheld_sentences
from mooring.memorymanager import static as memory_static
from mooring.memorymanager.facts import MemoryAssigned, MemoryPinningFailed
from mooring.memorymanager.hints import free_in
from mooring.memorymanager.requests import container_requests, pod_requests
from mooring.memorymanager.reserved import MEMORY
from mooring.node import Decision

REMOVE_OR_LESS_MEMORY = "Ask for less memory, or remove a pod."
KEEP_APART = (
    "Remove the pods whose memory stands in the way: NUMA nodes that serve containers alone or in another group cannot "
    "join a group."
)


def why_smt(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a refusal by the check of full-pcpus-only."""
    checked = last(circumstances.facts, WholeCoresChecked)
    if checked is None:
        return Reason(code.NO_WHOLE_CORES, "full-pcpus-only gives whole cores only.")
    need, group = checked.need, checked.group
    asks = f"{who(checked.container)} asks for {count(need, 'exclusive CPU')}"
    if need % group:
        below, above = need // group * group, (need // group + 1) * group
        advice = f"ask for {below} or {above}" if below else f"ask for {above}"
        return Reason(
            code.NO_WHOLE_CORES,
            f"{asks}, but full-pcpus-only gives whole cores of {group}{_by_average(circumstances, group)}: {advice}.",
            "Ask for whole cores, or for a fraction such as 900m, which shares.",
        )
    init = [container.name for container in circumstances.pod.containers if container.kind is ContainerKind.INIT]
    left = any(decision.containers[name].cpus for name in init if name in decision.containers)
    uncounted = "; those that its init containers have are not counted" if left else ""
    return Reason(
        code.TOO_FEW_WHOLE_CORES,
        f"{asks} in whole cores, but {only(checked.available, 'CPU')} in the shared pool on cores without a reserved "
        f"CPU{uncounted}.",
        "Ask for fewer CPUs, remove a pod, or reserve whole cores.",
    )


def _by_average(circumstances: Circumstances, group: int) -> str:
    topology = circumstances.settings.topology
    if topology is None or all(mask.bit_count() == group for mask in topology.cores.values()):
        return ""
    counted = circumstances.settings.plugins is not None and circumstances.settings.plugins.counts_cores
    return " (on those that plugins leave)" if counted else " (the average of this machine's cores)"


def why_empty_shared_pool(decision: Decision) -> Reason:
    """Return the reason for a pod whose exclusive containers leave nothing to share (KEP-5526)."""
    cause = nothing_to_share(decision.message)
    return Reason(
        cause.code,
        f"The pod as a whole {cause.sentence}: ask for more in the pod's own resources.",
        cause.remedy,
    )


def nothing_to_share(message: str) -> Reason:
    """Return the clause for the kubelet's text about an empty shared pool of a pod.

    >>> nothing_to_share("pod rejected, pod has shared init containers but no cpus available for them").sentence
    'has containers with CPUs of their own that use up all of its CPUs, so that the others have none to share'
    """
    found = re.search(r"(?:container (\S+) requests equals|no (\S+) available)", message)
    named = (found.group(1) or found.group(2)) if found is not None else "cpu"
    what = "CPUs" if named in ("cpu", "cpus") else named
    return Reason(
        code.NOTHING_TO_SHARE,
        f"has containers with {what} of their own that use up all of its {what}, so that the others have none to share",
        f"Raise the {what} of the pod's own resources, or give every container {what} of its own.",
    )


def why_unexpected(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for an error that the kubelet itself calls unexpected."""
    facts = circumstances.facts
    if "[memorymanager]" in decision.message:
        return _why_memory(decision, circumstances)
    devices = last(facts, DevicesTaken)
    if devices is not None and devices.error:
        return Reason(
            code.NOT_ENOUGH_DEVICES,
            f"It asks for more devices than are left ({_inner(decision.message)}).",
            "Ask for fewer of them, or remove a pod that holds some.",
        )
    taken = last(facts, CPUsTaken)
    if taken is None or not taken.error:
        return Reason(code.NOT_SERVED, f"A resource manager could not serve it ({_inner(decision.message)}).")
    asks = f"{who(taken.container)} asks for {count(taken.need, 'exclusive CPU')}"
    usable = taken.pool.bit_count()
    if taken.need > usable:
        also = ", those of its init containers included" if taken.reusable else ""
        return Reason(
            code.NOT_ENOUGH_CPUS,
            f"{asks}, but {only(usable)} left{also}.",
            "Ask for fewer CPUs, or remove a pod." if usable else "Remove a pod.",
        )
    if withheld_sentences(facts):
        return Reason(
            code.WITHHELD,
            f"{asks}, and of the {usable} that can be had plugins leave too few.",
            "Change the pod's annotations or the settings of the plugin, ask for fewer CPUs, or remove a pod.",
        )
    return Reason(
        code.TAKING_FAILS,
        f"{asks} and {usable} can be had, but the kubelet's way of taking them fails on how they lie ({taken.error}).",
        "Ask for another number of CPUs, or use another CPU manager option.",
    )


def _inner(message: str) -> str:
    return message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")


def _why_memory(decision: Decision, circumstances: Circumstances) -> Reason:
    message = _inner(decision.message)
    failed = last(circumstances.facts, MemoryAssigned)
    if failed is None or not failed.error:
        failed = None
    container = failed.container if failed is not None else ""
    requests = _requests(container, circumstances)
    asks = f"{who(container)} asks for {amounts_text(requests)}" if requests else f"{who(container)} asks for memory"
    affinity = failed.affinity if failed is not None else None
    cause = _of_memory(message, affinity, requests, circumstances)
    return Reason(cause.code, f"{asks}{cause.sentence}.", cause.remedy)


def _of_memory(message: str, affinity: int | None, requests: Mapping[str, int], circumstances: Circumstances) -> Reason:
    """Return what is wrong; the sentence is the end of one."""
    chosen = nodes(members(affinity)) if affinity else "the NUMA nodes of its choice"
    if last(circumstances.facts, MemoryPinningFailed) is None:
        return Reason(code.NOT_SERVED, _not_served(message))
    if message == memory_static.NO_PREFERRED_DEFAULT:
        return Reason(
            code.TOO_MANY_NODES_FOR_MEMORY,
            ", which takes more NUMA nodes now than on an empty machine, and the topology manager allows no more",
            REMOVE_OR_LESS_MEMORY,
        )
    if message == memory_static.VIOLATION:
        return Reason(
            code.MEMORY_GROUP_CONFLICT,
            f"; {chosen} would have to form a group, but some of them serve other containers outside of it",
            KEEP_APART,
        )
    nowhere = _short_everywhere(requests, circumstances)
    if nowhere:
        return Reason(code.NOT_ENOUGH_MEMORY, nowhere, REMOVE_OR_LESS_MEMORY)
    if message == memory_static.NO_DEFAULT:
        return Reason(
            code.MEMORY_GROUP_CONFLICT,
            ", but no set of NUMA nodes can give that: nodes that serve other containers may not join a new group",
            KEEP_APART,
        )
    if message not in (memory_static.NO_EXTENSION, memory_static.NO_PREFERRED_EXTENSION):
        return Reason(code.NOT_SERVED, _not_served(message))
    short = _too_little(chosen, affinity, requests, circumstances)
    limit = (
        "no wider set may be used"
        if message == memory_static.NO_EXTENSION
        else "a wider set would be more than it takes on an empty machine"
    )
    if message == memory_static.NO_EXTENSION and MEMORY in requests:
        # All nodes together have enough, so that only their groups can forbid the set of all of them.
        barred = "nodes that serve other containers may not join a new group"
        return Reason(code.MEMORY_GROUP_CONFLICT, f"; {short}, and {limit}: {barred}", KEEP_APART)
    return Reason(code.TOO_LITTLE_WHERE_CHOSEN, f"; {short}, and {limit}", REMOVE_OR_LESS_MEMORY)


def _not_served(message: str) -> str:
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
