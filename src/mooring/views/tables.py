"""Tables for the terminal: the owners and what they have, devices, and the NUMA nodes in figures.

They hold at 60 columns and without colour: lists break at commas only, nothing is cut off, bars are made of signs.

The table of a plan: what every container gets, in a narrow form for people and a wide form for ``grep``.

It holds at 60 columns and without colour: lists break at commas only, and nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from mooring.engine.core.errors import clean
from mooring.explanations.phrases import size
from mooring.views.console import BAR_WIDTH, NARROWEST_BAR, STYLES, Breaking, Listing, bar, indented, new_table
from mooring.views.devices import DeviceView, amounts_by_owner
from mooring.views.view import CPUUse, NodeView, PlacementRow, device_style, owner_style, use_style
from mooring.views.wording import MARKS, device_mark, free_bytes, numbers

_SIGNS = {**MARKS, CPUUse.EXCLUSIVE: "█"}


def owners_table(view: NodeView) -> Table:
    """Return the owners and their CPUs, one owner per line, with the mark that the map uses."""
    with_memory = any(owner.memory_nodes for owner in view.owners)
    held = amounts_by_owner(view.devices)
    of_some = [*(["memory"] if with_memory else []), *(["devices"] if held else [])]
    table = new_table("", "owner", "CPUs", "CPU list", "NUMA", *of_some, right=(2,))
    for owner in view.owners:
        cells: list[RenderableType] = [
            Text(f" {owner.mark} ", STYLES[owner_style(owner)]),
            Breaking(owner.label, "/"),
            Text(str(len(owner.cpus))),
            Breaking(str(owner.cpus) or "–"),
            Breaking(numbers(owner.cpu_nodes)),
        ]
        cells += [Breaking(numbers(owner.memory_nodes))] if with_memory else []
        cells += [Breaking(held.get(owner.label, "–"), " ")] if held else []
        table.add_row(*cells)
    return table


def devices_table(view: NodeView) -> Table:
    """Return the devices, those of one resource with the same NUMA nodes, owner and state in one line."""
    table = new_table("", "resource", "devices", "NUMA", "state")
    groups: dict[tuple[str, tuple[int, ...], str, str], list[DeviceView]] = {}
    for device in view.devices:
        groups.setdefault((device.resource, device.numa, device.state, device.owner), []).append(device)
    for (resource, numa, state, owner), devices in groups.items():
        mark, style = device_mark(devices[0], view.owners), device_style(devices[0], view.owners)
        names = [f"{one.id} ({one.address})" if one.address and one.address != one.id else one.id for one in devices]
        table.add_row(
            Text(f" {mark} ", STYLES[style]),
            Breaking(resource, "/"),
            Breaking(",".join(names)),
            Breaking(numbers(numa) if numa else "unknown"),
            Breaking(f"{state} by {owner}" if owner else state, " "),
        )
    return table


def numa_table(view: NodeView, width: int = 80) -> RenderableType:
    """Return the NUMA nodes in figures: CPUs per use, memory, and a bar for each where ``width`` columns leave room."""
    uses = [use for use in CPUUse if any(node.counts.get(use) for node in view.numa)]
    with_memory = any(node.memory for node in view.numa)
    columns = [
        ("NUMA", [str(node.id) for node in view.numa]),
        ("CPUs", [str(len(node.cpus) or "–") for node in view.numa]),
    ]
    columns += [(use.value, [str(node.counts.get(use, 0) or "–") for node in view.numa]) for use in uses]
    columns.append(("memory", [size(node.memory_bytes) if node.memory_bytes else "–" for node in view.numa]))
    if with_memory:
        told = [size(free_bytes(node)) if node.memory and node.memory_bytes else "–" for node in view.numa]
        columns.append(("unused", told))
    # How much of huge pages and devices is free on each NUMA node, by heading
    pages = {node.id: node.memory.pages if node.memory else {} for node in view.numa}
    held = [
        (kind, [_of_all(*map(size, found.get(kind, (0, 0)))) for found in pages.values()])
        for kind in sorted(set(chain(*pages.values())))
    ]
    offered = [device for device in view.devices if device.offered]
    for resource in sorted({device.resource for device in offered}):
        near = ([one for one in offered if one.resource == resource and node.id in one.numa] for node in view.numa)
        figures = [_of_all(str(sum(one.state == "free" for one in here)), str(len(here))) for here in near]
        held.append((resource.rpartition("/")[2], figures))
    apart = bool(held) and _width_of([*columns, *held]) > width
    spare = width - _width_of(columns if apart else [*columns, *held])
    bars = _bars(view, spare + 2, with_memory=with_memory)
    table = _figures(columns if apart else [*columns, *held], bars)
    # What does not fit beside the figures stands below, with the numbers of the NUMA nodes again.
    below: list[RenderableType] = [Text(""), _figures([columns[0], *held], {})] if apart else []
    if not bars:
        return Group(table, *below)
    signs = ", ".join(["█ taken", *(f"{MARKS[use]} {use.value}" for use in uses if use is not CPUUse.EXCLUSIVE)])
    return Group(table, Text(f"Bars: {signs}.", STYLES["quiet"]), *below)


def _width_of(columns: Sequence[tuple[str, list[str]]]) -> int:
    return sum(max(len(cell) for cell in (name, *cells)) + 2 for name, cells in columns)


def _figures(columns: Sequence[tuple[str, list[str]]], bars: Mapping[str, Sequence[Text]]) -> Table:
    table = new_table()
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "NUMA" else "right", no_wrap=True)
    for name in bars:
        table.add_column(name, no_wrap=True)
    rows = zip(*(cells for _, cells in columns), strict=True)
    for index, cells in enumerate(rows):
        table.add_row(*map(Text, cells), *(bar_[index] for bar_ in bars.values()))
    return table


def _bars(view: NodeView, room: int, *, with_memory: bool) -> dict[str, list[Text]]:
    """Return the bars that fit into ``room`` columns, gaps included, by heading."""
    names = ["CPUs", "memory"] if with_memory else ["CPUs"]
    while names and room // len(names) - 2 < NARROWEST_BAR:
        names.pop()
    if not names:
        return {}
    width = min(BAR_WIDTH, room // len(names) - 2)
    # The full width stands for the CPUs of the largest node, so that smaller ones have shorter bars.
    most = max((len(node.cpus) for node in view.numa), default=0)
    styles = {use: "" if use is CPUUse.EXCLUSIVE else use_style(use) for use in CPUUse}
    found = {"CPUs": [], "memory": []} if "memory" in names else {"CPUs": list[Text]()}
    for node in view.numa:
        cpus = [(count, _SIGNS[use], styles[use]) for use in CPUUse if (count := node.counts.get(use, 0))]
        found["CPUs"].append(bar(cpus, most, width))
        if "memory" in names and node.memory is not None:
            amounts = (node.memory.reserved, node.memory.assigned, free_bytes(node))
            uses = (CPUUse.RESERVED, CPUUse.EXCLUSIVE, CPUUse.FREE)
            parts = [(amount, _SIGNS[use], styles[use]) for amount, use in zip(amounts, uses, strict=True)]
            found["memory"].append(bar(parts, node.memory_bytes, width))
        elif "memory" in names:
            found["memory"].append(Text(""))
    return found


def _of_all(free: str, total: str) -> str:
    number, _, unit = free.partition(" ")
    return "–" if total in ("0", "0 B") else f"{number if total.endswith(f' {unit}') else free} of {total}"


_HEADINGS = ("container", "verdict", "CPUs", "NUMA", "memory", "hugepages", "devices", "alignment")
_SPEAKING = frozenset({"container", "verdict", "alignment"})
"""Cells that need no heading to be understood."""

_COUNT = 2
_GAP = 2
_INDENT = 2
_NARROWEST_LIST = 18
"""Columns below which a CPU list moves to a line of its own."""


def _whole(rows: Sequence[PlacementRow]) -> Iterator[tuple[str, ...]]:
    """Yield headings, and one line for each container with everything in it."""
    yield ("pod", *_HEADINGS, "CPU list", "why")
    yield from ((clean(row.pod), *_cells(row), str(row.cpus) or "–", clean(row.why) or "–") for row in rows)


def placements_table(rows: Sequence[PlacementRow], *, wide: bool = False) -> RenderableType:
    """Return the answer of a plan. Rows of one pod must follow each other.

    The usual form names a pod once, lists its containers below it and gives reasons on lines of their own; it adapts to
    the width of the console. ``wide`` is one line per container with everything in it, as long as it needs to be.
    """
    if not wide:
        return _listing(rows)
    heading, *cells = _whole(rows)
    lines = [tuple(name.upper() for name in heading), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    padded = (
        (" " * _GAP).join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    # Printed alone, a Text would be joined with others into one that wraps.
    return Group(Text("\n".join(padded), no_wrap=True, overflow="ignore"))


def _listing(rows: Sequence[PlacementRow]) -> Listing:
    """Return the usual form: heading, pods and containers; as a table without columns in which nothing is anywhere."""

    def table() -> Table:
        heading, *cells = _whole(rows)
        used = [column for column in range(len(heading)) if any(line[column] != "–" for line in cells)]
        found = new_table(*(heading[column] for column in used))
        for line in cells:
            found.add_row(*(line[column] for column in used))
        return found

    def lines(console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        contained = [row for row in rows if row.holder]
        widths, beside = _widths(contained, options.max_width)
        if contained and widths:
            yield _line(_HEADINGS, "CPU list" if beside else "", widths, beside, "quiet")
        drawn: dict[tuple[object, ...], list[Segment]] = {}
        for pod, of_pod in groupby(rows, key=lambda row: row.pod):
            found = list(of_pod)
            heading = Text(clean(pod), STYLES["title"])
            for row in found:
                if not row.holder:
                    heading.append(f"  {clean(row.verdict)}", STYLES["title"])
            yield heading
            for row in sorted(found, key=lambda row: bool(row.holder)):
                # Of many pods most have the lines of others.
                line = _cells(row) if row.holder else (), str(row.cpus), row.why
                if line not in drawn:
                    parts = [_line(line[0], line[1], widths, beside)] if row.holder else []
                    if row.why:
                        parts.append(indented(clean(row.why), STYLES["quiet"], by=2 * _INDENT))
                    drawn[line] = list(console.render(Group(*parts), options))
                yield from drawn[line]

    return Listing(table, lines)


def _cells(row: PlacementRow) -> tuple[str, ...]:
    """Return the cells below the headings; a dash for nothing."""
    texts = (row.holder, row.verdict, str(len(row.cpus) or ""))
    nodes = (numbers(row.cpu_nodes), numbers(row.memory_nodes))
    more = (row.hugepages, row.devices, row.alignment)
    return (*(clean(text) or "–" for text in texts), *nodes, *(clean(text) or "–" for text in more))


def _line(cells: Sequence[str], cpus: str, widths: Sequence[int], beside: int, style: str = "") -> RenderableType:
    """Return one line; the CPU list breaks after commas, beside the cells or below them."""
    below = [indented(Breaking(cpus), by=2 * _INDENT)] if cpus and not beside else []
    if not widths:
        named = zip(_HEADINGS, cells, strict=True)
        words = [cell if name in _SPEAKING else f"{name} {cell}" for name, cell in named if cell != "–"]
        sentence = Text(", ".join(dict.fromkeys(words)), STYLES[style])
        return Group(indented(sentence, by=_INDENT), *below)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    found: list[RenderableType] = []
    for position, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if width:
            table.add_column(width=width, justify="right" if position == _COUNT else "left")
            broken = {0: "-", len(widths) - 2: "_"}.get(position)
            found.append(Breaking(cell, broken, style) if broken else Text(cell, STYLES[style]))
    if beside:
        table.add_column(width=beside)
        found.append(Breaking(cpus, ",", style))
    table.add_row(*found)
    return Group(indented(table, by=_INDENT), *below)


def _widths(rows: Sequence[PlacementRow], width: int) -> tuple[Sequence[int], int]:
    """Return the widths that all lines of a listing share on a console of ``width`` columns.

    Returns:
        Per cell of :func:`_cells` its width, 0 for one that is empty throughout, and none at all where not even these
        fit: then a line becomes a sentence that wraps. And the width of the CPU list; 0 when it stands on a line of its
        own.
    """
    cells = [_cells(row) for row in rows]
    widths = [max((len(line[column]) for line in (_HEADINGS, *cells)), default=0) for column in range(len(_HEADINGS))]
    for column in range(_COUNT + 1, len(_HEADINGS)):
        if all(line[column] == "–" for line in cells):
            widths[column] = 0
    # Names and alignments may wrap; a name more readily than to a dozen columns, an alignment to ten.
    for column, least in ((0, max(width // 3, 12)), (len(widths) - 1, 10), (len(widths) - 2, 10)):
        widths[column] -= max(0, min(widths[column] - least, _taken(widths) - width))
    spare = width - _taken(widths) - _GAP
    longest = max((len(str(row.cpus)) for row in rows), default=0)
    wanted = min(max(longest, len("CPU list")), _NARROWEST_LIST)
    return widths if _taken(widths) <= width else [], spare if spare >= wanted else 0


def _taken(widths: Sequence[int]) -> int:
    used = [width for width in widths if width]
    return _INDENT + sum(used) + _GAP * (len(used) - 1)
