"""Tables for the terminal: the owners and what they have, devices, and the NUMA nodes in figures.

They hold at 60 columns and without colour: lists break at commas only, nothing is cut off, bars are made of signs.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mooring.explain.phrases import size
from mooring.views.console import BAR_WIDTH, NARROWEST_BAR, STYLES, Breaking, bar, new_table
from mooring.views.devices import DeviceView, amounts_by_owner
from mooring.views.palette import device_style, owner_style, use_style
from mooring.views.view import CPUUse, NodeView, NUMAView
from mooring.views.wording import MARKS, device_mark, free_bytes, numbers

_SIGNS = {**MARKS, CPUUse.EXCLUSIVE: "█"}


def owners_table(view: NodeView) -> Table:
    """Return the owners and their CPUs, one owner per line, with the mark that the map uses."""
    table = new_table("", "owner")
    with_memory = any(owner.memory_nodes for owner in view.owners)
    held = amounts_by_owner(view.devices)
    table.add_column("CPUs", justify="right")
    table.add_column("CPU list")
    table.add_column("NUMA")
    if with_memory:
        table.add_column("memory")
    if held:
        table.add_column("devices")
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
    columns = [("NUMA", [str(node.id) for node in view.numa]), ("CPUs", [_dash(len(node.cpus)) for node in view.numa])]
    columns += [(use.value, [_dash(node.counts.get(use, 0)) for node in view.numa]) for use in uses]
    columns.append(("memory", [size(node.memory_bytes) if node.memory_bytes else "–" for node in view.numa]))
    if with_memory:
        columns.append(("unused", [_free_memory(node) for node in view.numa]))
    spare = width - sum(max(len(cell) for cell in (name, *cells)) + 2 for name, cells in columns)
    bars = _bars(view, spare + 2, with_memory=with_memory)
    table = new_table()
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "NUMA" else "right", no_wrap=True)
    for name in bars:
        table.add_column(name, no_wrap=True)
    for index in range(len(view.numa)):
        cells = [Text(values[index]) for _, values in columns]
        table.add_row(*cells, *(bar_[index] for bar_ in bars.values()))
    if not bars:
        return table
    signs = ", ".join(["█ taken", *(f"{MARKS[use]} {use.value}" for use in uses if use is not CPUUse.EXCLUSIVE)])
    return Group(table, Text(f"Bars: {signs}.", STYLES["quiet"]))


def _bars(view: NodeView, room: int, *, with_memory: bool) -> dict[str, list[Text]]:
    """Return the bars that fit into ``room`` columns, gaps included, by heading."""
    names = ["CPUs", "memory"] if with_memory else ["CPUs"]
    while names and room // len(names) - 2 < NARROWEST_BAR:
        names.pop()
    if not names:
        return {}
    width = min(BAR_WIDTH, room // len(names) - 2)
    most = max((len(node.cpus) for node in view.numa), default=0)
    found = {"CPUs": [_cpu_bar(node, most, width) for node in view.numa]}
    if "memory" in names:
        found["memory"] = [_memory_bar(node, width) for node in view.numa]
    return found


def _dash(count: int) -> str:
    return str(count or "–")


def _cpu_bar(node: NUMAView, most: int, width: int) -> Text:
    """Return a bar whose full width stands for ``most`` CPUs, so that smaller nodes have shorter bars."""
    parts = [(count, _SIGNS[use], _bar_style(use)) for use in CPUUse if (count := node.counts.get(use, 0))]
    return bar(parts, most, width)


def _bar_style(use: CPUUse) -> str:
    return "" if use is CPUUse.EXCLUSIVE else use_style(use)


def _memory_bar(node: NUMAView, width: int) -> Text:
    if node.memory is None:
        return Text("")
    parts = [
        (node.memory.reserved, _SIGNS[CPUUse.RESERVED], "reserved"),
        (node.memory.assigned, _SIGNS[CPUUse.EXCLUSIVE], ""),
        (free_bytes(node), _SIGNS[CPUUse.FREE], "free"),
    ]
    return bar(parts, node.memory_bytes, width)


def _free_memory(node: NUMAView) -> str:
    return size(free_bytes(node)) if node.memory and node.memory_bytes else "–"
