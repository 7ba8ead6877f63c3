"""Running pods that move from node to node, one after another, and back again while a plan is searched.

A move is an eviction at one node and an admission at another: the engine decides the admission before the eviction
counts, so that no move leaves fewer admitted pods than before.

How many pods of one kind a node takes, and what keeps it from taking one more.

Equal pods do not disturb nodes other than their own, so that the number of a cluster is the sum over its nodes,
whichever way a scheduler distributes them.

Pods that lose their node: where the scheduler and the nodes' kubelets let their replacements run, or why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.explanations.codes import page
from mooring.fleet.cluster import PodDemand
from mooring.fleet.documents import CausePart, RelocatedPart, WaitCausePart
from mooring.fleet.live_objects import LivePod
from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.scheduler.strategy import feasible as passing
from mooring.fleet.scheduler.strategy import friendly
from mooring.fleet.scheduler.table import PODS

_CONSTRAINTS: Final = "taints, node selector or node affinity"
_RELATIONS: Final = "affinity to pods or spread constraints"


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
        prediction, state, _ = nodes.states.admit(state, asked.shape)
        if not prediction.admitted:
            return taken
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


def obstacle(nodes: Nodes, place: int, asked: PodDemand) -> tuple[str, str] | None:
    """Return why a node does not take a pod, with the code where its managers would refuse it; None when it does."""
    table = nodes.table
    member = table.members[place]
    if not table.open[place]:
        return (member.now.closed if member.now is not None else "") or "drained", ""
    if (needed := asked.fields.features) and (undeclared := needed - member.group.declared):
        return f"does not declare {', '.join(sorted(undeclared))}", ""
    if not table.allowed(asked.fields)[place]:
        return _CONSTRAINTS, ""
    if not friendly(table, asked)[place]:
        return _RELATIONS, ""
    if lacking := table.lacking(asked, place):
        return f"too little free {lacking}", ""
    prediction = nodes.would(place, asked)
    return None if prediction.admitted else (page(prediction.code).title, prediction.code)


def causes(nodes: Nodes, asked: PodDemand) -> list[CausePart]:
    """Return why nodes do not take one more pod, the causes that concern most nodes first."""
    found: dict[tuple[str, str], list[str]] = {}
    for place, member in enumerate(nodes.table.members):
        if (cause := obstacle(nodes, place, asked)) is not None:
            found.setdefault(cause, []).append(member.name)
    ordered = sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0][0]))
    return [CausePart(*cause, names) for cause, names in ordered]


def cause_words(cause: CausePart | WaitCausePart) -> str:
    """Return a cause with its code, where it has one."""
    return f"{cause.text} ({cause.code})" if cause.code else cause.text


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that is evicted, and made anew on another node."""

    pod: LivePod
    source: int
    """Place of the node that it leaves."""
    target: int
    """Place of the node that takes it."""


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
        return self._at[uid][0]

    def pods_on(self, place: int) -> list[LivePod]:
        """Return the pods of a node that may move, large ones first."""
        found = [pod for uid, pod in self.pods.items() if self._at[uid][0] == place]
        return sorted(found, key=lambda pod: (-pod.asked.requests.get("cpu", 0), pod.name))

    def targets(self, pod: LivePod) -> Iterator[int]:
        """Yield the nodes by whose sums and labels a pod could be there."""
        feasible = passing(self.nodes.table, pod.asked)
        here = self._at[pod.uid][0]
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
            nodes.remove(place, pod.asked, self._at[pod.uid][1])
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
        nodes = self.nodes
        source, held = self._at[pod.uid]
        before = nodes.at[source], nodes.at[target], self._rooms[source], self._rooms[target]
        prediction, name = nodes.admit(target, pod.asked)
        if not prediction.admitted:
            return None
        nodes.remove(source, pod.asked, held)
        self._at[pod.uid] = target, name
        self._rooms[source], self._rooms[target] = self._room(source), self._room(target)

        def undo() -> None:
            nodes.table.remove(target, pod.asked)
            nodes.table.add(source, pod.asked)
            nodes.at[source], nodes.at[target], self._rooms[source], self._rooms[target] = before
            self._at[pod.uid] = source, held

        return undo

    def signature(self) -> object:
        """Return what equal situations share."""
        return tuple(place for place, _ in self._at.values()), tuple(state.key for state in self.nodes.at)

    def _room(self, place: int) -> int:
        return room(self.nodes, place, self.asked, self.most)


MOVES, WAITS, REFUSED, LOST, HELD, STAYS = "moves", "waits", "refused", "lost", "held", "stays"
"""Outcomes of :class:`RelocatedPart`."""
FAILURES = (WAITS, REFUSED, LOST, HELD)
"""What a drain or an upgrade should not come to."""


def relocated_part(
    pod: LivePod,
    outcome: str,
    source: str,
    target: str = "",
    code: str = "",
    causes: Sequence[CausePart] = (),
    elsewhere: Sequence[str] = (),
) -> RelocatedPart:
    """Return what becomes of a pod."""
    return RelocatedPart(pod.name, pod.uid, outcome, source, target, code, [*causes], [*elsewhere])


def relocated(nodes: Nodes, scheduler: Scheduler, pods: Iterable[tuple[LivePod, str]]) -> list[RelocatedPart]:
    """Find a place for the replacement of each pod, in the scheduler's order: by priority, then by age.

    Args:
        nodes: of the cluster, without these pods; changed.
        scheduler: of the cluster.
        pods: each with the node that it leaves.
    """
    ordered = sorted(pods, key=lambda entry: (-entry[0].pod.priority, entry[0].order))
    return [_relocated(nodes, scheduler, pod, source) for pod, source in ordered]


def _relocated(nodes: Nodes, scheduler: Scheduler, pod: LivePod, source: str) -> RelocatedPart:
    if not pod.owner:
        return relocated_part(pod, LOST, source)
    asked, members = pod.asked, nodes.table.members
    choice = scheduler.choose(asked)
    tries = len(members) if choice.refusing else 0
    # A cycle looks at some of the nodes only; the next one goes on where it ended.
    while choice.node is None and tries:
        choice, tries = scheduler.choose(asked), tries - 1
    if choice.node is None:
        return relocated_part(pod, WAITS, source, causes=causes(nodes, asked))
    prediction = nodes.begin(choice.node, pod.name, asked, 0.0)
    target = members[choice.node].name
    if prediction.admitted:
        return relocated_part(pod, MOVES, source, target)
    elsewhere = [one.name for place, one in enumerate(members) if nodes.takes(place, asked, exactly=True)]
    return relocated_part(pod, REFUSED, source, target, prediction.code, elsewhere=elsewhere)
