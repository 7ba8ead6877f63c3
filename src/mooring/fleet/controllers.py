"""What happens in a simulation beside the scheduler: controllers that create pods, and what befalls nodes.

A pod that its kubelet refuses stays failed. A ReplicaSet replaces it without any back-off, which is what makes refused
pods a loop; a StatefulSet deletes it and creates one of the same name; a Job waits 10 s, doubled with each failure up
to 10 min, and gives up after ``backoffLimit`` failures. Nodes are drained, restarted, tainted; they come and go.

Source: kube-controller-manager v1.37.1, pkg/controller/replicaset/replica_set.go (manageReplicas),
statefulset/stateful_set_control.go (processReplica), job/job_controller.go (manageJob) and job/backoff_utils.go.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final

from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Offline, Online, Restart
from mooring.engine.node.resources import DEFERRED
from mooring.fleet.cluster import (
    REMADE,
    ClusterEvent,
    ControllerKind,
    NodeAction,
    NodeChange,
    NodeEvent,
    NodeTaints,
    PodArrival,
    PodDemand,
    PodPhase,
    PodResize,
    Workload,
    asked_of,
)
from mooring.fleet.scheduler.scheduler import resize_victims
from mooring.fleet.states import changing_cpus, restarting
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import resized_pod
from mooring.inputs.pods.scheduling_fields import Taint

if TYPE_CHECKING:
    from mooring.fleet.simulation import Simulation


_PREEMPTING: Final = "InPlacePodVerticalScalingSchedulerPreemption"
"""Gate with which the scheduler makes room for a resize that a node defers (KEP-5836); here it is the node's."""
REMADE_AFTER: Final = 1.0
"""Seconds after which a ReplicaSet or StatefulSet creates a pod for one that failed: they have no back-off, and a
failed pod is noticed within about a second."""
FIRST_JOB_BACKOFF: Final = 10.0
"""Seconds."""
LONGEST_JOB_BACKOFF: Final = 600.0
"""Seconds."""
MOST_REMADE: Final = 100
"""Pods that are created for one after failures in a row; a pod that would need more is a runaway."""


class PodChange(Enum):
    """What a controller notices about one of its pods."""

    ADMITTED = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    """Its kubelet refused it."""
    DELETED = auto()
    """It was evicted or preempted, or its node is gone."""


class Controller:
    """One controller while time passes; pods follow one another in each of its places."""

    def __init__(self, simulation: Simulation, workload: Workload) -> None:
        """Begin without pods.

        Args:
            simulation: in which it creates and deletes them.
            workload: what it creates.
        """
        self._simulation, self.workload = simulation, workload
        self.given_up = False
        """Whether a Job has failed."""
        self._created: Counter[int] = Counter()
        """Pods that were created in each place."""
        self._refused: Counter[int] = Counter()
        """Pods in a row that failed in each place."""
        self._running: set[int] = set()
        self._at: dict[str, int] = {}
        self._gaps: list[int] = []
        self._fresh = 0
        self._closed = False
        self._not_before = 0.0
        self._failures = self._failures_in_row = self._succeeded = 0

    @staticmethod
    def of_pod(simulation: Simulation, arrival: PodArrival) -> Controller:
        """Return the controller of a pod that exists already, and that it alone creates anew."""
        name, kind = arrival.name, ControllerKind.DEPLOYMENT
        workload = Workload(name, kind, arrival.asked, arrival.at, runs=arrival.runs, leaves=arrival.leaves, alone=True)
        made = Controller(simulation, workload)
        made._created[0], made._at[name], made._fresh = 1, 0, 1
        return made

    @property
    def runaways(self) -> dict[str, int]:
        """First name of a pod that was created anew again and again -> how often."""
        found = {self.workload.pod_name(index): failures - 1 for index, failures in sorted(self._refused.items())}
        return {name: times for name, times in found.items() if times >= MOST_REMADE}

    def sync(self) -> None:
        """Create the pods that are missing now."""
        now, leaves = self._simulation.now, self.workload.leaves
        if self._closed or self.given_up or now < self._not_before or (leaves is not None and now >= leaves):
            return
        while (index := self._missing()) is not None:
            name = self.workload.pod_name(index) + (f"{REMADE}{self._created[index]}" if self._created[index] else "")
            self._created[index] += 1
            self._at[name] = index
            alone = leaves if self.workload.alone else None
            arrival = PodArrival(name, self.workload.asked, now, self.workload.runs, alone, self.workload.name)
            self._simulation.create(arrival, self)

    def close(self) -> None:
        """Create no pod any more, and delete those that there are."""
        self._closed = True
        self._delete_all()

    def notice(self, name: str, change: PodChange) -> None:
        """Act on a change of one of its pods.

        Args:
            name: of the pod.
            change: what became of it.
        """
        index = self._at[name]
        if change is PodChange.ADMITTED:
            self._running.add(index)
            self._refused[index] = 0
            if self.workload.ordered:
                self.sync()
            return
        del self._at[name]
        self._running.discard(index)
        now = self._simulation.now
        if change is PodChange.SUCCEEDED:
            self._succeeded, self._failures_in_row = self._succeeded + 1, 0
            self._not_before = min(self._not_before, now)
            self.sync()
            return
        if change is PodChange.FAILED and self.workload.kind is not ControllerKind.JOB:
            self._refused[index] += 1
            if self._refused[index] > MOST_REMADE:
                return
        heapq.heappush(self._gaps, index)
        if self.workload.kind is ControllerKind.JOB:
            # Count a failure of a Job's pod; deleted pods count, too
            self._failures, self._failures_in_row = self._failures + 1, self._failures_in_row + 1
            if self._failures > self.workload.backoff_limit:
                self.given_up = True
                self._delete_all()
                return
            pause = min(FIRST_JOB_BACKOFF * 2 ** (self._failures_in_row - 1), LONGEST_JOB_BACKOFF)
            self._not_before = now + pause
            self._simulation.at(self._not_before, self.sync)
        elif change is PodChange.DELETED:
            self.sync()
        else:
            self._simulation.at(now + REMADE_AFTER, self.sync)

    def _delete_all(self) -> None:
        for name in tuple(self._at):
            self._simulation.delete(name)

    def _missing(self) -> int | None:
        """Return the first place in which a pod is missing and may be created now; None when there is none."""
        wanted = self.workload.pods
        if self.workload.kind is ControllerKind.JOB:
            wanted = min(self.workload.parallelism or wanted, wanted - self._succeeded)
        index = self._gaps[0] if self._gaps else self._fresh
        if len(self._at) >= wanted or index >= self.workload.pods:
            return None
        if self.workload.ordered and not self._running.issuperset(range(index)):
            return None
        if self._gaps:
            heapq.heappop(self._gaps)
        else:
            self._fresh += 1
        return index


NOT_READY_FOR: Final = 300.0
"""Seconds after which pods leave a node whose kubelet does not run: the toleration that the API server gives them."""


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
        record = self._simulation.by_name.get(event.pod)
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
        if message.startswith(DEFERRED):
            waiting = self._deferred.setdefault(record.node, {})
            waiting[event.pod] = wanted
            if self._nodes.at[record.node].kubelet.settings.gates[_PREEMPTING]:
                victims = resize_victims(self._nodes, record.node, event.pod, wanted)
                self._simulation.preempt(record.node, victims)
                message = message if event.pod in waiting else ""
        if message:
            self.problems.append(f"{event.pod}: {message}")

    def _happens(self, event: ClusterEvent) -> None:
        if isinstance(event, PodResize):
            self._resize(event)
            return
        node = self._nodes.places.get(event.node)
        # A search for the smallest group tries some without the node of an event.
        if node is None or bool(self._nodes.table.present[node]) is (event.change is NodeAction.ADD):
            return
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
            case Restart():
                for pod in self._nodes.pods[node]:
                    self._simulation.on_node(node, pod)
                refused, message = self._nodes.change(node, restarting(change), id(change))
                name = self._nodes.table.members[node].name
                if message:
                    self.problems.append(f"{name}: the kubelet does not start again: {message}")
                    self._down.add(node)
                    self._simulation.at(self._simulation.now + NOT_READY_FOR, lambda: self._lost(node))
                else:
                    self._down.discard(node)
                for pod, prediction in refused.items():
                    self._simulation.refuse(self._simulation.by_name[pod], prediction)
            case Offline() | Online():
                self._nodes.change(node, changing_cpus(change), change)

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
