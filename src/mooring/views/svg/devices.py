"""Devices in the boxes of the map: a cell for each, with its id, its PCI address and the letter of its owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from mooring.views.devices import device_names, most_of_one_kind
from mooring.views.layout import PlacedDevice, PlacedGroup
from mooring.views.palette import device_style
from mooring.views.svg.elements import CELL_PAD, MONO, SMALL_SIZE, fitting_form, group, rect, text
from mooring.views.view import NodeView
from mooring.views.wording import device_mark

HEIGHT = 20
"""Pixels of a device."""

HEADING = 20
"""Pixels above the devices of a resource, for its name."""

_ID_ROOM = 20
"""Characters of the longest id that is written whole."""

_MOST_NAMED = 24
"""Devices of one resource in one box up to which each is named; more are marks alone, with their ids as tooltips."""


@dataclass(frozen=True, slots=True)
class DeviceCells:
    """How the devices of a view are drawn."""

    width: int
    names: Mapping[tuple[str, str], str]
    """By resource and id; empty where the devices are marks alone."""


def device_cells(view: NodeView) -> DeviceCells:
    """Return cells wide enough for the names of all devices, or for marks alone where there are many."""
    mark = max((len(device_mark(device, view.owners)) for device in view.devices), default=1)
    names = device_names(view.devices, _ID_ROOM) if most_of_one_kind(view.devices) <= _MOST_NAMED else {}
    signs = max((len(name) + 1 for name in names.values()), default=0) + mark
    return DeviceCells(ceil(signs * MONO * SMALL_SIZE) + 2 * CELL_PAD + 2, names)


def device_elements(placed: PlacedGroup, cells: DeviceCells, view: NodeView) -> Iterator[str]:
    """Yield the devices of one resource below its name."""
    yield device_heading(placed)
    for device in placed.devices:
        yield group(device_cell(device, cells, view), title=device.view.sentence)


def device_heading(placed: PlacedGroup) -> str:
    """Return what stands above the devices of one resource; the empty text where nothing fits."""
    heading = fitting_form(placed.group.headings, placed.width, SMALL_SIZE)
    return text(placed.x, placed.y + HEADING - 6, heading, "small") if heading else ""


def device_cell(placed: PlacedDevice, cells: DeviceCells, view: NodeView) -> str:
    """Return the cell of one device."""
    device, style = placed.view, device_style(placed.view, view.owners)
    baseline = placed.y + (HEIGHT - 3 + SMALL_SIZE) / 2 - 1.5
    name = cells.names.get((device.resource, device.id), "")
    words = [text(placed.x + CELL_PAD, baseline, name, f"device-name on-{style}")] if name else []
    mark = device_mark(device, view.owners)
    return "".join(
        (
            rect(placed.x + 0.5, placed.y + 0.5, cells.width - 1, HEIGHT - 4, style, round_=4),
            *words,
            text(placed.x + cells.width - CELL_PAD, baseline, mark, f"mark on-{style}", anchor="end"),
        )
    )
