"""The nodes of a simulation over time, for answers that draw them: what is used on each, and the state of each.

What a cluster looks like at moments of a simulation: pods, use, and capacity that the work cannot use.

Stranded capacity follows the fragmentation of "Beware of Fragmentation" (USENIX ATC 2023): of each node, what is free
counts as lost for the share of the work's pods that the node cannot take, by the sums of the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.table import Amounts
from mooring.fleet.states import SharedState
from mooring.fleet.work import PodDemand, Work


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """All nodes at one moment."""

    at: float
    """Seconds since the beginning."""
    used: Amounts
    """Requests, with a row for each resource of the table and a column for each node."""
    states: tuple[SharedState, ...]
    """Of each node."""


@dataclass(slots=True)
class NodeHistory:
    """What a simulation keeps of its nodes where it is asked to."""

    moments: list[NodesSeen] = field(default_factory=list)
    refused: dict[str, SharedState] = field(default_factory=dict)
    """Name of a pod that a kubelet refused -> the state of its node then."""

    def look(self, time: float, nodes: Nodes) -> None:
        """Keep the nodes as they are."""
        self.moments.append(NodesSeen(time, nodes.table.used.copy(), tuple(nodes.at)))


_NOT_SHOWN = ("pods", "ephemeral-storage")
_MOST_KINDS = 64
"""Kinds of pods, the most frequent ones, that stand for the work."""
_TIMES_AS_LONG = 10
"""Pods may run longer than new ones arrive: up to this many times the moments are kept, then half of them."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Pods by what becomes of them, so far."""

    running: int
    waiting: int
    refused: int
    """Refusals since the beginning."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at one moment."""

    at: float
    """Seconds since the beginning."""
    counts: Counts
    used: Mapping[str, int]
    """Resource -> requested by the pods on nodes; cpu in millicores."""
    stranded: Mapping[str, int]
    """Resource -> free, and of no use to the pods of the work."""


class Sampler:
    """Looks at a cluster at evenly spaced moments."""

    def __init__(self, nodes: Nodes, work: Work, most: int, history: NodeHistory | None = None) -> None:
        """Begin before the first event.

        Args:
            nodes: of the simulation.
            work: its work.
            most: number of moments until the last time that the work names.
            history: takes the states of the nodes at these moments, where they are wanted.
        """
        self.samples: list[Sample] = []
        self._history = history
        self._nodes, self._step = nodes, work.ends / most if most and work.ends else 0.0
        self._most_kept = most * _TIMES_AS_LONG
        self._shown = [name for name in nodes.table.resources if name not in _NOT_SHOWN]
        kinds: dict[object, PodDemand] = {}
        counts: Counter[object] = Counter()
        for asked, count in work.demands():
            kinds[asked.key] = asked
            counts[asked.key] += count
        self._kinds = [(kinds[key], count) for key, count in counts.most_common(_MOST_KINDS)]

    def until(self, time: float, counts: Counts) -> None:
        """Look at every moment before a time; nothing has changed since the last event."""
        seen: Sample | None = None
        while self._step and len(self.samples) * self._step < time:
            moment = len(self.samples) * self._step
            self._remember(moment)
            seen = self._sample(moment, counts) if seen is None else replace(seen, at=moment)
            self.samples.append(seen)
            if len(self.samples) == self._most_kept:
                self._halve()

    def _halve(self) -> None:
        """Forget every other moment, and look half as often."""
        self._step *= 2
        del self.samples[1::2]
        if self._history is not None:
            del self._history.moments[1::2]

    def last(self, time: float, counts: Counts) -> None:
        """Look for the last time."""
        self._remember(time)
        self.samples.append(self._sample(time, counts))

    def _remember(self, time: float) -> None:
        if self._history is not None:
            self._history.look(time, self._nodes)

    def _sample(self, time: float, counts: Counts) -> Sample:
        table = self._nodes.table
        used = {name: int(table.row(table.used, name).sum()) for name in self._shown}
        lost = dict.fromkeys(self._shown, 0.0)
        free = {name: table.row(table.offered, name) - table.row(table.used, name) for name in self._shown}
        total = sum(count for _, count in self._kinds)
        for asked, count in self._kinds:
            not_taking = ~(table.willing(asked) & table.fitting(asked))
            for name in self._shown:
                lost[name] += int(np.where(not_taking, free[name], 0).sum()) * count / total
        return Sample(time, counts, used, {name: round(amount) for name, amount in lost.items()})
