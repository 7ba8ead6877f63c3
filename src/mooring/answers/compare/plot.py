"""A comparison as a plot: bars of admitted and rejected pods, alignment beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from mooring.answers.base.views.picture import machine_view
from mooring.answers.compare.answer import Comparison
from mooring.answers.compare.entries import Row, machines_of, not_started, option_words, rows_of, variant_name
from mooring.answers.compare.measures import Measures, Together
from mooring.engine.core.config import with_defaults
from mooring.engine.core.errors import clean
from mooring.engine.topologymanager.merge import NONE
from mooring.explain.phrases import plural
from mooring.views.svg.plot import Kind, Plot, PlotRow, PlotShare

ADMITTED = Kind("admitted", "exclusive-0", "")
NO_START = Kind("not asked, the kubelet would not start", "reserved", "")

LEVELS = ("NUMA", "socket", "L3", "core")
MORE_LEVELS = ("memory", "devices")
"""Shown where a container has memory bound to NUMA nodes, or devices near them."""

ALIGNED_NOTE = (
    "Beside the bars: of the containers with exclusive CPUs, how many lie on the fewest NUMA nodes, sockets and L3 "
    "caches that can hold them, and how many have their cores to themselves."
)
LUCK_NOTE = (
    "By luck: only topology manager policies restricted and single-numa-node guarantee alignment to NUMA nodes. Other "
    "pods, or another order, can end unaligned, so luck does not count in the ranking."
)
WASTE_NOTE = (
    "Stranded CPUs are of no use to more pods like these, or held for init containers that have ended. Spread is the "
    "mean number of NUMA nodes of a container with exclusive CPUs. Alike: how many more variants decide the same."
)

REASON_COLOURS = (1, 5, 3, 6, 4, 2)
"""Colours of reasons: the warm ones first, the green one, which looks like a yes, last."""


def comparison_plot(comparison: Comparison, top: int, *, grouped: bool) -> Plot:
    """Return the plot of the best entries, and of those as given.

    Args:
        comparison: what was compared.
        top: how many of the best to show; 0 for all.
        grouped: whether variants that decide alike are one entry.
    """
    rows = rows_of(comparison, grouped=grouped)
    best = rows[:top] if top else rows
    shown = [*best, *(row for row in rows[len(best) :] if row.is_given)]
    reasons = _reasons(shown)
    more = [name for name in MORE_LEVELS if any(_together(_measures(row), name).holders for row in shown)]
    rejected = [
        Kind(
            f"rejected: {reason}",
            f"exclusive-{REASON_COLOURS[number % len(REASON_COLOURS)]}",
            ascii_lowercase[number % 26],
        )
        for number, reason in enumerate(reasons)
    ]
    settings = _differing(shown)
    kinds = (ADMITTED, *rejected, *([NO_START] if any(not_started(row.result) for row in shown) else []))
    return Plot(
        title=f"{plural(len(comparison.trace.pods), 'pod')} under {plural(len(comparison.results), 'variant')}",
        settings=settings,
        lines=(*_machine_lines(rows), *_common_lines(shown)),
        noun="pod",
        kinds=kinds,
        share_headings=(*LEVELS, *more),
        figure_headings=("stranded", "spread", "alike"),
        rows=tuple(_row(row, rows, settings, reasons, more) for row in shown),
        notes=(ALIGNED_NOTE, *([LUCK_NOTE] if any(_measures(row).is_luck for row in shown) else []), WASTE_NOTE),
    )


def _machine_lines(rows: Sequence[Row]) -> Iterator[str]:
    for machine in machines_of(rows):
        view = machine_view(machine)
        yield f"{view.name}: {view.title}"


def _settings_of(row: Row) -> dict[str, int]:
    """Return the names of a row's policies, scope and options, each with the number of its manager."""
    config = with_defaults(row.result.variant.config)
    cpu = [f"CPU manager {config.cpu_manager_policy}", *option_words(config.cpu_manager_policy_options)]
    topology = [f"topology manager {config.topology_manager_policy}"]
    if config.topology_manager_policy != NONE:
        topology += [f"scope {config.topology_manager_scope}", *option_words(config.topology_manager_policy_options)]
    managers = (cpu, topology, [f"memory manager {config.memory_manager_policy}"])
    return {name: place for place, names in enumerate(managers) for name in names}


def _differing(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the settings that some rows have and others have not, those of one manager side by side."""
    every = [_settings_of(row) for row in rows]
    uses = Counter(name for one in every for name in one)
    manager = {name: place for one in every for name, place in one.items()}
    differing = [name for name in uses if uses[name] < len(rows)]
    return tuple(sorted(differing, key=lambda name: (manager[name], " manager " not in name, name)))


def _common_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what all rows have in common."""
    every = [_settings_of(row) for row in rows]
    common = [name for name in every[0] if all(name in one for one in every)] if every else []
    if common:
        yield f"All: {' · '.join(common)}"


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Return the reasons of rejections, the most frequent first."""
    totals: dict[str, int] = {}
    for row in rows:
        if not not_started(row.result):
            for reason, number in row.result.outcome.measures.rejected.items():
                totals[reason] = totals.get(reason, 0) + number
    return sorted(totals, key=lambda reason: (-totals[reason], reason))


def _measures(row: Row) -> Measures:
    return row.result.outcome.measures


def _together(found: Measures, name: str) -> Together:
    return found.memory if name == "memory" else found.devices


def _row(
    row: Row, rows: Sequence[Row], settings: Sequence[str], reasons: Sequence[str], more: Sequence[str]
) -> PlotRow:
    found, own = _measures(row), _settings_of(row)
    marks = tuple(name in own for name in settings)
    words = [clean(name) for name in (variant_name(row, rows),) if name]
    if row.result.outcome.refusal is not None:
        words.append(f"the kubelet would not start: {clean(row.result.outcome.refusal.message)}")
        return PlotRow(f"{row.rank}.", tuple(words), row.is_given, marks, (0, *(0 for _ in reasons), found.asked))
    if found.is_luck:
        words.append("aligned by luck")
    shares = [_together(found, name) for name in more]
    aligned = (found.aligned.numa, found.aligned.socket, found.aligned.l3, found.aligned.core)
    return PlotRow(
        rank=f"{row.rank}.",
        lines=tuple(words),
        is_strong=row.is_given,
        settings=marks,
        counts=(found.admitted, *(found.rejected.get(reason, 0) for reason in reasons)),
        shares=(
            *(PlotShare(part, found.exclusive) for part in aligned),
            *(PlotShare(one.aligned, one.holders) for one in shares),
        ),
        figures=(
            str(found.stranded.total),
            f"{float(found.spread):.2f}" if found.exclusive else "–",
            f"+{row.others}" if row.others else "–",
        ),
    )
