"""One more device of a resource on a NUMA node, and the search for one that helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from mooring.answers.base.changes.change import ChangeStage, Cost, two_parts
from mooring.answers.base.changes.search import Proposal, Search, cheaper
from mooring.answers.base.question import Entry, Question, pods_in
from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import Device


@dataclass(frozen=True, slots=True)
class MoreDevices:
    """There is one more device of a resource on a NUMA node."""

    kind: ClassVar[str] = "device"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE
    target: ClassVar[str] = ""

    resource: str
    node: int

    @property
    def option(self) -> tuple[str, str]:
        """``--device RESOURCE=NODE``."""
        return "--device", f"{self.resource}={self.node}"

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the NUMA node."""
        return f"add one {self.resource} on NUMA node {self.node}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the device."""
        return replace(question, devices=_with_device(question, self))


def _with_device(question: Question, change: MoreDevices) -> dict[str, tuple[Device, ...]]:
    """Return the devices with one more.

    Raises:
        InputError: the resource or the NUMA node is unknown.
    """
    devices = question.devices.get(change.resource)
    if devices is None:
        known = ", ".join(sorted(question.devices)) or "none"
        raise InputError(
            f"no devices of {change.resource} are declared",
            remedy=f"declared are {known}; see documents of kind NodeDevices",
        )
    nodes = sorted(node.node_id for node in question.machine.info.topology)
    if change.node not in nodes:
        raise InputError(
            f"{question.machine.name} has no NUMA node {change.node}",
            remedy=f"it has {', '.join(map(str, nodes))}",
        )
    taken = {device.id for device in devices}
    number = next(number for number in range(len(devices) + 1) if _device_id(number) not in taken)
    return {**question.devices, change.resource: (*devices, Device(_device_id(number), (change.node,)))}


def _device_id(number: int) -> str:
    return f"one-more-{number}"


def read_device(_question: Question, text: str) -> list[MoreDevices]:
    """Read the value of ``--device``.

    Raises:
        InputError: it cannot be understood.
    """
    resource, node = two_parts(text, "RESOURCE=NODE")
    if not (node.isascii() and node.isdecimal()):
        raise InputError(f"{node!r:.40} is not a NUMA node", field=resource, remedy="write RESOURCE=NODE")
    return [MoreDevices(resource, int(node))]


def proposals(search: Search) -> Iterator[Proposal]:
    """Yield, for each resource, the NUMA node on which one more device disturbs the fewest pods."""
    if not search.has_room:
        return
    until = pods_in(search.queue[: search.place + 1])
    wanted = {name for pod in until for container in pod.containers for name in container.limits}
    for resource in sorted(wanted.intersection(search.question.devices)):
        best: Proposal | None = None
        for node in sorted(node.node_id for node in search.question.machine.info.topology):
            found = _on(search, MoreDevices(resource, node), best)
            best = found or best
        if best is not None:
            yield best


def _on(search: Search, change: MoreDevices, best: Proposal | None) -> Proposal | None:
    """Return the proposal if it is better than the best so far."""
    # A pod that requests none of them is not affected.
    first = next(place for place, entry in enumerate(search.queue) if _asks(entry, change.resource))
    kubelet = search.course.before[first]
    kubelet = replace(kubelet, node=kubelet.node.with_devices(_with_device(search.question, change)))
    course = search.tried((change,), kubelet, search.queue[first:])
    if course is None:
        return None
    cost = Cost(touched=search.touched(course), devices_added=1)
    return search.proposal((change,), cost, course) if cheaper(cost, best) else None


def _asks(entry: Entry, resource: str) -> bool:
    return any(resource in container.limits for pod in pods_in([entry]) for container in pod.containers)
