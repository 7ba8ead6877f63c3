"""Discrete events: pods are created, scheduled, admitted or refused by their node, and end.

Scheduling takes no time and neither does a kubelet's admission, so that at each moment the order of events alone
decides. A pod that its kubelet refuses has failed; its controller decides what follows. Controllers, and what happens
to nodes, are in :mod:`mooring.fleet.controllers`.

What it came to is a document: pods by what became of them, refusals, use over time, why pods wait at the end.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from math import fsum
from typing import Final, Self

from msgspec import structs

from mooring.explanations.why import Prediction
from mooring.fleet import documents
from mooring.fleet.cluster import NodeCluster, PodArrival, PodPhase, Record, Work, Workload
from mooring.fleet.controllers import Controller, Operations, PodChange
from mooring.fleet.nodes import Counts, NodeHistory, Nodes, PlacedPod, Sampler, causes
from mooring.fleet.scheduler.scheduler import Queue, Scheduler, ready_at
from mooring.fleet.scheduler.strategy import Strategy, feasible

MOST_SAMPLES: Final = 100


class Simulation:
    """A cluster and its work while time passes."""

    def __init__(
        self,
        cluster: NodeCluster,
        work: Work,
        strategy: Strategy | None = None,
        seed: int = 0,
        history: NodeHistory | None = None,
    ) -> None:
        """Start the nodes.

        Args:
            cluster: the nodes.
            work: the pods.
            strategy: how they are placed; by default as the default scheduler does.
            seed: of the choice among nodes of one score.
            history: takes the states of the nodes over time, where they are wanted.

        Raises:
            InputError: a kubelet does not start.
        """
        self.cluster, self.work, self.strategy, self.seed = cluster, work, strategy or Strategy(), seed
        self.nodes = Nodes(cluster)
        self._history = history
        self.by_name: dict[str, Record] = {}
        """Of all pods, in the order of their creation."""
        self.now = 0.0
        self._scheduler = Scheduler(self.nodes, self.strategy, seed)
        self._queue = Queue()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._counts: dict[PodPhase, int] = dict.fromkeys(PodPhase, 0)
        self.controllers: dict[str, Controller] = {}
        """By their own names and those of their pods."""
        self.filtered: dict[str, int] = {}
        """Cause -> how often the extender kept a pod off a node for it."""
        self.preempted = 0
        """Pods that were evicted for pods of higher priority."""
        self.samples: list[documents.FleetSamplePart] = []
        self.operations = Operations(self)
        self.cut_short = False
        """Whether it was stopped before its end."""

    def run(self) -> Self:
        """Let time pass until nothing happens any more, and return what is then."""
        self.operations.plan(self.cluster.events)
        for arrival in self.work.arrivals:
            self.create(arrival)
        for workload in self.work.workloads:
            self.at(workload.at, partial(self._begins, workload))
        sampler = Sampler(self.nodes, self.work, MOST_SAMPLES, self._history)
        while self._events and not self.cut_short:
            sampler.until(self._events[0][0], self._so_far())
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                heapq.heappop(self._events)[-1]()
            # Give nodes to pods until none that is to be tried is left
            while (record := self._queue.next()) is not None:
                asked = record.arrival.asked
                record.tries, record.tried = record.tries + 1, self.now
                choice = self._scheduler.choose(asked)
                for code, count in choice.causes:
                    self.filtered[code] = self.filtered.get(code, 0) + count
                node = choice.node
                if node is None and (found := self._scheduler.preempt(asked)) is not None:
                    node, victims = found
                    self.preempt(node, victims)
                if node is None:
                    self._queue.park(record)
                    continue
                self._bind(record, node)
                self._retry(self._queue.wake(asked.key))
        sampler.last(self.now, self._so_far())
        self.samples, self.filtered = sampler.samples, dict(sorted(self.filtered.items()))
        return self

    @property
    def records(self) -> tuple[Record, ...]:
        """What became of the pods, in the order of their creation."""
        return tuple(self.by_name.values())

    def stop(self) -> None:
        """Let time stand still before the next moment; :meth:`run` then returns what there is."""
        self.cut_short = True

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Let something happen at a time, after what was planned for it before."""
        self._order += 1
        heapq.heappush(self._events, (time, self._order, event))

    def create(self, arrival: PodArrival, controller: Controller | None = None) -> None:
        """Let a pod come at its time, after what was planned for it before.

        Args:
            arrival: the pod.
            controller: which notices what becomes of it.
        """
        if controller is not None:
            self.controllers[arrival.name] = controller

        def happens() -> None:
            record = self.by_name[arrival.name] = Record(arrival)
            self._counts[PodPhase.WAITS] += 1
            self._queue.add(record)
            if arrival.leaves is not None:
                self.at(max(arrival.leaves, self.now), partial(self.delete, arrival.name))

        self.at(arrival.at, happens)

    def delete(self, name: str) -> None:
        """Delete a pod wherever it is; one that comes at this moment, as soon as it is there."""
        record = self.by_name.get(name)
        if record is None:
            self.at(self.now, partial(self.delete, name))
        elif record.fate is PodPhase.RUNS:
            self._gone(record, PodPhase.RAN, PodChange.SUCCEEDED)
        elif record.fate is PodPhase.HELD and record.node is not None:
            self._unheld(record, record.node)
            self.wake(record.node)
        elif record.fate is PodPhase.WAITS:
            self._becomes(record, PodPhase.LEFT)
            record.ended = self.now

    def evict(self, record: Record) -> None:
        """Let a pod leave its node before its end."""
        if record.fate is PodPhase.RUNS:
            self._gone(record, PodPhase.EVICTED, PodChange.DELETED)
        elif record.fate is PodPhase.HELD and record.node is not None:
            self._unheld(record, record.node)
            self._notice(record, PodChange.DELETED)

    def on_node(self, node: int, name: str) -> Record:
        """Return the record of a pod that is on a node; one that was there at the beginning gets it now."""
        record = self.by_name.get(name)
        if record is None:
            pod = self.nodes.pods[node][name]
            record = self.by_name[name] = Record(PodArrival(name, pod.asked, 0.0), PodPhase.RUNS, node, pod.place, 0.0)
            self._counts[PodPhase.RUNS] += 1
        return record

    def refuse(self, record: Record, prediction: Prediction) -> None:
        """Let a pod fail that its node does not admit, or not again; it is not on the node."""
        record.code, record.ended = prediction.code, self.now
        self._becomes(record, PodPhase.REFUSED)
        self._notice(record, PodChange.FAILED)

    def wake(self, node: int) -> None:
        """Try again one pod of each kind that a node could take now; its success tries the next one."""
        for asked in self._queue.kinds():
            if self.nodes.takes(node, asked, exactly=self.strategy.extender) or (
                asked.relations.has_terms and feasible(self.nodes.table, asked).any()
            ):
                self._retry(self._queue.wake(asked.key))

    def _so_far(self) -> Counts:
        return self._counts[PodPhase.RUNS], self._counts[PodPhase.WAITS], self._counts[PodPhase.REFUSED]

    def _begins(self, workload: Workload) -> None:
        controller = self.controllers[workload.name] = Controller(self, workload)
        controller.sync()
        if workload.leaves is not None:
            self.at(workload.leaves, controller.close)

    def _notice(self, record: Record, change: PodChange) -> None:
        """Tell the controller of a pod; one that only has to make the pod anew begins here."""
        name, owner = record.arrival.name, record.arrival.owner
        controller = self.controllers.get(name)
        if controller is None and owner and change in (PodChange.FAILED, PodChange.DELETED):
            controller = self.controllers[name] = Controller.of_pod(self, record.arrival)
        if controller is not None:
            controller.notice(name, change)

    def _becomes(self, record: Record, fate: PodPhase) -> None:
        self._counts[record.fate] -= 1
        self._counts[fate] += 1
        record.fate = fate

    def _unheld(self, record: Record, node: int) -> None:
        self.nodes.forget(node, record.arrival.name)
        self._becomes(record, PodPhase.LEFT)
        record.ended, record.code, record.node = self.now, "", None

    def _gone(self, record: Record, fate: PodPhase, change: PodChange) -> None:
        node = record.node
        if record.fate is not PodPhase.RUNS or node is None:
            return
        self._becomes(record, fate)
        record.ended = self.now
        self.nodes.end(node, record.arrival.name)
        self._notice(record, change)
        self.operations.released(node)
        self.fill(node)
        self.wake(node)

    def fill(self, node: int) -> None:
        """Start the pods that wait on a node and for which there is room now."""
        for name in self.nodes.begin_held(node, self.now):
            self._runs(self.by_name[name], node)

    def _retry(self, record: Record | None) -> None:
        if record is None:
            return
        ready = ready_at(record)
        if ready <= self.now:
            self._queue.add(record)
        else:
            self.at(ready, partial(self._queue.add, record))

    def preempt(self, node: int, victims: Iterable[PlacedPod]) -> None:
        """Evict pods from a node for one of higher priority."""
        for victim in victims:
            self.preempted += 1
            self.evict(self.on_node(node, victim.name))

    def _bind(self, record: Record, node: int) -> None:
        arrival = record.arrival
        prediction = self.nodes.begin(node, arrival.name, arrival.asked, self.now)
        record.node = node
        if prediction.admitted:
            self._runs(record, node)
            return
        if self._history is not None:
            self._history.refused[arrival.name] = self.nodes.at[node]
        if self.strategy.agent:
            record.code = prediction.code
            self.nodes.hold(node, arrival.name, arrival.asked)
            self._becomes(record, PodPhase.HELD)
        else:
            self.refuse(record, prediction)

    def _runs(self, record: Record, node: int) -> None:
        """Note that a node has admitted a pod."""
        arrival = record.arrival
        record.place, record.admitted, record.code = self.nodes.pods[node][arrival.name].place, self.now, ""
        record.numa_nodes = self.nodes.at[node].numa_nodes(record.place) if record.place else 0
        self._becomes(record, PodPhase.RUNS)
        self._notice(record, PodChange.ADMITTED)
        if arrival.runs is not None:
            self.at(self.now + arrival.runs, lambda: self._gone(record, PodPhase.RAN, PodChange.SUCCEEDED))
        if arrival.asked.relations.has_terms:
            # Pods that other pods decide about are tried again, when one came.
            for asked in self._queue.kinds():
                if asked.relations.has_terms and feasible(self.nodes.table, asked).any():
                    self._retry(self._queue.wake(asked.key))


MOST_KINDS: Final = 100
"""Kinds of waiting pods that are explained; those of most pods."""


def answer_of(result: Simulation) -> documents.FleetDocument:
    """Return what a simulation came to, but for single pods, which :func:`with_pods` adds."""
    counted = Counter(record.fate for record in result.records)
    aligned = Counter(record.numa_nodes for record in result.records if record.numa_nodes)
    controllers = dict.fromkeys(result.controllers.values())
    groups = {one.name: documents.FleetGroupPart(one.name, one.count, 0, {}) for one in result.cluster.groups}
    for record in result.records:
        if record.node is not None and record.fate is not PodPhase.HELD:
            group = groups[result.nodes.table.members[record.node].group.name]
            if record.fate is PodPhase.REFUSED:
                group.refused[record.code] = group.refused.get(record.code, 0) + 1
            else:
                group.admitted += 1
    for group in groups.values():
        group.refused = dict(sorted(group.refused.items()))
    return documents.FleetDocument(
        cluster=result.cluster.name,
        work=result.work.name,
        strategy=result.strategy.name,
        seed=result.seed,
        nodes=sum(group.count for group in result.cluster.groups),
        pods=documents.FatesPart(*(counted[fate] for fate in PodPhase)),
        waited=_waited([one for record in result.records if (one := record.waited) is not None]),
        groups=list(groups.values()),
        uses=list(_uses(result)),
        runaways={name: times for one in controllers for name, times in one.runaways.items()},
        failed_jobs=[one.workload.name for one in controllers if one.given_up],
        preempted=result.preempted,
        cut_short=result.cut_short,
        problems=result.operations.problems,
        filtered=result.filtered,
        aligned={str(count): pods for count, pods in sorted(aligned.items())},
        samples=result.samples,
        periods=_periods(result),
        records=[],
        waits=[],
        assumed=[*result.cluster.findings, *result.work.findings],
    )


def _waited(seconds: Iterable[float]) -> documents.WaitedPart:
    """Return median, 99th percentile and most."""
    ordered = sorted(seconds) or [0.0]
    median, late = (ordered[max(-int(-share * len(ordered) // 1) - 1, 0)] for share in (0.5, 0.99))
    return documents.WaitedPart(median, late, ordered[-1])


def _periods(result: Simulation) -> list[documents.FleetPeriodPart]:
    """Return the periods between the samples."""
    ends = [sample.at for sample in result.samples]
    waited: list[list[float]] = [[] for _ in ends]
    refused: list[Counter[tuple[str, str]]] = [Counter() for _ in ends]
    members = result.nodes.table.members

    def place(time: float) -> int:
        return min(bisect_left(ends, time), len(ends) - 1)

    for record in result.records:
        if record.waited is not None and record.admitted is not None:
            waited[place(record.admitted)].append(record.waited)
        if record.fate is PodPhase.REFUSED and record.node is not None and record.ended is not None:
            refused[place(record.ended)][members[record.node].group.name, record.code] += 1
    return [
        documents.FleetPeriodPart(
            start,
            end,
            len(seconds),
            [documents.RefusedPart(*key, pods) for key, pods in sorted(codes.items())],
            _waited(seconds),
        )
        for start, end, seconds, codes in zip([0.0, *ends[:-1]], ends, waited, refused, strict=True)
    ]


def _uses(result: Simulation) -> Iterator[documents.UsePart]:
    table, samples = result.nodes.table, result.samples

    def mean(shares: Sequence[float]) -> float:
        time = samples[-1].at - samples[0].at
        steps = zip(samples, samples[1:], shares, strict=False)
        return fsum((after.at - before.at) * share for before, after, share in steps) / time if time else shares[-1]

    for name in table.resources:
        offered = int(table.row(table.offered, name).sum())
        if offered and samples and name in samples[0].used:
            used = [sample.used[name] / offered for sample in samples]
            lost = [sample.stranded[name] / offered for sample in samples]
            yield documents.UsePart(name, offered, mean(used), max(used), mean(lost))


def with_pods(found: documents.FleetDocument, result: Simulation) -> documents.FleetDocument:
    """Return an answer with what became of every pod, and why some wait; equal pods wait for the same reasons."""
    members, waits = result.nodes.table.members, list[documents.FleetWaitPart]()
    kinds: dict[Hashable, list[Record]] = {}
    for record in result.records:
        if record.fate is PodPhase.WAITS:
            kinds.setdefault(record.arrival.asked.key, []).append(record)
    for alike in sorted(kinds.values(), key=lambda records: -len(records))[:MOST_KINDS]:
        why = causes(result.nodes, alike[0].arrival.asked)
        parts = [documents.WaitCausePart(one.text, one.code, len(one.nodes)) for one in why]
        waits.append(documents.FleetWaitPart([record.arrival.name for record in alike], parts))
    codes = {pod: next((one.code for one in kind.causes if one.code), "") for kind in waits for pod in kind.pods}
    records = [
        documents.FleetPodPart(
            record.arrival.name,
            record.fate.value,
            "" if record.node is None else members[record.node].name,
            codes.get(record.arrival.name, record.code),
            record.arrival.at,
            record.admitted,
            record.ended,
        )
        for record in result.records
    ]
    return structs.replace(found, records=records, waits=waits)
