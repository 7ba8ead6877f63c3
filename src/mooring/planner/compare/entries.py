"""The entries of an answer: groups or single variants, ranked, with the words for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mooring.core.machine import Machine
from mooring.planner.compare.comparison import Comparison, Result
from mooring.planner.compare.words import settings_words


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of the answer."""

    rank: int
    result: Result
    others: int = 0
    """How many more decide the same."""
    given: tuple[str, ...] = ()
    """Names of the configurations as given that this entry stands for."""

    @property
    def is_given(self) -> bool:
        """Tell whether a configuration as given is in it."""
        return bool(self.given)


def rows_of(comparison: Comparison, *, grouped: bool) -> list[Row]:
    """Return the entries in order: one a group, or one a variant."""
    if grouped:
        return [
            Row(rank, group.first, len(group.results) - 1, _given(group.results))
            for rank, group in enumerate(comparison.groups, 1)
        ]
    return [Row(rank, result, 0, _given([result])) for rank, result in enumerate(comparison.results, 1)]


def _given(results: Sequence[Result]) -> tuple[str, ...]:
    return tuple(result.variant.name for result in results if result.variant.is_given)


def not_started(result: Result) -> bool:
    """Tell whether the kubelet would not start."""
    return result.outcome.refusal is not None


def machines_of(rows: Sequence[Row]) -> list[Machine]:
    """Return the machines that are compared, each once."""
    return list({id(row.result.variant.machine): row.result.variant.machine for row in rows}.values())


def variant_words(row: Row, rows: Sequence[Row]) -> str:
    """Return what an entry is: machine and name, where there are several, and settings.

    Args:
        row: the entry.
        rows: all entries.
    """
    variant = row.result.variant
    parts = [variant.machine.name] if len(machines_of(rows)) > 1 else []
    if row.given:
        parts.append(f"{', '.join(row.given)} as given")
    elif len({other.result.variant.name for other in rows}) > 1:
        parts.append(f"{variant.name} changed")
    return " · ".join([*parts, settings_words(variant.config)])
