"""Plugins that come with Mooring and look at no annotation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, islice
from math import comb

from mooring.engine.plugins import (
    AffinityRequest,
    CPURequest,
    CPUSet,
    InputError,
    can_hold,
    hookimpl,
    is_whole,
    kubelet_choice,
    scored_choice,
)
from mooring.engine.plugins.values import RESERVED, check_fields, word


class KubeletRules:
    """Selects near the hint first, then from anywhere.

    The kubelet's own rules, said as a plugin: what one starts from, and the proof that the pipeline changes nothing.

    Source: kubelet v1.37.1, cpumanager policy_static.go (allocateCPUs); spec: cpu-manager.md sections 4.2 and 5.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        for field in settings:
            raise InputError("is not known", field=field, remedy="kubelet-rules takes no settings")

    @hookimpl
    def select_cpus(self, request: CPURequest) -> CPUSet | None:
        """Take by the rules of the policy options, with the kubelet's defects."""
        count = min(request.need, len(request.near))
        close = kubelet_choice(request, request.near, count, exact=True) if request.near else CPUSet()
        if close is None:
            return None
        rest = kubelet_choice(request, request.available - close, request.need - len(close), exact=True)
        return None if rest is None else close | rest


class CPUsFirst:
    """Chooses the NUMA nodes of the CPUs.

    With best-effort, the CPU manager's preferred NUMA nodes win over a merge that is not preferred.

    When CPUs fit on one NUMA node and a device or memory only on another, best-effort takes a wider or foreign set and
    counts it as not preferred; CPUs may then lie far from their own memory although they could have been together. The
    overview article of the resource managers wants the CPUs' choice to win there. The host offers this only when the
    merge is not preferred, and holds the answer to the CPU manager's own nodes; nothing is refused because of it.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, ())

    @hookimpl
    def choose_affinity(self, request: AffinityRequest) -> frozenset[int] | None:
        """Choose what the CPU manager alone would have, when that is preferred."""
        return request.of_cpus.nodes if request.of_cpus.preferred else None


MOST, LEAST = "most-allocated", "least-allocated"
STRATEGIES = (MOST, LEAST)
_TRIED = 2000
"""Sets of NUMA nodes that are compared; on wider machines only those of the nodes that strategy puts first."""


class NUMAStrategy:
    """Fills NUMA nodes one after another, or evenly.

    Of NUMA nodes that serve a pod equally well, the fullest or the emptiest.

    Between equally narrow sets of NUMA nodes the topology manager takes the one with the lowest numbers, whatever is
    left there: node 0 fills first (kubernetes/kubernetes#125453). ``most-allocated`` keeps whole nodes free for pods
    that need one; ``least-allocated`` lets pods share as little memory bandwidth as possible. KEP-6007 (open, #142226)
    proposes the same as an option of the topology manager, over all its providers; here exclusive CPUs are what counts.

    With a topology policy the plugin belongs to placement ``hint-provider``: it decides between equally good hints.
    Inside the CPU manager it decides where there is no hint.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"strategy"})
        self.strategy = word(settings, "strategy", STRATEGIES, MOST)

    @hookimpl
    def select_cpus(self, request: CPURequest, scores: Mapping[int, float]) -> CPUSet | None:
        """Take from the narrowest set of NUMA nodes that can hold all, and of these from the one that is due."""
        if request.purpose == RESERVED:
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
