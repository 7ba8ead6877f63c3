"""Why a pod was not admitted, in plain words: by the topology manager in a merge, or by a manager that failed after it.

Every figure comes from the facts of the merge that failed, and every claim is checked against them before it is made.
With the extension device-alignment also why CPUs and memory could not follow the devices that are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from mooring.engine.core.bits import NUMAMask, list_text, members
from mooring.engine.core.pod import ContainerKind
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUHintsAsked, WholeCoresChecked
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import RESTRICTED, SINGLE_NUMA_NODE
from mooring.explanations import codes as code
from mooring.explanations.chapters import CPU, MEMORY, Circumstances, is_followed
from mooring.explanations.codes import Reason
from mooring.explanations.phrases import (
    amounts_text,
    device_words,
    fewest_nodes,
    joined,
    node_sets,
    nodes,
    nodes_of,
    only,
    per_node,
    plural,
    positions,
    who,
)
from mooring.explanations.story import Chapter, Opinion, Taking
from mooring.explanations.why_resources import (
    MAKE_ROOM,
    fewer_devices,
    no_common_node,
    nothing_to_share,
    unhealthy_devices,
    why_devices,
    why_memory,
    why_no_memory,
)
from mooring.lazy import lazily, replace

with lazily():
    import mooring.engine.plugins.facts as plugin_facts


def why_smt(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a refusal by the check of full-pcpus-only."""
    checked = circumstances.refusal(WholeCoresChecked)
    if checked is None:
        return Reason(code.NO_WHOLE_CORES, "full-pcpus-only allocates whole cores only.")
    need, group = checked.need, checked.group
    asks = f"{who(checked.container)} requests {plural(need, 'exclusive CPU')}"
    if need % group:
        topology, plugins = circumstances.settings.topology, circumstances.settings.plugins
        cores = f"whole cores of {group}"
        if topology is not None and any(mask.bit_count() != group for mask in topology.cores.values()):
            left = plugins is not None and plugins.counts_cores
            cores += " (of the cores that plugins leave)" if left else " (the average of this machine's cores)"
        below, above = need // group * group, (need // group + 1) * group
        advice = f"request {below} or {above}" if below else f"request {above}"
        return Reason(
            code.NO_WHOLE_CORES,
            f"{asks}, but full-pcpus-only allocates {cores}: {advice}.",
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
    asked, topology = first.asked, circumstances.settings.topology
    if first.resource == MEMORY:
        cause = why_memory(first, decision, circumstances)
    elif first.resource != CPU:
        cause = why_devices(first, circumstances)
    elif topology is None or not isinstance(asked, CPUHintsAsked):
        cause = nothing_to_share(CPU)
    else:
        cause = _cpus(asked, first.narrowest, topology, decision, circumstances)
        cause = replace(cause, sentence=f"requests {plural(asked.need, 'exclusive CPU')}{cause.sentence}")
    sentence = f"{subject} {cause.sentence}."
    if others:
        sentence += (
            f" Its {joined([_LABELS.get(one.resource, one.resource) for one in others])} alone would be rejected, too."
        )
    return replace(cause, sentence=sentence)


def _conflict(opinions: Sequence[Opinion], policy: str) -> str:
    """Say that every resource could be served well, but not all in the same place; and what is short where one is."""
    suits = {_LABELS.get(one.resource, one.resource): _wanted(one, policy) for one in opinions if not one.indifferent}
    places: dict[str, list[str]] = {}
    for label, sets in suits.items():
        places.setdefault(node_sets(sets), []).append(label)
    parts = "; ".join(f"{joined(labels)} on {sets}" for sets, labels in places.items())
    clause = f"can get {parts}, but no set of NUMA nodes suits all of them, which {policy} requires"
    rare = min(suits.values(), key=len)
    short = [label for label, sets in suits.items() if not {*sets} & {*rare}]
    if not short or any(mask.bit_count() != 1 for sets in suits.values() for mask in sets):
        return clause
    where = nodes(mask.bit_length() - 1 for mask in rare)
    return f"{clause}: {where} {'lacks' if len(rare) == 1 else 'lack'} free {joined(short)}"


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


def _wider(asked: CPUHintsAsked, now: int, topology: Topology) -> str:
    """Return how many nodes it takes now, and how many on an empty machine."""
    fewest = fewest_nodes(topology, asked.need)
    if not fewest < now:
        return "other NUMA nodes than it prefers"
    return f"{plural(now, 'NUMA node')} now and {fewest} on an empty machine (reserved CPUs counted)"


def why_followed(chapter: Chapter, policy: str) -> Reason | None:
    """Return the reason for a refusal that devices cause; None when no device is followed, or something else does.

    Args:
        chapter: in which the pod was refused.
        policy: the node's topology policy.
    """
    tied = [opinion for opinion in chapter.opinions if is_followed(opinion)]
    if not tied or chapter.merge is None:
        return None
    ruled = chapter.merge.policy
    home = set[int].intersection(*({*_wanted(opinion, ruled)} for opinion in tied))
    devices = [(one.resource, one.asked) for one in tied]
    held = [f"{name} {positions(asked.free)}" for name, asked in devices if isinstance(asked, DeviceHintsAsked)]
    holds = f"{who(chapter.container)} holds {joined(held)}"
    looser = "deviceAlignment follow instead of require"
    if policy in (RESTRICTED, SINGLE_NUMA_NODE):
        looser = "deviceAlignment ignore, or topologyManagerPolicy best-effort"
    if not home:
        return Reason(
            code.HELD_APART,
            f"{holds}: no set of NUMA nodes suits all of them, which {ruled} requires.",
            "Request devices that are near one another, for example by matchAttribute in a claim, or let CPUs and "
            f"memory ignore some of them ({looser}).",
        )
    others = [opinion for opinion in chapter.opinions if opinion not in tied and not opinion.indifferent]
    if not all(opinion.suffices for opinion in others):
        return None
    far = [opinion for opinion in others if home.isdisjoint(_wanted(opinion, ruled))] or others
    gets = []
    for opinion in far:
        amount = amounts_text(opinion.need) if opinion.resource == MEMORY else opinion.resource
        if opinion.resource == CPU:
            amount = plural(opinion.need.get(CPU, 0), "exclusive CPU")
        gets.append(f"{amount} only on {node_sets(_wanted(opinion, ruled))}")
    return Reason(
        code.FAR_FROM_DEVICES,
        f"{holds}, but can get {joined(gets)}; {ruled} requires one place for all of them.",
        "Remove a pod that has CPUs or memory where the devices are, request less, or let CPUs and memory come from "
        f"elsewhere ({looser}).",
    )


def _wanted(opinion: Opinion, policy: str) -> list[int]:
    """Return the sets of NUMA nodes that the policy would admit for one resource; of more than can be listed one."""
    return [1 << node for node in members(opinion.alone)] if policy == SINGLE_NUMA_NODE else [*opinion.preferred]
