"""The hints of the device manager are those of the plain loop of its specification, at every width."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import mooring.engine.devicemanager.hints as engine
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.hints import container_hints, generate_hints, pod_hints
from mooring.engine.devicemanager.state import Device, DeviceState, ReusableDevices
from mooring.engine.topologymanager.hints import Hints
from mooring.engine.topologymanager.wide import AnyHints, Family

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


GPU = "vendor.example/gpu"
NIC = "vendor.example/nic"
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


@dataclass(frozen=True, slots=True)
class Situation:
    """Devices of one resource on a machine, what is free, what is reusable, what is wanted."""

    devices: tuple[Device, ...]
    machine: tuple[int, ...]
    available: frozenset[str]
    reusable: frozenset[str]
    count: int


@st.composite
def situations(draw: st.DrawFn, fewest: int = 1, most: int = 6, devices: int = 7) -> Situation:
    """Draw devices on one, several, unknown or no nodes, also on nodes that the machine does not have."""
    machine = tuple(range(draw(st.integers(fewest, most))))
    places = st.none() | st.sets(st.integers(0, len(machine)), max_size=3).map(lambda nodes: tuple(sorted(nodes)))
    drawn = draw(st.lists(st.tuples(places, st.booleans()), min_size=1, max_size=devices))
    if fewest > 6:  # devices on all nodes, so that all of them take part
        drawn += [((node,), True) for node in machine]
    found = tuple(Device(f"d{number}", numa, healthy) for number, (numa, healthy) in enumerate(drawn))
    ids = st.sampled_from([device.id for device in found])
    available = draw(st.frozensets(ids))
    reusable = draw(st.frozensets(ids, max_size=2)) - available
    return Situation(found, machine, available, reusable, draw(st.integers(0, len(found) + 1)))


def as_pairs(hints: AnyHints | None) -> PlainHints | None:
    if hints is None:
        return None
    listed = hints.hints() if isinstance(hints, Family) else hints
    return [(frozenset(hint.numa or ()), hint.preferred) for hint in listed]


@given(situations() | situations(7, 10, 4))
def test_hints_are_those_of_the_plain_loop_in_its_order(one: Situation) -> None:
    hints = generate_hints(one.devices, one.machine, one.available, one.reusable, one.count)
    expected = generated(one.devices, one.machine, one.available, one.reusable, one.count)
    event(type(hints).__name__)
    assert as_pairs(hints) == expected
    assert bool(hints) == bool(expected) or isinstance(hints, Family)


@given(situations() | situations(7, 10, 4))
def test_described_hints_are_the_listed_ones(one: Situation) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "MOST_LISTED", 0)
        hints = generate_hints(one.devices, one.machine, one.available, one.reusable, one.count)
    assert as_pairs(hints) == generated(one.devices, one.machine, one.available, one.reusable, one.count)


def state_of(one: Situation, held: frozenset[str] = frozenset()) -> DeviceState:
    """Return the state in which just the available devices are free; the others are with another pod."""
    others = frozenset(device.id for device in one.devices) - one.available - held
    return DeviceState(
        {GPU: one.devices},
        {"other": {"c": {GPU: others - one.reusable}}, "pod": {"earlier": {GPU: one.reusable}, "c": {GPU: held}}},
    )


def asking(name: str, count: int, kind: ContainerKind = APP, resource: str = GPU) -> Container:
    limits = {resource: Quantity.parse(str(count))}
    return Container(name, kind, limits, limits)


@given(situations())
def test_a_container_is_answered_from_what_is_free_and_reusable(one: Situation) -> None:
    asked = asking("c", one.count)
    hints = container_hints(
        state_of(one), ReusableDevices("pod", {GPU: one.reusable}), one.machine, Pod("pod", "pod"), asked
    )
    assert hints is not None
    taken = frozenset(device.id for device in one.devices) - one.available
    expected = plain_device_hints(one.devices, one.machine, count=one.count, taken=taken, reusable=one.reusable)
    assert as_pairs(hints[GPU]) == expected


@given(situations(), st.data())
def test_what_a_container_holds_is_all_there_is_to_it(one: Situation, data: st.DataObject) -> None:
    held = data.draw(st.frozensets(st.sampled_from([device.id for device in one.devices]), min_size=1))
    hints = container_hints(
        state_of(one, held), ReusableDevices(), one.machine, Pod("pod", "pod"), asking("c", one.count)
    )
    assert hints is not None
    assert as_pairs(hints[GPU]) == plain_device_hints(one.devices, one.machine, count=one.count, held=held)


@given(situations())
def test_a_pod_is_answered_without_what_is_reusable(one: Situation) -> None:
    whole = Pod("pod", "pod", containers=(asking("a", one.count // 2), asking("b", one.count - one.count // 2)))
    state = DeviceState({GPU: one.devices}, {"other": {"c": {GPU: taken(one)}}})
    hints = pod_hints(state, one.machine, whole)
    assert hints is not None
    expected = plain_device_hints(one.devices, one.machine, count=one.count, taken=taken(one))
    assert as_pairs(hints[GPU]) == expected


def taken(one: Situation) -> frozenset[str]:
    return frozenset(device.id for device in one.devices) - one.available


@given(situations(), st.data())
def test_what_all_containers_of_a_pod_hold_counts_in_pod_scope(one: Situation, data: st.DataObject) -> None:
    ids = st.sampled_from([device.id for device in one.devices])
    first, second = data.draw(st.frozensets(ids)), data.draw(st.frozensets(ids, min_size=1))
    state = DeviceState({GPU: one.devices}, {"pod": {"a": {GPU: first}, "b": {GPU: second}}})
    hints = pod_hints(state, one.machine, Pod("pod", "pod", containers=(asking("b", one.count),)))
    assert hints is not None
    expected = plain_device_hints(one.devices, one.machine, count=one.count, held=first | second)
    assert as_pairs(hints[GPU]) == expected


# The rules one by one, above all those that no recording separates (spec: README.md section 5).


def gpus(*places: int | None) -> tuple[Device, ...]:
    return tuple(Device(f"g{n}", None if place is None else (place,)) for n, place in enumerate(places))


def sets(*nodes: int) -> Nodes:
    return frozenset(nodes)


def test_limits_count_and_unregistered_resources_do_not() -> None:
    limits = {**asking("c", 1).limits, **asking("c", 3, resource=NIC).limits}
    asked = Container("c", APP, {}, limits)
    hints = container_hints(DeviceState({GPU: gpus(0)}), ReusableDevices(), [0], Pod("p", "p"), asked)
    assert hints == {GPU: Hints((NUMAMask(1),))}
