"""Taking CPUs one element at a time: the state of one run and the order of the candidates.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (cpuAccumulator); spec: cpu-manager.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mooring.engine.core.bits import NO_CPUS, CPUMask, members
from mooring.engine.core.topology import Elements, Topology

Element = tuple[int, CPUMask]
"""(id, mask of the CPUs of the element on the whole machine)."""

EVERYWHERE: Final = CPUMask(-1)
"""Every CPU that there can be."""


class Accumulator:
    """One run of taking: what is still available, what is still needed, what was taken.

    Lists are made at the moment of the call and not refreshed while they are walked, as in the kubelet.

    CPUs that are kept (KEP-5554) belong to the result already: elements that hold one come first in every list, and
    count as free when nothing but kept and available CPUs is in them.
    """

    __slots__ = ("available", "fixed_sizes", "kept", "need", "taken", "topology")

    def __init__(
        self, topology: Topology, available: CPUMask, need: int, *, kept: CPUMask = NO_CPUS, fixed_sizes: bool = False
    ) -> None:
        self.topology = topology
        self.available = available
        self.kept = kept
        self.need = need
        """CPUs that are still missing; the kept ones are not."""
        self.taken = NO_CPUS
        self.fixed_sizes = fixed_sizes
        """Whether free cores and sockets are judged by their real size (defect average-sizes fixed)."""

    def claim(self, cpus: CPUMask) -> None:
        """Take ``cpus``.

        The need falls by their number even where one of them was not available any more: that is how defect
        average-sizes hands out a CPU twice.
        """
        self.taken |= cpus
        self.available &= ~cpus
        self.need -= cpus.bit_count()

    def _ordered(self, elements: Iterable[Element], inside: CPUMask) -> list[Element]:
        return _ordered(self.available, self.kept, elements, inside)

    def _below(self, parents: Iterable[Element], children: Elements) -> list[Element]:
        return [child for parent, mask in parents for child in self._ordered(children[parent], mask)]

    def numa_nodes(self) -> list[Element]:
        """List the NUMA nodes with available CPUs."""
        topology = self.topology
        if topology.numa_first:
            return self._ordered(topology.numa.items(), EVERYWHERE)
        return self._below(self._ordered(topology.sockets.items(), EVERYWHERE), topology.nodes_of_socket)

    def sockets(self) -> list[Element]:
        """List the sockets with available CPUs."""
        topology = self.topology
        if topology.numa_first:
            return self._below(self._ordered(topology.numa.items(), EVERYWHERE), topology.sockets_of_node)
        return self._ordered(topology.sockets.items(), EVERYWHERE)

    def cores(self) -> Iterator[Element]:
        """List the cores with available CPUs, below sockets or NUMA nodes, whichever are smaller."""
        topology = self.topology
        if topology.numa_first:
            parents, children = self.sockets(), topology.cores_of_socket
        else:
            parents, children = self.numa_nodes(), topology.cores_of_node
        # The list is drawn lazily, but always from the CPUs that are available now: claims while walking do not change
        # it.
        available, kept = self.available, self.kept
        for parent, mask in parents:
            yield from _ordered(available, kept, children[parent], mask)

    def free_cores(self) -> Iterator[Element]:
        """List the cores that count as entirely free, drawn lazily from what is available now, as :meth:`cores`."""
        average, free = self.topology.cpus_per_core, self.available | self.kept
        for core in self.cores():
            mask = core[1]
            if (mask & free).bit_count() == (mask.bit_count() if self.fixed_sizes else average):
                yield core

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

    def is_free_by_average(self, mask: CPUMask, average: int) -> bool:
        """Tell whether a core or socket counts as entirely free.

        Defect average-sizes: the kubelet compares with the machine's *average* size, so that on machines with uneven
        cores a partly used core counts as free and a free one does not (spec: topology.md section 4).
        """
        size = mask.bit_count() if self.fixed_sizes else average
        return (mask & (self.available | self.kept)).bit_count() == size

    def is_free(self, mask: CPUMask) -> bool:
        """Tell whether no other container has a CPU of an element."""
        return not mask & ~(self.available | self.kept)

    def claim_free(self, elements: Iterable[Element], smallest: int = 1) -> None:
        """Walk elements and claim what is missing of each that is not larger than the need; others are passed.

        Which elements they are is decided by what was available before: a claim changes nothing about the later ones.

        Args:
            elements: that may be claimed.
            smallest: number of CPUs of which each misses at least as many; 1 where that is not known.
        """
        for _, mask in elements:
            if self.need < smallest:
                return
            missing = mask & ~self.kept
            if self.need >= missing.bit_count():
                self.claim(missing)


def _ordered(available: CPUMask, kept: CPUMask, elements: Iterable[Element], inside: CPUMask) -> list[Element]:
    """Order the elements with an available CPU inside the parent: fewer available CPUs first, then the smaller id.

    Elements with kept CPUs come before all others (KEP-5554).
    """
    here = available & inside
    counted = sorted(((mask & available).bit_count(), element, mask) for element, mask in elements if mask & here)
    if kept:
        counted.sort(key=lambda one: not one[2] & kept)
    return [(element, mask) for _, element, mask in counted]
