"""``mooring compare -o text`` and ``-o wide``: variants ranked, or releases side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from mooring.answers.base.changes.configuration import AlignmentPromise
from mooring.answers.base.picture import machine_view
from mooring.answers.base.plan_text import title_line
from mooring.answers.compare.answer import (
    Comparison,
    ComparisonDocument,
    ReleaseComparisonDocument,
    ReleasePodPart,
    lucky_variant,
)
from mooring.answers.compare.measures import VariantPart
from mooring.answers.compare.plot import (
    Row,
    change_words,
    machines_of,
    reasons_words,
    rows_of,
    settings_words,
    variant_words,
)
from mooring.cli.terminal import width_for
from mooring.documents.plan import PodPart
from mooring.engine.core.errors import clean
from mooring.engine.core.release import NEWEST, Release
from mooring.explanations.phrases import joined, plural
from mooring.views.console import STYLES, Breaking, Listing, indented, new_table
from mooring.views.wording import numbers

GAP = 2

_Cell = Callable[[VariantPart], str]

CELLS: dict[str, _Cell] = {
    "admitted": lambda found: f"{found.admitted} of {found.asked}",
    "lost": lambda found: str(found.lost),
    "NUMA": lambda found: _share(found, found.aligned.numa, found.exclusive_containers),
    "devices": lambda found: _share(found, found.aligned.devices, found.device_containers),
    "memory": lambda found: _share(found, found.aligned.memory, found.memory_containers),
    "socket": lambda found: _share(
        found, found.aligned.socket, found.exclusive_containers, is_luck=found.is_socket_luck
    ),
    "L3": lambda found: _share(found, found.aligned.l3, found.exclusive_containers),
    "core": lambda found: _share(found, found.aligned.core, found.exclusive_containers, is_luck=False),
    "stranded": lambda found: str(found.stranded.total),
    "spread": lambda found: f"{float(found.exact_spread):.2f}" if found.exclusive_containers else "–",
}
"""Heading -> cell."""

_NOTES: dict[frozenset[str], str] = {
    frozenset({"admitted", "lost"}): "admitted: pods",
    frozenset({"lost"}): "lost: running pods that a start refuses",
    frozenset({"NUMA", "socket", "L3"}): "NUMA, socket, L3: of the containers with exclusive CPUs, how many lie on the "
    "fewest that can hold them",
    frozenset({"core"}): "core: how many have their cores to themselves",
    frozenset({"memory", "devices"}): "memory, devices: of the containers that have them, how many have them on the "
    "NUMA nodes of their CPUs",
    frozenset({"stranded"}): "stranded: CPUs that no more pod like these can use",
    frozenset({"spread"}): "spread: mean number of NUMA nodes of a container",
}
"""Headings -> what they mean."""

_DISPENSABLE = ("socket", "spread", "memory", "core", "L3", "devices")
"""Columns that are left out where there is no room, in this order."""

_LUCK = "~"
"""Before a share that no policy guarantees."""


def _share(found: VariantPart, part: int, whole: int, *, is_luck: bool | None = None) -> str:
    mark = _LUCK if (found.is_luck if is_luck is None else is_luck) else ""
    return f"{mark}{part}/{whole}" if whole else "–"


def _widths(rows: Sequence[Row], width: int) -> dict[str, int]:
    """Return the columns that say something and fit into ``width``, those of ranks under no name, with their widths."""
    measures = [row.part for row in rows]
    counts = {"lost": "lost", "memory": "memory_containers", "devices": "device_containers"}
    silent = {name for name, count in counts.items() if not any(getattr(found, count) for found in measures)}
    widths = {"": len(str(max(row.rank for row in rows))) + 1}
    for name, cell in CELLS.items():
        if name not in silent:
            widths[name] = max(len(text) for text in (name, *map(cell, measures)))
    for name in _DISPENSABLE:
        if sum(widths.values()) + GAP * (len(widths) - 1) > width:
            widths.pop(name, None)
    return widths


WIDE = ("RANK", "SAME", "NAME", "MACHINE", "ADMITTED", "ASKED", "LOST", "EXCLUSIVE", "NUMA", "SOCKET", "L3", "CORE")
_WIDE_WASTED = ("SPREAD", "STRANDED", "INIT", "SIBLINGS", "FRAGMENTS", "MEMORY")
_WIDE_REST = (*_WIDE_WASTED, "MEMALIGNED", "DEVALIGNED", "PROMISE", "REJECTED", "SETTINGS")


def _wide_cells(row: Row) -> tuple[str, ...]:
    found, aligned, stranded = row.part, row.part.aligned, row.part.stranded
    figures = (found.admitted, found.asked, found.lost, found.exclusive_containers)
    levels = (aligned.numa, aligned.socket, aligned.l3, aligned.core)
    wasted = (stranded.total, stranded.init, stranded.siblings, stranded.fragments, found.memory_nodes_beyond_need)
    reason = reasons_words(found.rejected) if found.starts else f"not started: {found.start_error}"
    return (
        str(row.rank),
        str(row.others),
        clean(found.name if found.as_given else f"{found.name} changed"),
        clean(found.machine),
        *(str(number) for number in (*figures, *levels)),
        f"{float(found.exact_spread):.2f}",
        *(str(number) for number in wasted),
        f"{aligned.memory}/{found.memory_containers}",
        f"{aligned.devices}/{found.device_containers}",
        found.alignment_promise,
        clean(reason) or "–",
        settings_words(found.settings),
    )


_NAMED_PODS = 8
"""How many pods that no variant admits are named."""

_INDENT = 6


def comparison_parts(
    comparison: Comparison, top: int, *, wide: bool, grouped: bool, to: str
) -> Iterator[RenderableType]:
    """Return the answer for people.

    Args:
        comparison: what was compared.
        top: how many of the best to show; 0 for all.
        wide: whether every variant is one long line.
        grouped: whether variants that decide alike are one entry.
        to: the destination, which has a width.
    """
    rows = rows_of(comparison, grouped=grouped)
    shown = rows[:top] if top else rows
    if not wide:
        yield from _parts(comparison, rows, shown, width_for(to))
        return
    left_out = (
        f"left out {one.count}: {one.start_error_stage}: {clean(one.start_error)}"
        for one in comparison.document.left_out
    )
    # One line for each entry with everything in it, lined up under headings
    cells = [(*WIDE, *_WIDE_REST), *map(_wide_cells, shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [(" " * GAP).join(map(str.ljust, line, widths)).rstrip() for line in cells]
    yield Text("\n".join([*lines, *_rest(rows, shown), *left_out]), no_wrap=True, overflow="ignore")


def _parts(comparison: Comparison, rows: Sequence[Row], shown: Sequence[Row], width: int) -> Iterator[RenderableType]:
    for machine in machines_of(rows):
        yield title_line(machine_view(machine))
    pods, steps, variants = comparison.document.pods, comparison.document.steps, len(comparison.variants)
    what = plural(pods, "pod") if pods == steps else f"{plural(steps, 'step')} with {plural(pods, 'pod')}"
    different = f", of which {len(rows)} differ in what they decide" if len(rows) < variants else ""
    releases = {variant.mooring.release for variant in comparison.variants} - {NEWEST}
    kubelets = f" of kubelet {joined(sorted(str(release) for release in releases))}" if releases else ""
    yield Text(f"{what} under {plural(variants, 'variant')}{kubelets}{different}.")
    # What is given but not among the best is shown below them, so that it can be compared.
    most = max(rows, key=lambda row: (row.part.admitted, -row.rank))
    given = [row for row in rows[len(shown) :] if row.is_given or row is most]
    best, admitted = rows[0].part, most.part
    if comparison.document.by == "guaranteed" and most is not rows[0] and best.is_guaranteed:
        yield Text(
            f"Best that guarantees alignment: {rows[0].rank}. Admits most: {most.rank} ({admitted.admitted} of "
            f"{admitted.asked}), and guarantees {_promise_words(admitted)}."
        )
    yield Text("")
    widths = _widths([*shown, *given], width)
    yield _ranking(widths, rows, shown, given)
    yield Text("")
    yield from (Text(line) for line in _remarks(comparison.document, rows, [*shown, *given]))
    notes = [text for names, text in _NOTES.items() if widths.keys() & names]
    yield Text(f"Columns: {'; '.join(notes)}.", "dim")


def _ranking(widths: Mapping[str, int], rows: Sequence[Row], shown: Sequence[Row], given: Sequence[Row]) -> Listing:
    """Return the entries: figures in columns, and below them what each is."""

    def figures(row: Row) -> list[str]:
        """Return the figures of an entry; none of a kubelet that would not start."""
        return [CELLS[name](row.part) for name in widths if name and row.part.starts]

    def table() -> Table:
        found = new_table(*widths, "what it is", right=range(len(widths)))
        for row in (*shown, *given):
            cells = figures(row) or [""] * (len(widths) - 1)
            found.add_row(f"{row.rank}.", *cells, "; ".join(_entry(row, rows)))
        return found

    def line(cells: Iterable[str], style: str) -> Text:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths.values(), strict=False))
        return Text((" " * GAP).join(padded), style)

    def entries(some: Sequence[Row]) -> Iterator[RenderableType]:
        for row in some:
            rank, cells = f"{row.rank}.".rjust(widths[""]), figures(row)
            first = line((rank, *cells), "bold" if row.is_given else "")
            yield first if cells else Text(f"{rank}{' ' * GAP}not started", "bold")
            yield from (indented(text, "dim", by=_INDENT) for text in _entry(row, rows))

    def lines(_console: Console, _options: ConsoleOptions) -> Iterator[RenderableType]:
        yield line(widths, "dim")
        yield from entries(shown)
        yield from (Text(text) for text in _rest(rows, shown))
        yield from entries(given)

    return Listing(table, lines)


def _entry(row: Row, rows: Sequence[Row]) -> Iterator[str]:
    yield clean(variant_words(row, rows))
    if not row.part.starts:
        yield f"the kubelet would not start: {clean(row.part.start_error)}"
    elif row.part.rejected:
        yield f"rejected: {clean(reasons_words(row.part.rejected))}"
    if row.alike:
        yield f"the same figures also with: {clean(', '.join(row.alike))}"
    if row.others:
        yield f"and {plural(row.others, 'other')} that decide{'s' if row.others == 1 else ''} the same"


def _rest(rows: Sequence[Row], shown: Sequence[Row]) -> list[str]:
    return [f"and {len(rows) - len(shown)} more (--top 0 shows all)"] if len(shown) < len(rows) else []


def _remarks(comparison: ComparisonDocument, rows: Sequence[Row], drawn: Sequence[Row]) -> Iterator[str]:
    best, lucky = rows[0].part, lucky_variant(comparison.variants)
    if lucky is not None or any(row.part.is_luck for row in drawn):
        yield f"{_LUCK} by luck: only policies restricted and single-numa-node guarantee alignment to NUMA nodes."
    if lucky is not None:
        yield f"More is aligned here with {settings_words(lucky.settings)}, but by luck: that does not count."
    if best.is_luck and best.starts:
        yield f"The best guarantees {_promise_words(best)}: other pods, or another order, can end unaligned."
    if best.changes and best.starts:
        yield f"What makes the best of {best.name}:"
        yield from (f"  {clean(change_words(change))}" for change in best.changes)
    never = comparison.never_admitted
    if never:
        more = f" and {len(never) - _NAMED_PODS} more" if len(never) > _NAMED_PODS else ""
        yield f"Admitted by none: {clean(', '.join(never[:_NAMED_PODS]))}{more}."
    if comparison.left_out:
        number = sum(one.count for one in comparison.left_out)
        them = "it" if number == 1 else "them"
        left_out = plural(number, "combination")
        yield f"{left_out} left out, because the kubelet would not start with {them} (-o wide says why)."


def _promise_words(found: VariantPart) -> str:
    if found.promise is AlignmentPromise.SOCKET:
        return "alignment to sockets only (option align-by-socket)"
    return f"no alignment (policy {found.settings.topology_manager_policy})"


_MOST_NAMED = 5
"""How many of the pods that a rule changes are named."""


def release_parts(comparison: ReleaseComparisonDocument) -> Iterator[RenderableType]:
    """Yield the answer about releases."""
    yield Text(
        f"{plural(len(comparison.pods), 'pod')} under kubelets {', '.join(comparison.kubelets)}.", STYLES["title"]
    )
    for (release, error), code in zip(comparison.start_errors.items(), comparison.start_error_codes, strict=True):
        yield Text(f"Kubelet {Release('', release)} would not start: [{code}]")
        yield indented(clean(error))
    # The releases that start, those that decide alike together
    newer = {one.newer for one in comparison.differences}
    groups: list[list[str]] = []
    for release in comparison.kubelets:
        if release not in comparison.start_errors:
            if not groups or release in newer:
                groups.append([])
            groups[-1].append(release)
    differing = [pod for pod in comparison.pods if not pod.same]
    if not differing:
        yield from [Text(f"{_releases(group)}: the same decisions.") for group in groups]
        return
    yield Text("")
    yield _table_of_releases(groups, differing)
    same = len(comparison.pods) - len(differing)
    yield from [Text(""), Text(f"The same decisions about {plural(same, 'other pod')}.")] if same else []
    for difference in comparison.differences:
        yield Text("")
        yield Text(f"{difference.older} and {difference.newer} differ by:", STYLES["title"])
        for one in difference.rules:
            text = f"{one.rule} ({one.releases}): {one.says}. Later: {one.instead}. ({_names_of_releases(one.pods)})"
            yield indented(text)
        if difference.unexplained:
            names = _names_of_releases(difference.unexplained)
            text = f"feature gates, stages of options or formats of state files ({names})"
            yield indented(text)


def _releases(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}"


def _table_of_releases(groups: Sequence[Sequence[str]], pods: Sequence[ReleasePodPart]) -> RenderableType:
    table = new_table("", *map(_releases, groups))
    for pod in pods:
        by_release = {one.kubelet: one for one in pod.decisions}
        decisions = [by_release.get(group[0]) for group in groups]
        verdicts = []
        for one in decisions:
            why = "" if one is None else clean(one.reason or "the kubelet does not answer")
            verdicts.append("not asked" if one is None else "admitted" if one.admitted else f"rejected: {why}")
        table.add_row(Breaking(_name(pod), "/", "title"), *map(Text, verdicts))
        admitted = [one.containers if one is not None and one.admitted else {} for one in decisions]
        for container in dict.fromkeys(name for containers in admitted for name in containers):
            places = []
            for held in (containers.get(container) for containers in admitted):
                memory = f", memory {numbers(map(int, held.mems.split(',')))}" if held is not None and held.mems else ""
                places.append("" if held is None else f"{held.cpus or 'shared pool'}{memory}")
            table.add_row(Text(f"  {clean(container)}"), *map(Breaking, places))
    return table


def _names_of_releases(pods: Sequence[PodPart]) -> str:
    named = [_name(pod) for pod in pods[:_MOST_NAMED]]
    more = len(pods) - len(named)
    return joined([*named, plural(more, "other pod")] if more else named)


def _name(pod: PodPart | ReleasePodPart) -> str:
    return clean(f"{pod.namespace}/{pod.name}")
