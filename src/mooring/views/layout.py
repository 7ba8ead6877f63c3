"""How large everything becomes, and where it goes: boxes on shelves, cores in rows, in the units of the renderer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from mooring.lazy import dataclass, replace
from mooring.views.devices import DeviceGroup, DeviceView
from mooring.views.view import BoxKind, BoxView, CoreView, CPUView


@dataclass(frozen=True, slots=True)
class Insets:
    """Room between a box's border and what it holds; the title is in the top one."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, slots=True)
class CellMetrics:
    """The sizes of one renderer."""

    cell_width: int
    cell_height: int
    insets: Callable[[BoxView], Insets]
    title_width: Callable[[BoxView, bool], int]
    """Width that a box needs, insets included, for its wanted title if True, else for the shortest acceptable one."""
    slack: int
    """How much taller than the lowest arrangement a clearer one may be."""
    side_by_side: bool = False
    """Whether the outermost boxes stand beside one another where that is possible."""
    core_gap: int = 0
    """Between cores side by side."""
    label_width: int = 0
    """Room left of every row of cores, for what the renderer writes there."""
    strip_height: Callable[[BoxView], int] = lambda _box: 0
    """Room above every row of cores of a box, for what the renderer writes there."""
    row_gap: int = 0
    """Between rows of cores."""
    gap_x: int = 1
    """Between boxes side by side."""
    gap_y: int = 0
    """Between boxes on top of each other."""
    device_width: int = 1
    device_height: int = 1
    device_gap: int = 1
    """Between devices side by side."""
    device_heading: int = 1
    """Room above the devices of one resource, for its name."""
    most_cores: int = 1
    """Cores in one row at most; tried, like the next two, and the same everywhere so that equal parts look equal."""
    most_boxes: int = 1
    """Boxes side by side at most that hold cores only."""
    roomy: bool = False
    """Whether boxes are widened for the wanted title, or for the shortest acceptable one."""


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """A measured box; the place is not known yet."""

    view: BoxView
    width: int
    height: int
    shelves: tuple[Shelf, ...] = ()
    """What it holds, if that is boxes."""
    core_rows: tuple[tuple[CoreView, ...], ...] = ()
    """What it holds, if that is cores."""
    device_rows: tuple[tuple[DeviceGroup, int], ...] = ()
    """The groups of devices below that, with how many devices are in a row."""
    devices_top: int = 0
    """Where the devices begin, from the top of what the box holds."""


Shelf: TypeAlias = tuple[list[tuple[BoxPlan, ...]], int]
"""Boxes of one sort in a regular grid, row by row, and the width of a column."""


def holds_leaves(boxes: Sequence[BoxView]) -> bool:
    """Tell whether none of ``boxes`` has boxes inside."""
    return not any(box.children for box in boxes)


_Thing = TypeVar("_Thing")
_Shelved: TypeAlias = tuple[tuple[Shelf, ...], int, int]
"""All shelves of one box, with their width and height."""


def shelve(boxes: Sequence[BoxView], width: int, metrics: CellMetrics) -> _Shelved:
    """Put ``boxes`` on shelves of ``width``: as many columns as fit and are allowed, evenly spread over rows."""
    most = metrics.most_boxes if holds_leaves(boxes) else len(boxes)
    shelves: list[Shelf] = []
    used = 0
    # Boxes with CPUs stand on the first shelf, those of memory alone on the second, what is apart on the third.
    sorts = [2 if box.is_apart() else 0 if any(True for _ in box.cpus()) else 1 for box in boxes]
    for sort in range(3):
        inner = metrics
        if sort == 2:  # of the arrangement of offline CPUs nothing is known, so they fill the width
            filling = max(1, (used or width) // (metrics.cell_width + metrics.core_gap))
            inner = replace(metrics, most_cores=filling, most_boxes=1, roomy=False)
        plans = tuple(_measure(box, width, inner) for box, own in zip(boxes, sorts, strict=True) if own == sort)
        if not plans:
            continue
        column = max([plan.width for plan in plans] + [before for _, before in shelves if sort == 1])
        fitting = max(1, min(most, (width + metrics.gap_x) // (column + metrics.gap_x)))
        rows = _even_rows(plans, fitting)
        used = max(used, len(rows[0]) * (column + metrics.gap_x) - metrics.gap_x)
        shelves.append((rows, column))
    heights = [max(plan.height for plan in row) for rows, _ in shelves for row in rows]
    return tuple(shelves), used, sum(heights) + metrics.gap_y * max(0, len(heights) - 1)


def _measure(box: BoxView, width: int, metrics: CellMetrics) -> BoxPlan:
    insets = metrics.insets(box)
    inner = width - insets.left - insets.right
    # Rows of equal length, except the last
    room = (inner - metrics.label_width + metrics.core_gap) // (metrics.cell_width + metrics.core_gap)
    core_rows = tuple(_even_rows(box.cores, max(1, min(metrics.most_cores, room)))) if box.cores else ()
    shelves, content, height = shelve(box.children, inner, metrics)
    if core_rows:
        content = row_width(core_rows[0], metrics)
        # A folded box is as wide as it would be, so that equal parts stand below one another.
        core_rows = () if box.folded else core_rows
        height = sum(row_height(row, box, metrics) for row in core_rows) + metrics.row_gap * max(0, len(core_rows) - 1)
    frame = insets.left + insets.right
    title = metrics.title_width(box, metrics.roomy)
    # Devices fill the width of what is above them; alone, all the room there is.
    room = max(content, title - frame) if content else inner
    device_rows = tuple((group, devices_per_row(group, room, metrics)) for group in box.devices)
    widest = max((count * (metrics.device_width + metrics.device_gap) for _, count in device_rows), default=0)
    top = height + metrics.row_gap if height and device_rows else height
    return BoxPlan(
        view=box,
        width=max(max(content, widest - metrics.device_gap) + frame, title),
        height=insets.top + top + sum(group_height(*row, metrics) for row in device_rows) + insets.bottom,
        shelves=shelves,
        core_rows=core_rows,
        device_rows=device_rows,
        devices_top=top,
    )


def devices_per_row(group: DeviceGroup, room: int, metrics: CellMetrics) -> int:
    """Return how many devices of a group are side by side in ``room``; one at least."""
    fitting = (room + metrics.device_gap) // (metrics.device_width + metrics.device_gap)
    return max(1, min(fitting, len(group.devices)))


def group_height(group: DeviceGroup, per_row: int, metrics: CellMetrics) -> int:
    """Return the height of a group of devices with its heading."""
    return metrics.device_heading + -(-len(group.devices) // per_row) * metrics.device_height


def _even_rows(things: Sequence[_Thing], most: int) -> list[tuple[_Thing, ...]]:
    """Return things in as few rows as hold at most so many each, of equal length except the last."""
    length = -(-len(things) // -(-len(things) // most))
    return [tuple(things[start : start + length]) for start in range(0, len(things), length)]


def row_width(row: Sequence[CoreView], metrics: CellMetrics) -> int:
    """Return the width of a row of cores with what stands left of it."""
    return metrics.label_width + len(row) * (metrics.cell_width + metrics.core_gap) - metrics.core_gap


def row_height(row: Sequence[CoreView], box: BoxView, metrics: CellMetrics) -> int:
    """Return the height of a row of cores of ``box``: its strip, and a cell for every thread of its largest core."""
    return metrics.strip_height(box) + metrics.cell_height * max(len(core.cpus) for core in row)


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
class PlacedDevice:
    """One device with its place."""

    view: DeviceView
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """The devices of one resource with their places; the heading lies between ``y`` and the devices."""

    group: DeviceGroup
    x: int
    y: int
    width: int
    """Of the room that the heading has."""
    devices: tuple[PlacedDevice, ...]


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
    devices: tuple[PlacedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class PictureLayout:
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


def arrange(boxes: Sequence[BoxView], metrics: CellMetrics, width: int) -> PictureLayout:
    """Return the arrangement of ``boxes`` within ``width`` that reads best.

    Among those that are not taller than the lowest by more than the slack it is the one with the fewest rows of
    outermost boxes, where these are to be side by side, then with room for the wanted titles, then with the longest
    rows of cores, so that an L3 group is one row if possible, then the lowest, then the narrowest. A box whose title
    alone is wider than ``width`` makes the arrangement wider.
    """
    # The width that the longest title of any box of the same sort needs: equal things get equal widths
    widths: dict[tuple[object, ...], int] = {}
    for box in _flat(boxes):
        for roomy in (True, False):
            key = (_family(box), roomy)
            widths[key] = max(widths.get(key, 0), metrics.title_width(box, roomy))
    metrics = replace(metrics, title_width=lambda box, roomy: widths[_family(box), roomy])
    # Worth trying are those that fill the rows of the largest box and of the largest group of boxes.
    inside = [box for box in _flat(boxes) if not box.is_offline()]
    most_cores = max((len(box.cores) for box in inside if not box.folded), default=1)
    groups = [boxes, *(box.children for box in inside)]
    most_boxes = max(len(group) for group in groups if holds_leaves(group))
    finer = (
        replace(metrics, most_cores=cores, most_boxes=columns, roomy=roomy)
        for cores in _even(most_cores)
        for columns in _even(most_boxes)
        for roomy in (True, False)
    )
    tried = [(one, shelve(boxes, width, one)) for one in finer]
    limit = min(height for _, (_, _, height) in tried) + metrics.slack

    def badness(tried: tuple[CellMetrics, _Shelved]) -> tuple[int, ...]:
        one, (shelves, width, height) = tried
        rows = sum(len(rows) for rows, _ in shelves) if metrics.side_by_side else 0
        return height > limit, rows, -one.roomy, -one.most_cores, height, width

    _, (shelves, width, height) = min(tried, key=badness)
    return PictureLayout(width, height, tuple(_place_shelves(shelves, 0, 0, 0, metrics)))


def _family(box: BoxView) -> tuple[BoxKind, ...]:
    return tuple(label.kind for label in box.labels)


def _even(count: int) -> list[int]:
    """Return the row lengths that spread ``count`` things evenly.

    >>> _even(8)
    [1, 2, 3, 4, 8]
    """
    return sorted({-(-count // rows) for rows in range(1, count + 1)}) or [1]


def _flat(boxes: Iterable[BoxView]) -> Iterator[BoxView]:
    for box in boxes:
        yield box
        yield from _flat(box.children)


def _place_shelves(shelves: Sequence[Shelf], x: int, y: int, depth: int, metrics: CellMetrics) -> Iterator[PlacedBox]:
    for rows, column_width in shelves:
        for row in rows:
            height = max(plan.height for plan in row)
            for column, plan in enumerate(row):
                left = x + column * (column_width + metrics.gap_x)
                frame = PlacedBox(plan.view, left, y, column_width, height, depth, ())
                # The box in its room, which is at least as large as planned, then all boxes inside
                insets = metrics.insets(plan.view)
                inner, top = left + insets.left, y + insets.top
                room = column_width - insets.left - insets.right
                groups = tuple(_place_devices(plan, inner, top + plan.devices_top, room, metrics))
                yield replace(frame, rows=tuple(_place_rows(plan, inner, top, metrics)), devices=groups)
                yield from _place_shelves(plan.shelves, inner, top, depth + 1, metrics)
            y += height + metrics.gap_y


def _place_rows(plan: BoxPlan, x: int, y: int, metrics: CellMetrics) -> Iterator[PlacedRow]:
    for row in plan.core_rows:
        height = row_height(row, plan.view, metrics)
        left, top = x + metrics.label_width, y + metrics.strip_height(plan.view)
        cells = tuple(
            tuple(
                PlacedCell(
                    cpu, left + column * (metrics.cell_width + metrics.core_gap), top + thread * metrics.cell_height
                )
                for thread, cpu in enumerate(core.cpus)
            )
            for column, core in enumerate(row)
        )
        yield PlacedRow(x, y, row_width(row, metrics), height, cells)
        y += height + metrics.row_gap


def _place_devices(plan: BoxPlan, x: int, y: int, room: int, metrics: CellMetrics) -> Iterator[PlacedGroup]:
    for group, per_row in plan.device_rows:
        top = y + metrics.device_heading
        places = tuple(
            PlacedDevice(
                device,
                x + index % per_row * (metrics.device_width + metrics.device_gap),
                top + index // per_row * metrics.device_height,
            )
            for index, device in enumerate(group.devices)
        )
        yield PlacedGroup(group, x, y, room, places)
        y += group_height(group, per_row, metrics)
