"""Which devices are taken where the plugin's rule is declared: among near ones only, and never more than it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.allocation import allocate, preferred
from mooring.engine.devicemanager.state import Device, DeviceState, Preference, ReusableDevices

GPU = "vendor.example/gpu"


def gpus(roots: str, nodes: str) -> tuple[Device, ...]:
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
    assert taken(gpus("aaabbc", "000000"), 2, Preference.PACKED) == {"g3", "g4"}
    assert taken(gpus("aaabbc", "000000"), 4, Preference.PACKED) == {"g0", "g1", "g2", "g5"}


def test_packed_chooses_among_the_near_devices_only() -> None:
    assert taken(gpus("aabbcc", "001101"), 2, Preference.PACKED, affinity=2) == {"g2", "g3"}
    assert taken(gpus("abbcc", "10000"), 2, Preference.PACKED, affinity=2) == {"g0", "g1"}


def test_aligned_takes_one_node_before_one_root() -> None:
    assert taken(gpus("aabbcc", "011122"), 2, Preference.ALIGNED) == {"g4", "g5"}
    assert taken(gpus("aabb", "0101"), 2, Preference.ALIGNED) in ({"g0", "g2"}, {"g1", "g3"})
    assert taken(gpus("aabb", "0101"), 2, Preference.PACKED) in ({"g0", "g1"}, {"g2", "g3"})


def test_a_rule_that_nobody_has_declared_changes_nothing() -> None:
    devices = gpus("ab", "01")
    assert preferred(devices, (), 1, Preference.PLUGIN) is None
    assert taken(devices, 1, Preference.PLUGIN) == {"g0"}


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("012")), min_size=1, max_size=10),
    st.integers(1, 10),
    st.sampled_from([Preference.PACKED, Preference.ALIGNED]),
    st.one_of(st.none(), st.integers(1, 7)),
)
def test_a_rule_takes_what_is_asked_and_as_many_near_devices_as_the_kubelet(
    places: list[tuple[str, str]], count: int, rule: Preference, affinity: int | None
) -> None:
    devices = gpus("".join(root for root, _ in places), "".join(node for _, node in places))
    count = min(count, len(devices))
    with_rule, without = (taken(devices, count, one, affinity) for one in (rule, Preference.PLUGIN))

    def near(ids: set[str]) -> int:
        return sum(1 for one in devices if one.id in ids and (affinity is None or one.mask & affinity))

    assert len(with_rule) == count
    assert near(with_rule) == near(without)
