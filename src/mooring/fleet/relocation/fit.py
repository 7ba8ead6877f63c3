"""How many replicas fit into a live cluster now, where, and the fewest pods to move for the rest.

Which running pods a plan may move, and why it leaves others alone.

Source: ``kubectl drain`` v1.37 (pods of DaemonSets, static pods, pods without a controller); policy/v1.

The fewest moves of running pods that make room for more replicas.

Every sequence of one move is tried, then every sequence of two, and so on: the first that makes room for all has the
fewest moves. No pod moves twice, because its replacement is another pod. Beyond :data:`MOST_TRIALS` the search is
bounded: one node after another is freed of few pods, and the answer says so, with the number of moves below which none
was left untried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Final

from mooring.fleet.cluster import PodDemand
from mooring.fleet.documents import CausePart, FleetFitDocument, MovePart, MovePlanPart
from mooring.fleet.live_cluster import LiveCluster
from mooring.fleet.live_objects import EVERYTHING, Fixed, LivePod
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.moves import Move, MovingPods, causes
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.scheduler.strategy import Strategy
from mooring.inputs.pods.pod_relations import PodSelector


def fixed(pod: LivePod, live: LiveCluster, question: FitQuestion) -> Fixed | None:
    """Return why a pod is left alone; None for one that may be moved.

    Pods of a higher priority than the replicas, or without the labels of the selector, are.
    """
    if pod.leaving:
        return Fixed.LEAVING
    if (stays := pod.stays) is not None:
        return stays
    if not pod.owner:
        return Fixed.ALONE
    if not question.selector.matches(pod.pod.namespace, pod.labels):
        return Fixed.NOT_CHOSEN
    if pod.pod.priority > question.asked.priority:
        return Fixed.PRIORITY
    if any(one.blocks(pod) for one in live.budgets):
        return Fixed.BUDGET
    asked = pod.asked
    return Fixed.NOT_READ if asked.fields.ignored or asked.relations.has_required_terms or pod.pod.claims else None


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
    if len(pods.pods) * len(pods.rooms) > trials:
        return _bounded(pods, wanted, best, min(1, wanted - best.room))
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
        moved = {one.pod.uid for one in moves}
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
                    self.extend(left - 1, (*moves, Move(pod, source, target)))
                finally:
                    undo()
                if self.best.room >= self._wanted:
                    return


def _bounded(pods: MovingPods, wanted: int, found: MovePlan, at_least: int) -> MovePlan:
    """Free one node after another, of one pod first, then of two, then of three.

    Returns what was found before if that is better.
    """
    moves: list[Move] = []
    undone: list[Callable[[], None]] = []
    progress = True
    while progress and pods.total < wanted:
        progress = False
        for count, place in product(range(1, _TOGETHER + 1), range(len(pods.rooms))):
            if pods.total >= wanted:
                break
            freed = _freed(pods, place, count, {one.pod.uid for one in moves})
            progress |= bool(freed)
            moves += (move for move, _ in freed)
            undone += (undo for _, undo in freed)
    room = min(pods.total, wanted)
    for undo in reversed(undone):
        undo()
    if (room, -len(moves)) <= (found.room, -len(found.moves)):
        return replace(found, at_least=at_least)
    return MovePlan(tuple(moves), room, is_exact=room >= wanted and len(moves) <= at_least, at_least=at_least)


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
            made.append((Move(pod, place, step[0]), step[1]))
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


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """What is to fit."""

    name: str
    """``namespace/name`` of what the replicas belong to."""
    asked: PodDemand
    replicas: int
    selector: PodSelector = EVERYTHING
    """Only pods with these labels are moved."""
    moves: bool = True
    """Whether pods may be moved at all."""


def fit(live: LiveCluster, question: FitQuestion, seed: int = 0, trials: int = MOST_TRIALS) -> FleetFitDocument:
    """Answer the question.

    Args:
        live: the cluster.
        question: what is to fit.
        seed: of the choice among nodes of one score.
        trials: moves that the exhaustive search tries.

    Raises:
        InputError: a kubelet does not start.
    """
    nodes = Nodes(live.cluster)
    now = _distributed(nodes, question, question.replicas, seed)
    rest = question.replicas - sum(now.values())
    why = _causes_when_full(live, question, now) if rest else []
    reasons = [(pod, fixed(pod, live, question)) for node, pods in live.pods.items() if node for pod in pods]
    plan = MovePlan((), sum(now.values()), is_exact=not rest)
    after, moves = now, list[MovePart]()
    names = [member.name for member in nodes.table.members]
    # Replicas that repel or attract one another do not fill each node by itself.
    if rest and question.moves and not question.asked.relations.has_required_terms:
        movable = [pod for pod, reason in reasons if reason is None]
        moving = MovingPods(nodes, movable, question.asked, question.replicas)
        plan = fewest_moves(moving, question.replicas, trials)
        # The replacement of an evicted pod lands on its target, or on any other node that is left: none that the plan
        # needs, and none that would lose room.
        needed = {place for one in plan.moves for place in (one.source, one.target)}
        for one in plan.moves:
            losing = {place for place in moving.targets(one.pod) if moving.would_lose(one.pod, place)}
            cordoned = [names[place] for place in sorted((needed | losing) - {one.target})]
            moves.append(MovePart(one.pod.name, one.pod.uid, names[one.source], names[one.target], cordoned))
            moving.try_move(one.pod, one.target)
        after = _distributed(nodes, question, plan.room, seed)
    return FleetFitDocument(
        cluster=live.cluster.name,
        of=question.name,
        replicas=question.replicas,
        fits_now=sum(now.values()),
        now=now,
        causes=why,
        fits_after=sum(after.values()),
        after=after,
        plan=MovePlanPart(moves, plan.is_exact, plan.at_least),
        fixed=dict(Counter(reason.value for _, reason in reasons if reason is not None)),
        assumed=list(live.cluster.findings),
    )


def _distributed(nodes: Nodes, question: FitQuestion, replicas: int, seed: int) -> dict[str, int]:
    """Return where replicas go, one after another; the nodes stay as they are."""
    scheduler = Scheduler(nodes, Strategy(extender=True), seed)
    before = list(nodes.at)
    placed: list[int] = []
    tries = 0
    # A cycle looks at some of the nodes only; the next one goes on where it ended.
    while len(placed) < replicas and tries <= len(nodes.at):
        node = scheduler.choose(question.asked).node
        tries = tries + 1 if node is None else 0
        if node is None:
            continue
        nodes.admit(node, question.asked)
        placed.append(node)
    for node in placed:
        nodes.table.remove(node, question.asked)
    nodes.at[:] = before
    found = Counter(nodes.table.members[node].name for node in placed)
    return dict(sorted(found.items()))


def _causes_when_full(live: LiveCluster, question: FitQuestion, now: Mapping[str, int]) -> list[CausePart]:
    nodes = Nodes(live.cluster)
    for place, member in enumerate(nodes.table.members):
        for _ in range(now.get(member.name, 0)):
            nodes.admit(place, question.asked)
    return causes(nodes, question.asked)
