"""Preemption by priority: which pods of lower priority are evicted, and on which node.

On each node that resources or other pods keep the pod from, all pods of lower priority are taken away; if it fits then,
as many as possible come back, the most important first, and those that cannot are the victims. Budgets
(PodDisruptionBudget) are not simulated.

Source: kube-scheduler v1.37.1, plugin DefaultPreemption (SelectVictimsOnNode) and framework/preemption
(pickOneNodeForPreemption, MoreImportantVictim) with their default arguments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.fleet.nodes import Nodes, PlacedPod
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.filters import friendly

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
    if not asked.preempts or not any(one < asked.priority for one in nodes.table.by_priority):
        return None
    possible = np.flatnonzero(nodes.table.willing(asked) & nodes.table.fitting(asked, without_lower_priority=True))
    if not len(possible):
        return None
    wanted = max(len(possible) * CANDIDATES_PERCENT // 100, FEWEST_CANDIDATES)
    found: list[Preemption] = []
    for node in np.roll(possible, -draw.randrange(len(possible))):
        victims = _victims(nodes, int(node), asked, exactly=exactly)
        if victims:
            found.append(Preemption(int(node), victims))
        if len(found) == wanted:
            break
    if not found:
        return None
    least = min(one.cost for one in found)
    best = [one for one in found if one.cost == least]
    return best[0] if len(best) == 1 else best[draw.randrange(len(best))]


def importance(pod: PlacedPod) -> tuple[int, float]:
    """Return the key by which pods are ordered, the most important first."""
    return -pod.asked.priority, pod.since


def _victims(nodes: Nodes, node: int, asked: PodDemand, *, exactly: bool) -> tuple[PlacedPod, ...]:
    """Return the pods that have to leave a node; empty where that does not help or is not needed."""
    table = nodes.table
    lower = sorted((one for one in nodes.pods[node].values() if one.asked.priority < asked.priority), key=importance)
    if not lower:
        return ()
    for one in lower:
        table.remove(node, one.asked)
    victims: list[PlacedPod] = []
    fits = _fits(nodes, node, asked)
    for one in lower:
        table.add(node, one.asked)
        if fits and not _fits(nodes, node, asked):
            table.remove(node, one.asked)
            victims.append(one)
    for one in victims:
        table.add(node, one.asked)
    if not fits or (exactly and not _admitted_without(nodes, node, victims, asked)):
        return ()
    return tuple(victims)


def _fits(nodes: Nodes, node: int, asked: PodDemand) -> bool:
    return not nodes.table.lacking(asked, node) and bool(friendly(nodes.table, asked)[node])


def _admitted_without(nodes: Nodes, node: int, victims: Sequence[PlacedPod], asked: PodDemand) -> bool:
    if asked.plain:
        return True
    state = nodes.at[node]
    for one in victims:
        if one.place:
            state = nodes.states.remove(state, one.place)
    return nodes.states.admit(state, asked.shape).prediction.admitted
