"""Variants side by side: their figures over the seeds, and which is best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import fmean, stdev

from mooring.fleet.records import Fate
from mooring.fleet.trials.running import Figures

_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Quantiles of Student's distribution for 1 to 9 degrees of freedom; about 2 beyond."""


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """A figure over several seeds."""

    mean: float
    margin: float
    """Half the width of the interval that holds the mean with 95 % confidence; 0 where there is one seed."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One variant."""

    variant: str
    seeds: int
    admitted: SeedSpread
    refused: SeedSpread
    without_node: SeedSpread
    waited: SeedSpread
    """The 99th percentile, in seconds."""
    stranded_cpus: SeedSpread
    """Share of all CPUs, over time."""


def spread(values: Iterable[float]) -> SeedSpread:
    """Return mean and margin of a figure over seeds.

    >>> spread([4.0, 6.0]).mean
    5.0
    """
    found = list(values)
    if len(found) <= 1:
        return SeedSpread(found[0] if found else 0.0, 0.0)
    quantile = _T95[len(found) - 2] if len(found) - 2 < len(_T95) else 2.0
    return SeedSpread(fmean(found), quantile * stdev(found) / sqrt(len(found)))


def ranked(figures: Iterable[Figures]) -> list[Ranked]:
    """Return the variants, best first: most pods admitted, then fewest refused, then the shortest wait."""
    found: dict[str, list[Figures]] = {}
    for one in figures:
        found.setdefault(one.variant, []).append(one)
    rows = [_ranked(variant, trials) for variant, trials in found.items()]
    return sorted(rows, key=lambda row: (-row.admitted.mean, row.refused.mean, row.waited.mean))


def _ranked(variant: str, trials: Sequence[Figures]) -> Ranked:
    def over(figure: Callable[[Figures], float]) -> SeedSpread:
        return spread(figure(one) for one in trials)

    return Ranked(
        variant,
        len(trials),
        over(lambda one: one.admitted),
        over(lambda one: one.fates[Fate.REFUSED]),
        over(lambda one: one.without_node),
        over(lambda one: one.waited[1]),
        over(lambda one: fsum(use.stranded for use in one.uses if use.resource == "cpu")),
    )
