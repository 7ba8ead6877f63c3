"""Discrete events: pods are created, scheduled, admitted or refused by their node, and end.

Scheduling takes no time and neither does a kubelet's admission, so that at each moment the order of events alone
decides. A pod that its kubelet refuses has failed; its controller makes a new one a second later, unless it is a
runaway.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from mooring.fleet.cluster import NodeCluster, Strategy
from mooring.fleet.history import NodeHistory
from mooring.fleet.nodes import Nodes
from mooring.fleet.samples import Counts, Sample, Sampler
from mooring.fleet.scheduler.queue import Queue, WaitingPod
from mooring.fleet.scheduler.scheduler import Scheduler
from mooring.fleet.work import PodArrival, Work

REMADE_AFTER: Final = 1.0
"""Seconds after which a controller makes a new pod for one that failed."""
MOST_REMADE: Final = 100
"""New pods that are made for one; a pod that would need more is a runaway."""
MOST_SAMPLES: Final = 100
REMADE: Final = "~"
"""Between the name of a pod and the number of one that was made anew for it."""


class Fate(Enum):
    """What became of a pod."""

    RAN = "ran"
    """It was admitted and has ended."""
    RUNS = "runs"
    """It is on its node at the end."""
    WAITS = "waits"
    """No node takes it, at the end."""
    LEFT = "left"
    """It was deleted before a node took it."""
    REFUSED = "refused"
    """Its kubelet refused it."""


@dataclass(slots=True)
class Record:
    """What became of one pod."""

    arrival: PodArrival
    fate: Fate = Fate.WAITS
    node: int | None = None
    """Place of its node, also of the one that refused it."""
    place: str = ""
    """Its name in the node's state."""
    admitted: float | None = None
    """When its node took it."""
    ended: float | None = None
    code: str = ""
    """Of the cause of a refusal."""
    came: int = 0
    """Number of the event with which it came to its node; later ones are larger."""
    went: int = 0
    """Number of the event with which it left its node; 0 while it is there."""
    numa_nodes: int = 0
    """NUMA nodes on which its own CPUs, devices and memory lay when it was admitted; 0 when it had none."""

    @property
    def waited(self) -> float | None:
        """Seconds from its creation to its admission; None when it never came to that."""
        return None if self.admitted is None else self.admitted - self.arrival.at


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a simulation came to."""

    cluster: NodeCluster
    work: Work
    strategy: Strategy
    seed: int
    records: tuple[Record, ...]
    samples: tuple[Sample, ...]
    nodes: Nodes
    """As they are at the end."""
    runaways: Mapping[str, int]
    """Pods that a controller made anew again and again -> how often."""
    filtered: Mapping[str, int]
    """Cause -> how often the extender kept a pod off a node for it."""


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
        self._cluster, self._work, self._strategy, self._seed = cluster, work, strategy or Strategy(), seed
        self.nodes = Nodes(cluster)
        self._history = history
        self.records: dict[str, Record] = {}
        self._now = 0.0
        self._scheduler = Scheduler(self.nodes, self._strategy, seed)
        self._queue = Queue()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._moves = 0
        self._counts: dict[Fate, int] = dict.fromkeys(Fate, 0)
        self._remade: dict[str, int] = {}
        self._filtered: dict[str, int] = {}

    def run(self) -> SimulationResult:
        """Let time pass until nothing happens any more."""
        for arrival in self._work.arrivals:
            self._arrives(arrival)
        sampler = Sampler(self.nodes, self._work, MOST_SAMPLES, self._history)
        while self._events:
            sampler.until(self._events[0][0], self._so_far())
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                heapq.heappop(self._events)[-1]()
            self._schedule()
        sampler.last(self._now, self._so_far())
        runaways = {name: count for name, count in self._remade.items() if count >= MOST_REMADE}
        records = tuple(self.records.values())
        return SimulationResult(
            self._cluster,
            self._work,
            self._strategy,
            self._seed,
            records,
            tuple(sampler.samples),
            self.nodes,
            runaways,
            dict(sorted(self._filtered.items())),
        )

    def _so_far(self) -> Counts:
        return Counts(self._counts[Fate.RUNS], self._counts[Fate.WAITS], self._counts[Fate.REFUSED])

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, event))

    def _arrives(self, arrival: PodArrival) -> None:
        def happens() -> None:
            record = self.records[arrival.name] = Record(arrival)
            self._counts[Fate.WAITS] += 1
            self._queue.add(WaitingPod(arrival, self._now))
            if arrival.leaves is not None:
                self._at(max(arrival.leaves, self._now), lambda: self._leaves(record))

        self._at(arrival.at, happens)

    def _becomes(self, record: Record, fate: Fate) -> None:
        self._counts[record.fate] -= 1
        self._counts[fate] += 1
        record.fate = fate

    def _leaves(self, record: Record) -> None:
        if record.fate is Fate.RUNS:
            self._ends(record)
        elif record.fate is Fate.WAITS:
            self._queue.forget(record.arrival.name)
            self._becomes(record, Fate.LEFT)
            record.ended = self._now

    def _ends(self, record: Record) -> None:
        if record.fate is not Fate.RUNS or record.node is None:
            return
        self._becomes(record, Fate.RAN)
        self._moves += 1
        record.ended, record.went = self._now, self._moves
        self.nodes.remove(record.node, record.arrival.asked, record.place)
        self._wake(record.node)

    def _wake(self, node: int) -> None:
        """Try again one pod of each kind that a node could take now; its success tries the next one."""
        for asked in self._queue.kinds():
            if self.nodes.takes(node, asked, exactly=self._strategy.extender):
                self._retry(self._queue.wake(asked.key))

    def _retry(self, waiting: WaitingPod | None) -> None:
        if waiting is None:
            return
        if waiting.ready <= self._now:
            self._queue.add(waiting)
        else:
            self._at(waiting.ready, lambda: self._queue.add(waiting))

    def _schedule(self) -> None:
        """Give nodes to pods until none that is to be tried is left."""
        while (waiting := self._queue.next()) is not None:
            asked = waiting.arrival.asked
            waiting.tries, waiting.last = waiting.tries + 1, self._now
            choice = self._scheduler.choose(asked)
            for code, count in choice.causes:
                self._filtered[code] = self._filtered.get(code, 0) + count
            if choice.node is None:
                self._queue.park(waiting)
                continue
            self._bind(self.records[waiting.arrival.name], choice.node)
            self._retry(self._queue.wake(asked.key))

    def _bind(self, record: Record, node: int) -> None:
        arrival = record.arrival
        prediction, place = self.nodes.admit(node, arrival.asked)
        self._moves += 1
        record.node, record.came = node, self._moves
        if not prediction.admitted:
            record.code, record.ended = prediction.code, self._now
            if self._history is not None:
                self._history.refused[arrival.name] = self.nodes.at[node]
            self._becomes(record, Fate.REFUSED)
            self._remake(arrival)
            return
        record.place, record.admitted = place, self._now
        record.numa_nodes = self.nodes.at[node].numa_nodes(place) if place else 0
        self._becomes(record, Fate.RUNS)
        if arrival.runs is not None:
            self._at(self._now + arrival.runs, lambda: self._ends(record))

    def _remake(self, arrival: PodArrival) -> None:
        """Let the controller of a pod that failed make a new one."""
        if not arrival.owner:
            return
        first = arrival.name.partition(REMADE)[0]
        count = self._remade.get(first, 0) + 1
        if count <= MOST_REMADE:
            self._remade[first] = count
            self._arrives(replace(arrival, name=f"{first}{REMADE}{count}", at=self._now + REMADE_AFTER))
