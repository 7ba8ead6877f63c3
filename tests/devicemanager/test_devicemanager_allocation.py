"""Taking devices, rule by rule of topology-manager.md section 7.1, and by a rule that a plugin declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from math import comb, prod

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.allocation import allocate
from mooring.engine.devicemanager.state import Device, DeviceState, Preference, ReusableDevices

GPU = "vendor.example/gpu"
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
EIGHT = tuple(Device(f"g{n}", (n // 4,)) for n in range(8))


def asking(name: str, count: int, kind: ContainerKind = APP, resource: str = GPU) -> Container:
    limits = {resource: Quantity.parse(str(count))}
    return Container(name, kind, limits, limits)


def served(
    state: DeviceState, *containers: Container, affinity: NUMAMask | None = None, uid: str = "pod"
) -> tuple[DeviceState, ReusableDevices]:
    reusable = ReusableDevices()
    for one in containers:
        answer = allocate(state, reusable, Pod(uid, uid, containers=containers), one, affinity)
        assert not isinstance(answer, AllocationError), answer
        state, reusable = answer
    return state, reusable


def held(state: DeviceState, container: str, uid: str = "pod") -> set[str]:
    return set(state.held_by(uid, container, GPU))


def test_near_devices_come_first_then_those_elsewhere_then_those_without_information() -> None:
    devices = (Device("a"), Device("b", (0,)), Device("c", (1,)), Device("d", ()), Device("e", (0, 1)))
    order = []
    for count in range(1, 6):
        state, _ = served(DeviceState({GPU: devices}), asking("c", count), affinity=NUMAMask(0b10))
        order.append(held(state, "c"))
    assert order == [{"c"}, {"c", "e"}, {"b", "c", "e"}, {"a", "b", "c", "e"}, {"a", "b", "c", "d", "e"}]


def test_what_is_known_to_be_drawn_is_taken_of_what_an_init_container_leaves() -> None:
    drawn = {"pod": {"c": {GPU: frozenset({"g1"})}}}
    state, _ = served(DeviceState({GPU: EIGHT[:2]}, drawn=drawn), asking("load", 2, INIT), asking("c", 1))
    assert held(state, "c") == {"g1"}


@given(st.lists(st.sampled_from([(0,), (0, 1), (1,)]), min_size=1, max_size=7), st.data())
def test_equally_near_devices_are_taken_as_a_random_draw_most_often_takes_them(
    nodes: list[tuple[int, ...]], data: st.DataObject
) -> None:
    """How often a draw has these NUMA nodes: the product of the ways to draw from the devices of each kind."""
    count = data.draw(st.integers(1, len(nodes)))
    devices = tuple(Device(f"g{number}", numa) for number, numa in enumerate(nodes))
    state, _ = served(DeviceState({GPU: devices}), asking("c", count), affinity=NUMAMask(0b11))
    kinds = Counter(nodes)

    def ways(drawn: Iterable[tuple[int, ...]]) -> int:
        return prod(comb(kinds[kind], number) for kind, number in Counter(drawn).items())

    taken = [device.numa or () for device in devices if device.id in held(state, "c")]
    assert ways(taken) == max(ways(drawn) for drawn in combinations(nodes, count))


def test_a_resource_without_a_healthy_device_is_an_error_of_its_own() -> None:
    devices = (Device("g0", (0,), healthy=False), Device("g1", (1,), healthy=False))
    answer = allocate(DeviceState({GPU: devices}), ReusableDevices(), Pod("p", "p"), asking("c", 1), None)
    assert answer == AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {GPU}")


def kept(before: DeviceState, count: int, *, sources_ready: bool) -> str:
    """Ask for a container that holds devices already; return why it cannot keep them."""
    whole = Pod("pod", "pod", containers=(asking("c", count),))
    answer = allocate(before, ReusableDevices(), whole, whole.containers[0], None, sources_ready=sources_ready)
    return answer.message if isinstance(answer, AllocationError) else ""


def test_a_container_that_asks_for_another_number_than_it_holds_is_refused() -> None:
    """A pod that comes back under its uid with other limits (v1.37.1, devicemanager manager.go, devicesToAllocate)."""
    before = DeviceState({GPU: EIGHT}, {"pod": {"c": {GPU: frozenset({"g7"})}}})
    text = f'pod "pod" container "c" changed request for resource "{GPU}" from 1 to 3'
    assert [kept(before, 3, sources_ready=ready) for ready in (True, False)] == [text, text]
    elsewhere = DeviceState(before.devices, before.held, claimed=before.held)
    assert not kept(elsewhere, 3, sources_ready=True), "what it has by claims is not the device manager's"


def test_a_container_keeps_unhealthy_devices_only_while_the_kubelet_starts() -> None:
    held = {"pod": {"c": {GPU: frozenset({"g0"})}}}
    one = DeviceState({GPU: (Device("g0", (0,), healthy=False), Device("g1", (1,)))}, held)
    none = DeviceState({GPU: (Device("g0", (0,), healthy=False),)}, held)
    cannot = f"cannot allocate unhealthy devices {GPU}"
    assert kept(one, 1, sources_ready=True) == f"previously allocated devices are no longer healthy; {cannot}"
    assert kept(none, 1, sources_ready=True) == f"no healthy devices present; {cannot}"
    assert [kept(state, 1, sources_ready=False) for state in (one, none)] == ["", ""]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ContainerKind)), max_size=5), st.integers(0, 3) | st.none()
)
def test_apps_and_sidecars_never_share_a_device(
    asked: list[tuple[int, ContainerKind]], affinity: NUMAMask | None
) -> None:
    containers = [asking(f"c{n}", count, kind) for n, (count, kind) in enumerate(asked)]
    state, reusable = DeviceState({GPU: EIGHT}), ReusableDevices()
    whole = Pod("pod", "pod", containers=tuple(containers))
    for one in containers:
        answer = allocate(state, reusable, whole, one, affinity)
        if isinstance(answer, AllocationError):
            continue
        state, reusable = answer
        assert len(held(state, one.name)) == one.limits[GPU].units
    lasting = [held(state, one.name) for one in containers if one.kind is not INIT]
    assert sum(map(len, lasting)) == len(set().union(*lasting))
    assert state.available(GPU) == {device.id for device in EIGHT} - state.held_by_pod("pod", GPU)


def rooted_gpus(roots: str, nodes: str) -> tuple[Device, ...]:
    """Return a GPU for each letter of ``roots``, near the NUMA node of the digit below it."""
    return tuple(
        Device(f"g{index}", (int(node),), root=f"pci0000:{root}0")
        for index, (root, node) in enumerate(zip(roots, nodes, strict=True))
    )


def taken(devices: tuple[Device, ...], count: int, rule: Preference, affinity: int | None = None) -> set[str]:
    limits = {GPU: Quantity.parse(str(count))}
    pod = Pod("u", "p", containers=(Container("c", ContainerKind.APP, limits, limits),))
    mask = None if affinity is None else NUMAMask(affinity)
    state = DeviceState({GPU: devices}, preferences={GPU: rule})
    found = allocate(state, ReusableDevices(), pod, pod.containers[0], mask)
    assert not isinstance(found, AllocationError)
    return set(found[0].held_by("u", "c", GPU))


def test_packed_takes_the_smallest_root_that_has_enough() -> None:
    assert taken(rooted_gpus("aaabbc", "000000"), 2, Preference.PACKED) == {"g3", "g4"}
    assert taken(rooted_gpus("aaabbc", "000000"), 4, Preference.PACKED) == {"g0", "g1", "g2", "g5"}


def test_packed_chooses_among_the_near_devices_only() -> None:
    assert taken(rooted_gpus("aabbcc", "001101"), 2, Preference.PACKED, affinity=2) == {"g2", "g3"}
    assert taken(rooted_gpus("abbcc", "10000"), 2, Preference.PACKED, affinity=2) == {"g0", "g1"}


def test_aligned_takes_one_node_before_one_root() -> None:
    assert taken(rooted_gpus("aabbcc", "011122"), 2, Preference.ALIGNED) == {"g4", "g5"}
    assert taken(rooted_gpus("aabb", "0101"), 2, Preference.ALIGNED) in ({"g0", "g2"}, {"g1", "g3"})
    assert taken(rooted_gpus("aabb", "0101"), 2, Preference.PACKED) in ({"g0", "g1"}, {"g2", "g3"})


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("012")), min_size=1, max_size=10),
    st.integers(1, 10),
    st.sampled_from([Preference.PACKED, Preference.ALIGNED]),
    st.one_of(st.none(), st.integers(1, 7)),
)
def test_a_rule_takes_what_is_asked_and_as_many_near_devices_as_the_kubelet(
    places: list[tuple[str, str]], count: int, rule: Preference, affinity: int | None
) -> None:
    devices = rooted_gpus("".join(root for root, _ in places), "".join(node for _, node in places))
    count = min(count, len(devices))
    with_rule, without = (taken(devices, count, one, affinity) for one in (rule, Preference.PLUGIN))

    def near(ids: set[str]) -> int:
        return sum(1 for one in devices if one.id in ids and (affinity is None or one.mask & affinity))

    assert len(with_rule) == count
    assert near(with_rule) == near(without)
