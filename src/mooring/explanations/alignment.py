"""How well containers are aligned: on how many NUMA nodes, sockets and L3 caches they lie, and how many they need.

A container needs as many as would hold it on the empty machine, reserved CPUs left out; where its CPUs, memory and
devices have no NUMA node in common, it needs more than each of them alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import combinations
from math import comb

from mooring.documents.explanation import ExtentPart
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import Block, NUMANodeState
from mooring.engine.node import Decision
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import Settings
from mooring.explanations.phrases import fewest_elements, nodes_of, plural

MOST_SETS = 5000
"""Up to so many sets of NUMA nodes of one size are tried; with more the size counts as sufficient."""

Supply = tuple[Mapping[int, int], int]
"""What each NUMA node of the empty machine has of something, and how much of it is needed."""


class AlignmentLevel(Enum):
    """What a container is aligned to; the value is its name in words."""

    NUMA = "NUMA node"
    """Of its exclusive CPUs and its memory."""
    SOCKET = "socket"
    L3 = "L3 cache"
    """The kubelet's uncore caches; left out where they are the sockets."""
    DEVICES = "NUMA node with its devices"
    """Of its CPUs, its memory and its devices together."""


def level_words(level: AlignmentLevel, count: int) -> str:
    """Return a number of elements in words.

    >>> level_words(AlignmentLevel.DEVICES, 2)
    '2 NUMA nodes with its devices'
    """
    first, *rest = level.value.split(" with ")
    return " with ".join([plural(count, first), *rest])


def extent_words(extent: ExtentPart) -> str:
    """Return on how many elements of a level a container lies, and how many it needs, in words.

    >>> extent_words(ExtentPart("numa", 2, 1))
    '2 NUMA nodes, 1 needed'
    """
    return f"{level_words(AlignmentLevel[extent.level.upper()], extent.held)}, {extent.needed} needed"


def nodes_needed(supplies: Sequence[Supply]) -> int:
    """Return on how many NUMA nodes of the empty machine everything fits together; 0 when on none.

    >>> nodes_needed([({0: 4, 1: 4}, 4), ({0: 0, 1: 1}, 1)]), nodes_needed([({0: 4, 1: 0}, 4), ({0: 0, 1: 1}, 1)])
    (1, 2)
    """
    nodes = sorted({node for table, _ in supplies for node in table})
    for size in range(1, len(nodes) + 1):
        if not all(sum(sorted(table.values(), reverse=True)[:size]) >= need for table, need in supplies):
            continue
        if len(supplies) == 1 or comb(len(nodes), size) > MOST_SETS:
            return size
        for chosen in combinations(nodes, size):
            if all(sum(table.get(node, 0) for node in chosen) >= need for table, need in supplies):
                return size
    return 0


def memory_supplies(blocks: Iterable[Block], nodes: Mapping[int, NUMANodeState]) -> list[Supply]:
    """Return what a container's memory needs, by type.

    Args:
        blocks: that it holds.
        nodes: tables of the memory manager.
    """
    total: Counter[str] = Counter()
    for block in blocks:
        total[block.type] += block.size
    return [
        ({node: table.allocatable for node, state in nodes.items() if (table := state.memory.get(kind))}, size)
        for kind, size in total.items()
    ]


def device_supplies(held: Mapping[str, Sequence[Device]], offered: Mapping[str, Sequence[Device]]) -> list[Supply]:
    """Return what a container's devices need, by resource; devices whose NUMA node is unknown need none.

    Args:
        held: resource -> devices of the container.
        offered: resource -> devices of the node.
    """
    return [
        (Counter(node for device in offered.get(resource, ()) for node in device.numa or ()), need)
        for resource, devices in held.items()
        if (need := sum(1 for device in devices if device.numa))
    ]


def with_devices(nodes: Iterable[int], devices: Iterable[Device]) -> set[int]:
    """Return NUMA nodes with those of devices; a device near to several adds none where it is near to one of them.

    >>> with_devices([0], [Device("a", (0, 1)), Device("b", (1,)), Device("c")])
    {0, 1}
    """
    found = set(nodes)
    for device in sorted(devices, key=lambda device: len(device.numa or ())):
        if device.numa and found.isdisjoint(device.numa):
            found.add(min(device.numa))
    return found


def extents(settings: Settings, providers: Providers, pod: Pod, decision: Decision) -> dict[str, list[ExtentPart]]:
    """Return the extents of each container that has CPUs, memory or devices of its own.

    Args:
        settings: of the kubelet on which the pod runs.
        providers: what its managers have given away.
        pod: admitted by it.
        decision: the kubelet's.
    """
    memory, topology = providers.memory.assignments.get(pod.uid, {}), settings.topology
    found = {}
    for name, place in decision.containers.items():
        blocks, held = memory.get(name, ()), decision.devices.get(name, {})
        mine = [extent_of_nodes(settings, providers, place, blocks)] if place.cpus or place.mems else []
        if place.cpus and topology is not None:
            levels = {AlignmentLevel.SOCKET: topology.sockets.values(), AlignmentLevel.L3: topology.uncores.values()}
            if set(topology.uncores.values()) == set(topology.sockets.values()):
                del levels[AlignmentLevel.L3]
            for level, masks in levels.items():
                needed = fewest_elements(masks, len(place.cpus), settings.cpu.reserved if settings.cpu else 0)
                mine.append(ExtentPart(level.name.lower(), sum(1 for mask in masks if mask & place.cpus.mask), needed))
        if are_near(held):
            mine.append(extent_of_nodes(settings, providers, place, blocks, held))
        if mine:
            found[name] = mine
    return found


def are_near(held: Mapping[str, Sequence[Device]]) -> bool:
    """Tell whether the NUMA node of at least one device is known."""
    return any(device.numa for devices in held.values() for device in devices)


def extent_of_nodes(
    settings: Settings,
    providers: Providers,
    place: Placement,
    blocks: Sequence[Block],
    held: Mapping[str, Sequence[Device]] | None = None,
) -> ExtentPart:
    """Return on how many NUMA nodes a container's CPUs and memory lie, or with devices these too.

    Args:
        settings: of the kubelet on which it runs or ran.
        providers: what its managers have given away.
        place: of the container.
        blocks: of its memory.
        held: resource -> its devices; None to leave them out.
    """
    level = "numa" if held is None else "devices"
    topology, cpu = settings.topology, settings.cpu
    nodes = set(place.mems)
    if topology is not None:
        nodes.update(nodes_of(topology, place.cpus.mask))
    nodes = with_devices(nodes, (device for devices in (held or {}).values() for device in devices))
    if len(nodes) < 2:
        return ExtentPart(level, len(nodes), len(nodes))
    supplies = memory_supplies(blocks, providers.memory.nodes) if place.mems else []
    if place.cpus and topology is not None:
        reserved = cpu.reserved if cpu is not None else 0
        table = {node: (mask & ~reserved).bit_count() for node, mask in topology.numa.items()}
        supplies.append((table, len(place.cpus)))
    supplies += device_supplies(held or {}, providers.devices.devices)
    return ExtentPart(level, len(nodes), nodes_needed(supplies))


def spread(kubelet: Kubelet, decision: Decision) -> dict[str, int]:
    """Return what a pod has on several NUMA nodes, with their number: ``CPUs``, ``memory`` or a resource of devices.

    Of a pod's containers the one on the most nodes counts.

    Args:
        kubelet: on which the pod runs.
        decision: the kubelet's.
    """
    topology = kubelet.settings.topology
    found: Counter[str] = Counter()
    for place in (decision.pod, *decision.containers.values()):
        if topology is not None:
            found["CPUs"] = max(found["CPUs"], len(nodes_of(topology, place.cpus.mask)))
        found["memory"] = max(found["memory"], len(place.mems))
    for held in decision.devices.values():
        for resource, devices in held.items():
            found[resource] = max(found[resource], len(with_devices((), devices)))
    return {what: count for what, count in found.items() if count > 1}


def beyond_need(kubelet: Kubelet, decisions: Mapping[str, Decision]) -> dict[str, Counter[AlignmentLevel]]:
    """Return what each running pod's containers lie on beyond their need, by uid; init containers do not count.

    Args:
        kubelet: on which the pods run.
        decisions: by uid.
    """
    found: dict[str, Counter[AlignmentLevel]] = {}
    for uid, pod in kubelet.node.active.items():
        if uid not in decisions:
            continue
        init = {one.name for one in pod.containers if one.kind is ContainerKind.INIT}
        count: Counter[AlignmentLevel] = Counter()
        for name, found_here in extents(kubelet.settings, kubelet.node.providers, pod, decisions[uid]).items():
            if name not in init:
                count.update({AlignmentLevel[one.level.upper()]: one.beyond for one in found_here if one.beyond})
        found[uid] = count
    return found
