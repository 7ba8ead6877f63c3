"""The device manager's hints.

Source: kubelet v1.37.1, devicemanager topology_hints.go; spec: topology-manager.md section 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.core.decision import Observer
from mooring.engine.core.gotext import int64
from mooring.engine.core.pod import Container, Pod, needed_at_once
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.devicemanager.facts import DeviceHintsAsked
from mooring.engine.devicemanager.state import Device, DeviceState, ReusableDevices
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints
from mooring.engine.topologymanager.wide import AnyHints, Demand, Family, ResourceHints, sets_of_size

MOST_LISTED = 8
"""Largest number of nodes for which hints are listed; with more of them they are described."""


def device_requests(container: Container, state: DeviceState) -> dict[str, int]:
    """Return how many devices of each registered resource a container wants: its limits."""
    wanted = sorted(container.limits) if state.devices else ()
    return {resource: container.limits[resource].units for resource in wanted if resource in state.devices}


def pod_device_requests(pod: Pod, state: DeviceState) -> dict[str, int]:
    """Return how many devices a pod needs at once."""
    return dict(sorted(needed_at_once(pod, lambda container: device_requests(container, state), int64).items()))


def container_hints(
    state: DeviceState,
    reusable: ReusableDevices,
    nodes: Sequence[int],
    pod: Pod,
    container: Container,
    observer: Observer | None = None,
    older: ReleaseRules = NEWEST_RULES,
) -> ResourceHints | None:
    """Return the hints for one container; None when it wants no device.

    Args:
        state: devices and holders.
        reusable: devices that init containers leave.
        nodes: ids of all NUMA nodes of the machine.
        pod: the pod.
        container: one of its containers.
        observer: receives what was found.
        older: rules of an older release.
    """
    hints: dict[str, AnyHints | None] = {}
    for resource, count in device_requests(container, state).items():
        existing = state.held_by(pod.uid, container.name, resource)
        left = reusable.of(pod.uid, resource)
        if observer is not None:
            _report(observer, state, (pod.uid, container.name, resource), count, existing, left)
        hints[resource] = _hints(state, nodes, resource, count, existing, left, older)
    return hints or None


def pod_hints(
    state: DeviceState,
    nodes: Sequence[int],
    pod: Pod,
    observer: Observer | None = None,
    older: ReleaseRules = NEWEST_RULES,
) -> ResourceHints | None:
    """Return the hints for a whole pod; nothing is reused in pod scope. None when it wants no device."""
    hints: dict[str, AnyHints | None] = {}
    for resource, count in pod_device_requests(pod, state).items():
        existing = state.held_by_pod(pod.uid, resource)
        if observer is not None:
            _report(observer, state, (pod.uid, "", resource), count, existing, frozenset())
        hints[resource] = _hints(state, nodes, resource, count, existing, frozenset(), older)
    return hints or None


def _report(
    observer: Observer,
    state: DeviceState,
    asked: tuple[str, str, str],
    count: int,
    existing: frozenset[str],
    left: frozenset[str],
) -> None:
    """Report the question of (pod, container, resource)."""
    pod, container, resource = asked
    usable = existing or state.available(resource) | left
    free = {device.id: device.mask for device in state.devices[resource] if device.id in usable}
    observer(DeviceHintsAsked(pod, container, resource, count, free, len(existing)))


def _hints(
    state: DeviceState,
    nodes: Sequence[int],
    resource: str,
    count: int,
    existing: frozenset[str],
    left: frozenset[str],
    older: ReleaseRules,
) -> AnyHints | None:
    devices = state.devices[resource]
    # 1. Devices without NUMA nodes have no opinion.
    if not any(device.numa for device in devices):
        return None
    # 2. What is held already is all there is to it.
    if existing:
        if len(existing) != count:
            return IMPOSSIBLE
        return generate_hints(devices, nodes, existing, frozenset(), count, older)
    # 3. Too few.
    available = state.available(resource)
    if len(available | left) < count:
        return IMPOSSIBLE
    return generate_hints(devices, nodes, available, left, count, older)


def generate_hints(
    devices: Sequence[Device],
    nodes: Sequence[int],
    available: frozenset[str],
    reusable: frozenset[str],
    count: int,
    older: ReleaseRules = NEWEST_RULES,
) -> AnyHints:
    """Return a hint for every set of NUMA nodes that enough devices touch.

    Only nodes that host a device of the resource take part; all of them when none is known. Preferred are the sets
    that are as small as all devices, unhealthy ones included, would allow.

    Up to v1.35 all nodes of the machine take part (rule device-hints-over-all-nodes; spec: releases.md section 6).
    """
    known = mask_of(nodes)
    hosts = 0
    if not older.device_hints_over_all_nodes:
        for device in devices:
            hosts |= device.mask & known
    ids = tuple(members(hosts or known))
    if len(ids) > MOST_LISTED:
        # Describe the same hints; the empty list when there is none
        universe = mask_of(ids)
        everything = [device.mask & universe for device in devices]
        kept = [device.mask & universe for device in devices if device.id in reusable and device.mask]
        free = [device.mask & universe for device in devices if device.id in available]
        most = _demand(everything, count, universe)
        sizes = range(1, universe.bit_count() + 1)
        smallest = next((size for size in sizes if any(True for _ in sets_of_size(universe, size, 0, (most,)))), 0)
        demands = [_demand(free, count - len(kept), universe), *(_demand([mask], 1, universe) for mask in kept)]
        family = Family(NUMAMask(universe), tuple(demands), smallest or universe.bit_count())
        return family if family.describes(universe) else IMPOSSIBLE
    everything = [device.mask for device in devices]
    free = [device.mask for device in devices if device.id in available]
    kept = [device.mask for device in devices if device.id in reusable and device.mask]
    smallest = len(ids)
    found: list[NUMAMask] = []
    for index in range(1, 1 << len(ids)):
        mask = NUMAMask(mask_of(ids[position] for position in members(index)))
        size = index.bit_count()
        if size < smallest and _touching(everything, mask) >= count:
            smallest = size
        if any(not device & mask for device in kept):
            continue
        if len(kept) + _touching(free, mask) >= count:
            found.append(mask)
    return Hints(
        preferred=tuple(mask for mask in found if mask.bit_count() == smallest),
        others=tuple(mask for mask in found if mask.bit_count() != smallest),
    )


def _demand(masks: Sequence[int], need: int, universe: int) -> Demand:
    weights = tuple(sum(mask >> node & 1 for mask in masks) for node in range(universe.bit_length()))
    shared = any(mask & (mask - 1) for mask in masks)
    return Demand(need, weights, tuple(masks) if shared else None)


def _touching(masks: Sequence[int], mask: int) -> int:
    return sum(1 for device in masks if device & mask)
