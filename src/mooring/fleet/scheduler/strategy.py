"""How pods are placed on nodes: the scheduler's scoring, and what else filters nodes.

A strategy has a name that says all of it: ``MostAllocated+extender``, ``LeastAllocated+numa:LeastNUMANodes``,
``RequestedToCapacityRatio(0:0,100:10)``.

The scores of nodes that passed the filters, and the choice of one.

Source: kube-scheduler v1.37.1, plugins NodeResourcesFit, NodeResourcesBalancedAllocation, TaintToleration and
NodeAffinity, PodTopologySpread and InterPodAffinity with their weights (apis/config/v1/default_plugins.go),
DefaultNormalizeScore, schedule_one.go (numFeasibleNodesToFind, selectHost). The other plugins give every node the same
for pods without volumes and claims; images are not counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

import numpy as np

from mooring.engine.core.errors import InputError
from mooring.fleet.scheduler.filters import SpreadView, affinity_scores
from mooring.fleet.scheduler.table import Amounts, NodeTable
from mooring.fleet.work import PodDemand


class Scoring(Enum):
    """How the scheduler's plugin NodeResourcesFit scores; the value is the name in its configuration."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    RATIO = "RequestedToCapacityRatio"


class NUMAScoring(Enum):
    """How the plugin NodeResourceTopologyMatch scores; the value is the name in its configuration."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    BALANCED = "BalancedAllocation"
    FEWEST_NODES = "LeastNUMANodes"


Shape = tuple[tuple[int, int], ...]
"""Points of a function: percent of use, score from 0 to 10; percent ascending."""
BIN_PACKING: Final[Shape] = ((0, 0), (100, 10))
"""The shape that Kubernetes' documentation shows for packing nodes."""
_NAME = re.compile(r"(\w+)(?:\(([^)]*)\))?((?:\+[\w:]+)*)")


@dataclass(frozen=True, slots=True)
class Strategy:
    """How pods are placed on nodes."""

    scoring: Scoring = Scoring.LEAST
    extender: bool = False
    """Whether nodes whose kubelet would refuse the pod are filtered out (``mooring extender``)."""
    shape: Shape = BIN_PACKING
    """Of RequestedToCapacityRatio."""
    numa: NUMAScoring | None = None
    """Whether NodeResourceTopologyMatch filters and scores, and how."""
    agent: bool = False
    """Whether Mooring's agent decides at the node instead of the kubelet's managers: a pod for which it has no room is
    held there until it has (``onRejection: hold``)."""

    @property
    def name(self) -> str:
        """What answers call it, and what ``--strategy`` takes."""
        points = ",".join(f"{percent}:{score}" for percent, score in self.shape)
        shape = f"({points})" if self.scoring is Scoring.RATIO else ""
        parts = [f"{self.scoring.value}{shape}", *(["extender"] if self.extender else [])]
        parts += [f"numa:{self.numa.value}"] if self.numa else []
        return "+".join([*parts, *(["agent"] if self.agent else [])])


def strategy_of(text: str) -> Strategy:
    """Return the strategy of a name.

    Raises:
        InputError: it names none.

    >>> strategy_of("MostAllocated+extender").name
    'MostAllocated+extender'
    >>> strategy_of("RequestedToCapacityRatio").name
    'RequestedToCapacityRatio(0:0,100:10)'
    """
    found = _NAME.fullmatch(text)
    scorings = {one.value: one for one in Scoring}
    if found is None or found[1] not in scorings:
        raise _unknown(text, f"is not a strategy; scorings are {', '.join(scorings)}")
    scoring = scorings[found[1]]
    if found[2] is not None and scoring is not Scoring.RATIO:
        raise _unknown(text, f"only {Scoring.RATIO.value} has a shape")
    extender, agent, numa, kinds = False, False, None, {one.value: one for one in NUMAScoring}
    for word in found[3].split("+")[1:]:
        kind, _, choice = word.partition(":")
        if word == "extender":
            extender = True
        elif word == "agent":
            agent = True
        elif kind == "numa" and (choice or NUMAScoring.LEAST.value) in kinds:
            numa = kinds[choice or NUMAScoring.LEAST.value]
        else:
            raise _unknown(text, f"{word!r:.40} is not extender, agent or numa:{'|'.join(kinds)}")
    shape = _shape(text, found[2]) if found[2] is not None else BIN_PACKING
    return Strategy(scoring, extender, shape, numa, agent)


def _shape(text: str, points: str) -> Shape:
    try:
        pairs = [point.split(":") for point in points.split(",")]
        shape = tuple((int(percent), int(score)) for percent, score in pairs)
    except ValueError:
        raise _unknown(text, "a shape is PERCENT:SCORE,...") from None
    ascending = all(before[0] < after[0] for before, after in pairwise(shape))
    if not ascending or not all(0 <= percent <= 100 and 0 <= score <= 10 for percent, score in shape):
        raise _unknown(text, "percents must ascend from 0 to 100, scores be 0 to 10")
    return shape


def _unknown(text: str, problem: str) -> InputError:
    return InputError(f"{text!r:.60}: {problem}", source="--strategy", remedy="write MostAllocated+extender")


MOST: Final = 100
"""The best score of a plugin."""
RESOURCES_WEIGHT: Final = 1
BALANCE_WEIGHT: Final = 1
TAINT_WEIGHT: Final = 3
AFFINITY_WEIGHT: Final = 2
POD_WEIGHT: Final = 2
"""Of PodTopologySpread and of InterPodAffinity, each."""
_SHAPE_SCALE: Final = 10
"""Scores of a shape go to 10, scores of a plugin to 100."""
_FEWEST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5


def nodes_to_find(nodes: int) -> int:
    """Return after how many feasible nodes the scheduler stops its search.

    >>> [nodes_to_find(count) for count in (50, 1523, 5000)]
    [50, 578, 500]
    """
    if nodes < _FEWEST_NODES:
        return nodes
    percentage = max(50 - nodes // 125, _LEAST_PERCENTAGE)
    return max(nodes * percentage // 100, _FEWEST_NODES)


def scores(table: NodeTable, asked: PodDemand, nodes: Amounts, strategy: Strategy) -> Amounts:
    """Return the total score of each node.

    Args:
        table: of the cluster.
        asked: the pod.
        nodes: places of the nodes that passed the filters.
        strategy: how the plugin NodeResourcesFit scores.
    """
    total = (
        RESOURCES_WEIGHT * _resources(table, asked, nodes, strategy)
        + BALANCE_WEIGHT * _balance(table, asked, nodes)
        + TAINT_WEIGHT * _taints(table.disliked(asked.fields)[nodes])
        + AFFINITY_WEIGHT * _affinity(table, asked, nodes)
    )
    index, relations = table.index, asked.relations
    if relations.spread:
        total = total + POD_WEIGHT * SpreadView(table, asked).scores(nodes)
    if relations.preferred or index.preferring or index.required:
        total = total + POD_WEIGHT * affinity_scores(index, relations, nodes, table.present)
    return total


def _resources(table: NodeTable, asked: PodDemand, nodes: Amounts, strategy: Strategy) -> Amounts:
    total = np.zeros(len(nodes), np.int64)
    weight = np.zeros(len(nodes), np.int64)
    for name, amount in asked.scored.items():
        offered = table.row(table.offered, name)[nodes]
        wanted = table.scored[name][nodes] + amount
        there = offered > 0
        divisor = np.where(there, offered, 1)
        if strategy.scoring is Scoring.LEAST:
            found = np.where(wanted > offered, 0, (offered - wanted) * MOST // divisor)
        elif strategy.scoring is Scoring.MOST:
            found = np.minimum(wanted, offered) * MOST // divisor
        else:
            found = _on_shape(strategy.shape, np.minimum(wanted * MOST // divisor, MOST))
            there = there & (found > 0)
        total += np.where(there, found, 0)
        weight += there
    if strategy.scoring is Scoring.RATIO:
        return np.where(weight > 0, np.floor(total / np.maximum(weight, 1) + 0.5), 0).astype(np.int64)
    return np.where(weight > 0, total // np.maximum(weight, 1), 0)


def _on_shape(shape: Shape, percents: Amounts) -> Amounts:
    """Return the values of a function that is linear between its points, in whole numbers as Go divides them."""
    found = np.full(len(percents), shape[-1][1] * _SHAPE_SCALE, np.int64)
    for (start, low), (end, high) in reversed(list(pairwise(shape))):
        rise = (high - low) * _SHAPE_SCALE * (percents - start)
        on_line = low * _SHAPE_SCALE + np.sign(rise) * (np.abs(rise) // (end - start))
        found = np.where(percents <= end, on_line, found)
    return np.where(percents <= shape[0][0], shape[0][1] * _SHAPE_SCALE, found)


def _balance(table: NodeTable, asked: PodDemand, nodes: Amounts) -> Amounts:
    """Score how much nearer the shares of cpu and memory come to one another by the pod."""
    requests = [asked.requests.get(name, 0) for name in asked.scored]
    if not any(requests):
        return np.zeros(len(nodes), np.int64)
    with_pod = _balanced(table, asked, nodes, requests)
    without = _balanced(table, asked, nodes, [0] * len(requests))
    # Both are at least half of the best score, so that the division rounds as Go's does.
    return MOST // 2 + (MOST // 2 + with_pod - without) // 2


def _balanced(table: NodeTable, asked: PodDemand, nodes: Amounts, requests: list[int]) -> Amounts:
    shares = []
    for name, amount in zip(asked.scored, requests, strict=True):
        offered = table.row(table.offered, name)[nodes]
        used = table.row(table.used, name)[nodes] + amount
        shares.append(np.minimum(used / np.where(offered > 0, offered, 1), 1.0))
    return ((1 - np.abs((shares[0] - shares[1]) / 2)) * MOST).astype(np.int64)


def _taints(counts: Amounts) -> Amounts:
    most = counts.max(initial=0)
    return np.full(len(counts), MOST) if most == 0 else MOST - MOST * counts // most


def _affinity(table: NodeTable, asked: PodDemand, nodes: Amounts) -> Amounts:
    if not asked.fields.preferred:
        return np.zeros(len(nodes), np.int64)
    weights = table.preferred(asked.fields)[nodes]
    most = weights.max(initial=0)
    return weights if most == 0 else MOST * weights // most
