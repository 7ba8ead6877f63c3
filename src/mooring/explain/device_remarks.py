"""Remarks about devices that a container got: farther from one another than as many devices of the machine are.

No manager of the kubelet compares the devices of one resource with one another; they come from the NUMA nodes of the
merged hint, whose distances count only with prefer-closest-numa-nodes. So the judgement is this project's own, by the
distances that the firmware reports (ACPI SLIT).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mooring.engine.core.bits import mask_of, members
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.topology import Topology
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Decision
from mooring.explain import reason as code
from mooring.explain.chapters import Circumstances
from mooring.explain.phrases import device_words, nodes, nodes_of, positions
from mooring.explain.reason import Reason

NUMADistances = Mapping[int, tuple[int, ...]]
"""NUMA node -> its distances, by node id."""

_MOST_SETS = 5_000
"""Sets of NUMA nodes that are compared; a machine has few nodes with devices of one resource."""


def distances_of(info: MachineInfo) -> NUMADistances:
    """Return the distances that a machine reports; empty where it reports none."""
    return {node.node_id: node.distances for node in info.topology if node.distances}


@dataclass(frozen=True, slots=True)
class _Near:
    """NUMA nodes that devices are near to, the better the smaller."""

    count: int
    distance: int
    """The largest between two of the nodes; 0 where the machine reports none."""
    mask: int

    def __lt__(self, other: _Near) -> bool:
        return (self.distance, self.count) < (other.distance, other.count)

    def __str__(self) -> str:
        return nodes(members(self.mask)) + (f" (distance {self.distance})" if self.distance else "")


def far_devices(circumstances: Circumstances) -> Iterator[Reason]:
    """Say which container's devices are farther from one another than as many on an empty machine."""
    state = circumstances.devices
    for container, resources in state.held.get(circumstances.pod.uid, {}).items():
        for resource, ids in resources.items():
            known = [one for one in state.devices.get(resource, ()) if one.mask]
            held = [one for one in known if one.id in ids]
            if len(held) < 2 or len(held) < len(ids):
                continue
            has = _near(held, circumstances.distances)
            best = _closest([one for one in known if one.healthy], len(held), circumstances.distances)
            if best is not None and best < has:
                yield Reason(
                    code.DEVICES_SPREAD,
                    f"{container} has {device_words(resource, len(ids))} on {has}; on an empty machine {best} "
                    f"{'has' if best.count == 1 else 'have'} as many",
                    "Start such pods first, or use topologyManagerPolicy single-numa-node or the option "
                    "prefer-closest-numa-nodes.",
                )


def devices_elsewhere(decision: Decision, circumstances: Circumstances, topology: Topology) -> Iterator[Reason]:
    """Say which container has its CPUs on no NUMA node of a device that it holds."""
    for container, placement in decision.containers.items():
        here = nodes_of(topology, placement.cpus.mask)
        known = mask_of(node for node in here if node >= 0)
        for resource, devices in decision.devices.get(container, {}).items() if known else ():
            away = {device.id: device.mask for device in devices if device.mask and not device.mask & known}
            if away:
                remedy = "To reject such pods instead, use topologyManagerPolicy restricted or single-numa-node."
                if "/" not in resource and circumstances.settings.device_alignments is None:
                    remedy = (
                        "The kubelet's topology manager does not see devices of claims. The node agent does, with the "
                        "extension device-alignment: --devices follow shows it."
                    )
                yield Reason(
                    code.DEVICES_ELSEWHERE,
                    f"{container} is not beside {positions(away)} ({resource})",
                    remedy,
                )


def _near(devices: Sequence[Device], distances: NUMADistances) -> _Near:
    # A device that is near to several nodes counts for the first of them.
    return _set_of({min(members(one.mask)) for one in devices}, distances)


def _set_of(nodes_: set[int], distances: NUMADistances) -> _Near:
    pairs = [distances.get(one, ())[other : other + 1] for one in nodes_ for other in nodes_]
    return _Near(len(nodes_), max((pair[0] for pair in pairs if pair), default=0), mask_of(nodes_))


def _closest(devices: Sequence[Device], need: int, distances: NUMADistances) -> _Near | None:
    """Return the closest NUMA nodes that have so many devices, used ones included."""
    counts: dict[int, int] = {}
    for device in devices:
        home = min(members(device.mask))
        counts[home] = counts.get(home, 0) + 1
    best, tried = None, 0
    for size in range(1, len(counts) + 1):
        for chosen in combinations(sorted(counts), size):
            tried += 1
            if tried > _MOST_SETS:
                return best
            if sum(counts[node] for node in chosen) >= need:
                near = _set_of(set(chosen), distances)
                best = near if best is None or near < best else best
        if best is not None:
            return best
    return best
