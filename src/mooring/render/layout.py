"""Where everything goes: boxes and cells get coordinates, in whatever unit the renderer counts.

One model serves every renderer. A terminal counts in characters, an SVG in pixels; both say how large a cell, a gap and a title
are (:class:`Metrics`) and get rectangles back that never overlap. The number of cores per row is the same everywhere in one
picture, so that equal parts of a machine look equal; it is chosen so that the picture is as low as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mooring.render.view import BoxKind, BoxView, CoreView, CPUView


@dataclass(frozen=True, slots=True)
class Insets:
    """Room between a box's border and what it holds; the title stands in the top one."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """The sizes of one renderer."""

    cell_width: int
    cell_height: int
    insets: Mapping[BoxKind | None, Insets]
    """Per first label of a box; None for boxes without labels."""
    title_width: Callable[[BoxView], int]
    """Width that the shortest acceptable title of a box needs, insets included."""
    label_width: int = 0
    """Room left of every row of cores, for what the renderer writes there."""
    strip_height: int = 0
    """Room above every row of cores."""
    row_gap: int = 0
    """Between rows of cores."""
    gap_x: int = 1
    """Between boxes side by side."""
    gap_y: int = 0
    """Between boxes on top of each other."""


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """One CPU with its place."""

    view: CPUView
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """One row of cores; its strip lies between ``y`` and the cells."""

    x: int
    y: int
    width: int
    height: int
    cells: tuple[tuple[PlacedCell, ...], ...]
    """Per core, its CPUs from top to bottom."""


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """One box with its place; ``depth`` counts the boxes around it."""

    view: BoxView
    x: int
    y: int
    width: int
    height: int
    depth: int
    rows: tuple[PlacedRow, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The finished arrangement: outer boxes before inner ones."""

    width: int
    height: int
    boxes: tuple[PlacedBox, ...]

    def cells(self) -> Iterator[PlacedCell]:
        """Yield every cell."""
        for box in self.boxes:
            for row in box.rows:
                for core in row.cells:
                    yield from core


@dataclass(frozen=True, slots=True)
class _Plan:
    """A measured box; the place is not known yet."""

    view: BoxView
    width: int
    height: int
    shelves: tuple[_Shelf, ...] = ()
    core_rows: tuple[tuple[CoreView, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Shelf:
    """Boxes of one sort in a regular grid."""

    plans: tuple[_Plan, ...]
    columns: int
    column_width: int

    def rows(self) -> list[tuple[_Plan, ...]]:
        starts = range(0, len(self.plans), self.columns)
        return [self.plans[start : start + self.columns] for start in starts]


@dataclass(frozen=True, slots=True)
class _Block:
    """All shelves of one box, with the room that they take."""

    width: int
    height: int
    shelves: tuple[_Shelf, ...]


def arrange(boxes: Sequence[BoxView], metrics: Metrics, width: int) -> Layout:
    """Return the lowest arrangement of ``boxes`` within ``width``; of equally low ones the narrowest.

    A box whose title alone is wider than ``width`` makes the arrangement wider.
    """
    blocks = (_shelve(boxes, width, per_row, metrics) for per_row in _candidates(boxes))
    best = min(blocks, key=lambda block: (block.height, block.width))
    return Layout(best.width, best.height, tuple(_place_shelves(best.shelves, 0, 0, 0, metrics)))


def _candidates(boxes: Sequence[BoxView]) -> list[int]:
    """Return the numbers of cores per row that are worth trying: those that fill the rows of the largest box."""
    most = max((len(box.cores) for box in _flat(boxes) if not _is_offline(box)), default=1)
    return sorted({-(-most // rows) for rows in range(1, most + 1)}) or [1]


def _flat(boxes: Iterable[BoxView]) -> Iterator[BoxView]:
    for box in boxes:
        yield box
        yield from _flat(box.children)


def _is_offline(box: BoxView) -> bool:
    return any(label.kind is BoxKind.OFFLINE for label in box.labels)


def _sort(box: BoxView) -> int:
    """Return on which shelf a box belongs: with CPUs, memory only, offline."""
    if _is_offline(box):
        return 2
    return 0 if any(True for _ in box.cpus()) else 1


def _shelve(boxes: Sequence[BoxView], width: int, per_row: int, metrics: Metrics) -> _Block:
    """Put ``boxes`` on shelves of ``width``: as many columns as fit, spread evenly over the rows."""
    shelves: list[_Shelf] = []
    used = 0
    for sort in range(3):
        # CPUs that are offline may use the width of all the others: nothing is known about their arrangement.
        cores = per_row if sort < 2 else max(1, (used or width) // metrics.cell_width)
        plans = tuple(_measure(box, width, cores, metrics) for box in boxes if _sort(box) == sort)
        if not plans:
            continue
        column = max([plan.width for plan in plans] + [shelf.column_width for shelf in shelves if sort == 1])
        fitting = max(1, (width + metrics.gap_x) // (column + metrics.gap_x))
        rows = -(-len(plans) // fitting)
        shelf = _Shelf(plans, -(-len(plans) // rows), column)
        used = max(used, shelf.columns * (column + metrics.gap_x) - metrics.gap_x)
        shelves.append(shelf)
    heights = [max(plan.height for plan in row) for shelf in shelves for row in shelf.rows()]
    return _Block(used, sum(heights) + metrics.gap_y * max(0, len(heights) - 1), tuple(shelves))


def _measure(box: BoxView, width: int, per_row: int, metrics: Metrics) -> _Plan:
    insets = _insets(box, metrics)
    inner = width - insets.left - insets.right
    core_rows = _core_rows(box.cores, inner - metrics.label_width, per_row, metrics)
    block = _shelve(box.children, inner, per_row, metrics)
    content, height = block.width, block.height
    if core_rows:
        content = metrics.label_width + len(core_rows[0]) * metrics.cell_width
        height = sum(_row_height(row, metrics) for row in core_rows) + metrics.row_gap * (len(core_rows) - 1)
    return _Plan(
        view=box,
        width=max(content + insets.left + insets.right, metrics.title_width(box)),
        height=height + insets.top + insets.bottom,
        shelves=block.shelves,
        core_rows=core_rows,
    )


def _insets(box: BoxView, metrics: Metrics) -> Insets:
    return metrics.insets[box.labels[0].kind if box.labels else None]


def _core_rows(
    cores: Sequence[CoreView], width: int, per_row: int, metrics: Metrics
) -> tuple[tuple[CoreView, ...], ...]:
    """Return the cores in rows of equal length, except the last."""
    if not cores:
        return ()
    fitting = max(1, min(per_row, width // metrics.cell_width))
    rows = -(-len(cores) // fitting)
    length = -(-len(cores) // rows)
    return tuple(tuple(cores[start : start + length]) for start in range(0, len(cores), length))


def _row_height(row: Sequence[CoreView], metrics: Metrics) -> int:
    return metrics.strip_height + metrics.cell_height * max(len(core.cpus) for core in row)


def _place_shelves(shelves: Sequence[_Shelf], x: int, y: int, depth: int, metrics: Metrics) -> Iterator[PlacedBox]:
    for shelf in shelves:
        for row in shelf.rows():
            height = max(plan.height for plan in row)
            for column, plan in enumerate(row):
                left = x + column * (shelf.column_width + metrics.gap_x)
                yield from _place(plan, PlacedBox(plan.view, left, y, shelf.column_width, height, depth, ()), metrics)
            y += height + metrics.gap_y


def _place(plan: _Plan, frame: PlacedBox, metrics: Metrics) -> Iterator[PlacedBox]:
    """Yield the box in the room of ``frame``, which is at least as large as planned, and all boxes inside."""
    insets = _insets(plan.view, metrics)
    x, y = frame.x + insets.left, frame.y + insets.top
    yield replace(frame, rows=tuple(_place_rows(plan.core_rows, x, y, metrics)))
    yield from _place_shelves(plan.shelves, x, y, frame.depth + 1, metrics)


def _place_rows(rows: Sequence[Sequence[CoreView]], x: int, y: int, metrics: Metrics) -> Iterator[PlacedRow]:
    for row in rows:
        height = _row_height(row, metrics)
        left, top = x + metrics.label_width, y + metrics.strip_height
        cells = tuple(
            tuple(
                PlacedCell(cpu, left + column * metrics.cell_width, top + thread * metrics.cell_height)
                for thread, cpu in enumerate(core.cpus)
            )
            for column, core in enumerate(row)
        )
        yield PlacedRow(x, y, metrics.label_width + len(row) * metrics.cell_width, height, cells)
        y += height + metrics.row_gap
