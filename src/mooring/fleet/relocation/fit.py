"""How many replicas fit into a live cluster now, where, and the fewest pods to move for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mooring.fleet.live.budgets import EVERYTHING
from mooring.fleet.live.pod_object import Fixed
from mooring.fleet.live.reading import LiveCluster
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.defragmentation import MOST_TRIALS, MovePlan, fewest_moves
from mooring.fleet.relocation.movable import MoveRules, fixed, fixed_counts
from mooring.fleet.relocation.moves import MovingPods
from mooring.fleet.relocation.room import SharedObstacle, causes
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.strategy import Strategy
from mooring.inputs.pods.pod_relations import PodSelector


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


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """The answer."""

    live: LiveCluster
    question: FitQuestion
    now: Mapping[str, int]
    """Node -> replicas that go there, as things are."""
    causes: tuple[SharedObstacle, ...]
    """Why no node takes one more; empty where all fit."""
    plan: MovePlan
    after: Mapping[str, int]
    """Node -> replicas that go there after the moves."""
    fixed: Mapping[Fixed, int]
    """Why pods are left alone -> how many."""
    names: tuple[str, ...]
    """Of the nodes, by place."""
    cordons: tuple[tuple[str, ...], ...] = ()
    """For each move the nodes that must take no pods while it is carried out. The replacement of an evicted pod lands
    on its target, or on any other node that is left: none that the plan needs, and none that would lose room."""

    @property
    def fits_now(self) -> int:
        """Replicas that fit as things are."""
        return sum(self.now.values())

    @property
    def fits_after(self) -> int:
        """Replicas that fit after the moves."""
        return sum(self.after.values())


def fit(live: LiveCluster, question: FitQuestion, seed: int = 0, trials: int = MOST_TRIALS) -> FitAnswer:
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
    why = _causes_when_full(live, question, now) if rest else ()
    rules = MoveRules(question.asked.priority, question.selector)
    movable = [pod for node, pods in live.pods.items() if node for pod in pods if fixed(pod, live, rules) is None]
    plan = MovePlan((), sum(now.values()), is_exact=not rest)
    after: Mapping[str, int] = now
    cordons: list[list[int]] = []
    # Replicas that repel or attract one another do not fill each node by itself.
    if rest and question.moves and not question.asked.relations.has_required_terms:
        moving = MovingPods(nodes, movable, question.asked, question.replicas)
        plan = fewest_moves(moving, question.replicas, trials)
        cordons = _carried_out(moving, plan)
        after = _distributed(nodes, question, plan.room, seed)
    names = tuple(member.name for member in nodes.table.members)
    closed = tuple(tuple(names[place] for place in one) for one in cordons)
    return FitAnswer(live, question, now, why, plan, after, fixed_counts(live, rules), names, closed)


def _carried_out(moving: MovingPods, plan: MovePlan) -> list[list[int]]:
    """Move the pods, and return for each move the places of the nodes that must take no pods meanwhile."""
    needed = {place for one in plan.moves for place in (one.source, one.target)}
    cordons = []
    for one in plan.moves:
        losing = {place for place in moving.targets(one.pod) if moving.would_lose(one.pod, place)}
        cordons.append(sorted((needed | losing) - {one.target}))
        moving.try_move(one.pod, one.target)
    return cordons


def _distributed(nodes: Nodes, question: FitQuestion, replicas: int, seed: int) -> Mapping[str, int]:
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


def _causes_when_full(live: LiveCluster, question: FitQuestion, now: Mapping[str, int]) -> tuple[SharedObstacle, ...]:
    nodes = Nodes(live.cluster)
    for place, member in enumerate(nodes.table.members):
        for _ in range(now.get(member.name, 0)):
            nodes.admit(place, question.asked)
    return causes(nodes, question.asked)
