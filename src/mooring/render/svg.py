"""The picture as SVG: one self-contained, deterministic text.

It reads on light and dark ground, shows everything about a CPU when the pointer rests on it, and needs no script.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.render.layout import Layout, PlacedCell, arrange
from mooring.render.palette import cpu_style
from mooring.render.svg_elements import fitting, group, rect, text, tooltip
from mooring.render.svg_legend import Area, footer
from mooring.render.svg_map import CELL_PAD, CellSize, box_elements, cell_size, map_metrics, strip_elements
from mooring.render.svg_style import PATTERNS, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, style_sheet
from mooring.render.view import NodeView
from mooring.render.wording import cpu_mark, cpu_sentence

MARGIN = 24
"""Room around everything, in pixels."""

_NARROWEST_PAGE = 760


def svg_text(view: NodeView, width: int = 1200) -> str:
    """Return the picture as an SVG document of at most ``width`` pixels, wider only if a single box is."""
    cell = cell_size(view)
    layout = arrange(view.boxes, map_metrics(view, cell), max(width, _NARROWEST_PAGE) - 2 * MARGIN)
    page = max(layout.width + 2 * MARGIN, _NARROWEST_PAGE)
    heading, top = _heading(view, page)
    legend, bottom = footer(view, Area(MARGIN, top + layout.height + 28, page - 2 * MARGIN))
    height = bottom + MARGIN
    size = f'width="{page}" height="{height}" viewBox="0 0 {page} {height}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring" role="img" {size}>',
        tooltip(f"{view.name}: {view.title}"),
        style_sheet(),
        PATTERNS,
        rect(0, 0, page, height, "page", round_=8),
        *heading,
        f'<g transform="translate({MARGIN} {top})">',
        *_map(view, layout, cell),
        "</g>",
        *legend,
        "</svg>",
    )
    return "".join(f"{line}\n" for line in lines)


def _heading(view: NodeView, page: int) -> tuple[list[str], int]:
    """Return the lines above the map and where they end."""
    room, y = page - 2 * MARGIN, MARGIN + TITLE_SIZE - 4
    found = []
    if view.name:
        found.append(text(MARGIN, y, fitting(view.name, room, TITLE_SIZE), "name"))
        y += 22
    for line, style in ((view.title, "plain"), (view.subtitle, "quiet")):
        if line:
            found.append(text(MARGIN, y, fitting(line, room, TEXT_SIZE), style))
            y += 18
    return found, y + 2


def _map(view: NodeView, layout: Layout, cell: CellSize) -> Iterator[str]:
    for box in layout.boxes:
        yield from box_elements(box, view)
        for row in box.rows:
            yield from strip_elements(row, cell, view)
            for core in row.cells:
                yield group(*(_cpu(placed, cell, view) for placed in core))


def _cpu(placed: PlacedCell, cell: CellSize, view: NodeView) -> str:
    cpu, style = placed.view, cpu_style(placed.view, view.owners)
    baseline = placed.y + (cell.height + SMALL_SIZE) / 2 - 1.5
    return group(
        rect(placed.x + 0.5, placed.y + 0.5, cell.width - 1, cell.height - 1, style, round_=2),
        text(placed.x + CELL_PAD, baseline, str(cpu.cpu), f"cpu on-{style}"),
        text(placed.x + cell.width - CELL_PAD, baseline, cpu_mark(cpu, view), f"mark on-{style}", anchor="end"),
        title=cpu_sentence(cpu, view),
    )


def _main() -> None:
    """Write the first demonstration to standard output."""
    from mooring.render.sample import demonstrations  # noqa: PLC0415 - only the demonstration needs it

    print(svg_text(next(demonstrations())), end="")


if __name__ == "__main__":
    _main()
