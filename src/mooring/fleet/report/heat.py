"""The nodes of a simulation as the rows of a heat map: group by group, the most used ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.engine.core.errors import clean
from mooring.fleet.history import NodesSeen
from mooring.fleet.simulation import SimulationResult
from mooring.views.svg.heatmap import HeatGroup, HeatMap, HeatRow, group_label, rows_for

Shares = npt.NDArray[np.float64]
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class NodeRows:
    """Which nodes each row of the heat maps stands for."""

    groups: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    """Name of a group, and the places of the nodes of each of its rows."""

    @property
    def rows(self) -> list[tuple[int, ...]]:
        """The rows of all groups."""
        return [row for _, rows in self.groups for row in rows]


def shares_of(result: SimulationResult, moments: Sequence[NodesSeen], resource: str) -> Shares:
    """Return the requested share of a resource, nodes over moments; nothing where a node offers none."""
    table = result.nodes.table
    offered = table.row(table.offered, resource)
    used = np.stack([seen.used[table.resources[resource]] for seen in moments], axis=1)
    return np.where(offered[:, None] > 0, used / np.maximum(offered, 1)[:, None], np.nan)


def rows_of(result: SimulationResult, shares: Shares) -> NodeRows:
    """Return the rows; nodes of a group are ordered by what is requested of their CPUs over time."""
    mean = np.nan_to_num(shares).mean(axis=1)
    groups: dict[str, list[int]] = {}
    for place, member in enumerate(result.nodes.table.members):
        groups.setdefault(member.group.name, []).append(place)
    counts = rows_for([len(places) for places in groups.values()])
    found = []
    for (name, places), count in zip(groups.items(), counts, strict=True):
        ordered = sorted(places, key=lambda place: (-mean[place], place))
        edges = [len(ordered) * row // count for row in range(count + 1)]
        rows = tuple(tuple(ordered[first:end]) for first, end in pairwise(edges))
        found.append((name, rows))
    return NodeRows(tuple(found))


def heat_map(
    result: SimulationResult, rows: NodeRows, shares: Shares, moments: Sequence[float], resource: str
) -> HeatMap:
    """Return the heat map of a resource; a row of several nodes shows their mean."""
    members = result.nodes.table.members
    groups = []
    for name, places in rows.groups:
        found = []
        for row in places:
            known = shares[list(row)]
            known = known[~np.isnan(known[:, 0])]
            values = tuple(float(share) for share in known.mean(axis=0)) if len(known) else (None,) * len(moments)
            first = members[row[0]].name
            found.append(HeatRow(clean(first if len(row) == 1 else f"{first} and {len(row) - 1} more"), values))
        groups.append(HeatGroup(group_label(clean(name), sum(map(len, places)), len(places)), tuple(found)))
    title = f"{clean(result.cluster.name)}: {resource} of the nodes over time"
    line = f"{clean(result.work.name)}, {result.strategy.name}; rows are nodes, the most used ones of a group first"
    return HeatMap(title, line, tuple(moments), tuple(groups))
