"""The device hints as their specification tells them: one loop over all sets of nodes, on plain sets.

An oracle: slow, and sharing nothing with the engine but the value of a device.

Source: kubelet v1.37.1, devicemanager topology_hints.go; spec: topology-manager.md section 7.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import TypeAlias

from mooring.engine.devicemanager.state import Device

Nodes: TypeAlias = frozenset[int]
PlainHints: TypeAlias = list[tuple[Nodes, bool]]


def plain_device_hints(
    devices: Sequence[Device],
    machine: Collection[int],
    *,
    count: int,
    held: frozenset[str] = frozenset(),
    taken: frozenset[str] = frozenset(),
    reusable: frozenset[str] = frozenset(),
) -> PlainHints | None:
    """Return (nodes, preferred) for every hint; None is the null list, an empty list "impossible".

    Args:
        devices: all devices of the resource.
        machine: the machine's NUMA nodes.
        count: how many are wanted.
        held: what the container (or pod) has already.
        taken: what anybody has.
        reusable: what init containers leave; empty in pod scope.
    """
    if not any(device.numa for device in devices):
        return None
    if held:
        return generated(devices, machine, held, frozenset(), count) if len(held) == count else []
    available = frozenset(device.id for device in devices if device.healthy) - taken
    if len(available | reusable) < count:
        return []
    return generated(devices, machine, available, reusable, count)


def generated(
    devices: Sequence[Device], machine: Collection[int], available: frozenset[str], reusable: frozenset[str], count: int
) -> PlainHints:
    nodes = sorted({node for device in devices for node in device.numa or () if node in machine}) or sorted(machine)
    smallest = len(nodes)
    found: list[Nodes] = []
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            mask = frozenset(chosen)
            if sum(touches(device, mask) for device in devices) >= count:
                smallest = min(smallest, size)
            kept = [device for device in devices if device.id in reusable and device.numa]
            if any(not touches(device, mask) for device in kept):
                continue
            free = sum(touches(device, mask) for device in devices if device.id in available)
            if len(kept) + free >= count:
                found.append(mask)
    return [(mask, len(mask) == smallest) for mask in found]


def touches(device: Device, mask: Nodes) -> bool:
    return any(node in mask for node in device.numa or ())
