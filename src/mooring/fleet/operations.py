"""What happens to the nodes of a simulation beside its work: drains, restarts, taints, nodes that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from mooring.engine.core.errors import InputError
from mooring.engine.node.resize.feasibility import DEFERRED
from mooring.fleet.cluster import (
    ClusterEvent,
    CPUsOffline,
    CPUsOnline,
    NodeAction,
    NodeChange,
    NodeEvent,
    NodeRestart,
    NodeTaints,
    PodResize,
)
from mooring.fleet.states import changing_cpus, restarting
from mooring.fleet.work import PodDemand, PodPhase, asked_of
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.scheduling_fields import Taint
from mooring.inputs.pods.steps import resized_pod

if TYPE_CHECKING:
    from mooring.fleet.simulation import Simulation

NOT_READY_FOR: Final = 300.0
"""Seconds after which pods leave a node whose kubelet does not run: the toleration that the API server gives them."""


@dataclass(frozen=True, slots=True)
class MadeChange:
    """A change of a node that was made."""

    after: int
    """Number of the last event before it with which a pod came to a node or left one."""
    at: float
    node: int
    change: NodeChange


class Operations:
    """Changes of nodes while a simulation runs."""

    def __init__(self, simulation: Simulation) -> None:
        """Begin without any.

        Args:
            simulation: whose nodes change.
        """
        self._simulation, self._nodes = simulation, simulation.nodes
        self.problems: list[str] = []
        """Kubelets that did not start again, and resizes that were not taken, in words."""
        self.made: list[MadeChange] = []
        self._deferred: dict[int, dict[str, PodDemand]] = {}
        self._cordoned: set[int] = set()
        self._down: set[int] = set()

    def plan(self, events: Sequence[ClusterEvent]) -> None:
        """Let events happen at their times; nodes that are added later are not there until then."""
        for event in events:
            if isinstance(event, NodeEvent) and event.change is NodeAction.ADD:
                place = self._nodes.places[event.node]
                self._nodes.table.present[place] = self._nodes.table.open[place] = False
        for event in events:
            self._simulation.at(event.at, partial(self._happens, event))

    def released(self, node: int) -> None:
        """Try the resizes again that wait on a node, because a pod has left it."""
        for name, wanted in list(self._deferred.get(node, {}).items()):
            if name not in self._nodes.pods[node] or not self._nodes.resize(node, name, wanted):
                del self._deferred[node][name]

    def _resize(self, event: PodResize) -> None:
        record = self._simulation.records.get(event.pod)
        if record is None or record.node is None or record.fate is not PodPhase.RUNS:
            self.problems.append(f"{event.pod}: is not running at {event.at:g} s, so that it is not resized")
            return
        asked = self._nodes.pods[record.node][event.pod].asked
        try:
            pod = resized_pod(asked.shape.pod, event.wanted, PodGates())
        except InputError as error:
            self.problems.append(f"{event.pod}: {error}")
            return
        wanted = asked_of(pod, asked.fields, asked.relations, preempts=asked.preempts)
        message = self._nodes.resize(record.node, event.pod, wanted)
        if message:
            self.problems.append(f"{event.pod}: {message}")
        if message.startswith(DEFERRED):
            self._deferred.setdefault(record.node, {})[event.pod] = wanted

    def _happens(self, event: ClusterEvent) -> None:
        if isinstance(event, PodResize):
            self._resize(event)
            return
        node = self._nodes.places[event.node]
        if bool(self._nodes.table.present[node]) is (event.change is NodeAction.ADD):
            return
        self.made.append(MadeChange(self._simulation.moves, self._simulation.now, node, event.change))
        self._change(node, event.change)
        self._simulation.fill(node)
        self._open(node)

    def _change(self, node: int, change: NodeChange) -> None:
        match change:
            case NodeAction.CORDON:
                self._cordoned.add(node)
            case NodeAction.UNCORDON:
                self._cordoned.discard(node)
            case NodeAction.DRAIN:
                self._cordoned.add(node)
                self._open(node)
                self._evict_all(node)
            case NodeAction.REMOVE:
                self._nodes.table.present[node] = False
                self._open(node)
                self._evict_all(node)
            case NodeAction.ADD:
                self._nodes.table.present[node] = True
                self._nodes.empty(node)
                self._cordoned.discard(node)
                self._down.discard(node)
            case NodeTaints(taints):
                self._nodes.table.set_taints(node, taints)
                self._evict_intolerant(node, taints)
            case NodeRestart():
                self._restart(node, change)
            case CPUsOffline() | CPUsOnline():
                self._nodes.change(node, changing_cpus(change), change)

    def _restart(self, node: int, restart: NodeRestart) -> None:
        for pod in self._nodes.pods[node]:
            self._simulation.on_node(node, pod)
        refused, message = self._nodes.change(node, restarting(restart), id(restart))
        name = self._nodes.table.members[node].name
        if message:
            self.problems.append(f"{name}: the kubelet does not start again: {message}")
            self._down.add(node)
            self._simulation.at(self._simulation.now + NOT_READY_FOR, lambda: self._lost(node))
        else:
            self._down.discard(node)
        for pod, prediction in refused.items():
            self._simulation.refuse(self._simulation.records[pod], prediction)

    def _lost(self, node: int) -> None:
        if node in self._down:
            self._evict_all(node)

    def _evict_all(self, node: int) -> None:
        for name in [*self._nodes.held[node], *self._nodes.pods[node]]:
            self._simulation.evict(self._simulation.on_node(node, name))

    def _evict_intolerant(self, node: int, taints: tuple[Taint, ...]) -> None:
        executing = [one for one in taints if one.effect == "NoExecute"]
        asked = {**self._nodes.held[node], **{name: pod.asked for name, pod in self._nodes.pods[node].items()}}
        for name, one_asked in asked.items():
            tolerations = one_asked.fields.tolerations
            if not all(any(one.tolerates(taint) for one in tolerations) for taint in executing):
                self._simulation.evict(self._simulation.on_node(node, name))

    def _open(self, node: int) -> None:
        """Let a node take pods again where nothing is against it, and try those that wait."""
        table = self._nodes.table
        table.open[node] = bool(table.present[node]) and node not in self._cordoned and node not in self._down
        if table.open[node]:
            self._simulation.wake(node)
