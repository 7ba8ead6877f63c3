"""The parts of the map that every page made of SVG shares: sizes, boxes with titles and memory bars, brackets.

The cells are drawn by each page itself: a picture has tooltips, a report has something to focus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from mooring.explain.phrases import size
from mooring.render.layout import PlacedBox, PlacedCell, PlacedRow
from mooring.render.measure import Insets, Metrics
from mooring.render.palette import owner_style, use_style
from mooring.render.svg_elements import GAP, MONO, fitting, group, rect, text, text_width
from mooring.render.svg_style import NODE_SIZE, SMALL_SIZE, SOCKET_SIZE, TEXT_SIZE
from mooring.render.view import BoxKind, BoxView, CPUUse, MemoryUse, NodeView, NUMAView
from mooring.render.wording import Title, box_titles, free_bytes, memory_sentence, owner_texts, wanted_title

CELL_PAD = 4
"""Room between the border of a cell and its texts, in pixels."""

_STRIP = 16
_MEMORY_BAR = 22

_TITLE_SIZES = {"socket": SOCKET_SIZE, "node": NODE_SIZE, "cache": SMALL_SIZE}
_TITLE_STYLES = {"socket": "socket-title", "node": "node-title", "cache": "small"}
_CORNERS = {"socket": 8, "node": 6, "cache": 4}


@dataclass(frozen=True, slots=True)
class CellSize:
    """The size of a cell in pixels."""

    width: int
    height: int


def cell_size(view: NodeView) -> CellSize:
    """Return larger cells for smaller machines; the CPU number and the mark fit in any case."""
    cpus = [cpu.cpu for cpu in view.cpus()]
    signs = len(str(max(cpus, default=0))) + max((len(owner.mark) for owner in view.owners), default=1)
    needed = ceil(signs * MONO * SMALL_SIZE) + 2 * CELL_PAD + 2
    cores = sum(1 for box in view.boxes for _ in box.all_cores())
    if len(cpus) <= 32:
        return CellSize(max(needed, min(96, 640 // max(cores, 1))), 30)
    if len(cpus) <= 128:
        return CellSize(max(needed, 40), 24)
    return CellSize(needed, 19)


def map_metrics(view: NodeView, cell: CellSize) -> Metrics:
    """Return the sizes of everything on the map, in pixels."""
    with_strip = bool(view.owners) or any(entry.use is CPUUse.RESERVED for entry in view.legend)
    return Metrics(
        cell_width=cell.width,
        cell_height=cell.height + 1,
        insets=lambda box: _insets(box, view),
        title_width=lambda box, roomy: _roomy_width(box, view, roomy=roomy),
        core_gap=3,
        strip_height=lambda box: _STRIP if with_strip and not box.is_offline() else 0,
        row_gap=8,
        gap_x=12,
        slack=240,
        gap_y=12,
    )


def _roomy_width(box: BoxView, view: NodeView, *, roomy: bool) -> int:
    return ceil(_title_width(box, wanted_title(box, view, roomy=roomy))) + 2 * _insets(box, view).left


def _insets(box: BoxView, view: NodeView) -> Insets:
    if _look(box) == "cache":
        return Insets(8, 20, 8, 8)
    return Insets(12, 30, 12, 12 + (_MEMORY_BAR if _memory_of(box, view) else 0))


def _look(box: BoxView) -> str:
    """Return the style name of a box: ``socket`` (also if it is one NUMA node), ``node``, ``cache`` for all smaller."""
    if box.holds_numa_nodes() and box.labels[0].kind is BoxKind.SOCKET:
        return "socket"
    return "node" if box.is_offline() or box.holds_numa_nodes() else "cache"


def _memory_of(box: BoxView, view: NodeView) -> NUMAView | None:
    """Return the NUMA node whose memory bar belongs into ``box``."""
    ids = {label.id for label in box.labels if label.kind is BoxKind.NUMA and not label.part}
    return next((node for node in view.numa if node.id in ids and node.memory and node.memory_bytes), None)


def _title_width(box: BoxView, title: Title) -> float:
    facts = text_width(title.facts, TEXT_SIZE) + GAP if title.facts else 0
    return text_width(title.name, _TITLE_SIZES[_look(box)]) + facts


def box_elements(box: PlacedBox, view: NodeView) -> Iterator[str]:
    """Yield a box with its title and, where it is a NUMA node whose memory is accounted for, its memory bar."""
    look = _look(box.view)
    yield rect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, look, round_=_CORNERS[look])
    insets = _insets(box.view, view)
    titles = box_titles(box.view, view)
    room = box.width - 2 * insets.left
    title = next((title for title in titles if _title_width(box.view, title) <= room), titles[-1])
    x, y = box.x + insets.left, box.y + insets.top - (11 if look != "cache" else 7)
    if title.name:
        yield text(x, y, title.name, _TITLE_STYLES[look], more=title.facts)
    node = _memory_of(box.view, view)
    if node is not None and node.memory is not None:
        yield _memory_bar(node, node.memory, x, box.y + box.height - insets.bottom + 10, room)


def _memory_bar(node: NUMAView, use: MemoryUse, x: float, y: float, width: float) -> str:
    """Return the bar of a node's memory with its figures, where there is room for them."""
    figures = f"{size(free_bytes(node))} free"
    left, right = text_width("memory ", SMALL_SIZE), text_width(f" {figures}", SMALL_SIZE)
    parts = []
    if left + right + 60 <= width:
        parts.append(text(x + width, y + 9, figures, "small", anchor="end"))
        width -= right
    if left + 40 <= width:
        parts.append(text(x, y + 9, "memory", "small"))
        x, width = x + left, width - left
    reserved = min(1.0, use.reserved / node.memory_bytes) * width
    assigned = min(width - reserved, use.assigned / node.memory_bytes * width)
    parts += [
        rect(x, y + 1, width, 8, "bar"),
        rect(x, y + 1, reserved, 8, "reserved"),
        rect(x + reserved, y + 1, assigned, 8, "used"),
    ]
    return group(*parts, title=memory_sentence(node))


def strip_elements(row: PlacedRow, cell: CellSize, view: NodeView) -> Iterator[str]:
    """Yield a bracket over every run of whole cores with one use, and its name where it fits."""
    for key, cores in groupby(row.cells, key=_whole_core):
        if key is None:
            continue
        run = list(cores)
        x, width = run[0][0].x, run[-1][0].x + cell.width - run[0][0].x
        use, owner = key
        label = use.value if owner is None else view.owners[owner].label
        style = use_style(use) if owner is None else owner_style(view.owners[owner])
        forms = (label, "") if owner is None else owner_texts(label)
        name = next((form for form in forms if text_width(form, SMALL_SIZE) <= width), None)
        name = fitting(forms[-1], width, SMALL_SIZE) if name is None else name
        words = [text(x + 1, row.y + 8, name, "small")] if name else []
        yield group(*words, rect(x, row.y + 11, width, 3, style), title=label)


def _whole_core(core: tuple[PlacedCell, ...]) -> tuple[CPUUse, int | None] | None:
    """Return use and owner that all CPUs of a core have, when that is worth a name."""
    # A CPU that its owner lost is the owner's still.
    keys = {(CPUUse.EXCLUSIVE if cell.view.use is CPUUse.BROKEN else cell.view.use, cell.view.owner) for cell in core}
    key = keys.pop()
    return key if not keys and key[0] in {CPUUse.EXCLUSIVE, CPUUse.RESERVED} else None
