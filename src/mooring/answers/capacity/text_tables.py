"""Tables of ``mooring capacity``: where replicas would go, and the largest requests by NUMA node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mooring.answers.capacity.fragmentation import HUGEPAGES, Fragmentation, NodeShare
from mooring.answers.capacity.replicas import Replica
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.explain.phrases import size
from mooring.views.console import NARROWEST_BAR, Breaking, bar, new_table
from mooring.views.view import PlacementRow
from mooring.views.wording import numbers

_GAP = 2
_BAR = 10


def _table(*headings: tuple[str, str]) -> Table:
    """Return a table with headings, each left or right."""
    table = new_table()
    for heading, side in headings:
        table.add_column(heading, justify="right" if side == "right" else "left")
    return table


@dataclass(frozen=True, slots=True)
class _Group:
    """Replicas that lie alike."""

    cpus: int
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    device_nodes: tuple[int, ...]
    alignment: str


def groups_table(replicas: Sequence[Replica], rows: Sequence[PlacementRow]) -> RenderableType:
    """Return where replicas go, those that lie alike in one line.

    Args:
        replicas: in the order of their admission.
        rows: the containers of all of them.
    """
    words: dict[str, list[str]] = {}
    for row in rows:
        if row.alignment and row.alignment not in words.setdefault(row.pod, []):
            words[row.pod].append(row.alignment)
    groups: dict[_Group, list[Replica]] = {}
    for one in replicas:
        alignment = "; ".join(words.get(f"{one.pod.namespace}/{one.pod.name}", []))
        groups.setdefault(_group(one, alignment), []).append(one)
    with_memory = any(group.memory_nodes for group in groups)
    with_devices = any(group.device_nodes for group in groups)
    table = _table(
        ("pods", "right"),
        ("CPUs each", "right"),
        ("NUMA", "left"),
        *([("memory", "left")] if with_memory else []),
        *([("devices", "left")] if with_devices else []),
        ("alignment", "left"),
        ("CPU list", "left"),
    )
    for group, members in groups.items():
        every = CPUSet()
        for one in members:
            every |= one.place.cpus
        table.add_row(
            Text(str(len(members))),
            Text(str(group.cpus or "–")),
            Breaking(numbers(group.cpu_nodes)),
            *([Breaking(numbers(group.memory_nodes))] if with_memory else []),
            *([Breaking(numbers(group.device_nodes))] if with_devices else []),
            Text(group.alignment or "shared pool"),
            Breaking(str(every) or "–"),
        )
    return table


def _group(one: Replica, alignment: str) -> _Group:
    near = {node for devices in one.place.devices.values() for device in devices for node in device.numa or ()}
    place = one.place
    return _Group(len(place.cpus), place.cpu_nodes, place.memory_nodes, tuple(sorted(near)), alignment)


def fragmentation_tables(found: Sequence[Fragmentation], width: int) -> Iterator[RenderableType]:
    """Yield the largest requests by resource, then by NUMA node with bars where ``width`` columns leave room."""
    yield Text("The largest request that one pod could make on the node as it is", "bold")
    yield _summary(found)
    groups = list(_fitting([one for one in found if one.nodes], width))
    for resources in groups:
        yield Text("")
        yield _by_node(resources, width)
    if any(_bar_width(resources, width) for resources in groups):
        yield Text("Bars: · what one request can get of what an empty NUMA node gives, █ the rest.", "dim")


def _summary(found: Sequence[Fragmentation]) -> RenderableType:
    table = _table(
        ("resource", "left"), ("one NUMA node", "right"), ("at all", "right"), ("free", "right"), ("lost", "right")
    )
    for one in found:
        share = f" ({round(100 * one.lost / one.gathered)} %)" if one.lost else ""
        figures = (one.aligned, one.largest, one.free)
        table.add_row(
            Breaking(_name(one), "/"),
            *(Text(_amount(one, figure)) for figure in figures),
            Text(f"{_amount(one, one.lost)}{share}"),
        )
    return table


def _fitting(found: Sequence[Fragmentation], width: int) -> Iterator[list[Fragmentation]]:
    """Yield resources in groups whose columns fit beside each other."""
    group: list[Fragmentation] = []
    for one in found:
        if group and _needed([*group, one]) > width:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _bar_width(resources: Sequence[Fragmentation], width: int) -> int:
    """Return how many columns a bar has; 0 when there is no room for bars."""
    room = min(_BAR, (width - _needed(resources)) // len(resources) - _GAP)
    return room if room >= NARROWEST_BAR else 0


def _needed(resources: Sequence[Fragmentation]) -> int:
    return len("NUMA") + sum(_GAP + _text_width(one) for one in resources)


def _text_width(one: Fragmentation) -> int:
    return max(len(_name(one)), *(len(_cell(one, share)) for share in one.nodes), 0)


def _by_node(resources: Sequence[Fragmentation], width: int) -> RenderableType:
    room = _bar_width(resources, width)
    table = _table(("NUMA", "left"))
    for one in resources:
        table.add_column(_name(one), justify="right", no_wrap=True)
        if room:
            table.add_column("", no_wrap=True)
    for node in sorted({share.node for one in resources for share in one.nodes}):
        cells: list[RenderableType] = [Text(str(node))]
        for one in resources:
            share = next((share for share in one.nodes if share.node == node), None)
            cells.append(Text(_cell(one, share) if share is not None else "–"))
            if room:
                cells.append(_bar(one, share, room) if share is not None else Text(""))
        table.add_row(*cells)
    return table


def _cell(one: Fragmentation, share: NodeShare) -> str:
    return f"{_amount(one, share.largest)} of {_amount(one, share.most)}"


def _bar(one: Fragmentation, share: NodeShare, width: int) -> Text:
    most = max(other.most for other in one.nodes)
    return bar([(share.most - share.largest, "█", ""), (share.largest, "·", "free")], most, width)


def _name(one: Fragmentation) -> str:
    return "CPUs" if one.resource == "cpu" else clean(one.resource)


def _amount(one: Fragmentation, amount: int) -> str:
    in_bytes = one.resource == "memory" or one.resource.startswith(HUGEPAGES)
    return size(amount) if in_bytes else str(amount)
