"""What fits into a live cluster, and where the pods of drained and upgraded nodes go.

How many replicas fit now, where, and what to move for the rest; which running pods a plan may move, and why it leaves
others alone.

A drain evicts the pods of nodes, and their controllers make them anew elsewhere.

An upgrade of all kubelets goes node by node: a restart with the pods that run, or a drain where it must be. A kubelet
that restarts admits its pods again on its state files, by the rules of the new release and configuration. Where it
would not start on these files, the node is drained and its state files are removed first.

Source: ``kubectl drain`` v1.37 (pods of DaemonSets, static pods, pods without a controller); policy/v1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.events import Restart
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import NotStarted, start_on
from mooring.fleet.cluster import PodDemand, offers_of
from mooring.fleet.documents import (
    CausePart,
    FleetDrainDocument,
    FleetFitDocument,
    FleetUpgradeDocument,
    MovePlanPart,
    NodeUpgradePart,
    RelocatedPart,
)
from mooring.fleet.live_cluster import LiveCluster
from mooring.fleet.live_objects import EVERYTHING, Fixed, LivePod
from mooring.fleet.nodes import Nodes, causes
from mooring.fleet.relocation.moves import MOST_TRIALS, MovingPods, fewest_moves
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.states import restarting
from mooring.inputs.decoding.fields import nearest
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
    why: list[CausePart] = []
    if rest:
        full = Nodes(live.cluster)
        for name, count in now.items():
            for _ in range(count):
                full.admit(full.places[name], question.asked)
        why = causes(full, question.asked)
    reasons = [(pod, fixed(pod, live, question)) for node, pods in live.pods.items() if node for pod in pods]
    plan, after = MovePlanPart([], is_exact=not rest, at_least=0), now
    # Replicas that repel or attract one another do not fill each node by itself.
    if rest and question.moves and not question.asked.relations.has_required_terms:
        movable = [pod for pod, reason in reasons if reason is None]
        moving = MovingPods(nodes, movable, question.asked, question.replicas)
        plan = fewest_moves(moving, question.replicas, trials)
        # The replacement of an evicted pod lands on its target, or on any other node that is left: none that the plan
        # needs, and none that would lose room.
        needed = {name for move in plan.moves for name in (move.source, move.target)}
        for move in plan.moves:
            pod = moving.pods[move.uid]
            losing = {place for place in moving.targets(pod) if moving.would_lose(pod, place)}
            move.cordon = [
                name
                for name, place in nodes.places.items()
                if name != move.target and (name in needed or place in losing)
            ]
            moving.try_move(pod, nodes.places[move.target])
        after = _distributed(nodes, question, min(moving.total, question.replicas), seed)
    return FleetFitDocument(
        cluster=live.cluster.name,
        of=question.name,
        replicas=question.replicas,
        fits_now=sum(now.values()),
        now=now,
        causes=why,
        fits_after=sum(after.values()),
        after=after,
        plan=plan,
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
        if node is not None:
            nodes.admit(node, question.asked)
            placed.append(node)
    for node in placed:
        nodes.table.remove(node, question.asked)
    nodes.at[:] = before
    found = Counter(nodes.table.members[node].name for node in placed)
    return dict(sorted(found.items()))


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
    if live.keeps(pod):
        return Fixed.BUDGET
    asked = pod.asked
    return Fixed.NOT_READ if asked.fields.ignored or asked.relations.has_required_terms or pod.pod.claims else None


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
    members, found = nodes.table.members, list[RelocatedPart]()
    for pod, source in sorted(pods, key=lambda entry: (-entry[0].pod.priority, entry[0].order)):
        if not pod.owner:
            found.append(relocated_part(pod, LOST, source))
            continue
        choice = scheduler.choose(pod.asked)
        tries = len(members) if choice.refusing else 0
        # A cycle looks at some of the nodes only; the next one goes on where it ended.
        while choice.node is None and tries:
            choice, tries = scheduler.choose(pod.asked), tries - 1
        if choice.node is None:
            found.append(relocated_part(pod, WAITS, source, causes=causes(nodes, pod.asked)))
            continue
        prediction, target = nodes.begin(choice.node, pod.name, pod.asked, 0.0), members[choice.node].name
        if prediction.admitted:
            found.append(relocated_part(pod, MOVES, source, target))
        else:
            others = [one.name for place, one in enumerate(members) if nodes.takes(place, pod.asked, exactly=True)]
            found.append(relocated_part(pod, REFUSED, source, target, prediction.code, elsewhere=others))
    return found


def is_clean(pods: Sequence[RelocatedPart]) -> bool:
    """Tell whether every pod finds a place."""
    return not any(one.outcome in FAILURES for one in pods)


def drain(live: LiveCluster, names: Sequence[str], strategy: Strategy, seed: int = 0) -> FleetDrainDocument:
    """Drain nodes together.

    Args:
        live: the cluster.
        names: of the nodes.
        strategy: how the replacements are placed.
        seed: of the choice among nodes of one score.

    Raises:
        InputError: there is no such node.
    """
    nodes = Nodes(live.cluster)
    places = places_of(nodes, names)
    for place in places.values():
        nodes.table.open[place] = False
    kept: list[RelocatedPart] = []
    leaving = []
    for name, place in places.items():
        for pod in live.pods[name]:
            if pod.stays is not None:
                kept.append(relocated_part(pod, STAYS, name))
            elif live.keeps(pod):
                kept.append(relocated_part(pod, HELD, name))
            else:
                nodes.end(place, pod.name)
                if not pod.leaving:
                    leaving.append((pod, name))
    found = relocated(nodes, Scheduler(nodes, strategy, seed), leaving)
    return FleetDrainDocument(
        cluster=live.cluster.name, nodes=list(places), pods=[*found, *kept], assumed=list(live.cluster.findings)
    )


def places_of(nodes: Nodes, names: Sequence[str]) -> dict[str, int]:
    """Return the places of nodes by name.

    Raises:
        InputError: there is no such node.
    """
    known = nodes.places
    for name in names:
        if name not in known:
            close = nearest(name, known)
            remedy = f"did you mean {close}?" if close else "see kubectl get nodes"
            raise InputError(f"nothing is known about a node {name!r:.80}", source="NODE", remedy=remedy)
    return {name: known[name] for name in dict.fromkeys(names)}


def upgrade(
    live: LiveCluster,
    names: Sequence[str],
    new: Restart,
    strategy: Strategy,
    unavailable: int = 1,
    seed: int = 0,
) -> FleetUpgradeDocument:
    """Upgrade nodes in order.

    Args:
        live: the cluster.
        names: of the nodes, in their order.
        new: what their kubelets become.
        strategy: how replacements are placed.
        unavailable: nodes that are upgraded together.
        seed: of the choice among nodes of one score.

    Raises:
        InputError: there is no such node.
    """
    nodes = Nodes(live.cluster)
    places = places_of(nodes, names)
    rollout = _Rollout(live, new, nodes, Scheduler(nodes, strategy, seed))
    ordered, upgrades = list(places), list[NodeUpgradePart]()
    for turn, first in enumerate(range(0, len(ordered), unavailable), 1):
        upgrades += rollout.turn(turn, {name: places[name] for name in ordered[first : first + unavailable]})
    return FleetUpgradeDocument(
        cluster=live.cluster.name, nodes=upgrades, pods=rollout.found, assumed=list(live.cluster.findings)
    )


class _Rollout:
    """An upgrade while it goes on."""

    def __init__(self, live: LiveCluster, new: Restart, nodes: Nodes, scheduler: Scheduler) -> None:
        self._live, self._new, self._nodes, self._scheduler = live, new, nodes, scheduler
        self._pods = {one.name: one for pods in live.pods.values() for one in pods}
        self.found: list[RelocatedPart] = []

    def turn(self, turn: int, places: Mapping[str, int]) -> list[NodeUpgradePart]:
        """Upgrade some nodes together; the pods that they refuse are made anew when all are back."""
        table = self._nodes.table
        open_before = {place: bool(table.open[place]) for place in places.values()}
        for place in places.values():
            table.open[place] = False
        upgrades: list[NodeUpgradePart] = []
        homeless: list[tuple[LivePod, str]] = []
        for name, place in places.items():
            refused, message = self._nodes.change(place, restarting(self._new), id(self._new))
            reason = self._drained(place, name, message) if message else ""
            for pod, prediction in ((self._pods[one], found) for one, found in refused.items()):
                if pod.stays is None:
                    homeless.append((pod, name))
                else:
                    self.found.append(relocated_part(pod, REFUSED, name, name, prediction.code))
            upgrades.append(NodeUpgradePart(name, turn, reason, {one: found.code for one, found in refused.items()}))
        for place, was_open in open_before.items():
            table.open[place] = was_open
        self.found += relocated(self._nodes, self._scheduler, homeless)
        return upgrades

    def _drained(self, place: int, name: str, reason: str) -> str:
        """Drain a node, remove its state files and start its kubelet anew; return why it had to be drained."""
        leaving, staying = [], []
        for pod in [self._pods[one] for one in self._nodes.pods[place]]:
            self._nodes.end(place, pod.name)
            if pod.stays is not None:
                staying.append(pod)
            elif self._live.keeps(pod):
                self.found.append(relocated_part(pod, HELD, name))
                staying.append(pod)
            else:
                leaving.append((pod, name))
        self.found += relocated(self._nodes, self._scheduler, leaving)
        nodes, before, member = self._nodes, self._nodes.at[place].kubelet, self._nodes.table.members[place]
        mooring = before.mooring if self._new.release is None else replace(before.mooring, release=self._new.release)
        start = start_on(member.group.machine, self._new.kubelet or before.settings.config, mooring, StateTexts())
        if isinstance(start, NotStarted):
            return f"{reason}; without state files either: {start.refusal.message}"
        started = start.with_devices(DeviceState(before.node.providers.devices.devices))
        nodes.at[place] = nodes.states.of(f"{name} upgraded", started)
        nodes.table.set_offer(place, offers_of(member.now, started))
        for pod in staying:
            prediction = nodes.begin(place, pod.name, pod.asked, 0.0)
            if not prediction.admitted:
                self.found.append(relocated_part(pod, REFUSED, name, name, prediction.code))
        return reason
