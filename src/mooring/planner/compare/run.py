"""Comparing: every variant is run through the trace, and they are ranked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from mooring.planner.compare.comparison import Comparison, ranked
from mooring.planner.compare.measures import VariantOutcome
from mooring.planner.compare.trace import Trace, shapes
from mooring.planner.compare.variant import Variant
from mooring.planner.compare.workers import Bench, outcomes_of

FEW = 4000
"""Steps of all trials together below which starting workers costs more than it saves."""

Watch = Callable[[Iterable[VariantOutcome]], Iterable[VariantOutcome]]
"""Lets somebody watch the outcomes pass by."""


def compare(
    trace: Trace, variants: Sequence[Variant], *, by: str = "admitted", jobs: int = 1, watch: Watch = iter
) -> Comparison:
    """Run every variant through the trace and rank them.

    Args:
        trace: what happens to each.
        variants: what is compared.
        by: the measure that counts first, see :data:`~mooring.planner.compare.comparison.MEASURES`.
        jobs: how many processes to use at most; the answer does not depend on it.
        watch: is handed the outcomes as they come, and passes them on.
    """
    bench = Bench(trace, tuple(variants), shapes(trace))
    workers = min(jobs, len(variants))
    # Plugins are functions of this process, and cannot be sent to another.
    plugged = any(one.mooring.plugins.plugins for one in variants)
    alone = workers < 2 or bench.work < FEW or plugged or not sys.executable
    return ranked(trace, variants, watch(_here(bench) if alone else outcomes_of(bench, workers)), by)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _here(bench: Bench) -> Iterator[VariantOutcome]:
    return (bench.outcome(position) for position in range(len(bench.variants)))
