"""A comparison: every variant is run through the trace; the best comes first, those that decide alike together."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from mooring.answers.base.guarantee import AlignmentPromise
from mooring.answers.base.trace import Trace, shapes
from mooring.answers.compare.measures import Measures, VariantOutcome, judge
from mooring.answers.compare.variant import Variant
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.pod import Pod
from mooring.service.daemon import worker_processes

Value = Callable[[Measures], tuple[int | Fraction, ...]]

MEASURES: Mapping[str, Value] = {
    "admitted": lambda found: (-found.admitted,),
    "numa": lambda found: (-_guaranteed(found, found.aligned.numa),),
    "devices": lambda found: (-_guaranteed(found, found.devices.aligned),),
    "memory": lambda found: (-_guaranteed(found, found.memory.aligned), found.memory_beyond),
    "l3": lambda found: (-_guaranteed(found, found.aligned.l3),),
    "core": lambda found: (-found.aligned.core,),
    "stranded": lambda found: (found.stranded.total,),
    "socket": lambda found: (0 if found.is_socket_luck else -found.aligned.socket,),
    "spread": lambda found: (found.is_luck, found.spread),
}
"""Name of a measure on the command line -> its value, the smaller the better, in the order in which they count.

Where no policy guarantees alignment, aligned containers do not count: another order of pods can end otherwise.
"""


def _guaranteed(found: Measures, aligned: int) -> int:
    return 0 if found.is_luck else aligned


def observed_key(found: Measures) -> tuple[int | Fraction, ...]:
    """Return what variants with the same guarantees are sorted by: alignment as it happened to be, the best first."""
    aligned = (found.aligned.numa, found.devices.aligned, found.memory.aligned, found.aligned.l3, found.aligned.socket)
    return (*(-one for one in aligned), found.spread)


def rank_key(found: Measures, by: str = "admitted") -> tuple[int | Fraction, ...]:
    """Return what variants are sorted by, the best first.

    Args:
        found: of a variant.
        by: the measure that counts before all others; running pods that would be lost come before even that.
    """
    ordered = [part for name in (by, *MEASURES) for part in MEASURES[name](found)]
    promise = -found.promise if found.is_luck else -AlignmentPromise.GUARANTEE
    return (found.lost, *ordered, promise, *observed_key(found))


@dataclass(frozen=True, slots=True)
class Result:
    """A variant and what became of it."""

    variant: Variant
    outcome: VariantOutcome

    @property
    def is_yes(self) -> bool:
        """Tell whether the kubelet starts, every pod is admitted, and none that runs is lost."""
        return self.outcome.refusal is None and self.outcome.measures.is_yes


@dataclass(frozen=True, slots=True)
class Group:
    """Variants of one machine that decide everything alike, to the last CPU, and measure alike."""

    results: tuple[Result, ...]
    """The first departs least from what was given."""

    @property
    def first(self) -> Result:
        """The one that stands for all."""
        return self.results[0]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Combinations with which the kubelet would not start."""

    refusal: StartRefusal
    count: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer to "which is best?"."""

    trace: Trace
    by: str
    """The measure that counted first."""
    groups: tuple[Group, ...]
    """The best first; variants with which the kubelet would not start are last."""
    left_out: tuple[LeftOut, ...]
    """Combinations that were made and that the kubelet refuses, the most frequent reason first."""

    @property
    def results(self) -> tuple[Result, ...]:
        """All variants, in the order of their groups."""
        return tuple(result for group in self.groups for result in group.results)

    @property
    def is_yes(self) -> bool:
        """Tell whether at least one variant admits everything; of pods that are alone, whether one admits each."""
        if self.trace.alone:
            return not self.never_admitted
        return any(group.first.is_yes for group in self.groups)

    @property
    def lucky(self) -> Result | None:
        """A variant that aligns more than the best one in this run, admits as much, and guarantees nothing."""
        if not self.groups:
            return None
        best = self.groups[0].first.outcome.measures
        for group in self.groups[1:]:
            found = group.first.outcome.measures
            is_even = (found.lost, -found.admitted) <= (best.lost, -best.admitted)
            if found.is_luck and not best.is_luck and is_even and observed_key(found) < observed_key(best):
                return group.first
        return None

    @property
    def never_admitted(self) -> tuple[str, ...]:
        """Pods that no variant admits at any time, as ``namespace/name``, in their order."""
        admitted: set[int] = set()
        for group in self.groups:
            admitted |= group.first.outcome.admitted
        pods = self.trace.pods
        running = {(pods[position].namespace, pods[position].name) for position in admitted}
        names = dict.fromkeys((pod.namespace, pod.name) for pod in pods)
        return tuple(f"{namespace}/{name}" for namespace, name in names if (namespace, name) not in running)


def ranked(trace: Trace, variants: Sequence[Variant], outcomes: Iterable[VariantOutcome], by: str) -> Comparison:
    """Put the variants in order.

    A combination with which the kubelet would not start, for another reason than the state files, is no variant and is
    left out; a configuration as it was given stays, so that it is reported.

    Args:
        trace: that was run.
        variants: that were compared.
        outcomes: one for each, in their order.
        by: the measure that counts first.
    """
    results, refused = [], []
    for variant, outcome in zip(variants, outcomes, strict=True):
        if outcome.refusal is not None and not variant.is_given and outcome.refusal.stage != "start":
            refused.append(outcome.refusal)
        else:
            results.append(Result(variant, outcome))
    order = sorted(range(len(results)), key=lambda position: (*_order(results[position], by), position))
    together: dict[tuple[int, str, str], list[Result]] = {}
    for position in order:
        found = results[position]
        # Decisions can be alike where measures are not: what fits into the rest depends on options, too.
        key = (id(found.variant.machine), found.outcome.digest, repr(found.outcome.measures))
        together.setdefault(key, []).append(found)
    return Comparison(trace, by, tuple(Group(tuple(group)) for group in together.values()), _counted(refused))


def _order(result: Result, by: str) -> tuple[object, ...]:
    """Return what results are sorted by; among equals the one that is given, then the one that changes least."""
    refused = result.outcome.refusal is not None
    changes = len(result.variant.changes)
    return (refused, *rank_key(result.outcome.measures, by), changes)


def _counted(refusals: Iterable[StartRefusal]) -> tuple[LeftOut, ...]:
    counts: dict[StartRefusal, int] = {}
    for refusal in refusals:
        counts[refusal] = counts.get(refusal, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return tuple(LeftOut(refusal, count) for refusal, count in ordered)


FEW = 4000
"""Steps of all trials together below which starting workers costs more than it saves."""

Watch = Callable[[Iterable[VariantOutcome]], Iterable[VariantOutcome]]
"""Receives each outcome, for progress."""


def compare(
    trace: Trace, variants: Sequence[Variant], *, by: str = "admitted", jobs: int = 1, watch: Watch = iter
) -> Comparison:
    """Run every variant through the trace and rank them.

    Args:
        trace: what happens to each.
        variants: what is compared.
        by: the measure that counts first, see :data:`~mooring.answers.compare.comparison.MEASURES`.
        jobs: how many processes to use at most; the answer does not depend on it.
        watch: is handed the outcomes as they come, and passes them on.
    """
    numbers: dict[Hashable, int] = {}
    groups: list[dict[int, Variant]] = []
    for position, variant in enumerate(variants):
        number = numbers.setdefault(variant.shared_by, len(groups))
        groups += [{}] if number == len(groups) else []
        groups[number][position] = variant
    workers = min(jobs, len(groups))
    # Plugins are functions of this process, and cannot be sent to another.
    plugged = any(one.mooring.plugins.plugins for one in variants)
    is_little = len(variants) * (len(trace.steps) + len(trace.active)) < FEW
    pods = shapes(trace)
    is_alone = workers < 2 or is_little or plugged
    here = (judge(trace, members, pods) for members in groups)
    outcomes = here if is_alone else _spread(trace, groups, pods, workers)
    return ranked(trace, variants, watch(_in_order(outcomes, len(variants))), by)


def _spread(
    trace: Trace, groups: Sequence[Mapping[int, Variant]], pods: Sequence[Pod], workers: int
) -> Iterator[dict[int, VariantOutcome]]:
    """Yield the outcomes of each group in order, from worker processes; what a killed one had, this process does."""
    with worker_processes(workers) as pool:
        futures: list[Future[dict[int, VariantOutcome]]] = []
        with suppress(OSError, BrokenExecutor):
            futures += (pool.submit(judge, trace, members, pods) for members in groups)
        for number, members in enumerate(groups):
            try:
                found = futures[number].result() if number < len(futures) else judge(trace, members, pods)
            except BrokenExecutor:
                found = judge(trace, members, pods)
            yield found


def _in_order(outcomes: Iterator[dict[int, VariantOutcome]], count: int) -> Iterator[VariantOutcome]:
    """Yield the outcomes of variants in the order of the variants, in which the groups come too."""
    found: dict[int, VariantOutcome] = {}
    for position in range(count):
        while position not in found:
            found |= next(outcomes)
        yield found.pop(position)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
