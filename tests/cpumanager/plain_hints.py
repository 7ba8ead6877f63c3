"""The CPU manager's hints as the specification tells them: a loop over all sets of nodes.

Source: kubelet v1.37.1, cpumanager policy_static.go; spec: cpu-manager.md section 9.
"""

from __future__ import annotations

from itertools import combinations

from mooring.engine.core.topology import Topology

PlainHints = list[tuple[tuple[int, ...], bool]]
"""(node ids, preferred), by size and then lexicographic."""


def plain_hints(topology: Topology, available: set[int], reusable: set[int], need: int, *, align: bool) -> PlainHints:
    places = topology.places
    nodes = sorted({place.numa for place in places.values()})
    smallest = len(nodes)
    found: list[tuple[int, ...]] = []
    for size in range(1, len(nodes) + 1):
        for mask in combinations(nodes, size):
            inside = {cpu for cpu, place in places.items() if place.numa in mask}
            if len(inside) >= need and size < smallest:
                smallest = size
            if reusable - inside:
                continue
            if len(reusable) + len(available & inside) >= need:
                found.append(mask)
    return [(mask, len(mask) == smallest or (align and aligned(topology, mask, smallest))) for mask in found]


def aligned(topology: Topology, mask: tuple[int, ...], smallest: int) -> bool:
    per_socket = max(topology.num_numa_nodes // topology.num_sockets, 1)
    touched = {place.socket for place in topology.places.values() if place.numa in mask}
    return len(touched) == -(-smallest // per_socket)
