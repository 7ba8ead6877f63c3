"""How many pods of one kind a node takes, and what keeps it from taking one more.

Equal pods do not disturb nodes other than their own, so that the number of a cluster is the sum over its nodes,
whichever way a scheduler distributes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from mooring.explain.codes.pages import page
from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.filters import friendly
from mooring.fleet.scheduler.table import PODS

_CONSTRAINTS: Final = "taints, node selector or node affinity"
_RELATIONS: Final = "affinity to pods or spread constraints"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a node does not take a pod."""

    text: str
    code: str = ""
    """Of the cause, where the node's managers would refuse the pod."""

    def __str__(self) -> str:
        return f"{self.text} ({self.code})" if self.code else self.text


@dataclass(frozen=True, slots=True)
class SharedObstacle:
    """Nodes that do not take a pod for one reason."""

    obstacle: Obstacle
    nodes: tuple[str, ...]


def room(nodes: Nodes, place: int, asked: PodDemand, most: int) -> int:
    """Return how many pods a node would take, one after another.

    Args:
        nodes: of the cluster; not changed.
        place: of the node.
        asked: what each of them asks.
        most: more are not counted.
    """
    table = nodes.table
    if not (table.willing(asked)[place] and friendly(table, asked)[place]):
        return 0
    count = min(most, _by_sums(nodes, place, asked))
    if asked.plain:
        return count
    state = nodes.at[place]
    for taken in range(count):
        answer = nodes.states.admit(state, asked.shape)
        if not answer.prediction.admitted:
            return taken
        state = answer.after
    return count


def _by_sums(nodes: Nodes, place: int, asked: PodDemand) -> int:
    table = nodes.table
    count = int(table.offered[table.resources[PODS], place] - table.used[table.resources[PODS], place])
    for name, amount in asked.requests.items():
        if amount <= 0:
            continue
        row = table.resources.get(name)
        free = 0 if row is None else int(table.offered[row, place] - table.used[row, place])
        count = min(count, free // amount)
    return max(count, 0)


def obstacle(nodes: Nodes, place: int, asked: PodDemand) -> Obstacle | None:
    """Return what keeps a node from taking a pod; None when it takes it."""
    table = nodes.table
    member = table.members[place]
    if not table.open[place]:
        return Obstacle((member.group.now.closed if member.group.now is not None else "") or "drained")
    if not table.allowed(asked.fields)[place]:
        return Obstacle(_CONSTRAINTS)
    if not friendly(table, asked)[place]:
        return Obstacle(_RELATIONS)
    if lacking := table.lacking(asked, place):
        return Obstacle(f"too little free {lacking}")
    prediction = nodes.would(place, asked)
    return None if prediction.admitted else Obstacle(page(prediction.code).title, prediction.code)


def causes(nodes: Nodes, asked: PodDemand, without: Collection[int] = ()) -> tuple[SharedObstacle, ...]:
    """Return why nodes do not take one more pod, those that concern most nodes first.

    Args:
        nodes: of the cluster.
        asked: the pod.
        without: places of nodes that are not meant.
    """
    places = (place for place in range(len(nodes.table.members)) if place not in without)
    return grouped((nodes.table.members[place].name, obstacle(nodes, place, asked)) for place in places)


def grouped(found: Iterable[tuple[str, Obstacle | None]]) -> tuple[SharedObstacle, ...]:
    """Return nodes by obstacle; nodes without one are left out."""
    by_obstacle: dict[Obstacle, list[str]] = {}
    for name, one in found:
        if one is not None:
            by_obstacle.setdefault(one, []).append(name)
    ordered = sorted(by_obstacle.items(), key=lambda entry: (-len(entry[1]), entry[0].text))
    return tuple(SharedObstacle(one, tuple(names)) for one, names in ordered)
