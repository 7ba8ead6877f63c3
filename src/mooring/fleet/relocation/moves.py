"""The fewest moves of running pods that make room for more replicas.

A move is an eviction at one node and an admission at another: the engine decides the admission before the eviction
counts, so that no move leaves fewer admitted pods than before.

Every sequence of one move is tried, then every sequence of two, and so on: the first that makes room for all has the
fewest moves. No pod moves twice, because its replacement is another pod. Beyond :data:`MOST_TRIALS` the search is
bounded: one node after another is freed of few pods, and the answer says so, with the number of moves below which none
was left untried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations, islice, product
from typing import Final, TypeAlias

from mooring.fleet.cluster import PodDemand
from mooring.fleet.documents import MovePart, MovePlanPart
from mooring.fleet.live_objects import LivePod
from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.strategy import feasible, friendly
from mooring.fleet.scheduler.table import PODS

Move: TypeAlias = tuple[LivePod, int, int]
"""A pod that is evicted and made anew on another node; the places of the node that it leaves and of the one that takes
it."""


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
        # The place of each pod, and its name in the node's state: empty where no manager gives it anything.
        self._at = {
            uid: (places[pod.node], nodes.pods[places[pod.node]][pod.name].place) for uid, pod in self.pods.items()
        }
        self.rooms = [self._room(place) for place in range(len(nodes.table.members))]
        """How many replicas fit on each node."""
        self.trials = 0
        """Moves that were tried."""

    @property
    def total(self) -> int:
        """How many replicas fit now; those beyond what is wanted are not counted at a node."""
        return sum(self.rooms)

    def place_of(self, uid: str) -> int:
        """Return the place of the node of a pod."""
        return self._at[uid][0]

    def pods_on(self, place: int) -> list[LivePod]:
        """Return the pods of a node that may move, large ones first."""
        found = [pod for uid, pod in self.pods.items() if self._at[uid][0] == place]
        return sorted(found, key=lambda pod: (-pod.asked.requests.get("cpu", 0), pod.name))

    def targets(self, pod: LivePod) -> Iterator[int]:
        """Yield the nodes by whose sums and labels a pod could be there."""
        passing = feasible(self.nodes.table, pod.asked)
        here = self._at[pod.uid][0]
        return (place for place in range(len(passing)) if passing[place] and place != here)

    def waste(self, target: int) -> tuple[int, int]:
        """Order targets: those on which no replica fits first, the fullest of equal ones before others."""
        table = self.nodes.table
        free = table.row(table.offered, "cpu")[target] - table.row(table.used, "cpu")[target]
        return self.rooms[target], int(free)

    def room_without(self, place: int, pods: Sequence[LivePod]) -> int:
        """Return how many replicas would fit on a node without some of its pods."""
        nodes, state = self.nodes, self.nodes.at[place]
        for pod in pods:
            nodes.remove(place, pod.asked, self._at[pod.uid][1])
        found = self._room(place)
        nodes.at[place] = state
        for pod in pods:
            nodes.table.add(place, pod.asked)
        return found

    def would_lose(self, pod: LivePod, target: int) -> bool:
        """Tell whether a node would have room for fewer replicas with a pod that it takes."""
        before = self.rooms[target]
        undo = self.try_move(pod, target) if before else None
        if undo is None:
            return False
        lost = self.rooms[target] < before
        undo()
        return lost

    def try_move(self, pod: LivePod, target: int) -> Callable[[], None] | None:
        """Move a pod, if the node takes it.

        Returns:
            What undoes it; None when the node refuses the pod.
        """
        self.trials += 1
        nodes = self.nodes
        source, held = self._at[pod.uid]
        before = nodes.at[source], nodes.at[target], self.rooms[source], self.rooms[target]
        prediction, name = nodes.admit(target, pod.asked)
        if not prediction.admitted:
            return None
        nodes.remove(source, pod.asked, held)
        self._at[pod.uid] = target, name
        self.rooms[source], self.rooms[target] = self._room(source), self._room(target)

        def undo() -> None:
            nodes.table.remove(target, pod.asked)
            nodes.table.add(source, pod.asked)
            nodes.at[source], nodes.at[target], self.rooms[source], self.rooms[target] = before
            self._at[pod.uid] = source, held

        return undo

    def signature(self) -> object:
        """Return what equal situations share."""
        return tuple(place for place, _ in self._at.values()), tuple(state.key for state in self.nodes.at)

    def _room(self, place: int) -> int:
        """Return how many replicas a node would take, one after another.

        Equal pods do not disturb nodes other than their own, so that the number of a cluster is the sum over its nodes,
        whichever way a scheduler distributes them.
        """
        table, asked = self.nodes.table, self.asked
        if not (table.willing(asked)[place] and friendly(table, asked)[place]):
            return 0
        count = self.most
        for name, amount in ((PODS, 1), *asked.requests.items()):
            if amount > 0:
                row = table.resources.get(name)
                free = 0 if row is None else int(table.offered[row, place] - table.used[row, place])
                count = min(count, free // amount)
        state = self.nodes.at[place]
        for taken in range(0 if asked.plain else count):
            prediction, state, _ = self.nodes.states.admit(state, asked.shape)
            if not prediction.admitted:
                return taken
        return max(count, 0)


MOST_TRIALS: Final = 20_000
"""Moves that the exhaustive search tries."""
_LONGEST: Final = 12
"""Moves of the longest sequence that is searched exhaustively."""
_TOGETHER: Final = 3
"""Pods of one node that the bounded search moves for one gain."""
_COMBINATIONS: Final = 200
"""Sets of pods of one node that the bounded search tries."""
_TARGETS: Final = 100
"""Nodes to which the bounded search tries to move a pod."""


class _SpentError(Exception):
    """The exhaustive search has tried enough."""


def fewest_moves(pods: MovingPods, wanted: int, trials: int = MOST_TRIALS) -> MovePlanPart:
    """Return the moves after which as many replicas fit as are wanted, or as many as can be; no node is cordoned yet.

    Args:
        pods: nodes and pods; not changed in the end.
        wanted: replicas.
        trials: moves that the exhaustive search tries.
    """
    search = _Search(pods, wanted, pods.trials + trials)
    if len(pods.pods) * len(pods.rooms) > trials:
        return _bounded(pods, wanted, search, min(1, wanted - search.room))
    for length in range(_LONGEST + 1):
        search.begin()
        try:
            search.extend(length, ())
        except _SpentError:
            return _bounded(pods, wanted, search, length)
        if search.room >= wanted or not search.reached:
            return _plan(pods, search.best, is_exact=True, at_least=len(search.best))
    return _bounded(pods, wanted, search, _LONGEST + 1)


def _plan(pods: MovingPods, moves: Iterable[Move], *, is_exact: bool, at_least: int) -> MovePlanPart:
    names = [member.name for member in pods.nodes.table.members]
    parts = [MovePart(pod.name, pod.uid, names[source], names[target], []) for pod, source, target in moves]
    return MovePlanPart(parts, is_exact, at_least)


class _Search:
    """Tries all sequences of a length."""

    def __init__(self, pods: MovingPods, wanted: int, spent: int) -> None:
        self._pods, self._wanted, self._spent = pods, wanted, spent
        self.best: tuple[Move, ...] = ()
        """The shortest sequence of those after which most replicas fit."""
        self.room = min(pods.total, wanted)
        """Replicas that fit after it, at most as many as are wanted."""
        self._known: dict[object, int] = {}
        self.reached = False
        """Whether a situation was met that no shorter sequence comes to."""
        self._before: set[object] = set()

    def begin(self) -> None:
        """Prepare for a longer length."""
        self._before |= set(self._known)
        self._known, self.reached = {}, False

    def extend(self, left: int, moves: tuple[Move, ...]) -> None:
        """Try all sequences that begin with some moves.

        Raises:
            _SpentError: enough was tried.
        """
        signature = self._pods.signature()
        if self._known.get(signature, -1) >= left:
            return
        self._known[signature] = left
        if left == 0:
            self.reached |= signature not in self._before
            room = min(self._pods.total, self._wanted)
            if room > self.room:
                self.best, self.room = moves, room
            return
        moved = {pod.uid for pod, *_ in moves}
        for pod in self._pods.pods.values():
            if pod.uid in moved:
                continue
            for target in self._pods.targets(pod):
                if self._pods.trials >= self._spent:
                    raise _SpentError
                source = self._pods.place_of(pod.uid)
                undo = self._pods.try_move(pod, target)
                if undo is None:
                    continue
                try:
                    self.extend(left - 1, (*moves, (pod, source, target)))
                finally:
                    undo()
                if self.room >= self._wanted:
                    return


def _bounded(pods: MovingPods, wanted: int, search: _Search, at_least: int) -> MovePlanPart:
    """Free one node after another, of one pod first, then of two, then of three.

    Returns what the exhaustive search found if that is better.
    """
    moves: list[Move] = []
    undone: list[Callable[[], None]] = []
    progress = True
    while progress and pods.total < wanted:
        progress = False
        for count, place in product(range(1, _TOGETHER + 1), range(len(pods.rooms))):
            if pods.total >= wanted:
                break
            freed = _freed(pods, place, count, {pod.uid for pod, *_ in moves})
            progress |= bool(freed)
            moves += (move for move, _ in freed)
            undone += (undo for _, undo in freed)
    room = min(pods.total, wanted)
    for undo in reversed(undone):
        undo()
    if (room, -len(moves)) <= (search.room, -len(search.best)):
        return _plan(pods, search.best, is_exact=False, at_least=at_least)
    return _plan(pods, moves, is_exact=room >= wanted and len(moves) <= at_least, at_least=at_least)


def _freed(pods: MovingPods, place: int, count: int, moved: Collection[str]) -> list[tuple[Move, Callable[[], None]]]:
    """Move a number of pods away from a node so that more replicas fit; return the moves, none where that fails."""
    before = pods.total
    here = [pod for pod in pods.pods_on(place) if pod.uid not in moved]
    for chosen in islice(combinations(here, count), _COMBINATIONS):
        if pods.room_without(place, chosen) <= pods.rooms[place]:
            continue
        made: list[tuple[Move, Callable[[], None]]] = []
        for pod in chosen:
            step = _moved(pods, pod)
            if step is None:
                break
            made.append(((pod, place, step[0]), step[1]))
        if len(made) == count and pods.total > before:
            return made
        for _, undo in reversed(made):
            undo()
    return []


def _moved(pods: MovingPods, pod: LivePod) -> tuple[int, Callable[[], None]] | None:
    """Move a pod to a node that takes it and loses little room by it; None when none of those tried takes it.

    Nodes without any room lose none, and are tried first, the fullest before others.
    """
    best: tuple[int, int] | None = None
    for target in islice(sorted(pods.targets(pod), key=pods.waste), _TARGETS):
        before = pods.rooms[target]
        undo = pods.try_move(pod, target)
        if undo is None:
            continue
        lost = before - pods.rooms[target]
        if not lost:
            return target, undo
        undo()
        if best is None or lost < best[0]:
            best = lost, target
    if best is None:
        return None
    undo = pods.try_move(pod, best[1])
    return None if undo is None else (best[1], undo)
