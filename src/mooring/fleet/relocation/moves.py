"""Running pods that move from node to node, one after another, and back again while a plan is searched.

A move is an eviction at one node and an admission at another: the engine decides the admission before the eviction
counts, so that no move leaves fewer admitted pods than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mooring.fleet.live.pod_object import LivePod
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.room import room
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.filters import feasible as passing


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that is evicted, and made anew on another node."""

    pod: LivePod
    source: int
    """Place of the node that it leaves."""
    target: int
    """Place of the node that takes it."""


@dataclass(frozen=True, slots=True)
class _Located:
    """Where a pod is now."""

    place: int
    name: str
    """In the node's state; empty where no manager gives it anything."""


class MovingPods:
    """The nodes of a cluster and the pods that may move; used by one thread."""

    def __init__(self, nodes: Nodes, pods: Sequence[LivePod], asked: PodDemand, most: int) -> None:
        """Begin with every pod where it runs.

        Args:
            nodes: of the cluster.
            pods: that may move.
            asked: the replicas for which room is wanted.
            most: replicas that are wanted.
        """
        places = nodes.places
        self.nodes, self.asked, self.most = nodes, asked, most
        self.pods = {pod.uid: pod for pod in pods if pod.node in places}
        self._at = {
            uid: _Located(places[pod.node], nodes.pods[places[pod.node]][pod.name].place)
            for uid, pod in self.pods.items()
        }
        self._rooms = [self._room(place) for place in range(len(nodes.table.members))]
        self.trials = 0
        """Moves that were tried."""

    @property
    def total(self) -> int:
        """How many replicas fit now; those beyond what is wanted are not counted at a node."""
        return sum(self._rooms)

    @property
    def rooms(self) -> Sequence[int]:
        """How many replicas fit on each node."""
        return self._rooms

    def place_of(self, uid: str) -> int:
        """Return the place of the node of a pod."""
        return self._at[uid].place

    def pods_on(self, place: int) -> list[LivePod]:
        """Return the pods of a node that may move, large ones first."""
        found = [pod for uid, pod in self.pods.items() if self._at[uid].place == place]
        return sorted(found, key=lambda pod: (-pod.asked.requests.get("cpu", 0), pod.name))

    def targets(self, pod: LivePod) -> Iterator[int]:
        """Yield the nodes by whose sums and labels a pod could be there."""
        feasible = passing(self.nodes.table, pod.asked)
        here = self._at[pod.uid].place
        return (place for place in range(len(feasible)) if feasible[place] and place != here)

    def waste(self, target: int) -> tuple[int, int]:
        """Order targets: those on which no replica fits first, the fullest of equal ones before others."""
        table = self.nodes.table
        free = table.row(table.offered, "cpu")[target] - table.row(table.used, "cpu")[target]
        return self._rooms[target], int(free)

    def room_without(self, place: int, pods: Sequence[LivePod]) -> int:
        """Return how many replicas would fit on a node without some of its pods."""
        nodes, state = self.nodes, self.nodes.at[place]
        for pod in pods:
            nodes.remove(place, pod.asked, self._at[pod.uid].name)
        found = self._room(place)
        nodes.at[place] = state
        for pod in pods:
            nodes.table.add(place, pod.asked)
        return found

    def would_lose(self, pod: LivePod, target: int) -> bool:
        """Tell whether a node would have room for fewer replicas with a pod that it takes."""
        before = self._rooms[target]
        undo = self.try_move(pod, target) if before else None
        if undo is None:
            return False
        lost = self._rooms[target] < before
        undo()
        return lost

    def try_move(self, pod: LivePod, target: int) -> Callable[[], None] | None:
        """Move a pod, if the node takes it.

        Returns:
            What undoes it; None when the node refuses the pod.
        """
        self.trials += 1
        nodes, located = self.nodes, self._at[pod.uid]
        source = located.place
        before = nodes.at[source], nodes.at[target], self._rooms[source], self._rooms[target]
        prediction, name = nodes.admit(target, pod.asked)
        if not prediction.admitted:
            return None
        nodes.remove(source, pod.asked, located.name)
        self._at[pod.uid] = _Located(target, name)
        self._rooms[source], self._rooms[target] = self._room(source), self._room(target)

        def undo() -> None:
            nodes.table.remove(target, pod.asked)
            nodes.table.add(source, pod.asked)
            nodes.at[source], nodes.at[target], self._rooms[source], self._rooms[target] = before
            self._at[pod.uid] = located

        return undo

    def signature(self) -> object:
        """Return what equal situations share."""
        return tuple(one.place for one in self._at.values()), tuple(state.key for state in self.nodes.at)

    def _room(self, place: int) -> int:
        return room(self.nodes, place, self.asked, self.most)
