"""Pods that wait at the end of a simulation, and what keeps the nodes from taking them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from mooring.fleet.records import Fate, Record
from mooring.fleet.relocation.room import SharedObstacle, causes
from mooring.fleet.simulation import SimulationResult

MOST_KINDS: Final = 100
"""Kinds of pods for which the nodes are asked why none of them took one; those of most pods."""


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """Equal pods: they wait for the same reasons."""

    pods: tuple[str, ...]
    causes: tuple[SharedObstacle, ...]
    """Those that concern most nodes first."""

    @property
    def code(self) -> str:
        """Of the first cause that has one; empty where no manager of a node would refuse the pods."""
        return next((one.obstacle.code for one in self.causes if one.obstacle.code), "")


def waiting_kinds(result: SimulationResult) -> tuple[WaitingKind, ...]:
    """Return the kinds of which most pods wait, and why."""
    kinds: dict[Hashable, list[Record]] = {}
    for record in result.records:
        if record.fate is Fate.WAITS:
            kinds.setdefault(record.arrival.asked.key, []).append(record)
    most = sorted(kinds.values(), key=lambda records: -len(records))[:MOST_KINDS]
    return tuple(
        WaitingKind(tuple(record.arrival.name for record in records), causes(result.nodes, records[0].arrival.asked))
        for records in most
    )
