"""Which of several equally near devices a plugin prefers, where somebody has declared its rule.

A plugin may offer GetPreferredAllocation; the kubelet then asks it which of the near devices to take, and takes those
that it names first. What a plugin answers is its own affair: a declared rule stands for it.

Source: kubelet v1.37.1, devicemanager manager.go (devicesToAllocate, callGetPreferredAllocationIfAvailable).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mooring.engine.devicemanager.state import Device, Preference


def preferred(
    devices: Sequence[Device], included: Collection[Device], count: int, rule: Preference | None
) -> list[Device] | None:
    """Return the devices that a plugin with this rule prefers; None without a rule that says it.

    Args:
        devices: among which it may choose.
        included: that the container gets anyway.
        count: how many more it needs.
        rule: of the plugin.

    >>> gpus = [Device(f"g{number}", (0,), root=f"pci0000:{number // 2}0") for number in range(6)]
    >>> [one.id for one in preferred(gpus[1:], (), 2, Preference.PACKED)]
    ['g2', 'g3']
    """
    match rule:
        case Preference.PACKED:
            return _fewest(devices, included, count, _root, _by_id)
        case Preference.ALIGNED:
            return _fewest(devices, included, count, _nodes, _packed)
        case _:
            return None


_Choice = Callable[[Sequence[Device], Collection[Device], int], list[Device]]


def _fewest(
    devices: Sequence[Device], included: Collection[Device], count: int, place: Callable[[Device], str], choose: _Choice
) -> list[Device]:
    """Take from as few places as possible.

    Places of what the container gets anyway come first, then the smallest place that has enough, else the largest.
    """
    groups: dict[str, list[Device]] = {}
    for device in devices:
        groups.setdefault(place(device), []).append(device)
    known = {place(device) for device in included}
    chosen: list[Device] = []
    while groups and len(chosen) < count:
        need = count - len(chosen)

        def order(name: str, need: int = need) -> tuple[bool, bool, int, str]:
            size = len(groups[name])
            return name not in known, size < need, size if size >= need else -size, name

        best = min(groups, key=order)
        chosen += choose(groups.pop(best), [*included, *chosen], need)[:need]
    return chosen


def _by_id(devices: Sequence[Device], _included: Collection[Device], _count: int) -> list[Device]:
    return sorted(devices, key=lambda device: device.id)


def _packed(devices: Sequence[Device], included: Collection[Device], count: int) -> list[Device]:
    return _fewest(devices, included, count, _root, _by_id)


def _root(device: Device) -> str:
    return device.root or device.id


def _nodes(device: Device) -> str:
    return f"{device.mask:x}" if device.mask else device.id
