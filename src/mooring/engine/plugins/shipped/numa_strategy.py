"""NUMA strategy: of NUMA nodes that serve a pod equally well, the fullest or the emptiest.

Between equally narrow sets of NUMA nodes the topology manager takes the one with the lowest numbers, whatever is left
there: node 0 fills first (kubernetes/kubernetes#125453). ``most-allocated`` keeps whole nodes free for pods that need
one; ``least-allocated`` lets pods share as little memory bandwidth as possible. KEP-6007 (open, #142226) proposes the
same as an option of the topology manager, over all its providers; here exclusive CPUs are what counts.

With a topology policy the plugin belongs to placement ``hint-provider``: it decides between equally good hints. Inside
the CPU manager it decides where there is no hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, islice
from math import comb

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.plugins.shipped import check_fields, word
from mooring.engine.plugins.values import CPURequest, can_hold, hookimpl, is_whole, scored_choice

MOST, LEAST = "most-allocated", "least-allocated"
STRATEGIES = (MOST, LEAST)
_TRIED = 2000
"""Sets of NUMA nodes that are compared; on wider machines only those of the nodes that strategy puts first."""
_RESERVED = "reserved"


class NUMAStrategy:
    """Fills NUMA nodes one after another, or evenly."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"strategy"})
        self.strategy = word(settings, "strategy", STRATEGIES, MOST)

    @hookimpl
    def select_cpus(self, request: CPURequest, scores: Mapping[int, float]) -> CPUSet | None:
        """Take from the narrowest set of NUMA nodes that can hold all, and of these from the one that is due."""
        if request.purpose == _RESERVED:
            return None
        around = request.near if can_hold(request, request.near) else request.available
        free = {node: cpus & around for node, cpus in request.machine.numa.items() if cpus & around}
        due = self._due(request, free)
        if due is None:
            return None
        found = scored_choice(request, scores, [due])
        return found if found is not None and found <= due and is_whole(request, found) else None

    def _due(self, request: CPURequest, free: Mapping[int, CPUSet]) -> CPUSet | None:
        levels = {node: self._level(request, node) for node in free}
        for size in range(1, len(free) + 1):
            if sum(sorted((len(cpus) for cpus in free.values()), reverse=True)[:size]) < request.need:
                continue
            best: tuple[Fraction, CPUSet] | None = None
            for nodes in self._sets(free, levels, size):
                cpus = CPUSet()
                for node in nodes:
                    cpus |= free[node]
                level = sum((levels[node] for node in nodes), Fraction())
                if (best is None or level > best[0]) and can_hold(request, cpus):
                    best = level, cpus
            if best is not None:
                return best[1]
        return None

    def _sets(self, free: Mapping[int, CPUSet], levels: Mapping[int, Fraction], size: int) -> Iterator[tuple[int, ...]]:
        """Yield sets of NUMA nodes of one size, lower ids first; where they are too many, the roomiest set first."""
        if comb(len(free), size) <= _TRIED:
            yield from combinations(free, size)
            return
        yield tuple(sorted(free, key=lambda node: -len(free[node]))[:size])
        yield from islice(combinations(sorted(free, key=lambda node: -levels[node]), size), _TRIED)

    def _level(self, request: CPURequest, node: int) -> Fraction:
        """Return the share of a NUMA node's CPUs that is assigned; negative where the emptiest is due."""
        machine = request.machine
        all_here = machine.numa[node] - machine.reserved
        taken = all_here - request.shared
        level = Fraction(len(taken), len(all_here)) if all_here else Fraction(0)
        return level if self.strategy == MOST else -level
