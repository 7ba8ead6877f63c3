"""Simulations side by side as bars: variants of a comparison, or numbers of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from mooring.engine.core.errors import clean
from mooring.explain.phrases import duration, plural
from mooring.fleet.records import Fate
from mooring.fleet.trials.ranking import ranked
from mooring.fleet.trials.running import Figures
from mooring.fleet.trials.sizing import Size
from mooring.fleet.work import Work
from mooring.views.svg.plot import Kind, Plot, PlotRow

_KINDS = (
    Kind("admitted", "exclusive-0", ""),
    Kind("refused by kubelets", "exclusive-5", "r"),
    Kind("without a node", "exclusive-1", "n"),
)
_HEADINGS = ("waited (99 %)", "CPUs stranded")


def comparison_plot(cluster: str, work: Work, figures: Sequence[Figures]) -> Plot:
    """Return the variants, best first; counts are means over the seeds."""
    rows = ranked(figures)
    return _plot(
        f"{clean(cluster)}: {plural(len(work.arrivals), 'pod')} of {clean(work.name)}",
        work,
        [
            PlotRow(
                str(number),
                (f"{clean(row.variant)}{f' ({row.seeds} seeds)' if row.seeds > 1 else ''}",),
                number == 1,
                counts=(round(row.admitted.mean), round(row.refused.mean), round(row.without_node.mean)),
                figures=(duration(row.waited.mean), f"{row.stranded_cpus.mean:.1%}"),
            )
            for number, row in enumerate(rows, 1)
        ],
    )


def sizes_plot(cluster: str, work: Work, sizes: Sequence[Size]) -> Plot:
    """Return every number of nodes that was tried, group by group; the fewest that do are marked."""
    rows = []
    for size in sizes:
        for one in size.tried:
            does = size.fewest is not None and one.variant == size.fewest.variant
            binding = f"; one fewer does not: {size.binding}" if size.binding else ""
            line = f"{one.variant.partition(' ')[0]} of {clean(size.group)}{f' will do{binding}' if does else ''}"
            stranded = fsum(use.stranded for use in one.uses if use.resource == "cpu")
            counts = (one.admitted, one.fates[Fate.REFUSED], one.without_node)
            rows.append(
                PlotRow(
                    "✓" if does else "",
                    (line,),
                    does,
                    counts=counts,
                    figures=(duration(one.waited[1]), f"{stranded:.1%}"),
                )
            )
    title = f"{clean(cluster)}: nodes for {plural(len(work.arrivals), 'pod')} of {clean(work.name)}"
    return _plot(title, work, rows)


def _plot(title: str, work: Work, rows: Sequence[PlotRow]) -> Plot:
    findings = tuple(f"assumed: {clean(one)}" for one in work.findings)
    return Plot(title, findings, "pod", _KINDS, (), _HEADINGS, tuple(rows))
