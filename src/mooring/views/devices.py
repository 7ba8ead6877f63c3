"""Devices as they are drawn: at their NUMA node, with owner, health and PCI address.

How owners are called where there is little room: short forms of their names that are never mistaken for another's.

A name is ``namespace/pod/container`` or ``namespace/pod``. Namespace and pod are cut in the middle, the end of a pod's
name stays whole: the ordinal of a StatefulSet and the suffix of a ReplicaSet tell its pods apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mooring.lazy import dataclass

_WHOLE = (96, 72, 56, 44, 36, 28)
"""Lengths to which a whole name is cut, in characters."""

_WITHOUT_NAMESPACE = (40, 28, 22, 18, 15)
_POD = (24, 18, 14, 11, 9, 7, 6, 5, 4)

_LONGEST_ENDING = 11
"""Characters of the longest end of a pod's name that is kept: a dash and the hash of a pod template."""

_SHORTEST_MARKED = 20
"""Characters of a form that has to be recognised in a list: where it is another owner's too, the mark tells them
apart. Shorter forms stand beside cells with the mark, and are left out."""

_LISTED = 13
"""Characters that always fit into a list of owners: the longest form of at most as many has the mark, too, where it is
another owner's."""


def ending(name: str) -> str:
    """Return the end of a pod's name that tells it from its siblings; empty where there is none.

    >>> ending("database-0"), ending("web-7f9c8d5b6-x2x4z"), ending("web")
    ('-0', '-x2x4z', '')
    """
    _, dash, last = name.rpartition("-")
    return f"{dash}{last}" if dash and len(last) < _LONGEST_ENDING else ""


def cut(name: str, room: int) -> str:
    """Return ``name`` cut in its middle to ``room`` characters; empty where its ending leaves no room.

    >>> cut("database-0", 8), cut("database-0", 4), cut("database-10", 4), cut("observability", 7)
    ('datab…-0', 'd…-0', '', 'obs…ity')
    """
    if len(name) <= room:
        return name
    tail = max(len(ending(name)), (room - 1) // 2 - 1 if ending(name) else (room - 1) // 2)
    if room - 1 - tail < 1:
        return ""
    return f"{name[: room - 1 - tail]}…{name[len(name) - tail :]}"


def unique_names(labels: Sequence[str], uids: Sequence[str]) -> tuple[str, ...]:
    """Return the labels; those of several pods of one name, such as one that is ending and the next, with their uids.

    >>> unique_names(["a/b", "a/c", "a/b"], ["u1", "u2", "u3"])
    ('a/b (uid u1)', 'a/c', 'a/b (uid u3)')
    """
    uses = Counter(labels)
    found = [f"{label} (uid {uid})" if uses[label] > 1 else label for label, uid in zip(labels, uids, strict=True)]
    still = Counter(found)
    numbers: Counter[str] = Counter()
    for position, name in enumerate(found):
        if still[name] > 1:
            numbers[name] += 1
            found[position] = f"{name} #{numbers[name]}"
    return tuple(found)


def short_names(names: Sequence[str], marks: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return for each name its forms, longest first and itself included; no form belongs to two names.

    Args:
        names: of the owners, all different.
        marks: of the owners, all different.

    >>> short_names(["ml/train-0/worker"], ["a"])
    (('ml/train-0/worker', 'train-0/worker', 'train-0', 'tra…-0', 'tr…-0', 't…-0'),)
    """
    wanted = [tuple(_forms(name)) for name in names]
    uses = Counter(form for forms in wanted for form in dict.fromkeys(forms))
    taken = set(uses)
    found = []
    for name, mark, forms in zip(names, marks, wanted, strict=True):
        kept = [name]
        listed = next((form for form in forms if len(form) <= _LISTED), name)
        for form in forms:
            marked = f"{form} [{mark}]"
            told_apart = len(form) >= _SHORTEST_MARKED or form == listed
            if uses[form] == 1:
                kept.append(form)
            elif told_apart and len(marked) < len(name) and marked not in taken:
                taken.add(marked)
                kept.append(marked)
        found.append(tuple(sorted(dict.fromkeys(kept), key=lambda form: -len(form))))
    return tuple(found)


def _forms(name: str) -> Iterator[str]:
    # What has no slash counts as a pod.
    namespace, _, rest = name.partition("/")
    pod, _, container = rest.partition("/")
    if not pod:
        namespace, pod, container = "", name, ""
    yield name
    for room in _WHOLE:
        yield from _joined(namespace, pod, container, room)
    if namespace:
        yield "/".join(part for part in (pod, container) if part)
        for room in _WITHOUT_NAMESPACE:
            yield from _joined("", pod, container, room)
        yield pod
    for room in _POD:
        yield from filter(None, (cut(pod, room),))


def _joined(namespace: str, pod: str, container: str, room: int) -> Iterator[str]:
    """Yield the name in at most ``room`` characters: the longest parts are cut, all of them to the same length."""
    parts = [part for part in (namespace, pod, container) if part]
    share = room
    while share >= 3 and sum(min(len(part), share) for part in parts) + len(parts) - 1 > room:
        share -= 1
    pieces = [cut(part, share) for part in parts]
    if share >= 3 and all(pieces):
        yield "/".join(pieces)


UNHEALTHY = "×"
"""The sign of a device that is unhealthy and free."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device: a GPU, a network interface, an accelerator."""

    resource: str
    """What pods request it by, such as ``nvidia.com/gpu``; the kind of device where no device plugin offers it."""
    id: str
    numa: tuple[int, ...]
    """NUMA nodes that it is near to; empty when nothing is known."""
    healthy: bool = True
    address: str = ""
    """On the PCI bus, such as ``0000:3b:00.0``; empty when it is not known."""
    root: str = ""
    """Its PCIe root, such as ``pci0000:3a``; empty when it is not known."""
    offered: bool = True
    """Whether a device plugin offers it to pods."""
    owner: str = ""
    """Label of the container that has it; empty when none has."""

    @property
    def state(self) -> str:
        """Whether it is free, in use or unhealthy, in a few words."""
        if not self.offered:
            return "not offered to pods"
        if self.owner:
            return "in use" if self.healthy else "unhealthy, in use"
        return "free" if self.healthy else "unhealthy"

    @property
    def sentence(self) -> str:
        """Everything about it in one line, for tooltips."""
        where = f"NUMA node {', '.join(map(str, self.numa))}" if self.numa else "NUMA node unknown"
        address = f"PCI {self.address}" if self.address and self.address != self.id else ""
        root = f"PCIe root {self.root}" if self.root else ""
        state = f"{self.state} by {self.owner}" if self.owner else self.state
        return " · ".join(part for part in (f"{self.resource} {self.id}", address, root, where, state) if part)


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices of one resource in one box; those that no plugin offers are of one PCIe root too."""

    resource: str
    devices: tuple[DeviceView, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Forms of what stands above the devices, longest first: the resource, with how many of them are free."""
        short = self.resource.rpartition("/")[2]
        if not self.devices[0].offered:
            root = self.devices[0].root
            return (f"{self.resource} · {root}", self.resource) if root else (self.resource, short)
        free = sum(device.state == "free" for device in self.devices)
        figures = f"{free} of {len(self.devices)} free"
        return (f"{self.resource} · {figures}", f"{short} · {figures}", short)


def grouped(devices: Iterable[DeviceView]) -> tuple[DeviceGroup, ...]:
    """Return the devices by resource, and those that no plugin offers by PCIe root too, in the order as they come."""
    found: dict[tuple[str, str], list[DeviceView]] = {}
    for device in devices:
        found.setdefault((device.resource, "" if device.offered else device.root), []).append(device)
    return tuple(DeviceGroup(resource, tuple(members)) for (resource, _), members in found.items())


def amounts_by_owner(devices: Iterable[DeviceView]) -> dict[str, str]:
    """Return how many devices of each resource every owner has, in words.

    >>> amounts_by_owner([DeviceView("x/gpu", "0", (), owner="a/b/c"), DeviceView("x/gpu", "1", (), owner="a/b/c")])
    {'a/b/c': '2 gpu'}
    """
    counts: dict[str, Counter[str]] = {}
    for device in devices:
        if device.owner:
            counts.setdefault(device.owner, Counter())[device.resource.rpartition("/")[2]] += 1
    return {owner: ", ".join(f"{count} {name}" for name, count in found.items()) for owner, found in counts.items()}


def most_of_one_kind(devices: Iterable[DeviceView]) -> int:
    """Return the largest number of devices of one resource that are near the same NUMA nodes."""
    return max(Counter((device.resource, device.numa) for device in devices).values(), default=0)


def device_names(devices: Sequence[DeviceView], room: int) -> dict[tuple[str, str], str]:
    """Return what to write for each device, by resource and id: the id, cut to ``room`` characters, and the address.

    PCI addresses lose their domain where it is 0000. Devices of one resource whose ids look alike when they are cut
    are numbered instead.

    >>> from mooring.views.devices import DeviceView
    >>> nic = DeviceView("nic", "0000:3b:00.0", (), address="0000:3b:00.0")
    >>> list(device_names([DeviceView("gpu", "GPU-5c6a-1", ()), nic], 8).values())
    ['GPU-5…-1', '3b:00.0']
    """
    plain = {(one.resource, one.id): _bus_name(one.id) if one.id == one.address else one.id for one in devices}
    short = {key: cut(name, room) or f"…{name[1 - room :]}" for key, name in plain.items()}
    uses = Counter((resource, short[resource, id_]) for resource, id_ in short)
    numbers: Counter[str] = Counter()
    for key in short:
        numbers[key[0]] += 1
        if uses[key[0], short[key]] > 1:
            short[key] = f"#{numbers[key[0]]}"
    for one in devices:
        if one.address and one.address != one.id:
            short[one.resource, one.id] += f" {_bus_name(one.address)}"
    return short


def _bus_name(address: str) -> str:
    return address.removeprefix("0000:")
