"""One scheduling cycle: the nodes that are looked at, those that pass, the best of them.

Pods that wait for a node: those to be tried, and those for which the last try found none.

Equal pods wait together: what one of them is refused the others are refused too, until something on a node changes.
A pod that found no node is tried again after its back-off, and only when a change may have made room for it.

Source: kube-scheduler v1.37.1, backend/queue: priority, then time; back-off of 1 s that doubles up to 10 s.

Preemption by priority: which pods of lower priority are evicted, and on which node.

On each node that resources or other pods keep the pod from, all pods of lower priority are taken away; if it fits then,
as many as possible come back, the most important first, and those that cannot are the victims. Budgets
(PodDisruptionBudget) are not simulated.

Source: kube-scheduler v1.37.1, plugin DefaultPreemption (SelectVictimsOnNode) and framework/preemption
(pickOneNodeForPreemption, MoreImportantVictim) with their default arguments.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from mooring.fleet.cluster import PodDemand, PodPhase, Record
from mooring.fleet.nodes import Nodes, PlacedPod
from mooring.fleet.scheduler.numa import NUMAMatch
from mooring.fleet.scheduler.strategy import Strategy, feasible, friendly, nodes_to_find, scores
from mooring.fleet.scheduler.table import Amounts, NodeTable

FIRST_BACKOFF: Final = 1.0
"""Seconds."""
LONGEST_BACKOFF: Final = 10.0
"""Seconds."""


def ready_at(record: Record) -> float:
    """Return when the back-off of a pod without a node is over."""
    return record.tried + min(FIRST_BACKOFF * 2 ** max(record.tries - 1, 0), LONGEST_BACKOFF) if record.tries else 0.0


class Queue:
    """Pods without a node; one that was deleted meanwhile is left out."""

    def __init__(self) -> None:
        """Begin without any."""
        self._active: list[tuple[int, float, int, Record]] = []
        self._parked: dict[Hashable, deque[Record]] = {}
        self._count = 0

    def add(self, record: Record) -> None:
        """Put a pod among those to be tried: high priority first, then old ones."""
        self._count += 1
        heapq.heappush(self._active, (-record.arrival.asked.priority, record.arrival.at, self._count, record))

    def next(self) -> Record | None:
        """Take the pod that is tried next; None when none is to be tried."""
        while self._active:
            record = heapq.heappop(self._active)[-1]
            if record.fate is PodPhase.WAITS:
                return record
        return None

    def park(self, record: Record) -> None:
        """Keep a pod until something changes."""
        parked = self._parked.setdefault(record.arrival.asked.key, deque())
        # One that was woken in vain stays before those that came after it.
        (parked.append if record.tries == 1 else parked.appendleft)(record)

    def kinds(self) -> list[PodDemand]:
        """Return what the parked pods ask, once each."""
        return [found[0].arrival.asked for found in self._parked.values()]

    def wake(self, key: Hashable) -> Record | None:
        """Take the first of the parked pods of a kind (:attr:`PodDemand.key`); None when none is left."""
        found = self._parked.get(key)
        while found:
            record = found.popleft()
            if not found:
                del self._parked[key]
            if record.fate is PodPhase.WAITS:
                return record
        return None


FEWEST_CANDIDATES: Final = 100
CANDIDATES_PERCENT: Final = 10
_NEVER_NEGATIVE: Final = 2**31
"""Added to priorities in sums, so that fewer victims are better where priorities are negative."""


Preemption: TypeAlias = tuple[int, tuple[PlacedPod, ...]]
"""The place of a node for a pod, and the pods that have to leave it, the most important first."""


def preempt(nodes: Nodes, asked: PodDemand, draw: random.Random, *, exactly: bool) -> Preemption | None:
    """Return where a pod that no node takes could go instead of others; None where nowhere.

    Args:
        nodes: of the cluster; left as they are.
        asked: the pod.
        draw: where the search begins, and the choice among equal nodes.
        exactly: whether the managers of the nodes are asked, as the extender does.
    """
    possible = possible_nodes(nodes.table, asked)
    if not len(possible):
        return None
    found = candidates(nodes.table, nodes.pods, asked, np.roll(possible, -draw.randrange(len(possible))))
    if exactly:
        found = (one for one in found if _admitted_without(nodes, *one, asked))
    wanted = max(len(possible) * CANDIDATES_PERCENT // 100, FEWEST_CANDIDATES)
    best = cheapest(list(islice(found, wanted)))
    return best[draw.randrange(len(best))] if best else None


def possible_nodes(table: NodeTable, asked: PodDemand) -> Amounts:
    """Return the nodes that would have enough for a pod without pods of lower priority."""
    if not asked.preempts or not any(one < asked.priority for one in table.by_priority):
        return np.zeros(0, np.int64)
    return np.flatnonzero(table.willing(asked) & table.fitting(asked, without_lower_priority=True))


def candidates(
    table: NodeTable, pods: Sequence[Mapping[str, PlacedPod]], asked: PodDemand, order: Amounts
) -> Iterator[Preemption]:
    """Yield the nodes on which evictions help, each with the fewest and least important victims.

    Args:
        table: of the cluster; left as it is.
        pods: of each node, by name.
        asked: the pod that wants a node.
        order: the nodes that are tried.
    """
    for node in order:
        lower = sorted((one for one in pods[node].values() if one.asked.priority < asked.priority), key=importance)
        victims = _victims(table, int(node), asked, lower)
        if victims:
            yield int(node), victims


def cheapest(found: Sequence[Preemption]) -> list[Preemption]:
    """Return the best of some candidates; several where they are equal."""
    costs = []
    for _, victims in found:
        highest = victims[0].asked.priority
        total = sum(one.asked.priority + _NEVER_NEGATIVE for one in victims)
        earliest = min(one.since for one in victims if one.asked.priority == highest)
        costs.append((highest, total, len(victims), -earliest))
    return [one for one, cost in zip(found, costs, strict=True) if cost == min(costs)]


def importance(pod: PlacedPod) -> tuple[int, float]:
    """Return the key by which pods are ordered, the most important first."""
    return -pod.asked.priority, pod.since


def resize_victims(nodes: Nodes, node: int, name: str, wanted: PodDemand) -> tuple[PlacedPod, ...]:
    """Return the pods that have to leave a node for a resize that waits there; empty where that does not help.

    Requests alone are looked at, without the pod's own.

    Source: KEP-5836, processing of deferred resizes (alpha in v1.37).

    Args:
        nodes: of the cluster; left as they are.
        node: of the pod.
        name: of the pod.
        wanted: the pod with the resources that it wants.
    """
    pod = nodes.pods[node][name]
    lower = sorted((one for one in nodes.pods[node].values() if one.asked.priority < wanted.priority), key=importance)
    nodes.table.remove(node, pod.asked)
    found = _victims(nodes.table, node, wanted, lower, resizes=True) if wanted.preempts else ()
    nodes.table.add(node, pod.asked)
    return found


def _victims(
    table: NodeTable, node: int, asked: PodDemand, lower: Sequence[PlacedPod], *, resizes: bool = False
) -> tuple[PlacedPod, ...]:
    """Return which of the pods have to leave a node; empty where that does not help or is not needed."""
    for one in lower:
        table.remove(node, one.asked)
    victims: list[PlacedPod] = []
    fits = bool(lower) and _fits(table, node, asked, resizes)
    for one in lower:
        table.add(node, one.asked)
        if fits and not _fits(table, node, asked, resizes):
            table.remove(node, one.asked)
            victims.append(one)
    for one in victims:
        table.add(node, one.asked)
    return tuple(victims)


def _fits(table: NodeTable, node: int, asked: PodDemand, resizes: bool) -> bool:  # noqa: FBT001 - of a private helper
    return not table.lacking(asked, node) and (resizes or bool(friendly(table, asked)[node]))


def _admitted_without(nodes: Nodes, node: int, victims: Sequence[PlacedPod], asked: PodDemand) -> bool:
    if asked.plain:
        return True
    state = nodes.at[node]
    for one in victims:
        if one.place:
            state = nodes.states.remove(state, one.place)
    return nodes.states.would(state, asked.shape).admitted


@dataclass(frozen=True, slots=True)
class Choice:
    """What a scheduling cycle came to."""

    node: int | None
    """Place of the chosen node; None when no node takes the pod."""
    fitting: int
    """Nodes that passed the filters, as far as the search went."""
    refusing: int
    """Nodes among them that the extender filtered out."""
    causes: tuple[tuple[str, int], ...] = ()
    """Code of the extender's cause -> nodes."""


class Scheduler:
    """Chooses nodes; the search goes on where the one before it ended."""

    def __init__(self, nodes: Nodes, strategy: Strategy, seed: int) -> None:
        """Begin with the first node.

        Args:
            nodes: of the cluster.
            strategy: how it places pods.
            seed: of the choice among nodes of one score.
        """
        self._nodes, self._strategy = nodes, strategy
        self._draw = random.Random(seed)  # noqa: S311 - a simulation, repeatable by its seed
        self._next = 0
        self._numa = None if strategy.numa is None else NUMAMatch(strategy.numa)

    def choose(self, asked: PodDemand) -> Choice:
        """Return the node for a pod."""
        table = self._nodes.table
        # The nodes that are in the cluster, from the one on at which the search before this one ended
        order = self._nodes.table.order
        if not self._nodes.table.present.all():
            order = order[self._nodes.table.present[order]]
        turned = np.roll(order, -self._next)
        to_find = nodes_to_find(len(turned))
        passing = np.flatnonzero(feasible(table, asked)[turned])
        looked_at = len(turned) if len(passing) <= to_find else int(passing[to_find - 1]) + 1
        found = turned[passing[:to_find]]
        if self._numa is not None:
            found, looked_at = self._aligned(self._numa, asked, turned, passing, to_find)
        self._next = (self._next + looked_at) % max(len(turned), 1)
        fitting = len(found)
        causes: Mapping[str, int] = {}
        if self._strategy.extender and fitting and not asked.plain:
            states = [self._nodes.at[node] for node in found.tolist()]
            codes = [one.code for one in self._nodes.states.would_each(states, asked.shape)]
            causes = Counter(code for code in codes if code)
            found = found[[not code for code in codes]]
        if not len(found):
            return Choice(None, fitting, fitting, tuple(sorted(causes.items())))
        points = scores(table, asked, found, self._strategy)
        if self._numa is not None:
            points = points + np.array([self._numa.score(self._nodes.at[node], asked.shape) for node in found])
        best = found[points == points.max()]
        node = int(best[0]) if len(best) == 1 else int(best[self._draw.randrange(len(best))])
        return Choice(node, fitting, fitting - len(found), tuple(sorted(causes.items())))

    def _aligned(
        self, numa: NUMAMatch, asked: PodDemand, turned: Amounts, passing: Amounts, to_find: int
    ) -> tuple[Amounts, int]:
        """Return the nodes that pass NodeResourceTopologyMatch, too, and how many nodes were looked at."""
        found: list[int] = []
        for position in passing:
            node = int(turned[position])
            if numa.fits(self._nodes.at[node], asked.shape):
                found.append(node)
            if len(found) == to_find:
                return np.array(found, np.int64), int(position) + 1
        return np.array(found, np.int64), len(turned)

    def preempt(self, asked: PodDemand) -> Preemption | None:
        """Return where a pod that fits nowhere could go instead of others; None where nowhere."""
        return preempt(self._nodes, asked, self._draw, exactly=self._strategy.extender)
