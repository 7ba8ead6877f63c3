"""How good the place of a pod is: how near its parts are, what it leaves for others, and how full the node gets.

Every figure lies between 0 and 1. The placement is the engine's, and so is the word on what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mooring.cluster.extender.options import Weights
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.kubelet.admit import decide, view_key
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.explanations.probes import CPU, MEMORY, place_of, probe_pod

HIGHEST = 10
"""The scheduler's highest score of an extender."""
_LOCAL = 10
"""A NUMA node's distance to itself."""
_UNTOLD = 20
"""Distance between two NUMA nodes where the machine tells none; Linux's own default."""
_MOST_PROBES = 12


@dataclass(frozen=True, slots=True)
class PlaceQuality:
    """A placement, judged."""

    alignment: float = 1.0
    """Local distance by mean distance between the NUMA nodes that the pod touches; 1 on one node."""
    room: float = 1.0
    """CPUs of the largest request that one NUMA node still takes alone, by those of the largest NUMA node."""
    free: float = 1.0
    """CPUs still available for exclusive use, divided by all."""

    @staticmethod
    def worst(merits: Sequence[PlaceQuality]) -> PlaceQuality:
        """Return the lowest of each figure."""
        if len(merits) == 1:
            return merits[0]
        return PlaceQuality(
            min(one.alignment for one in merits), min(one.room for one in merits), min(one.free for one in merits)
        )

    def score(self, weights: Weights) -> int:
        """Return the score of the placement, from 0 to 10.

        >>> weights = Weights(alignment=2.0, fragmentation=1.0)
        >>> PlaceQuality(1.0, 1.0, 0.2).score(weights), PlaceQuality(0.5, 0.5, 0.2).score(weights)
        (10, 5)
        >>> PlaceQuality(1.0, 1.0, 0.2).score(Weights(most_allocated=1))
        8
        """
        total = weights.alignment + weights.fragmentation + weights.least_allocated + weights.most_allocated
        if total <= 0:
            return 0
        sum_ = (
            weights.alignment * self.alignment
            + weights.fragmentation * self.room
            + weights.least_allocated * self.free
            + weights.most_allocated * (1 - self.free)
        )
        return round(HIGHEST * sum_ / total)


def quality_of(
    after: Kubelet,
    uid: str,
    distances: Mapping[int, tuple[int, ...]],
    largest: Callable[[Kubelet, Topology, int], int] | None = None,
) -> PlaceQuality:
    """Judge the place that a pod got.

    Args:
        after: its node.
        uid: of the pod.
        distances: between NUMA nodes.
        largest: is asked in place of :func:`largest_aligned`.
    """
    topology, policy = after.settings.topology, after.settings.cpu
    alignment = nearness(_touched(after.node, uid), distances)
    if topology is None or policy is None:
        return PlaceQuality(alignment)
    ever = topology.all_cpus & ~policy.reserved
    available = available_cpus(policy, after.node.cpu)
    whole = max(((mask & ever).bit_count() for mask in topology.numa.values()), default=0)
    left = available.bit_count() / ever.bit_count() if ever else 0.0
    if not whole:
        return PlaceQuality(alignment)
    return PlaceQuality(alignment, (largest or largest_aligned)(after, topology, available) / whole, left)


def nearness(nodes: Iterable[int], distances: Mapping[int, tuple[int, ...]]) -> float:
    """Return the local distance by the mean distance between any two of the nodes, each with itself included.

    >>> nearness([0], {}), round(nearness([0, 1], {0: (10, 12), 1: (12, 10)}), 3)
    (1.0, 0.909)
    """
    touched = list(nodes)
    if len(touched) < 2:
        return 1.0
    total = 0
    for one in touched:
        row = distances.get(one, ())
        far = [row[other] if 0 <= other < len(row) else _UNTOLD for other in touched if other != one]
        total += _LOCAL + sum(far)
    return _LOCAL * len(touched) ** 2 / total


def largest_aligned(kubelet: Kubelet, topology: Topology, available: int) -> int:
    """Return the CPUs of the largest request that one NUMA node would take alone, as the engine says."""
    policy = kubelet.settings.cpu
    step = max(policy.group_size, 1) if policy is not None and policy.rules.whole_cores else 1
    most = max(((mask & available).bit_count() for mask in topology.numa.values()), default=0)
    most -= most % step
    for count in range(most, max(most - _MOST_PROBES * step, 0), -step):
        result = decide(kubelet, probe_pod(CPU, count, guided=False))
        place = place_of(result.decision, kubelet.settings.topology) if result.admitted else None
        if place is not None and len(place.nodes) <= 1:
            return count
    return 0


def probe_key(kubelet: Kubelet) -> object:
    """Return what decides about probes for CPUs: of memory they request a byte, which a NUMA node has or has not."""
    node = kubelet.node
    tables = {id_: one.memory.get(MEMORY) for id_, one in node.memory.nodes.items()}
    if node.settings.plugins is not None or any(one and one.allocatable > one.total for one in tables.values()):
        return view_key("", node)  # amounts that wrap around add up in other ways
    memory = tuple(
        (id_, one.assignments > 0, tuple(one.cells), table and (table.free > 0, table.allocatable > 0))
        for (id_, one), table in zip(node.memory.nodes.items(), tables.values(), strict=True)
    )
    return node.cpu.default, memory


def _touched(node: Node, uid: str) -> list[int]:
    """Return the NUMA nodes of a pod's CPUs, memory and devices; a device counts where it is near to no other part."""
    topology = node.settings.topology
    cpus = node.cpu.pods.get(uid, 0)
    for mask in node.cpu.assignments.get(uid, {}).values():
        cpus |= mask
    touched = {id_ for id_, mask in topology.numa.items() if mask & cpus} if topology is not None else set()
    for blocks in node.memory.assignments.get(uid, {}).values():
        for block in blocks:
            touched.update(block.numa)
    devices = node.providers.devices
    for resources in devices.held.get(uid, {}).values():
        for resource, ids in resources.items():
            for device in devices.devices.get(resource, ()):
                if device.id in ids and device.numa and not touched & set(device.numa):
                    touched.add(device.numa[0])
    return sorted(touched)
