"""``mooring publish --dry-run -o text``: what would be published, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.engine.node import Node
from mooring.explain.phrases import plural, size
from mooring.published.node_topology import ZoneAmount, exclusive_cpus_of, zones_of
from mooring.published.observation import Observation
from mooring.views.console import STYLES, Breaking, new_table


def publish_text(seen: Observation, to: str = "", machine: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``.

    Args:
        seen: what would be published.
        to: the destination.
        machine: the name of the machine where files describe it; that of an archive tells when it was captured.
    """
    state = seen.state
    title = machine if machine.startswith(f"{state.node},") else state.node
    parts: list[RenderableType] = [
        Text.assemble((clean(title), STYLES["title"]), f": {plural(len(state.pods), 'pod')}"),
        Breaking(f"facts {state.facts[:12]}"),
    ]
    if seen.node is not None:
        parts += [Breaking(_exclusive(seen.node)), Text(""), _zones(seen, seen.node)]
    return text_for(Group(*parts), to)


def _exclusive(node: Node) -> str:
    found = exclusive_cpus_of(node)
    if not found.allocatable:
        return "no container gets exclusive CPUs on this node"
    return f"{found.available} of {found.allocatable} CPUs are available for exclusive use"


def _zones(seen: Observation, node: Node) -> Table:
    table = new_table("zone", "resource")
    for name in ("available", "allocatable", "capacity"):
        table.add_column(name, justify="right")
    for row in _rows(seen, node):
        table.add_row(*(Breaking(cell, "/") for cell in row))
    return table


def _rows(seen: Observation, node: Node) -> Iterator[tuple[str, ...]]:
    for zone in zones_of(seen.facts.machine, node):
        for number, one in enumerate(zone.amounts):
            name = f"node-{zone.node}" if not number else ""
            yield name, clean(one.resource), *(_shown(one, amount) for amount in _amounts(one))


def _amounts(one: ZoneAmount) -> tuple[int, int, int]:
    return one.available, one.allocatable, one.capacity


def _shown(one: ZoneAmount, amount: int) -> str:
    is_bytes = one.resource == "memory" or one.resource.startswith("hugepages-")
    return size(amount) if is_bytes else str(amount)
