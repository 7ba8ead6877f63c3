"""The CPU manager's hints: every set of NUMA nodes with enough CPUs.

Source: kubelet v1.37.1, cpumanager policy_static.go (generateCPUTopologyHints); spec: cpu-manager.md section 9.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from mooring.core.bits import NO_CPUS, NO_NODES, CPUMask, NUMAMask, members
from mooring.core.errors import KubeletCrashError
from mooring.core.topology import Topology
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.hints import IMPOSSIBLE, Hints
from mooring.topologymanager.wide import Demand, Family, SocketRule

MOST_LISTED = 8
"""Largest number of nodes with CPUs for which hints are listed; with more of them they are described."""


def generate_hints(
    topology: Topology,
    available: CPUMask,
    reusable: CPUMask,
    need: int,
    *,
    align_by_socket: bool,
    absent: CPUMask = NO_CPUS,
) -> AnyHints:
    """Return a hint for every set of NUMA nodes whose CPUs suffice.

    A set is preferred when no smaller set of nodes could serve the request on an empty machine (with align-by-socket
    also when it touches as few sockets as that). A CPU that is both available and reusable counts twice, as in the
    kubelet.

    Args:
        topology: of the machine; only nodes with CPUs take part.
        available: mask of the CPUs that may be taken.
        reusable: mask of the CPUs that init containers of the same pod leave; every hint must hold all of them.
        need: how many CPUs are wanted.
        align_by_socket: the policy option.
        absent: mask of the CPUs that the machine does not have for now (extension cpu-hotplug).
    """
    nodes = tuple(topology.numa)
    if len(nodes) > MOST_LISTED:
        return _family(topology, available, reusable, need, align_by_socket=align_by_socket, absent=absent)
    cpus = tuple(topology.numa.values())
    wanted = need - reusable.bit_count()
    base = 0
    for position, mask in enumerate(cpus):
        if mask & reusable:
            base |= 1 << position
    free = _sums([(mask & available).bit_count() for mask in cpus])
    found = [index for index, count in enumerate(free) if count >= wanted and index & base == base and index]
    smallest = _smallest_size([(mask & ~absent).bit_count() for mask in cpus], need)
    preferred = [index for index in found if index.bit_count() == smallest]
    if align_by_socket:
        sockets = _socket_span(topology, smallest)
        aligned = [index for index in found if _sockets_of(topology, index) == sockets]
        preferred = sorted(set(preferred).union(aligned))
    chosen = set(preferred)
    others = [index for index in found if index not in chosen]
    if nodes == tuple(range(len(nodes))):
        # Positions are ids here.
        return Hints(cast("tuple[NUMAMask, ...]", tuple(preferred)), cast("tuple[NUMAMask, ...]", tuple(others)))
    return Hints(tuple(_as_ids(preferred, nodes)), tuple(_as_ids(others, nodes)))


def _family(
    topology: Topology, available: CPUMask, reusable: CPUMask, need: int, *, align_by_socket: bool, absent: CPUMask
) -> AnyHints:
    """Describe the same hints; the empty list when there is none."""
    weights = [0] * (max(topology.numa) + 1)
    universe = required = NO_NODES
    for node, cpus in topology.numa.items():
        weights[node] = (cpus & available).bit_count()
        universe |= 1 << node
        if cpus & reusable:
            required |= 1 << node
    smallest = _smallest_size([(cpus & ~absent).bit_count() for cpus in topology.numa.values()], need)
    sockets = None
    if align_by_socket:
        nodes = tuple(
            sum(1 << node for node, _ in topology.nodes_of_socket[socket]) for socket in topology.nodes_of_socket
        )
        sockets = SocketRule(nodes, _socket_span(topology, smallest))
    demand = Demand(need - reusable.bit_count(), tuple(weights))
    family = Family(universe, (demand,), smallest, required=required, sockets=sockets)
    return family if family.describes(universe) else IMPOSSIBLE


def _sums(counts: list[int]) -> list[int]:
    """Return the sum of ``counts`` over every subset, indexed by the subset's mask."""
    sums = [0]
    for count in counts:
        sums += [total + count for total in sums]
    return sums


def _smallest_size(sizes: list[int], need: int) -> int:
    """Return the fewest nodes that could serve the request on an empty machine; all of them when none could."""
    total = 0
    for number, size in enumerate(sorted(sizes, reverse=True), start=1):
        total += size
        if total >= need:
            return number
    return len(sizes)


def _socket_span(topology: Topology, smallest: int) -> int:
    """Return how many sockets the smallest set of nodes spans when sockets are filled one by one."""
    if not topology.num_sockets:
        raise KubeletCrashError("the machine declares no sockets: the kubelet divides by zero here")
    nodes_per_socket = max(topology.num_numa_nodes // topology.num_sockets, 1)
    return -(-smallest // nodes_per_socket)


def _sockets_of(topology: Topology, index: int) -> int:
    cpus = tuple(topology.numa.values())
    mask = NO_CPUS
    for position in members(index):
        mask |= cpus[position]
    return topology.sockets_touched(mask)


def _as_ids(indices: list[int], nodes: tuple[int, ...]) -> list[NUMAMask]:
    """Turn masks of positions into masks of node ids."""
    table = _id_masks(nodes)
    return [table[index] for index in indices]


@lru_cache(maxsize=16)
def _id_masks(nodes: tuple[int, ...]) -> tuple[NUMAMask, ...]:
    return tuple(NUMAMask(mask) for mask in _sums([1 << node if node >= 0 else 0 for node in nodes]))
