"""``mooring fleet -o text``: what a cluster does, and simulations side by side, in words and as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec import structs
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.engine.core.errors import clean
from mooring.explanations.codes import page
from mooring.explanations.phrases import duration, plural, size
from mooring.fleet.cluster import REMADE, PodPhase, Record, Work
from mooring.fleet.controllers import MOST_REMADE
from mooring.fleet.documents import FatesPart, FleetDocument, FleetPeriodPart, FleetSamplePart
from mooring.fleet.nodes import cause_words, causes
from mooring.fleet.ranking import Goal, SeedSpread, binding, fewest, ranked
from mooring.fleet.simulation import Simulation
from mooring.fleet.trials import Figures
from mooring.views.console import new_table
from mooring.views.svg.plot import Kind, Plot, PlotRow

INDENT = (0, 0, 0, 2)
_MOST_PODS = 10
_MOST_GROUPS = 12
_MOST_RUNAWAYS = 3
_MOST_PERIODS = 12
_MOST_KINDS = 100
"""Kinds of waiting pods for which the nodes are asked why none of them takes one."""


def head(name: str, line: str, assumed: Iterable[str]) -> Iterator[RenderableType]:
    """Yield the name of a cluster with a line about it, and what was assumed."""
    yield Text.assemble((clean(name), "bold"), f": {line}")
    for one in assumed:
        yield Text(f"assumed: {clean(one)}", "dim")


def section(heading: str, content: RenderableType | None = None) -> Iterator[RenderableType]:
    """Yield an empty line, a heading, and what is under it."""
    yield Text("")
    yield Text(heading, "bold")
    if content is not None:
        yield Padding(content, INDENT)


def fleet_parts(answer: FleetDocument, result: Simulation, *, wide: bool) -> Iterator[RenderableType]:
    """Yield the answer for people."""
    ends = duration(answer.samples[-1].at if answer.samples else 0.0)
    counts = f"{plural(answer.nodes, 'node')}, {plural(answer.pods.created, 'pod')}"
    yield from head(answer.cluster, f"{counts} in {ends}, {answer.strategy}", answer.assumed)
    if answer.cut_short:
        yield Text(f"cut short after {ends}: pods that come later are not counted", "bold")
    yield from section(_headline(answer.pods), _fates(answer))
    table = new_table("group", "nodes", "admitted", "refused", "causes", right=(1, 2, 3))
    groups = sorted(answer.groups, key=lambda one: (-sum(one.refused.values()), -one.admitted))
    shown = groups if wide else groups[:_MOST_GROUPS]
    for one in shown:
        causes = ", ".join(f"{code} {count}" for code, count in one.refused.items())
        table.add_row(clean(one.name), str(one.nodes), str(one.admitted), str(sum(one.refused.values()) or "–"), causes)
    yield from section("Groups of nodes", table)
    if len(shown) < len(groups):
        yield Padding(Text(f"{len(groups) - len(shown)} more with -o wide", "dim"), INDENT)
    table = new_table("resource", "offered", "mean", "most", "stranded", right=(1, 2, 3, 4))
    for use in answer.uses:
        shares = (f"{share:.1%}" for share in (use.mean, use.most, use.stranded))
        table.add_row(use.resource, amount_words(use.resource, use.offered), *shares)
    yield from section("Use of the cluster, over time", table)
    if wide:
        yield from section("Period by period", _periods(answer))
    codes = {code for group in answer.groups for code in group.refused} | set(answer.filtered)
    if codes:
        yield from section("Causes")
    for code in sorted(codes):
        kept = answer.filtered.get(code, 0)
        said = f" (the extender kept pods off nodes for it {kept} times)" if kept else ""
        yield Padding(Text(f"{code}  {page(code).title}{said}"), INDENT)
    runaways = answer.runaways
    if runaways:
        first = ", ".join(clean(name) for name in list(runaways)[:_MOST_RUNAWAYS])
        more = f" and {len(runaways) - _MOST_RUNAWAYS} more" if len(runaways) > _MOST_RUNAWAYS else ""
        times = f"made anew {MOST_REMADE} times and refused each time; after that no more are simulated"
        yield from section(f"Runaways: {first}{more}: {times}.")
    yield from _listed("Jobs that failed: more pods failed than backoffLimit", answer.failed_jobs)
    yield from _listed("Nodes and pods whose change did not go well", answer.problems)
    yield from _pods(result, len(result.records) if wide else _MOST_PODS)


def amount_words(resource: str, amount: int) -> str:
    """Return an amount that nodes offer: CPUs, bytes, or pieces.

    >>> amount_words("cpu", 1500), amount_words("memory", 2**30), amount_words("example.com/gpu", 8)
    ('1.5', '1 GiB', '8')
    """
    if resource == "cpu":
        return f"{amount / 1000:g}"
    return size(amount) if resource == "memory" or resource.startswith("hugepages-") else str(amount)


def alignment_words(aligned: Mapping[str, int]) -> str:
    """Return how many NUMA nodes lie under pods with CPUs, devices or memory of their own.

    >>> alignment_words({"1": 9, "2": 1})
    '9 of 10 with CPUs, devices or memory of their own are on one NUMA node'
    """
    count = f"{aligned.get('1', 0)} of {sum(aligned.values())}"
    return f"{count} with CPUs, devices or memory of their own are on one NUMA node"


def _headline(fates: FatesPart) -> str:
    refused, waits, held = fates.refused, fates.waits, fates.held
    if not refused and not waits and not held:
        stayed = fates.created - fates.left
        subject, them = (f"All {stayed} pods", "them") if stayed > 1 else ("The only pod", "it")
        return (
            f"{subject} found a node that admitted {them}." if stayed else "No pod found a node before it was deleted."
        )
    said = [f"{refused} refused by kubelets"] if refused else []
    said += [f"{waits} without a node at the end"] if waits else []
    said += [f"{held} held on their node"] if held else []
    were = "was" if fates.created == 1 else "were"
    return f"{fates.admitted} of {plural(fates.created, 'pod')} {were} admitted; {' and '.join(said)}."


def _fates(answer: FleetDocument) -> RenderableType:
    table = new_table("pods", "", right=(0,))
    meanings = {
        "ran": "ran and ended",
        "runs": "running at the end",
        "waits": "waiting for a node at the end",
        "left": "deleted while waiting for a node",
        "refused": "refused by a kubelet",
        "evicted": "evicted"
        + (f", {answer.preempted} of them for pods of higher priority" if answer.preempted else ""),
        "held": "held on a node at the end: its agent has no room",
    }
    for fate, meaning in meanings.items():
        if count := getattr(answer.pods, fate):
            table.add_row(str(count), meaning)
    if answer.waited.most:
        median, late, most = map(duration, structs.astuple(answer.waited))
        table.add_row("", f"waited {median} (median), {late} (99 %), {most} (longest)")
    if answer.aligned:
        table.add_row("", alignment_words(answer.aligned))
    return table


def joined_periods(
    periods: Sequence[FleetPeriodPart], samples: Sequence[FleetSamplePart], most: int
) -> Iterator[tuple[str, int, int, int, Counter[tuple[str, str]], str]]:
    """Yield the periods, joined until few enough are left to be read.

    Each with its end, pods that run, wait and were admitted, pods by group and code of a refusal, and the longest 99th
    percentile of the wait.
    """
    together = -(-len(periods) // most) or 1
    for first in range(0, len(periods), together):
        some = periods[first : first + together]
        last = samples[first + len(some) - 1]
        refused: Counter[tuple[str, str]] = Counter()
        for one in (one for period in some for one in period.refused):
            refused[one.group, one.code] += one.pods
        count = sum(period.admitted for period in some)
        waited = duration(max(period.waited.percentile99 for period in some)) if count else "–"
        yield duration(some[-1].ends), last.running, last.waiting, count, refused, waited


def unhappy(
    records: Iterable[Record], fates: Collection[PodPhase] = (PodPhase.REFUSED, PodPhase.WAITS, PodPhase.HELD)
) -> dict[str, list[Record]]:
    """Return the pods that were refused, held or found no node: name of the first -> it, and those made anew for it."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.fate in fates:
            found.setdefault(record.arrival.name.partition(REMADE)[0], []).append(record)
    return found


def _periods(answer: FleetDocument) -> RenderableType:
    headings = ("until", "running", "waiting", "admitted", "refused", "waited (99 %)", "refused by")
    table = new_table(*headings, right=range(1, 6))
    for until, *counts, refused, waited in joined_periods(answer.periods, answer.samples, _MOST_PERIODS):
        causes = ", ".join(f"{clean(group)} {code} {count}" for (group, code), count in sorted(refused.items()))
        table.add_row(until, *map(str, (*counts, refused.total() or "–")), waited, causes)
    return table


def _listed(heading: str, found: Sequence[str]) -> Iterator[RenderableType]:
    if found:
        yield from section(heading)
    for one in found[:_MOST_PODS]:
        yield Padding(Text(clean(one)), INDENT)
    if len(found) > _MOST_PODS:
        yield Padding(Text(f"{len(found) - _MOST_PODS} more", "dim"), INDENT)


def _pods(result: Simulation, most: int) -> Iterator[RenderableType]:
    found = unhappy(result.records)
    if not found:
        return
    members = result.nodes.table.members
    why: dict[Hashable, str] = {}
    table = new_table("pod", "at", "what", "node", "cause")
    for name, records in list(found.items())[:most]:
        last = records[-1]
        node = "" if last.node is None else members[last.node].name
        refused = sum(record.fate is PodPhase.REFUSED for record in records)
        times = "refused once" if refused == 1 else f"refused {refused} times"
        what = {PodPhase.WAITS: "waits", PodPhase.HELD: "held"}.get(last.fate, times)
        cause, asked = last.code, last.arrival.asked
        if last.fate is PodPhase.WAITS:
            # Equal pods wait for the same reason.
            if asked.key not in why and len(why) < _MOST_KINDS:
                waits = causes(result.nodes, asked)
                each = "; ".join(f"{cause_words(one)}: {plural(len(one.nodes), 'node')}" for one in waits)
                why[asked.key] = cause_words(waits[0]) if len(waits) == 1 else each
            cause = why.get(asked.key, "")
        table.add_row(clean(name), duration(records[0].arrival.at), what, clean(node), cause)
    which = "Pods" if len(found) <= most else f"The first {most} of {len(found)} pods"
    yield from section(f"{which} that were refused, or wait", table)


def comparison_parts(cluster: str, work: Work, figures: Sequence[Figures]) -> Iterator[RenderableType]:
    """Yield the variants, best first."""
    yield from head(cluster, f"{plural(work.pods, 'pod')} of {clean(work.name)}", work.findings)
    yield Text("")
    table = new_table("", "admitted", "refused", "no node", "waited (99 %)", "CPUs stranded", right=range(1, 6))
    rows = ranked(figures)
    for number, row in enumerate(rows, 1):
        table.add_row(
            str(number),
            _figure(row.admitted),
            _figure(row.refused),
            _figure(row.without_node),
            duration(row.waited[0]),
            f"{row.stranded_cpus[0]:.1%}",
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
    mean, margin = found
    return f"{mean:.1f} ± {margin:.1f}" if margin else f"{mean:g}"


def _count(one: Figures) -> str:
    """Return the number of nodes of the group, of which the variant has its name."""
    return one.trial.variant.partition(" ")[0]


def sizes_parts(
    cluster: str, work: Work, sizes: Sequence[tuple[str, Sequence[Figures]]], goal: Goal
) -> Iterator[RenderableType]:
    """Yield how many nodes of each group do, of which every number that was tried is given."""
    yield from head(cluster, f"{plural(work.pods, 'pod')} of {clean(work.name)}", work.findings)
    yield Text("")
    yield Text(
        f"Goal: at most {goal.most_refused} refused, at most 0 without a node, "
        f"99 % placed within {duration(goal.longest_wait)}."
    )
    yield Text("")
    for group, tried in sizes:
        does, why = fewest(tried, goal), binding(tried, goal)
        if does is None:
            yield Text(f"{clean(group)}: no number up to {tried[-1].trial.nodes} does: {why}.", "bold")
        else:
            need = f"{clean(group)}: {plural(int(_count(does)), 'node')} will do"
            yield Text(f"{need}; one fewer does not: {why}." if why else f"{need}.", "bold")
        table = new_table("nodes", "admitted", "refused", "no node", "waited (99 %)", right=range(1, 5))
        for one in tried:
            table.add_row(
                *map(str, (_count(one), one.admitted, sum(one.refused.values()), one.without_node)),
                duration(one.trial.waited.percentile99),
            )
        yield Padding(table, INDENT)


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
                counts=(round(row.admitted[0]), round(row.refused[0]), round(row.without_node[0])),
                figures=(duration(row.waited[0]), f"{row.stranded_cpus[0]:.1%}"),
            )
            for number, row in enumerate(rows, 1)
        ],
    )


def sizes_plot(cluster: str, work: Work, sizes: Sequence[tuple[str, Sequence[Figures]]], goal: Goal) -> Plot:
    """Return every number of nodes that was tried, group by group; the fewest that do are marked."""
    rows = []
    for group, tried in sizes:
        best, why = fewest(tried, goal), binding(tried, goal)
        for one in tried:
            does = one is best
            more = f"; one fewer does not: {why}" if why else ""
            line = f"{_count(one)} of {clean(group)}{f' will do{more}' if does else ''}"
            counts = (one.admitted, one.trial.pods.refused, one.without_node)
            figures = (duration(one.trial.waited.percentile99), f"{one.stranded_cpus:.1%}")
            rows.append(PlotRow("✓" if does else "", (line,), does, counts=counts, figures=figures))
    title = f"{clean(cluster)}: nodes for {plural(len(work.arrivals), 'pod')} of {clean(work.name)}"
    return _plot(title, work, rows)


def _plot(title: str, work: Work, rows: Sequence[PlotRow]) -> Plot:
    findings = tuple(f"assumed: {clean(one)}" for one in work.findings)
    return Plot(title, findings, "pod", _KINDS, (), _HEADINGS, tuple(rows))
