"""The picture of a node as SVG: one self-contained, deterministic text.

It is readable on a light and a dark background, shows everything about a CPU as a tooltip, and needs no script.

Devices in the boxes of the map: a cell for each, with its id, its PCI address and the letter of its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, groupby
from math import ceil

from mooring.engine.core.cpuset import CPUSet
from mooring.explanations.phrases import size
from mooring.lazy import replace
from mooring.views import layout as layouts
from mooring.views import view as views
from mooring.views import wording
from mooring.views.devices import device_names, most_of_one_kind
from mooring.views.svg import elements as svg
from mooring.views.svg.legend import footer, wrapped

HEIGHT = 20
"""Pixels of a device."""

HEADING = 20
"""Pixels above the devices of a resource, for its name."""

_ID_ROOM = 20
"""Characters of the longest id that is written whole."""

_MOST_NAMED = 24
"""Devices of one resource in one box up to which each is named; more are marks alone, with their ids as tooltips."""


def names_of_devices(view: views.NodeView) -> Mapping[tuple[str, str], str]:
    """Return what is written for each device, by resource and id; nothing where there are many: marks alone."""
    return device_names(view.devices, _ID_ROOM) if most_of_one_kind(view.devices) <= _MOST_NAMED else {}


def device_heading(placed: layouts.PlacedGroup) -> str:
    """Return what stands above the devices of one resource; the empty text where nothing fits."""
    heading = svg.fitting_form(placed.group.headings, placed.width, svg.SMALL_SIZE)
    return svg.text(placed.x, placed.y + HEADING - 6, heading, "small") if heading else ""


def device_cell(placed: layouts.PlacedDevice, metrics: layouts.CellMetrics, view: views.NodeView, name: str) -> str:
    """Return the cell of one device with its name, which may be empty."""
    device, style = placed.view, views.device_style(placed.view, view.owners)
    baseline = placed.y + (HEIGHT - 3 + svg.SMALL_SIZE) / 2 - 1.5
    words = [svg.text(placed.x + svg.CELL_PAD, baseline, name, f"device-name on-{style}")] if name else []
    mark = wording.device_mark(device, view.owners)
    return "".join(
        (
            svg.rect(placed.x + 0.5, placed.y + 0.5, metrics.device_width - 1, HEIGHT - 4, style, round_=4),
            *words,
            svg.text(placed.x + metrics.device_width - svg.CELL_PAD, baseline, mark, f"mark on-{style}", anchor="end"),
        )
    )


_STRIP = 16
_MEMORY_BAR = 22

_TITLE_SIZES = {"socket": svg.SOCKET_SIZE, "node": svg.NODE_SIZE, "cache": svg.SMALL_SIZE}
_TITLE_STYLES = {"socket": "socket-title", "node": "node-title", "cache": "small"}
_CORNERS = {"socket": 8, "node": 6, "cache": 4}


def map_metrics(view: views.NodeView, *, changes: bool = False) -> layouts.CellMetrics:
    """Return the sizes of everything on the map, in pixels; a map that changes has room for names everywhere.

    Smaller machines have larger cells; the CPU number and the mark fit in any case.
    """
    cpus = [cpu.cpu for cpu in view.cpus()]
    cores = sum(1 for box in view.boxes for _ in box.all_cores())
    mark = max((len(owner.mark) for owner in view.owners), default=1)
    width, height = _room_for(len(str(max(cpus, default=0))) + mark), 19
    if len(cpus) <= 32:
        width, height = max(width, min(96, 640 // max(cores, 1))), 30
    elif len(cpus) <= 128:
        width, height = max(width, 40), 24
    names = max((len(name) + 1 for name in names_of_devices(view).values()), default=0)
    marks = max((len(wording.device_mark(device, view.owners)) for device in view.devices), default=1)
    named = {views.CPUUse.EXCLUSIVE, views.CPUUse.RESERVED, views.CPUUse.BROKEN}

    def title_width(box: views.BoxView, roomy: bool) -> int:  # noqa: FBT001 - the parameter of the metrics
        title = _title_width(box, wording.wanted_title(box, view, roomy=roomy))
        which = svg.text_width(box.folded[-1], svg.SMALL_SIZE) if roomy and box.folded and not view.owners else 0
        return ceil(max(title, which)) + 2 * _insets(box, view).left

    # Of a large machine alone the blocks say which CPUs they are, however high that makes it.
    slack = 240 if not is_dense(view) else 120 if view.owners else 2000
    return layouts.CellMetrics(
        cell_width=width,
        cell_height=height + 1,
        insets=lambda box: _insets(box, view),
        title_width=title_width,
        core_gap=3,
        strip_height=lambda box: _STRIP if changes or any(cpu.use in named for cpu in box.cpus()) else 0,
        row_gap=8,
        gap_x=12,
        slack=slack,
        side_by_side=slack == 120,
        gap_y=12,
        device_width=_room_for(names + marks),
        device_height=HEIGHT,
        device_gap=4,
        device_heading=HEADING,
    )


def _room_for(signs: int) -> int:
    return ceil(signs * svg.MONO * svg.SMALL_SIZE) + 2 * svg.CELL_PAD + 2


def _insets(box: views.BoxView, view: views.NodeView) -> layouts.Insets:
    if _style_of(box) == "cache":
        return layouts.Insets(8, 24, 8, 14) if box.folded else layouts.Insets(8, 20, 8, 8)
    return layouts.Insets(12, 30, 12, 12 + (_MEMORY_BAR if _memory_of(box, view) else 0))


def _style_of(box: views.BoxView) -> str:
    """Return the style name of a box: ``socket`` (also if it is one NUMA node), ``node``, ``cache`` for all smaller."""
    if box.holds_numa_nodes() and box.labels[0].kind is views.BoxKind.SOCKET:
        return "socket"
    return "node" if box.is_apart() or box.holds_numa_nodes() else "cache"


def _memory_of(box: views.BoxView, view: views.NodeView) -> views.NUMAView | None:
    """Return the NUMA node whose memory bar belongs into ``box``."""
    ids = {label.id for label in box.labels if label.kind is views.BoxKind.NUMA and not label.part}
    return next((node for node in view.numa if node.id in ids and node.memory and node.memory_bytes), None)


def _title_width(box: views.BoxView, title: wording.Title) -> float:
    name, facts = title
    bold = 1 if _style_of(box) == "cache" else svg.BOLD
    width = svg.text_width(name, _TITLE_SIZES[_style_of(box)]) * bold
    return width + (svg.text_width(facts, svg.TEXT_SIZE) + svg.GAP if facts else 0)


def box_elements(box: layouts.PlacedBox, view: views.NodeView) -> Iterator[str]:
    """Yield a box with its title and, where it is a NUMA node whose memory is accounted for, its memory bar."""
    look = _style_of(box.view)
    yield svg.rect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, look, round_=_CORNERS[look])
    insets = _insets(box.view, view)
    titles = wording.box_titles(box.view, view)
    room = box.width - 2 * insets.left
    title = next((title for title in titles if _title_width(box.view, title) <= room), titles[-1])
    x, y = box.x + insets.left, box.y + insets.top - (11 if look != "cache" else 7)
    if box.view.folded and look == "cache":
        which = box.view.folded[-1]
        first = svg.text(x, y, wording.title_text(title), _TITLE_STYLES[look])
        second = svg.fitting_form((which,), room, svg.SMALL_SIZE)
        yield svg.group(first, svg.text(x, y + 14, second, "small") if second else "", title=f"CPUs {which}")
    elif title[0]:
        yield svg.text(x, y, title[0], _TITLE_STYLES[look], more=title[1])
    node = _memory_of(box.view, view)
    if node is not None and node.memory is not None:
        yield _memory_bar(node, node.memory, x, box.y + box.height - insets.bottom + 10, room)


def _memory_bar(node: views.NUMAView, use: views.MemoryUse, x: float, y: float, width: float) -> str:
    """Return the bar of a node's memory with its figures, where there is room for them."""
    figures = f"{size(wording.free_bytes(node))} free"
    left, right = svg.text_width("memory ", svg.SMALL_SIZE), svg.text_width(f" {figures}", svg.SMALL_SIZE)
    parts = []
    if left + right + 60 <= width:
        parts.append(svg.text(x + width, y + 9, figures, "small", anchor="end"))
        width -= right
    if left + 40 <= width:
        parts.append(svg.text(x, y + 9, "memory", "small"))
        x, width = x + left, width - left
    reserved = min(1.0, use.reserved / node.memory_bytes) * width
    assigned = min(width - reserved, use.assigned / node.memory_bytes * width)
    parts += [
        svg.rect(x, y + 1, width, 8, "bar"),
        svg.rect(x, y + 1, reserved, 8, "reserved"),
        svg.rect(x + reserved, y + 1, assigned, 8, "used"),
    ]
    return svg.group(*parts, title=wording.memory_sentence(node))


def strip_elements(
    row: layouts.PlacedRow, metrics: layouts.CellMetrics, view: views.NodeView, told: set[str] | None = None
) -> Iterator[str]:
    """Yield a bracket over every run of whole cores with one use, and its name where there is room up to the next.

    A name stands once in a box, whole or not at all: the cells have its letter.
    """
    told = set() if told is None else told
    runs = [(key, list(cores)) for key, cores in groupby(row.cells, key=_whole_core) if key is not None]
    ends = (run[0][0].x - svg.GAP for _, run in runs[1:])
    for (key, run), end in zip(runs, chain(ends, [row.x + row.width]), strict=False):
        x, width = run[0][0].x, run[-1][0].x + metrics.cell_width - run[0][0].x
        use, owner = key
        label = use.value if owner is None else view.owners[owner].label
        style = views.use_style(use) if owner is None else views.owner_style(view.owners[owner])
        forms = (label,) if owner is None else tuple(one for one in view.owners[owner].forms if "…" not in one)
        name = "" if label in told else svg.fitting_form(forms, max(width, end - x) - 2, svg.SMALL_SIZE)
        told |= {label} if name else set()
        words = [svg.text(x + 1, row.y + 8, name, "small")] if name else []
        yield svg.group(*words, svg.rect(x, row.y + 11, width, 3, style), title=label)


def _whole_core(core: tuple[layouts.PlacedCell, ...]) -> tuple[views.CPUUse, int | None] | None:
    """Return use and owner that all CPUs of a core have, when that is worth a name."""
    # A CPU that its owner lost is the owner's still.
    keys = {
        (views.CPUUse.EXCLUSIVE if cell.view.use is views.CPUUse.BROKEN else cell.view.use, cell.view.owner)
        for cell in core
    }
    key = keys.pop()
    return key if not keys and key[0] in {views.CPUUse.EXCLUSIVE, views.CPUUse.RESERVED} else None


MARGIN = 24
"""Room around everything, in pixels."""

_NARROWEST_PAGE = 760
_WIDE_PAGE = 1760
_DENSE = 512
"""CPUs from which a free L3 is one block, and the page as wide as a screen."""
_PLAIN = frozenset({views.CPUUse.FREE, views.CPUUse.SHARED, views.CPUUse.LEFT_OUT})
"""Uses of CPUs without a holder: a block of them says as much as its cells."""


def svg_text(view: views.NodeView, width: int = 1200, *, bare: bool = False) -> str:
    """Return the picture as an SVG document of at most ``width`` pixels, wider only if a single box is.

    A bare one is the map alone, without margin, heading and legend.
    """
    # Sockets side by side, as on a screen.
    wide = max(width, _WIDE_PAGE) if is_dense(view) and not bare else width
    margin, least = (0, 0) if bare else (MARGIN, _NARROWEST_PAGE)
    metrics = map_metrics(view)
    layout = layouts.arrange(dense_boxes(view), metrics, max(wide, least) - 2 * margin)
    page = max(layout.width + 2 * margin, least)
    heading, top = ([], 0) if bare else _heading(view, page)
    legend, bottom = list[str](), layout.height
    if not bare:
        legend, bottom = footer(view, MARGIN, top + layout.height + 28, page - 2 * MARGIN)
    drawn = (f'<g transform="translate({margin} {top})">', *_map(view, layout, metrics), "</g>")
    title = f"{view.name}: {view.headline or view.title}"
    return svg.document(title, page, bottom + margin, (*heading, *drawn, *legend))


def is_dense(view: views.NodeView) -> bool:
    """Return whether a free L3 is one block and the page as wide as a screen: with many CPUs."""
    return sum(1 for _ in view.cpus()) >= _DENSE


def dense_boxes(view: views.NodeView, changing: Collection[int] = frozenset()) -> tuple[views.BoxView, ...]:
    """Return the boxes; on a large machine every L3 or NUMA node that is free and stays so, is one block."""
    return tuple(_dense(box, changing) for box in view.boxes) if is_dense(view) else view.boxes


def _dense(box: views.BoxView, changing: Collection[int]) -> views.BoxView:
    if box.children:
        return replace(box, children=tuple(_dense(child, changing) for child in box.children))
    cpus, uses = CPUSet.from_ids(cpu.cpu for cpu in box.cpus()), {cpu.use for cpu in box.cpus()}
    if len(uses) != 1 or not uses <= _PLAIN or box.devices or any(cpu in changing for cpu in cpus):
        return box
    (use,) = uses
    return replace(box, folded=(f"{len(cpus)} {'CPUs' if use is views.CPUUse.SHARED else use.value}", str(cpus)))


def _heading(view: views.NodeView, page: int) -> tuple[list[str], int]:
    """Return the lines above the map and where they end."""
    room, y = page - 2 * MARGIN, MARGIN + svg.TITLE_SIZE - 4
    found = []
    # A machine that is a line of amounts has no name: what it is stands above.
    title = view.headline or view.heading or (view.title if view.name else "")
    names = list(wrapped(title, room / svg.BOLD, svg.TITLE_SIZE)) if view.headline else [title] if title else []
    for name in names:
        found.append(svg.text(MARGIN, y, svg.fitting(name, room / svg.BOLD, svg.TITLE_SIZE), "name"))
        y += 22
    machine = f"{view.heading}: {view.title}" if view.headline and view.heading else view.title
    machine = "" if machine == title else machine
    for line, style in ((machine, "plain"), (view.subtitle, "quiet")):
        if line:
            found.append(svg.text(MARGIN, y, svg.fitting(line, room, svg.TEXT_SIZE), style))
            y += 18
    return found, y + 2


def _map(view: views.NodeView, layout: layouts.PictureLayout, metrics: layouts.CellMetrics) -> Iterator[str]:
    names = names_of_devices(view)
    for box in layout.boxes:
        yield from box_elements(box, view)
        for placed in box.devices:
            yield device_heading(placed)
            for device in placed.devices:
                name = names.get((device.view.resource, device.view.id), "")
                yield svg.group(device_cell(device, metrics, view, name), title=device.view.sentence)
        told: set[str] = set()
        for row in box.rows:
            yield from strip_elements(row, metrics, view, told)
            for core in row.cells:
                cells = (
                    svg.group(cpu_cell(cpu, metrics, view), title=wording.cpu_sentence(cpu.view, view)) for cpu in core
                )
                yield svg.group(*cells)


def cpu_cell(placed: layouts.PlacedCell, metrics: layouts.CellMetrics, view: views.NodeView) -> str:
    """Return the cell of a CPU: its ground, its number and its mark."""
    cpu, style = placed.view, views.cpu_style(placed.view, view.owners)
    width, height = metrics.cell_width, metrics.cell_height - 1
    baseline = placed.y + (height + svg.SMALL_SIZE) / 2 - 1.5
    place = (placed.x + 0.5, placed.y + 0.5, width - 1, height - 1)
    hypothetical = cpu.owner is not None and view.owners[cpu.owner].hypothetical and style.startswith("exclusive-")
    mark = wording.cpu_mark(cpu, view)
    return "".join(
        (
            svg.rect(*place, style, round_=2),
            svg.hatched(*place, style, round_=2) if hypothetical else "",
            svg.text(placed.x + svg.CELL_PAD, baseline, str(cpu.cpu), f"cpu on-{style}"),
            svg.text(placed.x + width - svg.CELL_PAD, baseline, mark, f"mark on-{style}", anchor="end"),
        )
    )
