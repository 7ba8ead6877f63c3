"""``mooring fleet compare`` and ``mooring fleet size`` for people: simulations side by side.

Simulations side by side as bars: variants of a comparison, or numbers of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.explain.phrases import duration, plural
from mooring.fleet.trials.ranking import Goal, SeedSpread, Size, ranked
from mooring.fleet.trials.running import Figures
from mooring.fleet.work import PodPhase, Work
from mooring.views.console import new_table
from mooring.views.svg.plot import Kind, Plot, PlotRow

_INDENT = (0, 0, 0, 2)


def comparison_text(cluster: str, work: Work, figures: Sequence[Figures], *, to: str) -> str:
    """Return the variants as text, best first."""
    return text_for(Group(*_comparison(cluster, work, figures)), to)


def sizes_text(cluster: str, work: Work, sizes: Sequence[Size], goal: Goal, *, to: str) -> str:
    """Return how many nodes of each group do."""
    return text_for(Group(*_sizes(cluster, work, sizes, goal)), to)


def _head(cluster: str, work: Work) -> Iterator[RenderableType]:
    yield Text.assemble((clean(cluster), "bold"), f": {plural(work.pods, 'pod')} of {clean(work.name)}")
    for assumed in work.findings:
        yield Text(f"assumed: {clean(assumed)}", "dim")
    yield Text("")


def _comparison(cluster: str, work: Work, figures: Sequence[Figures]) -> Iterator[RenderableType]:
    yield from _head(cluster, work)
    table = new_table("")
    for heading in ("admitted", "refused", "no node", "waited (99 %)", "CPUs stranded"):
        table.add_column(heading, justify="right")
    rows = ranked(figures)
    for number, row in enumerate(rows, 1):
        table.add_row(
            str(number),
            _figure(row.admitted),
            _figure(row.refused),
            _figure(row.without_node),
            duration(row.waited.mean),
            f"{row.stranded_cpus.mean:.1%}",
        )
    yield table
    yield Text("")
    for number, row in enumerate(rows, 1):
        seeds = f" ({row.seeds} seeds)" if row.seeds > 1 else ""
        yield Text(f"{number}  {row.variant}{seeds}")
    if any(row.seeds > 1 for row in rows):
        yield Text("")
        yield Text("±: half the interval that holds the mean with 95 % confidence (Student's t over the seeds)", "dim")


def _figure(found: SeedSpread) -> str:
    return f"{found.mean:g}" if not found.margin else f"{found.mean:.1f} ± {found.margin:.1f}"


def _sizes(cluster: str, work: Work, sizes: Sequence[Size], goal: Goal) -> Iterator[RenderableType]:
    yield from _head(cluster, work)
    yield Text(
        f"Goal: at most {goal.most_refused} refused, at most {goal.most_without} without a node, "
        f"99 % placed within {duration(goal.longest_wait)}."
    )
    yield Text("")
    for size in sizes:
        if size.fewest is None:
            most = size.tried[-1]
            yield Text(f"{clean(size.group)}: no number up to {most.nodes} does: {size.binding}.", "bold")
        else:
            need = f"{clean(size.group)}: {plural(int(size.fewest.variant.partition(' ')[0]), 'node')} will do"
            yield Text(f"{need}; one fewer does not: {size.binding}." if size.binding else f"{need}.", "bold")
        table = new_table("nodes")
        for heading in ("admitted", "refused", "no node", "waited (99 %)"):
            table.add_column(heading, justify="right")
        for one in size.tried:
            table.add_row(
                one.variant.partition(" ")[0],
                str(one.admitted),
                str(sum(one.refused.values())),
                str(one.without_node),
                duration(one.waited[1]),
            )
        yield Padding(table, _INDENT)


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
            counts = (one.admitted, one.fates[PodPhase.REFUSED], one.without_node)
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
