"""A simulation period by period: what was admitted, what was refused where and for what, and how long pods waited."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring.fleet.records import Fate
from mooring.fleet.simulation import SimulationResult


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds from creation to admission."""

    median: float = 0.0
    percentile99: float = 0.0
    most: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetPeriod:
    """The time between two samples, its end included."""

    begins: float
    ends: float
    admitted: int
    refused: Mapping[tuple[str, str], int]
    """Group of nodes and code of the cause -> pods."""
    waited: Waited
    """Of the pods that were admitted in it."""


def waited_of(seconds: Sequence[float]) -> Waited:
    """Return median, 99th percentile and most.

    >>> waited_of([1.0, 3.0, 2.0])
    Waited(median=2.0, percentile99=3.0, most=3.0)
    """
    if not seconds:
        return Waited()
    ordered = sorted(seconds)
    return Waited(_percentile(ordered, 0.5), _percentile(ordered, 0.99), ordered[-1])


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a share of all do not exceed."""
    return ordered[max(-int(-share * len(ordered) // 1) - 1, 0)]


def periods_of(result: SimulationResult) -> tuple[FleetPeriod, ...]:
    """Return the periods between the samples of a simulation; the first ends with the first sample."""
    ends = [sample.at for sample in result.samples]
    waited: list[list[float]] = [[] for _ in ends]
    refused: list[Counter[tuple[str, str]]] = [Counter() for _ in ends]
    members = result.nodes.table.members
    for record in result.records:
        if record.waited is not None and record.admitted is not None:
            waited[_place(ends, record.admitted)].append(record.waited)
        if record.fate is Fate.REFUSED and record.node is not None and record.ended is not None:
            refused[_place(ends, record.ended)][members[record.node].group.name, record.code] += 1
    begins = [0.0, *ends[:-1]]
    return tuple(
        FleetPeriod(start, end, len(seconds), dict(sorted(codes.items())), waited_of(seconds))
        for start, end, seconds, codes in zip(begins, ends, waited, refused, strict=True)
    )


def _place(ends: Sequence[float], time: float) -> int:
    return min(bisect_left(ends, time), len(ends) - 1)
