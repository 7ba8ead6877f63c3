"""The fewest moves of running pods that make room for more replicas.

Every sequence of one move is tried, then every sequence of two, and so on: the first that makes room for all has the
fewest moves. Beyond :data:`MOST_TRIALS` the search is bounded: one node after another is freed of the few pods that
gain most for their number, and the answer says so, with the number of moves below which none was left untried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

from mooring.fleet.live.pod_object import LivePod
from mooring.fleet.relocation.moves import Move, MovingPods

MOST_TRIALS: Final = 20_000
"""Moves that the exhaustive search tries."""
_LONGEST: Final = 12
"""Moves of the longest sequence that is searched exhaustively."""
_TOGETHER: Final = 3
"""Pods of one node that the bounded search moves for one gain."""
_COMBINATIONS: Final = 200
"""Sets of pods of one node that the bounded search tries."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves, and what they come to."""

    moves: tuple[Move, ...]
    room: int
    """Replicas that fit afterwards, at most as many as are wanted."""
    is_exact: bool
    """Whether no shorter sequence of moves makes room for as many, and no sequence makes room for more."""
    at_least: int = 0
    """Shorter sequences were all tried, and none makes room for all."""


class _SpentError(Exception):
    """The exhaustive search has tried enough."""


def fewest_moves(pods: MovingPods, wanted: int, trials: int = MOST_TRIALS) -> MovePlan:
    """Return the moves after which as many replicas fit as are wanted, or as many as can be.

    Args:
        pods: nodes and pods; not changed in the end.
        wanted: replicas.
        trials: moves that the exhaustive search tries.
    """
    search = _Search(pods, wanted, pods.trials + trials)
    best = search.best
    for length in range(_LONGEST + 1):
        search.begin()
        try:
            search.extend(length, ())
        except _SpentError:
            return _bounded(pods, wanted, search.best, length)
        best = search.best
        if best.room >= wanted or not search.reached:
            return replace(best, is_exact=True, at_least=len(best.moves))
    return _bounded(pods, wanted, best, _LONGEST + 1)


class _Search:
    """Tries all sequences of a length."""

    def __init__(self, pods: MovingPods, wanted: int, spent: int) -> None:
        self._pods, self._wanted, self._spent = pods, wanted, spent
        self.best = MovePlan((), min(pods.total, wanted), is_exact=False)
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
            if room > self.best.room:
                self.best = MovePlan(moves, room, is_exact=False)
            return
        for pod in self._pods.pods.values():
            for target in self._pods.targets(pod):
                if self._pods.trials >= self._spent:
                    raise _SpentError
                source = self._pods.place_of(pod.uid)
                undo = self._pods.try_move(pod, target)
                if undo is None:
                    continue
                try:
                    self.extend(left - 1, (*moves, Move(pod, source, target)))
                finally:
                    undo()
                if self.best.room >= self._wanted:
                    return


@dataclass(frozen=True, slots=True)
class _Gain:
    """Pods of one node that can be moved away, and what that comes to."""

    steps: tuple[tuple[LivePod, int], ...]
    """Pod and the place to which it goes, in order."""
    replicas: int
    """So many more fit then."""

    @property
    def worth(self) -> tuple[float, int]:
        """The better of two is the larger: replicas for a move, then fewer moves."""
        return self.replicas / len(self.steps), -len(self.steps)


def _bounded(pods: MovingPods, wanted: int, found: MovePlan, at_least: int) -> MovePlan:
    """Free one node after another; return what was found before if that is better."""
    moves: list[Move] = []
    undone: list[Callable[[], None]] = []
    while pods.total < wanted:
        best = max(_gains(pods), key=lambda one: one.worth, default=None)
        if best is None:
            break
        for pod, target in best.steps:
            source = pods.place_of(pod.uid)
            if (undo := pods.try_move(pod, target)) is not None:
                undone.append(undo)
                moves.append(Move(pod, source, target))
    room = min(pods.total, wanted)
    for undo in reversed(undone):
        undo()
    if (room, -len(moves)) <= (found.room, -len(found.moves)):
        return replace(found, at_least=at_least)
    return MovePlan(tuple(moves), room, is_exact=room >= wanted and len(moves) <= at_least, at_least=at_least)


def _gains(pods: MovingPods) -> Iterator[_Gain]:
    """Yield sets of pods of one node that can be moved away and make room."""
    before = pods.total
    for place in range(len(pods.rooms)):
        here = pods.pods_on(place)
        for count in range(1, _TOGETHER + 1):
            for chosen in islice(combinations(here, count), _COMBINATIONS):
                steps: list[tuple[LivePod, int]] = []
                undone: list[Callable[[], None]] = []
                for pod in chosen:
                    target = _cheapest(pods, pod)
                    undo = None if target is None else pods.try_move(pod, target)
                    if target is None or undo is None:
                        break
                    steps.append((pod, target))
                    undone.append(undo)
                gain = pods.total - before if len(steps) == count else 0
                for undo in reversed(undone):
                    undo()
                if gain > 0:
                    yield _Gain(tuple(steps), gain)


def _cheapest(pods: MovingPods, pod: LivePod) -> int | None:
    """Return the place of the node that takes a pod and loses least room; None when no node takes it."""
    best: tuple[int, int] | None = None
    for target in pods.targets(pod):
        undo = pods.try_move(pod, target)
        if undo is None:
            continue
        if best is None or pods.total > best[0]:
            best = pods.total, target
        undo()
    return None if best is None else best[1]
