"""The machine map of the page: the layout of the pictures, with cells that can be pointed at and reached by keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mooring.render.html.elements import Value, element
from mooring.render.layout import PictureLayout, PlacedBox, PlacedCell, arrange
from mooring.render.palette import cpu_style
from mooring.render.svg import CELL_PAD, CellSize, box_elements, cell_size, map_metrics, strip_elements
from mooring.render.svg_elements import PATTERNS, SMALL_SIZE, rect, text
from mooring.render.view import BoxKind, NodeView
from mooring.render.wording import cpu_mark


@dataclass(frozen=True, slots=True)
class MapForm:
    """One arrangement of the map; the page shows the one that suits its width."""

    name: str
    width: int
    """Pixels into which the boxes are arranged."""


LARGEST_SCALE = 1.25
"""How much larger than planned a map may be shown where there is room."""

FORMS = (MapForm("wide", 1144), MapForm("narrow", 328))


def map_html(view: NodeView) -> str:
    """Return the map in all its arrangements."""
    cell = cell_size(view)
    patterns = element("svg", PATTERNS, class_="mooring patterns", width=0, height=0, aria_hidden="true")
    return patterns + "".join(_form(view, form, cell) for form in FORMS)


def _form(view: NodeView, form: MapForm, cell: CellSize) -> str:
    layout = arrange(view.boxes, map_metrics(view, cell), form.width)
    scale = max(1.0, min(LARGEST_SCALE, form.width / max(layout.width, 1)))
    drawing = element(
        "svg",
        *_boxes(layout, view, cell),
        class_="mooring",
        role="img",
        aria_label="Map of the machine; arrow keys go from CPU to CPU, Enter marks its owner, Escape hides details",
        width=round(layout.width * scale),
        height=round(layout.height * scale),
        viewBox=f"0 0 {layout.width} {layout.height}",
    )
    return f"{element('div', drawing, class_=f'map {form.name}', data_cell=cell.width)}\n"


def _boxes(layout: PictureLayout, view: NodeView, cell: CellSize) -> Iterator[str]:
    for box in layout.boxes:
        yield element("g", *box_elements(box, view), **_node(box))
        for row in box.rows:
            strips = element("g", *strip_elements(row, cell, view), class_="strips")
            cores = (element("g", *(_cpu(placed, cell, view) for placed in core), class_="core") for core in row.cells)
            yield element("g", strips, *cores, class_="row", data_y=row.y)


def _node(box: PlacedBox) -> dict[str, Value]:
    """Return the attribute that says which NUMA node's figures stand in a box."""
    ids = [label.id for label in box.view.labels if label.kind is BoxKind.NUMA and label.id is not None]
    return {"data_numa": ids[0]} if ids else {}


def _cpu(placed: PlacedCell, cell: CellSize, view: NodeView) -> str:
    cpu, style = placed.view, cpu_style(placed.view, view.owners)
    baseline = placed.y + (cell.height + SMALL_SIZE) / 2 - 1.5
    return element(
        "g",
        rect(placed.x + 0.5, placed.y + 0.5, cell.width - 1, cell.height - 1, style, round_=2),
        text(placed.x + CELL_PAD, baseline, str(cpu.cpu), f"cpu on-{style}"),
        text(placed.x + cell.width - CELL_PAD, baseline, cpu_mark(cpu, view), f"mark on-{style}", anchor="end"),
        class_="cell",
        data_cpu=cpu.cpu,
    )
