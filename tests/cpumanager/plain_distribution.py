"""Distributing CPUs across NUMA nodes as the specification tells it, with lists that share storage as Go's do.

An oracle: every subset is tried on copies of all counts, balances are floats, and the generator of subsets really
extends growing lists, so that a remembered subset changes when the kubelet's would.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go; spec: cpu-manager.md sections 7 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.cpumanager.plain_taking import PlainTaking, TakingError, numa_of, plain_take

from mooring.engine.core.topology import Topology


class NeverReturnsError(Exception):
    """The kubelet would go round for ever; the text names the defect."""


@dataclass
class GoList:
    """A list as Go has it: a length, and storage that several lists can share."""

    storage: list[int] = field(default_factory=list)
    length: int = 0

    def appended(self, value: int) -> GoList:
        """Append: into the storage while it has room, else into new storage of twice the size."""
        storage = self.storage
        if self.length == len(storage):
            storage = [*storage, *[0] * max(1, len(storage))]
        storage[self.length] = value
        return GoList(storage, self.length + 1)

    def values(self) -> list[int]:
        return self.storage[: self.length]


def visit_subsets(elements: Sequence[int], size: int, visit: Callable[[GoList], bool]) -> None:
    """Visit every subset in list order until one visit returns False."""

    def helper(left: int, start: int, so_far: GoList) -> bool:
        if left == 0:
            return visit(so_far)
        return all(
            helper(left - 1, index + 1, so_far.appended(elements[index]))
            for index in range(start, len(elements) - left + 1)
        )

    helper(size, 0, GoList())


def rounded(value: float) -> float:
    """Round to three decimals, halves away from zero."""
    return math.floor(value * 1000 + 0.5) / 1000


def deviation(values: Sequence[int]) -> float:
    mean = rounded(sum(values) / len(values))
    return rounded(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


@dataclass
class PlainDistribution:
    """One run of distribution."""

    topology: Topology
    available: set[int]
    need: int
    group: int
    spread: bool = False
    align: bool = False
    fixed: frozenset[str] = frozenset()
    kept: frozenset[int] = frozenset()
    """CPUs that the container has and keeps: ``need`` counts them, ``available`` does not hold them."""
    endless: str = ""

    def __post_init__(self) -> None:
        listed = PlainTaking(self.topology, set(self.available), self.need, kept=set(self.kept)).nodes()
        self.holding = {self.topology.places[cpu].numa for cpu in self.kept}
        # All of them take part, and come first.
        begun = [node for node in listed if node in self.holding]
        self.nodes = [*sorted(self.holding - {*listed}), *begun, *(node for node in listed if node not in begun)]
        self.free = {node: len(self.cpus_of(node) & (self.available | self.kept)) for node in self.nodes}

    def cpus_of(self, node: int) -> set[int]:
        return {cpu for cpu, place in self.topology.places.items() if numa_of(place) == node}

    def capacity(self, node: int) -> int:
        return self.free[node] // self.group * self.group

    def excess(self, node: int, share: int) -> int:
        """Return how much of the remainder a node holds already."""
        return max(0, len(self.cpus_of(node) & self.kept) - share)

    def in_one_socket(self, combo: Sequence[int]) -> bool:
        touched = {self.topology.places[cpu].socket for node in combo for cpu in self.cpus_of(node)}
        return len(touched) <= 1

    def run(self) -> set[int]:
        cpus, g = len(self.topology.places), self.group
        groups = (cpus - 1) // g + 1
        per_node = (groups - 1) // len({place.numa for place in self.topology.places.values()}) + 1
        need = (self.need - 1) // g + 1
        smallest = max((need - 1) // per_node + 1, len(self.holding))
        for size in range(smallest, min(need, len(self.nodes)) + 1):
            found = self.best(size)
            if found is not None:
                return self.claim(*found)
        missing = self.need - len(self.kept)
        return plain_take(self.topology, self.available, missing, spread=self.spread, fixed=self.fixed, kept=self.kept)

    def best(self, size: int) -> tuple[list[int], list[int]] | None:
        """Return combo and remainder set as they are when the walk is over."""
        best_balance = math.inf
        best_combo: GoList | None = None
        best_remainder: GoList | None = None
        best_in_socket = False

        def visit(combo: GoList) -> bool:
            nonlocal best_balance, best_combo, best_remainder, best_in_socket
            if best_balance == 0 and (not self.align or best_in_socket):
                return False
            nodes = combo.values()
            if self.holding - {*nodes}:
                return True
            judged = self.judged(nodes)
            if judged is None:
                return True
            balance, remainder = judged
            better = balance < best_balance
            if self.align and self.in_one_socket(nodes) != best_in_socket:
                better = self.in_one_socket(nodes)
            if better:
                best_balance, best_remainder = balance, remainder
                best_combo = GoList(list(nodes), len(nodes)) if "saved-combo" in self.fixed else combo
                best_in_socket = self.align and self.in_one_socket(nodes)
            return True

        visit_subsets(self.nodes, size, visit)
        if best_combo is None:
            return None
        return best_combo.values(), best_remainder.values() if best_remainder is not None else []

    def judged(self, combo: Sequence[int]) -> tuple[float, GoList | None] | None:
        if sum(self.free[node] for node in combo) < self.need:
            return None
        if sum(self.capacity(node) for node in combo) < self.need:
            return None
        share = self.need // len(combo) // self.group * self.group
        if self.align:
            share = min(share, *(self.capacity(node) for node in combo))
        elif any(self.free[node] < share for node in combo):
            return None
        after = {
            node: self.free[node] - (share + self.excess(node, share) if node in combo else 0) for node in self.nodes
        }
        rest = self.need - len(combo) * share - sum(self.excess(node, share) for node in combo)
        if rest < 0:
            return None
        if rest == 0:
            return deviation([*after.values()]), None
        return self.best_remainder([node for node in combo if after[node] >= self.group], after, rest)

    def best_remainder(
        self, candidates: Sequence[int], after: dict[int, int], rest: int
    ) -> tuple[float, GoList] | None:
        best: tuple[float, GoList] | None = None

        def visit(chosen: GoList) -> bool:
            nonlocal best
            nodes = chosen.values()
            if sum(after[node] for node in nodes) < rest:
                return True
            counts = dict(after)
            left = rest
            while left > 0:
                before = left
                for node in nodes:
                    if left > 0 and counts[node] >= self.group:
                        counts[node] -= self.group
                        left -= self.group
                if left == before:
                    if "group-loop" in self.fixed:
                        return True
                    raise NeverReturnsError("group-loop")
            balance = deviation([*counts.values()])
            if best is None or balance < best[0]:
                best = balance, GoList(list(nodes), len(nodes)) if "saved-combo" in self.fixed else chosen
            return True

        for size in range(len(candidates), 0, -1):
            visit_subsets(candidates, size, visit)
        return best

    def claim(self, combo: Sequence[int], remainder: Sequence[int]) -> set[int]:
        left = set(self.available)
        taken: set[int] = set()
        missing = self.need - len(self.kept)

        def take(node: int, count: int) -> None:
            nonlocal left, taken, missing
            kept = self.kept | taken if self.kept else self.kept
            own = self.cpus_of(node)
            try:
                part = plain_take(self.topology, own & left, count, spread=self.spread, fixed=self.fixed, kept=kept)
            except TakingError:
                return
            left, taken, missing = left - part, taken | part, missing - len(part)

        share = min(self.need // len(combo) // self.group * self.group, *(self.capacity(node) for node in combo))
        for node in combo:
            take(node, share - len(self.cpus_of(node) & self.kept))
        rest = self.need - share * len(combo) - sum(self.excess(node, share) for node in combo)
        while rest > 0:
            before = rest
            for node in remainder:
                if rest > 0 and len(self.cpus_of(node) & left) >= self.group:
                    take(node, self.group)
                    rest -= self.group
            if rest == before:
                if "claim-loop" in self.fixed:
                    break
                raise NeverReturnsError("claim-loop")
        if missing:
            verb = "not enough" if missing > 0 else "too many"
            raise TakingError(f"accounting error, {verb} CPUs allocated, remaining: {missing}")
        return taken


def plain_distribute(
    topology: Topology,
    available: set[int],
    need: int,
    *,
    group: int,
    spread: bool = False,
    align: bool = False,
    fixed: frozenset[str] = frozenset(),
    kept: frozenset[int] = frozenset(),
) -> set[int]:
    """Return the ``need`` CPUs that are taken, beside those that are kept.

    Raises:
        TakingError: with the kubelet's text.
        NeverReturnsError: the kubelet would go round for ever.
    """
    if need % group:
        return plain_take(topology, available, need, spread=spread, fixed=fixed, kept=kept)
    if need < 1:
        return set()
    if need > len(available):
        raise TakingError(f"not enough cpus available to satisfy request: requested={need}, available={len(available)}")
    return PlainDistribution(topology, available, need + len(kept), group, spread, align, fixed, kept).run()
