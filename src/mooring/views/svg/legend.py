"""What stands below the map in the SVG: how to read it, the uses, the owners, the pods that were not admitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from mooring.explanations.phrases import plural
from mooring.views.devices import amounts_by_owner, short_names
from mooring.views.svg.elements import TEXT_SIZE, fitting, fitting_form, group, hatched, rect, text, text_width
from mooring.views.view import CPUUse, NodeView, OwnerView, owner_style, use_style
from mooring.views.wording import MARKS, numbers

_MEMORY_BARS = (
    "In the memory bars, striped is reserved for the system or for huge pages, and solid is promised to containers."
)

_HYPOTHETICAL = "Hatched: pods that are not on the node, where they would be."

_LINE = 20
_SWATCH_HEIGHT = 16
_WIDEST_COLUMN = 700
_TWO_COLUMNS = 1000
"""Width from which owners are in two columns."""


def footer(view: NodeView, x: int, y: int, width: int) -> tuple[list[str], int]:
    """Return the elements below the map, from (x, y) on in ``width`` pixels, and the y coordinate at which they end."""
    bars = [_MEMORY_BARS] if any(node.memory for node in view.numa) else []
    bars += [_HYPOTHETICAL] if any(owner.hypothetical for owner in view.owners) else []
    lines = [line for sentence in (*view.caption, *bars) for line in wrapped(sentence, width, TEXT_SIZE)]
    found = [text(x, y + TEXT_SIZE + index * 17, line, "quiet") for index, line in enumerate(lines)]
    y += len(lines) * 17 + 14 if lines else 0
    for block in (_uses, _owners, _rejected):
        elements, end = block(view, x, y, width)
        found += elements
        y = end + 14 if elements else y
    return found, y - 14


def _uses(view: NodeView, x: int, y: int, width: int) -> tuple[list[str], int]:
    found = []
    for use, (cpus, meaning) in view.legend.items():
        style = use_style(use)
        marks = dict.fromkeys((view.owners[0].mark, view.owners[-1].mark)) if view.owners else ()
        sign = "–".join(marks) if use is CPUUse.EXCLUSIVE else MARKS[use]
        found.append(_swatch(x, y, 40, sign, style if use is not CPUUse.EXCLUSIVE else "free"))
        found.append(text(x + 50, y + 13, use.value, "strong"))
        found.append(text(x + 190, y + 13, plural(len(cpus), "CPU"), "plain", anchor="end"))
        for line in wrapped(meaning, width - 206, TEXT_SIZE):
            found.append(text(x + 206, y + 13, line, "quiet"))
            y += _LINE
    return found, y


def _owners(view: NodeView, x: int, y: int, width: int) -> tuple[list[str], int]:
    if not view.owners:
        return [], y
    columns = 2 if width >= _TWO_COLUMNS else 1
    room = min((width - 24 * (columns - 1)) // columns, _WIDEST_COLUMN)
    names = ceil(max(text_width(owner.label, TEXT_SIZE) for owner in view.owners)) + 24
    rows = -(-len(view.owners) // columns)
    found, ends, devices = [], [], amounts_by_owner(view.devices)
    for column in range(columns):
        end = y
        for owner in view.owners[column * rows : (column + 1) * rows]:
            element, height = _owner(owner, devices.get(owner.label, ""), (x + column * (room + 24), end, room), names)
            found.append(element)
            end += height
        ends.append(end)
    return found, max(ends)


def _owner(owner: OwnerView, devices: str, area: tuple[int, int, int], names: int) -> tuple[str, int]:
    """Return the line of an owner with its height; devices that do not fit beside its CPUs are below them.

    Args:
        owner: of CPUs or devices.
        devices: that it has, in words.
        area: x and y of the upper left corner, and the width.
        names: pixels that the longest name takes.
    """
    x, y, width = area
    nodes = f"NUMA {numbers(owner.cpu_nodes)}" if owner.cpus else ""
    if owner.memory_nodes:
        nodes = " · ".join(part for part in (nodes, f"memory {numbers(owner.memory_nodes)}") if part)
    cpus = str(owner.cpus)
    counted = f"{plural(len(owner.cpus), 'CPU')}: {cpus}" if owner.cpus else ""
    list_x = x + 38 + min(int(width * 0.42), names)
    nodes_x = x + min(int(width * 0.78), width - ceil(text_width(nodes, TEXT_SIZE)))
    nodes_x = max(nodes_x, x + int(width * 0.6))
    room, below = nodes_x - list_x - 10, x + width - list_x
    beside = " · ".join(part for part in (devices, counted) if part)
    lines = [_list_start(beside, room)]
    if devices and text_width(beside, TEXT_SIZE) > room:
        lines = [_list_start(counted, room)] if counted else []
        lines += _packed(devices.split(", "), ", ", below if counted else room, TEXT_SIZE)
    element = group(
        _swatch(x, y, 28, owner.mark, owner_style(owner), hypothetical=owner.hypothetical),
        text(x + 38, y + 13, fitting_form(owner.forms, list_x - x - 48, TEXT_SIZE), "plain"),
        *(text(list_x, y + 13 + number * _LINE, line, "quiet") for number, line in enumerate(lines)),
        text(nodes_x, y + 13, fitting(nodes, x + width - nodes_x, TEXT_SIZE), "quiet"),
        title=" · ".join(
            part for part in (owner.label, f"{plural(len(owner.cpus), 'CPU')} {cpus}".strip(), devices, nodes) if part
        ),
    )
    return element, len(lines) * _LINE


def _list_start(text_: str, room: float) -> str:
    """Return a CPU list cut after a comma; the whole list is in the tooltip."""
    if text_width(text_, TEXT_SIZE) <= room:
        return text_
    start = text_
    while "," in start and text_width(f"{start},…", TEXT_SIZE) > room:
        start = start.rpartition(",")[0]
    return f"{start},…"


def _rejected(view: NodeView, x: int, y: int, width: int) -> tuple[list[str], int]:
    if not view.rejected:
        return [], y
    found = [text(x, y + TEXT_SIZE, "Not admitted", "strong")]
    y += _LINE
    names = list(dict.fromkeys(pod.name for pod in view.rejected))
    forms = dict(zip(names, short_names(names, [str(number) for number in range(len(names))]), strict=True))
    for pod in view.rejected:
        name = fitting_form(forms[pod.name], width - 24, TEXT_SIZE)
        sentence = ": ".join(part for part in (name, pod.reason, pod.why) if part)
        for line in wrapped(sentence, width - 12, TEXT_SIZE):
            found.append(text(x + 12, y + TEXT_SIZE, line, "plain"))
            y += 17
    return found, y


def _swatch(x: int, y: int, width: int, sign: str, style: str, *, hypothetical: bool = False) -> str:
    place = (x + 0.5, y + 1.5, width - 1, _SWATCH_HEIGHT - 1)
    return group(
        rect(*place, style, round_=2),
        hatched(*place, style, round_=2) if hypothetical else "",
        text(x + width / 2, y + 13, sign, f"mark on-{style}", anchor="middle"),
    )


def wrapped(sentence: str, width: float, font_size: float) -> Iterator[str]:
    """Yield the lines of ``sentence`` for ``width`` pixels; a word that is wider alone is cut in its middle."""
    return _packed(sentence.split(), " ", width, font_size)


def _packed(words: Iterable[str], apart: str, width: float, font_size: float) -> Iterator[str]:
    line = ""
    for word in words:
        longer = f"{line}{apart}{word}" if line else word
        if text_width(longer, font_size) <= width:
            line = longer
            continue
        if line:
            yield line
        line = fitting(word, width, font_size)
    if line:
        yield line
