"""Taking CPUs packed or spread as the specification tells it: object by object, on sets.

An oracle: slow, plain, sharing nothing with the engine but the description of the machine.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go; spec: cpu-manager.md sections 5 and 6; CPUs that are kept by a
resize: resize.md section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mooring.engine.core.topology import CPUPlace, Topology

Level = Callable[[CPUPlace], int]


def numa_of(place: CPUPlace) -> int:
    return place.numa


def socket_of(place: CPUPlace) -> int:
    return place.socket


def core_of(place: CPUPlace) -> int:
    return place.core


def uncore_of(place: CPUPlace) -> int:
    return place.uncore


class TakingError(Exception):
    """The kubelet's error."""


@dataclass
class PlainTaking:
    """One run of taking."""

    topology: Topology
    available: set[int]
    need: int
    fixed: frozenset[str] = frozenset()
    kept: set[int] = field(default_factory=set)
    """CPUs that the container has and keeps; none of them is available."""
    result: set[int] = field(default_factory=set)

    @property
    def numa_first(self) -> bool:
        return self.topology.num_sockets >= self.topology.num_numa_nodes

    def whole(self, level: Level, element: int) -> set[int]:
        """Return all CPUs of an element, on the whole machine."""
        return {cpu for cpu, place in self.topology.places.items() if level(place) == element}

    def base(self, level: Level, inside: set[int] | None = None) -> list[int]:
        """List elements with an available CPU (inside the parent): fewer available CPUs first, then the smaller id.

        Those with kept CPUs come before all others.
        """
        seen = self.available if inside is None else self.available & inside
        elements = {level(self.topology.places[cpu]) for cpu in seen}

        def order(element: int) -> tuple[bool, int, int]:
            cpus = self.whole(level, element)
            return not cpus & self.kept, len(cpus & self.available), element

        return sorted(elements, key=order)

    def below(self, parents: Sequence[int], parent: Level, level: Level) -> list[int]:
        return [element for one in parents for element in self.base(level, self.whole(parent, one))]

    def nodes(self) -> list[int]:
        if self.numa_first:
            return self.base(numa_of)
        return self.below(self.base(socket_of), socket_of, numa_of)

    def sockets(self) -> list[int]:
        if self.numa_first:
            return self.below(self.base(numa_of), numa_of, socket_of)
        return self.base(socket_of)

    def cores(self) -> list[int]:
        if self.numa_first:
            return self.below(self.sockets(), socket_of, core_of)
        return self.below(self.nodes(), numa_of, core_of)

    def uncores(self) -> list[int]:
        return self.below(self.nodes(), numa_of, uncore_of)

    def cpus_packed(self) -> list[int]:
        return [cpu for core in self.cores() for cpu in sorted(self.whole(core_of, core) & self.available)]

    def cpus_spread(self) -> list[int]:
        return [cpu for one in self.sockets() for cpu in sorted(self.whole(socket_of, one) & self.available)]

    def claim(self, cpus: set[int]) -> None:
        self.available = self.available - cpus
        self.result = self.result | cpus
        self.need -= len(cpus)

    def claim_each(self, level: Level, elements: Sequence[int]) -> None:
        for element in elements:
            missing = self.whole(level, element) - self.kept
            if self.need > 0 and self.need >= len(missing):
                self.claim(missing)

    def free(self, level: Level, elements: Sequence[int], size: int | None) -> list[int]:
        """Keep the elements that are entirely free or kept: all their CPUs, or as many as the average size tells."""
        return [
            element
            for element in elements
            if len(self.whole(level, element) & (self.available | self.kept))
            == (len(self.whole(level, element)) if size is None or "average-sizes" in self.fixed else size)
        ]

    def claim_nodes(self) -> None:
        self.claim_each(numa_of, self.free(numa_of, self.nodes(), None))

    def claim_sockets(self) -> None:
        sockets, cpus = self.topology.num_sockets, self.topology.num_cpus
        self.claim_each(socket_of, self.free(socket_of, self.sockets(), cpus // sockets if sockets else 0))

    def claim_cores(self) -> None:
        average = self.topology.num_cpus // self.topology.num_cores
        self.claim_each(core_of, self.free(core_of, self.cores(), average))

    def claim_uncores(self) -> None:
        topology = self.topology
        average = topology.num_cpus // topology.num_uncores if topology.num_uncores else 0
        threads = topology.num_cpus // topology.num_cores
        for uncore in self.uncores():
            if self.need + len(self.whole(uncore_of, uncore) & self.kept) >= average:
                self.claim_each(uncore_of, self.free(uncore_of, self.uncores(), None))
            if self.need <= 0:
                return
            inside = self.whole(uncore_of, uncore) & self.available
            begun = {topology.places[cpu].core for cpu in self.kept}
            beside = set(sorted(cpu for cpu in inside if topology.places[cpu].core in begun)[: self.need])
            need = self.need - len(beside)
            chosen = sorted({topology.places[cpu].core for cpu in inside - beside})[: -(-need // threads)]
            part = {cpu for core in chosen for cpu in (self.whole(core_of, core) & self.available) - beside}
            if need % 2 and threads > 1 and len(part) > need:
                part.remove(max(part))
            if len(part) == need:
                self.claim(beside | part)
                return


def plain_take(
    topology: Topology,
    available: set[int],
    need: int,
    *,
    spread: bool = False,
    uncore: bool = False,
    fixed: frozenset[str] = frozenset(),
    kept: frozenset[int] = frozenset(),
) -> set[int]:
    """Return the CPUs that are taken, beside those that are kept.

    Raises:
        TakingError: with the kubelet's text.
    """
    if need < 1:
        return set()
    if need > len(available):
        raise TakingError(f"not enough cpus available to satisfy request: requested={need}, available={len(available)}")
    run = PlainTaking(topology, set(available), need, fixed, set(kept))
    steps = [run.claim_nodes, run.claim_sockets] if run.numa_first else [run.claim_sockets, run.claim_nodes]
    if uncore:
        steps.append(run.claim_uncores)
    if not spread:
        steps.append(run.claim_cores)
    for step in steps:
        step()
        if run.need <= 0:
            return run.result
    for cpu in run.cpus_spread() if spread else run.cpus_packed():
        run.claim({cpu})
        if run.need <= 0:
            return run.result
    raise TakingError("failed to allocate cpus")
