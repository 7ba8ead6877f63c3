"""Taking CPUs one element at a time: the state of one run and the order of the candidates.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (cpuAccumulator); spec: cpu-manager.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.core.bits import members
from mooring.core.topology import Elements, Topology

Element = tuple[int, int]
"""(id, mask of the CPUs of the element on the whole machine)."""


class Accumulator:
    """One run of taking: what is still available, what is still needed, what was taken.

    Lists are made at the moment of the call and not refreshed while they are walked, as in the kubelet.
    """

    __slots__ = ("available", "fixed_sizes", "need", "taken", "topology")

    def __init__(self, topology: Topology, available: int, need: int, *, fixed_sizes: bool = False) -> None:
        self.topology = topology
        self.available = available
        self.need = need
        self.taken = 0
        self.fixed_sizes = fixed_sizes
        """Whether free cores and sockets are judged by their real size (defect average-sizes fixed)."""

    def claim(self, cpus: int) -> None:
        """Take ``cpus``.

        The need falls by their number even where one of them was not available any more: that is how defect
        average-sizes hands out a CPU twice.
        """
        self.taken |= cpus
        self.available &= ~cpus
        self.need -= cpus.bit_count()

    def _below(self, parents: Iterable[Element], children: Elements) -> list[Element]:
        return [child for parent, mask in parents for child in _ordered(self.available, children[parent], mask)]

    def numa_nodes(self) -> list[Element]:
        """List the NUMA nodes with available CPUs."""
        topology = self.topology
        if topology.numa_first:
            return _ordered(self.available, topology.numa.items(), -1)
        return self._below(_ordered(self.available, topology.sockets.items(), -1), topology.nodes_of_socket)

    def sockets(self) -> list[Element]:
        """List the sockets with available CPUs."""
        topology = self.topology
        if topology.numa_first:
            return self._below(_ordered(self.available, topology.numa.items(), -1), topology.sockets_of_node)
        return _ordered(self.available, topology.sockets.items(), -1)

    def cores(self) -> Iterator[Element]:
        """List the cores with available CPUs, below sockets or NUMA nodes, whichever are smaller."""
        topology = self.topology
        if topology.numa_first:
            parents, children = self.sockets(), topology.cores_of_socket
        else:
            parents, children = self.numa_nodes(), topology.cores_of_node
        # The list is drawn lazily, but always from the CPUs that are available now: claims while walking do not change
        # it.
        available = self.available
        for parent, mask in parents:
            yield from _ordered(available, children[parent], mask)

    def uncores(self) -> list[Element]:
        """List the uncore caches with available CPUs; one that spans two nodes is listed under each."""
        return self._below(self.numa_nodes(), self.topology.uncores_of_node)

    def cpus_packed(self) -> Iterator[int]:
        """List the available CPUs core by core."""
        available = self.available
        for _, mask in self.cores():
            yield from members(mask & available)

    def cpus_spread(self) -> Iterator[int]:
        """List the available CPUs socket by socket, ascending, so that cores are shared as late as possible."""
        available = self.available
        for _, mask in self.sockets():
            yield from members(mask & available)

    def is_free_by_average(self, mask: int, average: int) -> bool:
        """Tell whether a core or socket counts as entirely free.

        Defect average-sizes: the kubelet compares with the machine's *average* size, so that on machines with uneven
        cores a partly used core counts as free and a free one does not (spec: topology.md section 4).
        """
        size = mask.bit_count() if self.fixed_sizes else average
        return (mask & self.available).bit_count() == size

    def claim_free(self, elements: list[Element]) -> None:
        """Walk a list and claim each element that is not larger than the need; larger ones are passed over."""
        for _, mask in elements:
            if self.need <= 0:
                return
            if self.need >= mask.bit_count():
                self.claim(mask)


def _ordered(available: int, elements: Iterable[Element], inside: int) -> list[Element]:
    """Order the elements with an available CPU inside the parent: fewer available CPUs first, then the smaller id."""
    here = available & inside
    counted = sorted(((mask & available).bit_count(), element, mask) for element, mask in elements if mask & here)
    return [(element, mask) for _, element, mask in counted]
