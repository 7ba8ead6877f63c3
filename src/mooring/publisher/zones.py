"""What is where on a node, and how much of it a pod can still get from one NUMA node alone.

Available is what the managers would give: CPUs that are reserved, memory of a group of several NUMA nodes and devices
that are not healthy are not. A manager with policy none keeps no account of NUMA nodes and refuses no pod because of
them; there everything is available.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mooring.core.machineinfo import MachineInfo, NUMANode
from mooring.cpumanager.policy import StaticPolicy, available_cpus
from mooring.cpumanager.state import CPUState
from mooring.devicemanager.state import DeviceState
from mooring.memorymanager.machine import MEMORY, hugepages_type
from mooring.memorymanager.state import NUMANodeState
from mooring.node import Node
from mooring.publisher.state_document import ExclusiveCPUs

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class ZoneAmount:
    """One resource of one zone: whole CPUs, bytes or devices."""

    resource: str
    capacity: int
    """What there is."""
    allocatable: int
    """What pods can get when there are none."""
    available: int
    """What the next pod can get."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A NUMA node."""

    node: int
    costs: Mapping[int, int]
    """Distances to all NUMA nodes by their ids; empty where the machine tells none."""
    amounts: tuple[ZoneAmount, ...]


def zones_of(info: MachineInfo, node: Node) -> tuple[Zone, ...]:
    """Return the zones of a node on its machine, by ascending ids."""
    places = sorted(info.topology, key=lambda place: place.node_id)
    ids = [place.node_id for place in places]
    # A machine without NUMA nodes is one "node" -1 to the kubelet.
    return tuple(
        Zone(place.node_id, _costs(place, ids), tuple(_amounts(node, place))) for place in places if place.node_id >= 0
    )


def exclusive_cpus_of(node: Node) -> ExclusiveCPUs:
    """Return how many CPUs are available for exclusive use, in all zones together; none with policy none."""
    policy = node.settings.cpu
    if policy is None:
        return ExclusiveCPUs(0, 0)
    everywhere = policy.topology.all_cpus
    return ExclusiveCPUs(_giveable(policy, _empty(policy), everywhere), _giveable(policy, node.cpu, everywhere))


def _costs(node: NUMANode, ids: list[int]) -> dict[int, int]:
    # The kernel's row has the nodes that are online, by ascending ids.
    row = node.distances or ()
    return dict(zip(ids, row, strict=True)) if len(row) == len(ids) else {}


def _amounts(node: Node, numa: NUMANode) -> Iterator[ZoneAmount]:
    if numa.cores:
        yield _cpus(node, numa)
    if node.settings.memory is None:
        yield from _free_for_all(numa)
    else:
        yield from _accounted(node.memory.nodes[numa.node_id])
    yield from _devices(node.providers.devices, numa.node_id)


def _cpus(node: Node, numa: NUMANode) -> ZoneAmount:
    policy = node.settings.cpu
    capacity = len({thread for core in numa.cores for thread in core.thread_ids})
    if policy is None:
        return ZoneAmount(CPU, capacity, capacity, capacity)
    own = policy.topology.numa.get(numa.node_id, 0)
    return ZoneAmount(CPU, capacity, _giveable(policy, _empty(policy), own), _giveable(policy, node.cpu, own))


def _giveable(policy: StaticPolicy, state: CPUState, cpus: int) -> int:
    """Return the largest number of CPUs that one container can get out of a mask."""
    count = (available_cpus(policy, state) & cpus).bit_count()
    if not policy.rules.whole_cores:
        return count
    # With full-pcpus-only the number must be one of whole cores, and be free on cores without a reserved CPU anywhere.
    most = min(count, (available_cpus(policy, state) & ~policy.reserved_cores).bit_count())
    return most - most % max(policy.group_size, 1)


def _empty(policy: StaticPolicy) -> CPUState:
    return CPUState("static", policy.shareable, {})


def _accounted(numa: NUMANodeState) -> Iterator[ZoneAmount]:
    grouped = len(numa.cells) > 1
    for resource, table in sorted(numa.memory.items(), reverse=True):
        yield ZoneAmount(resource, table.total, table.allocatable, 0 if grouped else table.free)


def _free_for_all(numa: NUMANode) -> Iterator[ZoneAmount]:
    pools = {hugepages_type(pool.page_size): pool.page_size * 1024 * pool.num_pages for pool in numa.hugepages}
    plain = max(numa.memory - sum(pools.values()), 0)
    yield ZoneAmount(MEMORY, numa.memory, plain, plain)
    for resource, size in sorted(pools.items(), reverse=True):
        yield ZoneAmount(resource, size, size, size)


def _devices(state: DeviceState, numa: int) -> Iterator[ZoneAmount]:
    for resource, devices in sorted(state.devices.items()):
        near = [device for device in devices if device.numa is not None and numa in device.numa]
        if near:
            free = state.available(resource)
            healthy = sum(device.healthy for device in near)
            yield ZoneAmount(resource, len(near), healthy, sum(device.id in free for device in near))
