"""What containers have on the same NUMA node: their CPUs, their memory and their devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from mooring.agent.reactor.devices import devices_of, elsewhere, places_of
from mooring.agent.reactor.values import AgentState
from mooring.answers.base.alignment import are_near, with_devices
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device
from mooring.explain.phrases import nodes_of

ALL = "all"
"""In place of a resource: CPUs, memory and devices together, of containers that have devices."""


class DeviceFit(Enum):
    """How the CPUs and memory of a container lie to its devices; the value is the word in documents."""

    ALIGNED = "aligned"
    """On a NUMA node that all of them are near."""
    ELSEWHERE = "elsewhere"
    """They have no NUMA node in common."""
    UNKNOWN = "unknown"
    """Not all devices of its pod are known yet."""
    FREE = "free"
    """It has no CPUs or memory of its own, or nothing ties these to its devices."""


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """The devices of one container."""

    held: Mapping[str, tuple[Device, ...]]
    """Resource or driver -> devices."""
    fit: DeviceFit


def devices_of_pod(state: AgentState, pod: Pod) -> dict[str, ContainerDevices]:
    """Return what the containers of a pod hold, by name; containers of which nothing is to be said are left out."""
    far = {name for name, _ in elsewhere(state, pod)}
    found = {}
    for name, place in places_of(state, pod).items():
        held = devices_of(state.kubelet, pod.uid, name)
        if pod.uid in state.without_devices:
            fit = DeviceFit.UNKNOWN
        elif not held:
            continue
        elif name in far:
            fit = DeviceFit.ELSEWHERE
        else:
            fit = DeviceFit.ALIGNED if are_near(held) and (place.cpus or place.mems) else DeviceFit.FREE
        found[name] = ContainerDevices(held, fit)
    return found


@dataclass(frozen=True, slots=True)
class AlignmentCounts:
    """How many containers have what on one NUMA node, and how many have it on several."""

    aligned: Mapping[str, int]
    """``cpu``, ``memory``, a resource of devices, or :data:`ALL` -> containers."""
    unaligned: Mapping[str, int]
    with_devices: int
    """Containers that hold devices."""


def alignment_counts(state: AgentState) -> AlignmentCounts:
    """Count the containers of placed pods."""
    aligned, unaligned, holding = Counter[str](), Counter[str](), 0
    for pod in state.kubelet.node.active.values():
        for held, extents in _extents(state, pod):
            holding += bool(held)
            for resource, count in extents.items():
                (aligned if count == 1 else unaligned)[resource] += 1
    return AlignmentCounts(aligned, unaligned, holding)


def _extents(state: AgentState, pod: Pod) -> Iterator[tuple[Mapping[str, tuple[Device, ...]], dict[str, int]]]:
    """Yield the devices of each container, and on how many NUMA nodes it has what."""
    topology = state.kubelet.settings.topology
    for name, place in places_of(state, pod).items():
        held = {
            resource: devices
            for resource, devices in devices_of(state.kubelet, pod.uid, name).items()
            if any(one.numa for one in devices)
        }
        cpus = set() if topology is None else {*nodes_of(topology, place.cpus.mask)}
        memory = {*place.mems}
        found = {kind: len(where) for kind, where in (("cpu", cpus), ("memory", memory)) if where}
        for resource, devices in held.items():
            found[resource] = len(with_devices(cpus | memory, devices))
        if held and (cpus or memory):
            found[ALL] = len(with_devices(cpus | memory, (one for devices in held.values() for one in devices)))
        yield devices_of(state.kubelet, pod.uid, name), found
