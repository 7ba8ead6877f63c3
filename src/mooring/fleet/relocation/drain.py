"""What a drain of nodes does: their pods are evicted, and their controllers make them anew elsewhere.

What an upgrade of all kubelets does, node by node: a restart with the pods that run, or a drain where it must be.

A kubelet that restarts admits its pods again on its state files, by the rules of the new release and configuration.
Where it would not start on these files, the node is drained and its state files are removed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.events import Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_on
from mooring.fleet.cluster import offers_of
from mooring.fleet.documents import FleetDrainDocument, FleetUpgradeDocument, NodeUpgradePart, RelocatedPart
from mooring.fleet.live_cluster import LiveCluster
from mooring.fleet.live_objects import LivePod
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.moves import FAILURES, HELD, REFUSED, STAYS, relocated, relocated_part
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.states import restarting
from mooring.inputs.decoding.fields import nearest


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
            elif any(budget.blocks(pod) for budget in live.budgets):
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
            for pod, prediction in refused.items():
                self._refused(self._pods[pod], name, prediction.code, homeless)
            upgrades.append(NodeUpgradePart(name, turn, reason, {pod: one.code for pod, one in refused.items()}))
        for place, was_open in open_before.items():
            table.open[place] = was_open
        self.found += relocated(self._nodes, self._scheduler, homeless)
        return upgrades

    def _refused(self, pod: LivePod, node: str, code: str, homeless: list[tuple[LivePod, str]]) -> None:
        if pod.stays is None:
            homeless.append((pod, node))
        else:
            self.found.append(relocated_part(pod, REFUSED, node, node, code))

    def _drained(self, place: int, name: str, reason: str) -> str:
        """Drain a node, remove its state files and start its kubelet anew; return why it had to be drained."""
        leaving, staying = [], []
        for pod in [self._pods[one] for one in self._nodes.pods[place]]:
            self._nodes.end(place, pod.name)
            if pod.stays is not None:
                staying.append(pod)
            elif any(budget.blocks(pod) for budget in self._live.budgets):
                self.found.append(relocated_part(pod, HELD, name))
                staying.append(pod)
            else:
                leaving.append((pod, name))
        self.found += relocated(self._nodes, self._scheduler, leaving)
        started = self._fresh(place)
        if isinstance(started, str):
            return f"{reason}; without state files either: {started}"
        nodes, now = self._nodes, self._nodes.table.members[place].now
        nodes.at[place] = nodes.states.of(f"{name} upgraded", started)
        nodes.table.set_offer(place, offers_of(now, started))
        for pod in staying:
            prediction = nodes.begin(place, pod.name, pod.asked, 0.0)
            if not prediction.admitted:
                self.found.append(relocated_part(pod, REFUSED, name, name, prediction.code))
        return reason

    def _fresh(self, place: int) -> Kubelet | str:
        """Return the new kubelet of an empty node; a text says why it does not start."""
        before, group = self._nodes.at[place].kubelet, self._nodes.table.members[place].group
        mooring = before.mooring if self._new.release is None else replace(before.mooring, release=self._new.release)
        start = start_on(group.machine, self._new.kubelet or before.settings.config, mooring, StateTexts())
        if isinstance(start, NotStarted):
            return start.refusal.message
        return start.with_devices(DeviceState(before.node.providers.devices.devices))
