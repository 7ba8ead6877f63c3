"""Where everything goes: boxes and cells get coordinates, in whatever unit the renderer counts.

One model serves every renderer. A terminal counts in characters, an SVG in pixels; both say how large a cell, a gap
and a title are (:class:`CellMetrics`) and get rectangles back that never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mooring.views.devices import DeviceGroup, DeviceView
from mooring.views.measure import (
    BoxPlan,
    CellMetrics,
    Grain,
    Shelf,
    group_height,
    holds_leaves,
    row_height,
    row_width,
    shelve,
)
from mooring.views.view import BoxKind, BoxView, CPUView


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

    Among those that are not taller than the lowest by more than the slack it is the one with room for the wanted
    titles, then with the longest rows of cores, so that an L3 group is one row if possible, then the lowest, then
    the narrowest. A box whose title alone is wider than ``width`` makes the arrangement wider.
    """
    metrics = replace(metrics, title_width=_common_title_width(boxes, metrics))
    tried = [(grain, shelve(boxes, width, grain, metrics)) for grain in _grains(boxes)]
    limit = min(block.height for _, block in tried) + metrics.slack
    near = [(grain, block) for grain, block in tried if block.height <= limit]
    _, best = min(near, key=lambda pair: (-pair[0].title, -pair[0].cores, pair[1].height, pair[1].width))
    return PictureLayout(best.width, best.height, tuple(_place_shelves(best.shelves, 0, 0, 0, metrics)))


def _common_title_width(boxes: Sequence[BoxView], metrics: CellMetrics) -> Callable[[BoxView, bool], int]:
    """Return the width that the longest title of any box of the same sort needs: equal things get equal widths."""
    widths: dict[tuple[object, ...], int] = {}
    for box in _flat(boxes):
        for roomy in (True, False):
            key = (_family(box), roomy)
            widths[key] = max(widths.get(key, 0), metrics.title_width(box, roomy))
    return lambda box, roomy: widths[_family(box), roomy]


def _family(box: BoxView) -> tuple[BoxKind, ...]:
    return tuple(label.kind for label in box.labels)


def _grains(boxes: Sequence[BoxView]) -> list[Grain]:
    """Return the grains worth trying: those that fill the rows of the largest box and of the largest group of boxes."""
    inside = [box for box in _flat(boxes) if not box.is_offline()]
    most_cores = max((len(box.cores) for box in inside), default=1)
    groups = [boxes, *(box.children for box in inside)]
    most_boxes = max(len(group) for group in groups if holds_leaves(group))
    return [
        Grain(cores, columns, title)
        for cores in _even(most_cores)
        for columns in _even(most_boxes)
        for title in (True, False)
    ]


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
    for shelf in shelves:
        for row in shelf.rows():
            height = max(plan.height for plan in row)
            for column, plan in enumerate(row):
                left = x + column * (shelf.column_width + metrics.gap_x)
                frame = PlacedBox(plan.view, left, y, shelf.column_width, height, depth, ())
                yield from _place(plan, frame, metrics)
            y += height + metrics.gap_y


def _place(plan: BoxPlan, frame: PlacedBox, metrics: CellMetrics) -> Iterator[PlacedBox]:
    """Yield the box in the room of ``frame``, which is at least as large as planned, and all boxes inside."""
    insets = metrics.insets(plan.view)
    x, y = frame.x + insets.left, frame.y + insets.top
    room = frame.width - insets.left - insets.right
    groups = tuple(_place_devices(plan, x, y + plan.devices_top, room, metrics))
    yield replace(frame, rows=tuple(_place_rows(plan, x, y, metrics)), devices=groups)
    yield from _place_shelves(plan.shelves, x, y, frame.depth + 1, metrics)


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
