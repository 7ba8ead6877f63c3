"""Remarks about a pod that was admitted, each with its code; about devices that are farther apart than they need be.

No manager of the kubelet compares the devices of one resource with one another; they come from the NUMA nodes of the
merged hint, whose distances count only with prefer-closest-numa-nodes. So the judgement is this project's own, by the
distances that the firmware reports (ACPI SLIT).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, takewhile

from mooring.engine.core.bits import list_text, mask_of, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import DistributionChosen, SharePicked, TakeBegun
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Decision
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE
from mooring.explanations import codes as code
from mooring.explanations.chapters import Circumstances
from mooring.explanations.codes import Reason
from mooring.explanations.phrases import (
    cpus_text,
    device_words,
    fewest_elements,
    fewest_nodes,
    nodes,
    nodes_of,
    plural,
    positions,
)
from mooring.lazy import lazily

with lazily():
    import mooring.engine.extensions.facts as extension_facts


NUMADistances = Mapping[int, tuple[int, ...]]
"""NUMA node -> its distances, by node id."""

_MOST_SETS = 5_000
"""Sets of NUMA nodes that are compared; a machine has few nodes with devices of one resource."""


def far_devices(circumstances: Circumstances) -> Iterator[Reason]:
    """Say which container's devices are farther from one another than as many on an empty machine."""
    state, machine = circumstances.devices, circumstances.machine
    distances = {node.node_id: node.distances for node in machine.topology if node.distances} if machine else {}
    for container, resources in state.held.get(circumstances.pod.uid, {}).items():
        for resource, ids in resources.items():
            known = [one for one in state.devices.get(resource, ()) if one.mask]
            held = [one for one in known if one.id in ids]
            if len(held) < 2 or len(held) < len(ids):
                continue
            # A device that is near to several nodes counts for the first of them.
            has = sorted({min(members(one.mask)) for one in held})
            best = _closest([one for one in known if one.healthy], len(held), distances)
            if best and _spread_of(best, distances) < _spread_of(has, distances):
                here, there = (
                    nodes(one) + (f" (distance {apart})" if (apart := _spread_of(one, distances)[0]) else "")
                    for one in (has, best)
                )
                yield Reason(
                    code.DEVICES_SPREAD,
                    f"{container} has {device_words(resource, len(ids))} on {here}; on an empty machine {there} "
                    f"{'has' if len(best) == 1 else 'have'} as many",
                    "Start such pods first, or use topologyManagerPolicy single-numa-node or the option "
                    "prefer-closest-numa-nodes.",
                )


def devices_elsewhere(decision: Decision, circumstances: Circumstances, topology: Topology) -> Iterator[Reason]:
    """Say which container has its CPUs on no NUMA node of a device that it holds."""
    for container, placement in decision.containers.items():
        here = nodes_of(topology, placement.cpus.mask)
        known = mask_of(node for node in here if node >= 0)
        for resource, devices in decision.devices.get(container, {}).items() if known else ():
            away = {device.id: device.mask for device in devices if device.mask and not device.mask & known}
            if away:
                remedy = "To reject such pods instead, use topologyManagerPolicy restricted or single-numa-node."
                if "/" not in resource and circumstances.settings.device_alignments is None:
                    remedy = (
                        "The kubelet's topology manager does not see devices of claims. The node agent does, with the "
                        "extension device-alignment: --devices follow shows it."
                    )
                yield Reason(
                    code.DEVICES_ELSEWHERE, f"{container} is not beside {positions(away)} ({resource})", remedy
                )


def _spread_of(chosen: Sequence[int], distances: NUMADistances) -> tuple[int, int]:
    """Return the largest distance between two of some NUMA nodes, 0 where the machine reports none, and their number.

    The smaller, the nearer are devices there.
    """
    reported = (distances.get(one, ())[other : other + 1] for one in chosen for other in chosen)
    return max((found[0] for found in reported if found), default=0), len(chosen)


def _closest(devices: Sequence[Device], need: int, distances: NUMADistances) -> Sequence[int]:
    """Return the closest NUMA nodes that have so many devices, used ones included; empty if none is found."""
    counts = Counter(min(members(device.mask)) for device in devices)
    best: Sequence[int] = ()
    tried = 0
    for size in range(1, len(counts) + 1):
        for chosen in combinations(sorted(counts), size):
            tried += 1
            if tried > _MOST_SETS:
                return best
            enough = sum(counts[node] for node in chosen) >= need
            if enough and (not best or _spread_of(chosen, distances) < _spread_of(best, distances)):
                best = chosen
        if best:
            return best
    return best


def spoken_remarks(decision: Decision, circumstances: Circumstances, topology: Topology) -> list[Reason]:
    """Return the remarks that belong into one sentence about the pod: at most one of each kind."""
    spread = next(_spread(decision, circumstances, topology), None)
    elsewhere = next(devices_elsewhere(decision, circumstances, topology), None)
    found = [spread, elsewhere, _stranded(decision, circumstances), _sharing(decision)]
    return [remark for remark in found if remark is not None]


def all_remarks(decision: Decision, circumstances: Circumstances) -> list[Reason]:
    """Return every remark about an admitted pod; none about a rejected one."""
    topology = circumstances.settings.topology
    if not decision.admitted:
        return []
    found = list(far_devices(circumstances))
    if topology is None or circumstances.settings.cpu is None:
        return found
    found += _spread(decision, circumstances, topology)
    found += devices_elsewhere(decision, circumstances, topology)
    found += _split_caches(decision, circumstances, topology)
    found += _uneven(circumstances)
    found += _shared_cores(decision, topology)
    found += _memory(decision, topology)
    found += [one for one in (_stranded(decision, circumstances), _sharing(decision)) if one is not None]
    if not decision.shared_pool:
        found.append(
            Reason(
                code.POOL_EMPTY,
                "the shared pool is now empty: containers without exclusive CPUs run on the exclusive CPUs of others",
                "Reserve CPUs without strict-cpu-reservation, so that some always stay in the shared pool.",
            )
        )
    return found


def _spread(decision: Decision, circumstances: Circumstances, topology: Topology) -> Iterator[Reason]:
    """Say which container is spread over more NUMA nodes than its number of CPUs requires, and why."""
    cpu, policy = circumstances.settings.cpu, circumstances.settings.topology_policy
    reserved = cpu.reserved if cpu is not None else 0
    why = {NONE: ": topology manager policy none ignores NUMA nodes", BEST_EFFORT: ": best-effort accepts any set"}
    because = why.get(policy, "")
    if cpu is not None and cpu.rules.distribute:
        because = ", which distribute-cpus-across-numa allows"
    for name, placement in decision.containers.items():
        used = len(nodes_of(topology, placement.cpus.mask))
        fewest = fewest_nodes(topology, len(placement.cpus), reserved)
        if placement.cpus and 0 < fewest < used:
            yield Reason(
                code.SPREAD,
                f"{name} is spread over {used} NUMA nodes although {fewest} can hold it on an empty machine{because}",
                "To reject such pods instead, use topologyManagerPolicy restricted or single-numa-node.",
            )


def _split_caches(decision: Decision, circumstances: Circumstances, topology: Topology) -> Iterator[Reason]:
    """Say which container has CPUs under more last-level caches than its number of CPUs requests."""
    cpu = circumstances.settings.cpu
    if cpu is None or not cpu.rules.uncore or len(topology.uncores) < 2:
        return
    for name, placement in decision.containers.items():
        used = sum(1 for mask in topology.uncores.values() if mask & placement.cpus.mask)
        fewest = fewest_elements(topology.uncores.values(), len(placement.cpus), cpu.reserved)
        if placement.cpus and 0 < fewest < used:
            yield Reason(
                code.CACHES_SPLIT,
                f"{name} has CPUs of {used} uncore caches although {fewest} can hold it on an empty machine: "
                "prefer-align-cpus-by-uncorecache is a preference, not a requirement",
                "Request a number of CPUs that fills whole caches, or start such pods first.",
            )


def _uneven(circumstances: Circumstances) -> Iterator[Reason]:
    """Say which distribution over NUMA nodes had a rest that some nodes gave alone."""
    place = ""
    for position, fact in enumerate(circumstances.facts):
        if isinstance(fact, TakeBegun):
            place = fact.container
        if not isinstance(fact, DistributionChosen) or not fact.rest:
            continue
        shares = takewhile(lambda one: isinstance(one, SharePicked), circumstances.facts[position + 1 :])
        givers = {share.node for share in shares if isinstance(share, SharePicked) and share.is_rest}
        if givers:
            yield Reason(
                code.UNEVEN_SHARES,
                f"{place or 'the pod as a whole'} has {fact.share} CPUs from each of {nodes(fact.nodes)} and the "
                f"remaining {fact.rest} from {nodes(givers)}",
                "Equal shares need a number of CPUs that divides evenly among the NUMA nodes.",
            )


def _shared_cores(decision: Decision, topology: Topology) -> Iterator[Reason]:
    """Say which container has one thread of a core whose other thread is not its own."""
    own = CPUSet(decision.pod.cpus.mask)
    for placement in decision.containers.values():
        own |= placement.cpus
    # Threads that are hidden for it belong to no other container.
    for cpus in decision.hidden.values():
        own |= cpus
    for name, placement in decision.containers.items():
        others = topology.core_siblings(placement.cpus.mask) & ~own.mask
        if others:
            several = others.bit_count() > 1
            them = (
                f"CPUs {CPUSet(others)} are sibling threads" if several else f"CPU {CPUSet(others)} is a sibling thread"
            )
            yield Reason(
                code.CORE_SHARED,
                f"{name} shares cores with other containers: {them} outside its CPU set",
                "full-pcpus-only allocates whole cores only.",
            )


def _memory(decision: Decision, topology: Topology) -> Iterator[Reason]:
    for name, placement in decision.containers.items():
        if len(placement.mems) > 1:
            yield Reason(
                code.MEMORY_GROUP,
                f"the memory of {name} is on {nodes(placement.mems)} as one group; until it is released, these nodes "
                "serve only that group",
                "If possible, request no more memory than one NUMA node has free.",
            )
        near = nodes_of(topology, placement.cpus.mask)
        if placement.cpus and placement.mems and not set(near) & set(placement.mems):
            yield Reason(
                code.MEMORY_ELSEWHERE,
                f"{name} has its CPUs on {nodes(near)} and its memory on {nodes(placement.mems)}",
                "topologyManagerPolicy restricted or single-numa-node keeps them together or rejects the pod.",
            )


def _stranded(decision: Decision, circumstances: Circumstances) -> Reason | None:
    """Say how many CPUs were for ended init containers alone and stay allocated (kubernetes/kubernetes#112228)."""
    of_init = of_others = CPUSet()
    for container in circumstances.pod.containers:
        # A decision about one of the containers has that one only.
        cpus = decision.containers.get(container.name, Placement()).cpus
        if container.kind is ContainerKind.INIT:
            of_init |= cpus
        else:
            of_others |= cpus
    idle = len(of_init - of_others)
    if not idle or decision.pod.cpus:
        return None
    verb, stay = ("is", "stays") if idle == 1 else ("are", "stay")
    return Reason(
        code.STRANDED_CPUS,
        f"{idle} of them {verb} for init containers only and {stay} allocated to the pod",
        "Request no more CPUs for init containers than for the apps, or a fraction of a CPU so that they share.",
    )


def _sharing(decision: Decision) -> Reason | None:
    sharing = sum(1 for placement in decision.containers.values() if not placement.cpus)
    if not sharing or sharing == len(decision.containers):
        return None
    return Reason(
        code.NEIGHBOURS_SHARE,
        f"{plural(sharing, 'other container')} {'runs' if sharing == 1 else 'run'} in the shared pool",
    )


def left_out_words(fact: extension_facts.OfflineCPUsLeftOut) -> str:
    """Say which CPUs were not available to a pod.

    >>> left_out_words(extension_facts.OfflineCPUsLeftOut("uid", 0b1000, 0b110))
    'CPU 3 is offline; CPUs 1-2 are unavailable until others come online'
    """
    states = ((fact.offline, "offline"), (fact.kept, "unavailable until others come online"))
    found = ((mask, "is" if mask.bit_count() == 1 else "are", state) for mask, state in states if mask)
    return "; ".join(f"{cpus_text(mask)} {are} {state}" for mask, are, state in found)


def loss_words(fact: extension_facts.CPUsBroken | extension_facts.CPUsReplaced) -> str:
    """Say which CPUs a set lost and which replace them, as a clause that begins a sentence.

    >>> loss_words(extension_facts.CPUsBroken("uid", "main", 0b110, 0b10, "1 needed, 0 free"))
    'main lost CPU 1, which is offline and has no replacement: 1 needed, 0 free'
    """
    who = fact.container or "The pod"
    if isinstance(fact, extension_facts.CPUsReplaced):
        lost, taken = fact.before & ~fact.after, fact.after & ~fact.before
        where = nodes(members(fact.nodes)) if fact.nodes else "any NUMA node"
        return f"{who} lost {cpus_text(lost)}, replaced by {list_text(taken)} for now; it was allocated on {where}"
    are, have = ("is", "has") if fact.lost.bit_count() == 1 else ("are", "have")
    return f"{who} lost {cpus_text(fact.lost)}, which {are} offline and {have} no replacement: {fact.why}"


def other_cores(pod: Pod, decision: Decision) -> Iterator[str]:
    """Say which containers name CPUs themselves, in arguments or environment, that are not among those they get."""
    for container in pod.containers:
        placement = decision.containers.get(container.name)
        gets = placement.cpus if placement is not None and placement.cpus else decision.shared_pool
        for written, named in container.core_lists:
            others = named - gets
            if others and gets:
                yield (
                    f"container {container.name} names CPUs {named} ({written:.60}), of which {others} "
                    f"{'is' if len(others) == 1 else 'are'} not among those that it gets here ({gets}); the numbers "
                    "can differ at each start: let the program read its CPUs, such as from cpuset.cpus.effective of "
                    "its control group"
                )
