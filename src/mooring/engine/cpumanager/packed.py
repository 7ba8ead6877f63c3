"""Taking CPUs one element at a time: the state of one run and the order of the candidates.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (cpuAccumulator); spec: cpu-manager.md section 5.

Taking CPUs packed or spread: whole NUMA nodes and sockets first, then uncore caches, cores and single CPUs.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (takeByTopologyNUMAPacked); spec: cpu-manager.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Final

from mooring.engine.core.bits import NO_CPUS, CPUMask, lowest, members
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.topology import Elements, Topology
from mooring.engine.cpumanager.facts import CPUsPicked
from mooring.engine.cpumanager.options import TakeRules

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

    def _above_cores(self) -> tuple[list[Element], Elements]:
        """Return sockets or NUMA nodes with available CPUs, whichever are smaller, and the cores in each."""
        topology = self.topology
        if topology.numa_first:
            return self.sockets(), topology.cores_of_socket
        return self.numa_nodes(), topology.cores_of_node

    def cores(self) -> Iterator[Element]:
        """List the cores with available CPUs, below sockets or NUMA nodes, whichever are smaller."""
        parents, children = self._above_cores()
        # The list is drawn lazily, but always from the CPUs that are available now: claims while walking do not change
        # it.
        available, kept = self.available, self.kept
        for parent, mask in parents:
            yield from _ordered(available, kept, children[parent], mask)

    def free_cores(self) -> Iterator[Element]:
        """List the cores that count as entirely free, drawn lazily from what is available now, as :meth:`cores`."""
        average, available, kept = self.topology.cpus_per_core, self.available, self.kept
        free, fixed_sizes = available | kept, self.fixed_sizes
        parents, children = self._above_cores()
        for parent, inside in parents:
            here = available & inside
            # Of one parent those judged by the average have equally many free CPUs: their order is that of their ids.
            alike = not kept and not fixed_sizes
            for core in children[parent] if alike else _ordered(available, kept, children[parent], inside):
                mask = core[1]
                if mask & here and (mask & free).bit_count() == (mask.bit_count() if fixed_sizes else average):
                    yield core

    def uncores(self, *, once: bool) -> list[Element]:
        """List the uncore caches with available CPUs, once or under each of its NUMA nodes.

        Defect shared-uncore: a cache that two nodes share is listed twice and claimed twice, and what it has counts
        twice, so that the container gets fewer CPUs than it requests (gone with rule uncore-by-average-size).
        """
        listed = self._below(self.numa_nodes(), self.topology.uncores_of_node)
        return list(dict(listed).items()) if once else listed

    def cpus_packed(self) -> Iterator[int]:
        """List the available CPUs core by core."""
        available = self.available
        for _, mask in self.cores():
            yield from members(mask & available)

    def cpus_spread(self, *, by_number: bool) -> Iterator[int]:
        """List the available CPUs socket by socket: the first of each core, then the second of each, and so on.

        Args:
            by_number: up to v1.37 they are listed ascending (rule spread-by-cpu-number; spec: preview.md section 1).
        """
        available, kept = self.available, self.kept
        for socket, mask in self.sockets():
            if by_number:
                yield from members(mask & available)
                continue
            cores = _ordered(available, kept, self.topology.cores_of_socket[socket], mask)
            rounds = zip_longest(*(members(core & mask & available) for _, core in cores))
            yield from (cpu for cpus in rounds for cpu in cpus if cpu is not None)

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

    def claim_numa_nodes(self) -> None:
        """Claim NUMA nodes that are entirely free."""
        if self.kept or self.need >= self.topology.smallest_node:
            self.claim_free([node for node in self.numa_nodes() if self.is_free(node[1])])

    def claim_sockets(self) -> None:
        """Claim sockets that count as entirely free.

        Defect average-sizes: the kubelet compares with the machine's *average* size, so that on machines with uneven
        sockets or cores a partly used one counts as free and a free one does not (spec: topology.md section 4).
        """
        if self.kept or self.need >= self.topology.smallest_socket:
            average, free = self.topology.cpus_per_socket, self.available | self.kept
            self.claim_free(
                [
                    (socket, mask)
                    for socket, mask in self.sockets()
                    if (mask & free).bit_count() == (mask.bit_count() if self.fixed_sizes else average)
                ]
            )

    def claim_cores(self) -> None:
        """Claim cores that count as entirely free."""
        # Judged by the average, a core counts as free with just so many free CPUs: none has fewer.
        is_average = not self.kept and not self.fixed_sizes
        self.claim_free(self.free_cores(), max(self.topology.cpus_per_core, 1) if is_average else 1)


def _ordered(available: CPUMask, kept: CPUMask, elements: Iterable[Element], inside: CPUMask) -> list[Element]:
    """Order the elements with an available CPU inside the parent: fewer available CPUs first, then the smaller id.

    Elements with kept CPUs come before all others (KEP-5554).
    """
    here = available & inside
    counted = sorted(((mask & available).bit_count(), element, mask) for element, mask in elements if mask & here)
    if kept:
        counted.sort(key=lambda one: not one[2] & kept)
    return [(element, mask) for _, element, mask in counted]


NO_CORE_SIZE = "the machine declares no cores, or fewer CPUs than cores: the kubelet divides by zero here"


def refused_outright(available: CPUMask, need: int) -> AllocationError | None:
    """Return the kubelet's error when more CPUs are wanted than there are."""
    count = available.bit_count()
    if need > count:
        return AllocationError(f"not enough cpus available to satisfy request: requested={need}, available={count}")
    return None


def take_packed(
    topology: Topology,
    available: CPUMask,
    need: int,
    rules: TakeRules,
    *,
    uncore: bool,
    kept: CPUMask = NO_CPUS,
    observer: Observer | None = None,
) -> CPUMask | AllocationError:
    """Take ``need`` of the ``available`` CPUs.

    Args:
        topology: of the machine.
        available: mask of the CPUs to choose from.
        need: how many.
        kept: mask of CPUs that are held already and stay beside those taken (KEP-5554); none of them is available.
        rules: ``spread`` and ``fixed_defects`` matter here.
        uncore: whether uncore caches are kept whole (never inside a distribution over NUMA nodes).
        observer: receives which rule gave which CPUs.

    Returns:
        The mask of the CPUs taken, or the kubelet's error.
    """
    if need < 1:
        return NO_CPUS
    refusal = refused_outright(available, need)
    if refusal:
        return refusal
    run = Accumulator(topology, available, need, kept=kept, fixed_sizes="average-sizes" in rules.fixed_defects)

    # 1. Whole NUMA nodes and sockets, the larger of the two first.
    large = (("numa-nodes", run.claim_numa_nodes), ("sockets", run.claim_sockets))
    for rule, claim in large if topology.numa_first else reversed(large):
        before = run.taken
        claim()
        _report(observer, rule, run.taken ^ before)
        if run.need <= 0:
            return run.taken

    # 2. Uncore caches, where they are to be kept whole.
    if uncore:
        _claim_uncores(run, rules, observer)
        if run.need <= 0:
            return run.taken

    # 3. Whole cores, unless CPUs are spread over cores.
    if not rules.spread:
        before = run.taken
        run.claim_cores()
        _report(observer, "cores", run.taken & ~before)
        if run.need <= 0:
            return run.taken

    # 4. What remains, CPU by CPU.
    before = run.taken
    for cpu in run.cpus_spread(by_number=rules.older.spread_by_cpu_number) if rules.spread else run.cpus_packed():
        run.claim(CPUMask(1 << cpu))
        if run.need <= 0:
            _report(observer, "cpus-spread" if rules.spread else "cpus", run.taken & ~before)
            return run.taken
    return AllocationError("failed to allocate cpus")


def _report(observer: Observer | None, rule: str, cpus: CPUMask) -> None:
    if cpus and observer is not None:
        observer(CPUsPicked(rule, cpus))


def _claim_uncores(run: Accumulator, rules: TakeRules, observer: Observer | None) -> None:
    """Claim whole uncore caches, then one that can hold the rest (spec: cpu-manager.md section 6.2).

    Up to v1.37 whole ones are claimed only while the need is at least the average size (rule uncore-by-average-size;
    spec: preview.md section 3).
    """
    older = rules.older.uncore_by_average_size
    average = run.topology.cpus_per_uncore if older else 0
    once = not older or "shared-uncore" in rules.fixed_defects
    uncores = run.uncores(once=once)
    for position, uncore in enumerate(uncores):
        if run.need + (uncore[1] & run.kept).bit_count() >= average if older else not position:
            before = run.taken
            # Every uncore that is entirely free is offered, not only the one at hand.
            offered = run.uncores(once=once) if older else uncores
            run.claim_free([candidate for candidate in offered if run.is_free(candidate[1])])
            _report(observer, "uncore-caches", run.taken & ~before)
        if run.need <= 0:
            return
        part = _part_of_uncore(run, uncore, rules)
        if part:
            run.claim(CPUMask(part))
            _report(observer, "part-of-uncore-cache", CPUMask(part))
            return


def _part_of_uncore(run: Accumulator, uncore: Element, rules: TakeRules) -> int:
    """Return CPUs of the uncore that satisfy the whole need, or 0.

    Defect odd-uncore: the kubelet looks at the first cores of the uncore only, and fails when one of them is partly
    used although the uncore has enough CPUs (kubernetes/kubernetes#131610). Fixed, free cores are used first, then
    what else the uncore has.

    Up to v1.33 the number of cores is rounded down and their CPUs must be the exact number (rule
    partial-uncore-rounds-down; spec: releases.md section 8).
    """
    topology = run.topology
    inside = uncore[1] & run.available
    if not inside:
        return NO_CPUS
    if topology.cpus_per_core == 0:
        raise KubeletCrashError(NO_CORE_SIZE)
    if "odd-uncore" in rules.fixed_defects:
        if inside.bit_count() < run.need:
            return NO_CPUS
        smaller = Accumulator(topology, inside, run.need, kept=run.kept, fixed_sizes=run.fixed_sizes)
        smaller.claim_cores()
        return smaller.taken | lowest(smaller.available, smaller.need)
    # The CPUs beside kept ones on their cores, as many as are needed: those cores come first (KEP-5554).
    halves = lowest(topology.core_siblings(run.kept) & inside, run.need) if run.kept else NO_CPUS
    need = run.need - halves.bit_count()
    if need <= 0:
        return halves
    rounds_down = rules.older.partial_uncore_rounds_down
    wanted_cores = need // topology.cpus_per_core if rounds_down else -(-need // topology.cpus_per_core)
    cores = 0
    for mask in topology.cores.values():
        if wanted_cores == 0:
            break
        if mask & inside & ~halves:
            cores |= mask
            wanted_cores -= 1
    chosen = cores & run.available & ~halves
    if not rounds_down and need % 2 and topology.cpus_per_core > 1 and chosen.bit_count() > need:
        chosen ^= 1 << (chosen.bit_length() - 1)
    return halves | chosen if chosen.bit_count() == need else 0
