"""What an upgrade of all kubelets does, node by node: a restart with the pods that run, or a drain where it must be.

A kubelet that restarts admits its pods again on its state files, by the rules of the new release and configuration.
Where it would not start on these files, the node is drained and its state files are removed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mooring.core.config import KubeletConfig
from mooring.core.pod import Pod
from mooring.core.release import Release
from mooring.devicemanager.state import DeviceState
from mooring.fleet.cluster import offered
from mooring.fleet.live.pod_object import LivePod
from mooring.fleet.live.reading import LiveCluster
from mooring.fleet.nodes import Nodes
from mooring.fleet.relocation.drain import places_of
from mooring.fleet.relocation.replacement import FAILURES, Outcome, Relocated, name_in_state, relocated
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.strategy import Strategy
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.kubelet.start import restart_kubelet, start_on
from mooring.manifest.defaults import PodGates
from mooring.planner.prediction import predicted_restart


@dataclass(frozen=True, slots=True)
class NewKubelet:
    """What all kubelets become."""

    release: Release | None = None
    """None leaves it as it is."""
    config: KubeletConfig | None = None
    """As above."""


@dataclass(frozen=True, slots=True)
class NodeUpgrade:
    """One node and its turn."""

    name: str
    turn: int
    """From 1; nodes of one turn are upgraded together."""
    drained: str
    """Why it is drained first; empty where its pods run on."""
    refused: Mapping[str, str]
    """Pod that the new kubelet refuses at its restart -> code of the cause."""


@dataclass(frozen=True, slots=True)
class ClusterUpgrade:
    """What becomes of the pods of a cluster."""

    live: LiveCluster
    nodes: tuple[NodeUpgrade, ...]
    pods: tuple[Relocated, ...]
    """Those that were refused at a restart or drained, in order; a pod can move more than once."""

    @property
    def is_clean(self) -> bool:
        """Whether every pod runs in the end."""
        return not any(one.outcome in FAILURES for one in self.pods)


def upgrade(
    live: LiveCluster,
    names: Sequence[str],
    new: NewKubelet,
    strategy: Strategy,
    unavailable: int = 1,
    seed: int = 0,
) -> ClusterUpgrade:
    """Upgrade nodes in order.

    Args:
        live: the cluster.
        names: of the nodes, in their order.
        new: what their kubelets become.
        strategy: how replacements are placed.
        unavailable: nodes that are upgraded together.
        seed: of the choice among nodes of one score.

    Raises:
        InputError: there is no such node, or a pod is not valid for the new kubelet.
    """
    return _Rollout(live, names, new, Scheduler(nodes := Nodes(live.cluster), strategy, seed), nodes).run(unavailable)


@dataclass(slots=True)
class _Standing:
    """A pod on a node, while the upgrade goes on."""

    pod: LivePod
    name: str
    """In the node's state; empty where no manager gives it anything."""


class _Rollout:
    """An upgrade while it goes on."""

    def __init__(
        self, live: LiveCluster, names: Sequence[str], new: NewKubelet, scheduler: Scheduler, nodes: Nodes
    ) -> None:
        self._live, self._new, self._nodes, self._scheduler = live, new, nodes, scheduler
        self._places = places_of(nodes, names)
        every = {member.name: place for place, member in enumerate(nodes.table.members)}
        self._on = {
            place: [_Standing(pod, name_in_state(nodes, place, pod)) for pod in live.pods[name]]
            for name, place in every.items()
        }
        self._by_name = every
        self._found: list[Relocated] = []

    def run(self, unavailable: int) -> ClusterUpgrade:
        """Upgrade all nodes."""
        turns = []
        names = list(self._places)
        for turn, first in enumerate(range(0, len(names), unavailable), 1):
            turns += self._turn(turn, names[first : first + unavailable])
        return ClusterUpgrade(self._live, tuple(turns), tuple(self._found))

    def _turn(self, turn: int, names: Sequence[str]) -> list[NodeUpgrade]:
        """Upgrade some nodes together; what they refuse is made anew when they are back."""
        table = self._nodes.table
        open_before = {name: bool(table.open[self._places[name]]) for name in names}
        for name in names:
            table.open[self._places[name]] = False
        upgrades, homeless = [], []
        for name in names:
            found, refused = self._restarted(turn, name)
            upgrades.append(found)
            homeless += refused
        for name, was_open in open_before.items():
            table.open[self._places[name]] = was_open
        self._relocate(homeless)
        return upgrades

    def _restarted(self, turn: int, name: str) -> tuple[NodeUpgrade, list[tuple[LivePod, str]]]:
        """Restart the kubelet of a node; where it would not start, drain the node first."""
        place = self._places[name]
        start = restart_kubelet(self._nodes.at[place].kubelet, self._new.config, release=self._new.release)
        if start.kubelet is None:
            reason = start.refusal.message if start.refusal is not None else "the kubelet would not start"
            return self._drained(turn, name, reason)
        return self._again(turn, name, start.kubelet, "")

    def _again(
        self, turn: int, name: str, started: Kubelet, drained: str
    ) -> tuple[NodeUpgrade, list[tuple[LivePod, str]]]:
        """Let a kubelet that has started admit the pods of its node again."""
        place = self._places[name]
        gates = PodGates.of_node(started.settings.config, started.mooring)
        standing = sorted(self._on[place], key=lambda one: one.pod.order)
        after, predictions = predicted_restart(started, [_named(one, gates) for one in standing])
        refused: dict[str, str] = {}
        homeless = []
        for one, prediction in zip(standing, predictions, strict=True):
            if not prediction.admitted:
                refused[one.pod.name] = prediction.code
                self._nodes.table.remove(place, one.pod.asked)
                if one.pod.stays is None:
                    homeless.append((one.pod, name))
                else:
                    self._found.append(Relocated(one.pod, Outcome.REFUSED, name, name, prediction.code))
        self._on[place] = [one for one in standing if one.pod.name not in refused]
        self._becomes(place, after.settled())
        return NodeUpgrade(name, turn, drained, refused), homeless

    def _becomes(self, place: int, kubelet: Kubelet) -> None:
        """Put another kubelet on a node; what the node offers changes as much as the kubelet's own figures."""
        nodes = self._nodes
        before, after = offered(nodes.at[place].kubelet), offered(kubelet)
        for resource, amount in after.items():
            row = nodes.table.resources.get(resource)
            if row is not None:
                nodes.table.offered[row, place] += amount - before.get(resource, 0)
        nodes.at[place] = nodes.states.of(f"{nodes.table.members[place].name} upgraded", kubelet)

    def _drained(self, turn: int, name: str, reason: str) -> tuple[NodeUpgrade, list[tuple[LivePod, str]]]:
        """Drain a node, remove its state files, and start its kubelet anew."""
        place = self._places[name]
        leaving, staying = [], []
        for one in self._on[place]:
            if one.pod.stays is not None:
                staying.append(one)
            elif any(budget.blocks(one.pod) for budget in self._live.budgets):
                self._found.append(Relocated(one.pod, Outcome.HELD, name))
                staying.append(one)
            else:
                self._nodes.remove(place, one.pod.asked, one.name)
                leaving.append((one.pod, name))
        self._on[place] = staying
        self._relocate(leaving)
        started = self._fresh(place)
        if isinstance(started, str):
            self._nodes.table.open[place] = False
            return NodeUpgrade(name, turn, f"does not start without state files either: {started}", {}), []
        return self._again(turn, name, started, reason)

    def _fresh(self, place: int) -> Kubelet | str:
        """Return the new kubelet of an empty node; a text says why it does not start."""
        before, group = self._nodes.at[place].kubelet, self._nodes.table.members[place].group
        mooring = before.mooring if self._new.release is None else replace(before.mooring, release=self._new.release)
        start = start_on(group.machine, self._new.config or before.settings.config, mooring, StateTexts())
        if start.kubelet is None:
            return start.refusal.message if start.refusal is not None else "no reason is known"
        return start.kubelet.with_devices(DeviceState(before.node.providers.devices.devices))

    def _relocate(self, pods: Sequence[tuple[LivePod, str]]) -> None:
        """Find places for pods that lost theirs."""
        found = relocated(self._nodes, self._scheduler, pods)
        self._found += found
        for one in found:
            if one.outcome is Outcome.MOVES:
                self._on[self._by_name[one.target]].append(_Standing(one.pod, one.state_name))


def _named(standing: _Standing, gates: PodGates) -> Pod:
    """Return a pod as the new kubelet reads it, under its name in the node's state."""
    uid = standing.name or standing.pod.uid
    return replace(standing.pod.as_read_by(gates), uid=uid)
