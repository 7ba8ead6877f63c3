"""Why a manager failed to serve a pod, in plain words: devices, CPUs, memory, in a merge or after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.engine.core.bits import list_text, members
from mooring.engine.core.pod import ContainerKind
from mooring.engine.cpumanager.facts import WholeCoresChecked
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.devicemanager.state import NOWHERE
from mooring.engine.memorymanager.facts import MemoryPinningFailed
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE
from mooring.explanations import reason as code
from mooring.explanations.chapters import Circumstances
from mooring.explanations.phrases import device_words, joined, nodes, only, per_node, plural, who
from mooring.explanations.reason import Reason
from mooring.explanations.story import Opinion, Taking
from mooring.explanations.why_memory import nothing_to_share, used_up_memory, why_no_memory
from mooring.lazy import lazily, replace

with lazily():
    import mooring.engine.plugins.facts as plugin_facts


def why_devices(opinion: Opinion, circumstances: Circumstances) -> Reason:
    """Return what is wrong with the devices of one resource; the sentence is a clause without its subject."""
    asked, name = opinion.asked, opinion.resource
    if not isinstance(asked, DeviceHintsAsked):
        return Reason(code.NOT_ENOUGH_DEVICES, f"requests {name}, but none is free", "Request fewer of them.")
    words = device_words(name, asked.need)
    if opinion.narrowest:
        return _apart(opinion, asked, circumstances)
    if asked.held not in (0, asked.need):
        return Reason(
            code.HOLDS_ANOTHER_NUMBER,
            f"requests {words}, but already holds {asked.held} from its earlier admission, and the kubelet does not "
            "change that number",
            "Delete the pod, so that its controller creates a new one.",
        )
    if tie := _tied(asked, circumstances):
        return tie
    return _unknown_nodes(asked, circumstances) or _too_few(asked, circumstances)


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


def _too_few(asked: DeviceHintsAsked, circumstances: Circumstances) -> Reason:
    """Return the reason for too few devices on the whole node: that it has too few, or that too few are free."""
    total, free = len(circumstances.devices.devices.get(asked.resource, ())), len(asked.free)
    left = "none" if not free else f"only {free}"
    has = f"{left} of {total} {'is' if free < 2 else 'are'} free"
    if total < asked.need:
        has = f"the node has {total or 'none'}"
    words = device_words(asked.resource, asked.need)
    if sick := unhealthy_devices(asked.resource, asked.need, circumstances):
        return replace(sick, sentence=f"requests {words}, but {sick.sentence}")
    return Reason(code.NOT_ENOUGH_DEVICES, f"requests {words}, but {has}", fewer_devices(asked.need, total))


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
    if tie := _tied(asked, circumstances):
        return tie
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


def why_smt(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a refusal by the check of full-pcpus-only."""
    checked = circumstances.refusal(WholeCoresChecked)
    if checked is None:
        return Reason(code.NO_WHOLE_CORES, "full-pcpus-only allocates whole cores only.")
    need, group = checked.need, checked.group
    asks = f"{who(checked.container)} requests {plural(need, 'exclusive CPU')}"
    if need % group:
        below, above = need // group * group, (need // group + 1) * group
        advice = f"request {below} or {above}" if below else f"request {above}"
        return Reason(
            code.NO_WHOLE_CORES,
            f"{asks}, but full-pcpus-only allocates whole cores of {group}{_by_average(circumstances, group)}: "
            f"{advice}.",
            "Request whole cores, or a fraction such as 900m to run in the shared pool.",
        )
    init = [container.name for container in circumstances.pod.containers if container.kind is ContainerKind.INIT]
    left = any(decision.containers[name].cpus for name in init if name in decision.containers)
    uncounted = "; the CPUs of its init containers do not count" if left else ""
    return Reason(
        code.TOO_FEW_WHOLE_CORES,
        f"{asks} in whole cores, but {only(checked.available, 'CPU')} in the shared pool on cores without a reserved "
        f"CPU{uncounted}.",
        "Request fewer CPUs, remove a pod, or reserve whole cores.",
    )


def _by_average(circumstances: Circumstances, group: int) -> str:
    topology = circumstances.settings.topology
    if topology is None or all(mask.bit_count() == group for mask in topology.cores.values()):
        return ""
    counted = circumstances.settings.plugins is not None and circumstances.settings.plugins.counts_cores
    return " (of the cores that plugins leave)" if counted else " (the average of this machine's cores)"


def why_empty_shared_pool(circumstances: Circumstances) -> Reason:
    """Return the reason for a pod whose exclusive containers leave nothing to share (KEP-5526)."""
    of_memory = any(isinstance(fact, MemoryPinningFailed) for fact in circumstances.facts)
    cause = nothing_to_share(used_up_memory(circumstances) if of_memory else "cpu")
    return Reason(
        cause.code, f"The pod as a whole {cause.sentence}: request more in the pod's own resources.", cause.remedy
    )


def why_unexpected(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for an error that the kubelet itself calls unexpected."""
    inner = decision.message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")
    if "[memorymanager]" in inner:
        return why_no_memory(inner, circumstances)
    devices = circumstances.refusal(DevicesTaken)
    if devices is not None:
        total = len(circumstances.devices.devices.get(devices.resource, ()))
        has = f"the node has {total or 'none'}" if total < devices.need else "fewer are free"
        cause = unhealthy_devices(devices.resource, devices.need, circumstances) or Reason(
            code.NOT_ENOUGH_DEVICES, has, fewer_devices(devices.need, total)
        )
        words = device_words(devices.resource, devices.need)
        return replace(cause, sentence=f"It requests {words}, but {cause.sentence} ({inner}).")
    taken = circumstances.refusal(Taking)
    if taken is None or any(run.place == "partition" for run in taken.runs):
        return Reason(code.NOT_SERVED, f"A resource manager returned an error ({inner}).")
    asks = f"{who(taken.container)} requests {plural(taken.need, 'exclusive CPU')}"
    usable = taken.pool.bit_count()
    if taken.need > usable:
        also = ", including those of its init containers" if taken.reusable else ""
        return Reason(
            code.NOT_ENOUGH_CPUS,
            f"{asks}, but {only(usable)} free{also}.",
            fewer_cpus(taken.need, usable, circumstances),
        )
    if _withheld_sentences(circumstances.facts):
        return Reason(
            code.WITHHELD,
            f"{asks}, but plugins withhold too many of the {usable} available.",
            "Change the pod's annotations or the settings of the plugin, request fewer CPUs, or remove a pod.",
        )
    return Reason(
        code.TAKING_FAILS,
        f"{asks} and {usable} are available, but the kubelet's allocation fails on their layout ({taken.error}).",
        "Request another number of CPUs, or use another CPU manager option.",
    )


def fewer_cpus(need: int, usable: int, circumstances: Circumstances) -> str:
    """Return what helps where too few CPUs are free; no pod is in the way of what the node does not have."""
    policy = circumstances.settings.cpu
    if policy is not None and (policy.topology.all_cpus & ~policy.reserved).bit_count() < need:
        return "Request fewer CPUs, or use a larger node."
    return "Request fewer CPUs, or remove a pod." if usable else "Remove a pod."


def with_withheld(reason: Reason, facts: Sequence[object]) -> Reason:
    """Return the reason for a refusal with the plugins that withheld CPUs, and why they did."""
    said = _withheld_sentences(facts)
    return replace(reason, sentence=f"{reason.sentence} {said}") if said else reason


def _withheld_sentences(facts: Sequence[object]) -> str:
    """Return one sentence for each plugin that withheld CPUs in the last question; empty when none did."""
    found = [fact for fact in facts if isinstance(fact, plugin_facts.PluginFiltered)]
    if not found:
        return ""
    last = {fact.plugin: fact for fact in found if fact.container == found[-1].container}
    given = 0
    for fact in facts:
        if isinstance(fact, plugin_facts.PluginMadeRoom) and fact.container == found[-1].container:
            given |= fact.cpus
    sentences = []
    for name, fact in last.items():
        cpus = fact.cpus & ~given
        if cpus:
            because = f": {fact.because}" if fact.because else ""
            sentences.append(f"The plugin {name} withholds {list_text(cpus)}{because}.")
    return " ".join(sentences)
