"""Preemption by priority: which pods of lower priority are evicted, and on which node.

On each node that resources or other pods keep the pod from, all pods of lower priority are taken away; if it fits then,
as many as possible come back, the most important first, and those that cannot are the victims. Budgets
(PodDisruptionBudget) are not simulated.

Source: kube-scheduler v1.37.1, plugin DefaultPreemption (SelectVictimsOnNode) and framework/preemption
(pickOneNodeForPreemption, MoreImportantVictim) with their default arguments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from mooring.fleet.nodes import Nodes, PlacedPod
from mooring.fleet.scheduler.arrays import Amounts
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.filters import friendly
from mooring.fleet.scheduler.table import NodeTable

FEWEST_CANDIDATES: Final = 100
CANDIDATES_PERCENT: Final = 10
_NEVER_NEGATIVE: Final = 2**31
"""Added to priorities in sums, so that fewer victims are better where priorities are negative."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """A node for a pod, and the pods that have to leave it."""

    node: int
    victims: tuple[PlacedPod, ...]
    """The most important first."""

    @property
    def cost(self) -> tuple[int, int, int, float]:
        """What is compared among nodes; less is better."""
        highest = self.victims[0].asked.priority
        total = sum(one.asked.priority + _NEVER_NEGATIVE for one in self.victims)
        earliest = min(one.since for one in self.victims if one.asked.priority == highest)
        return highest, total, len(self.victims), -earliest


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
        found = (one for one in found if _admitted_without(nodes, one, asked))
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
            yield Preemption(int(node), victims)


def cheapest(found: Sequence[Preemption]) -> list[Preemption]:
    """Return the best of some candidates; several where they are equal."""
    least = min((one.cost for one in found), default=None)
    return [one for one in found if one.cost == least]


def importance(pod: PlacedPod) -> tuple[int, float]:
    """Return the key by which pods are ordered, the most important first."""
    return -pod.asked.priority, pod.since


def _victims(table: NodeTable, node: int, asked: PodDemand, lower: Sequence[PlacedPod]) -> tuple[PlacedPod, ...]:
    """Return which of the pods have to leave a node; empty where that does not help or is not needed."""
    for one in lower:
        table.remove(node, one.asked)
    victims: list[PlacedPod] = []
    fits = bool(lower) and _fits(table, node, asked)
    for one in lower:
        table.add(node, one.asked)
        if fits and not _fits(table, node, asked):
            table.remove(node, one.asked)
            victims.append(one)
    for one in victims:
        table.add(node, one.asked)
    return tuple(victims)


def _fits(table: NodeTable, node: int, asked: PodDemand) -> bool:
    return not table.lacking(asked, node) and bool(friendly(table, asked)[node])


def _admitted_without(nodes: Nodes, found: Preemption, asked: PodDemand) -> bool:
    if asked.plain:
        return True
    state = nodes.at[found.node]
    for one in found.victims:
        if one.place:
            state = nodes.states.remove(state, one.place)
    return nodes.states.admit(state, asked.shape).prediction.admitted
