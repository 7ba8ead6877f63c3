"""The CPU manager's hints: every set of NUMA nodes with enough CPUs.

Source: kubelet v1.37.1, cpumanager policy_static.go (generateCPUTopologyHints); spec: cpu-manager.md section 9.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from mooring.engine.core.bits import NO_CPUS, NO_NODES, CPUMask, NUMAMask
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.topology import Topology
from mooring.engine.topologymanager.entries import AnyHints
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints
from mooring.engine.topologymanager.wide import Demand, Family, SocketRule

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
    base = 0
    for position, mask in enumerate(cpus):
        if mask & reusable:
            base |= 1 << position
    smallest = _smallest_size([(mask & ~absent).bit_count() for mask in cpus], need)
    span, sockets = 0, tuple[int, ...]()
    if align_by_socket:
        span, sockets = _socket_span(topology, smallest), _positions_of_sockets(topology)
    free = tuple([(mask & available).bit_count() for mask in cpus])
    return _listed(nodes, free, need - reusable.bit_count(), base, smallest, span, sockets)


# Of a machine with 8 nodes 255 hints are made. Pods of one shape ask for the same ones again, and so do trials of many
# configurations. They are remembered by what they depend on.


@lru_cache(maxsize=512)
def _listed(
    nodes: tuple[int, ...],
    free: tuple[int, ...],
    wanted: int,
    base: int,
    smallest: int,
    span: int,
    sockets: tuple[int, ...],
) -> Hints:
    """List the hints.

    Args:
        nodes: ids of the nodes with CPUs.
        free: how many CPUs of each may be taken.
        wanted: how many are wanted beside the reusable ones.
        base: mask of the positions of nodes that every hint holds.
        smallest: size of the preferred hints.
        span: number of sockets that hints touch which are preferred, too.
        sockets: for each socket the mask of the positions of its nodes; empty without align-by-socket.
    """
    sums = _sums(list(free))
    found = [index for index, count in enumerate(sums) if count >= wanted and index & base == base and index]
    preferred = [
        index
        for index in found
        if index.bit_count() == smallest or (sockets and sum(1 for own in sockets if own & index) == span)
    ]
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


def _positions_of_sockets(topology: Topology) -> tuple[int, ...]:
    """Return, for each socket, the mask of the positions of the nodes that have CPUs on it."""
    cpus = tuple(topology.numa.values())
    return tuple(
        sum(1 << position for position, mask in enumerate(cpus) if mask & socket)
        for socket in topology.sockets.values()
    )


def _as_ids(indices: list[int], nodes: tuple[int, ...]) -> list[NUMAMask]:
    """Turn masks of positions into masks of node ids."""
    table = _id_masks(nodes)
    return [table[index] for index in indices]


@lru_cache(maxsize=16)
def _id_masks(nodes: tuple[int, ...]) -> tuple[NUMAMask, ...]:
    return tuple(NUMAMask(mask) for mask in _sums([1 << node if node >= 0 else 0 for node in nodes]))
