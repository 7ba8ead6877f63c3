"""The scheduler's filters and scores of nodes, and the choice of one.

A strategy has a name that says all of it: ``MostAllocated+extender``, ``LeastAllocated+numa:LeastNUMANodes``,
``RequestedToCapacityRatio(0:0,100:10)``.

Source: kube-scheduler v1.37.1, plugins InterPodAffinity and PodTopologySpread (filtering.go, scoring.go; by default a
required affinity term of a pod on a node adds 1 to the score of nodes for pods that the term means),
NodeResourcesFit, NodeResourcesBalancedAllocation, TaintToleration and NodeAffinity with their weights
(apis/config/v1/default_plugins.go), DefaultNormalizeScore, schedule_one.go (numFeasibleNodesToFind, selectHost). The
other plugins give every node the same for pods without volumes and claims; images are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

import numpy as np

from mooring.engine.core.errors import InputError
from mooring.fleet.cluster import PodDemand
from mooring.fleet.scheduler.numa import NUMAScoring
from mooring.fleet.scheduler.table import Amounts, NodeMask, NodeTable, PodIndex
from mooring.inputs.pods.pod_relations import HOSTNAME, PodAffinityTerm, PodRelations, SpreadConstraint

HARD_AFFINITY_WEIGHT: Final = 1
_BEST: Final = 100


def affinity_allows(index: PodIndex, relations: PodRelations, present: NodeMask) -> NodeMask:
    """Return the nodes that affinity and anti-affinity allow."""
    allowed = np.ones(len(present), np.bool_)
    if relations.affinity:
        allowed &= _near(index, relations, present)
    for term in relations.anti_affinity:
        allowed &= ~_has(index, term, index.matching((term.selector,)), present)
    for term, holders in index.repelling.items():
        if relations.is_in(term.selector):
            allowed &= ~_has(index, term, holders, present)
    return allowed


def affinity_scores(index: PodIndex, relations: PodRelations, nodes: Amounts, present: NodeMask) -> Amounts:
    """Return the scores of nodes, before the plugin's weight.

    Args:
        index: the pods on nodes.
        relations: of the pod.
        nodes: places of the nodes that passed the filters.
        present: nodes that are in the cluster.
    """
    total = np.zeros(len(present), np.int64)
    for weight, term in relations.preferred:
        total += weight * _around(index, term, index.matching((term.selector,)), present)
    for (weight, term), holders in index.preferring.items():
        if relations.is_in(term.selector):
            total += weight * _around(index, term, holders, present)
    for term, holders in index.required.items():
        if relations.is_in(term.selector):
            total += HARD_AFFINITY_WEIGHT * _around(index, term, holders, present)
    found = total[nodes]
    least, most = found.min(initial=np.iinfo(np.int64).max), found.max(initial=np.iinfo(np.int64).min)
    if most <= least:
        return np.zeros(len(nodes), np.int64)
    scaled: Amounts = (_BEST * ((found - least) / (most - least))).astype(np.int64)
    return scaled


def _near(index: PodIndex, relations: PodRelations, present: NodeMask) -> NodeMask:
    """Return the nodes whose domains have a pod that all required terms mean; the first of such pods goes anywhere."""
    selectors = tuple(term.selector for term in relations.affinity)
    counts = index.matching(selectors)
    labelled, there, anywhere = np.ones(len(present), np.bool_), np.ones(len(present), np.bool_), False
    for term in relations.affinity:
        domains = index.domains(term.topology_key)
        sums = domains.sums(counts, present)
        labelled &= domains.has_label
        there &= domains.spread(sums) > 0
        anywhere = anywhere or bool(sums.any())
    if not anywhere and all(relations.is_in(one) for one in selectors):
        return labelled
    return labelled & there


def _around(index: PodIndex, term: PodAffinityTerm, counts: Amounts, present: NodeMask) -> Amounts:
    """Return for each node how many of the counted pods are in its domain."""
    domains = index.domains(term.topology_key)
    return domains.spread(domains.sums(counts, present))


def _has(index: PodIndex, term: PodAffinityTerm, counts: Amounts, present: NodeMask) -> NodeMask:
    found: NodeMask = _around(index, term, counts, present) > 0
    return found


class SpreadView:
    """What the plugin looks at: pods, and which nodes count for a pod."""

    def __init__(self, table: NodeTable, asked: PodDemand) -> None:
        """Look at the nodes for one pod.

        Args:
            table: of the cluster.
            asked: the pod.
        """
        self._table, self._index, self._asked, self._present = table, table.index, asked, table.present

    def allows(self) -> NodeMask:
        """Return the nodes that required constraints allow."""
        constraints = [one for one in self._asked.relations.spread if one.is_required]
        allowed = np.ones(len(self._present), np.bool_)
        labelled = self._with_labels(constraints)
        for one in constraints:
            domains = self._index.domains(one.topology_key)
            counted = labelled & self._counting(one)
            sums = domains.sums(self._index.matching((one.selector,)), counted)
            there = domains.present(counted)
            # Without any domain the least is the largest number there is, so that every node with the label passes.
            least = int(sums[there].min()) if len(there) else np.iinfo(np.int32).max
            least = 0 if len(there) < one.min_domains else least
            itself = int(self._asked.relations.is_in(one.selector))
            allowed &= domains.has_label & (domains.spread(sums) + itself - least <= one.max_skew)
        return allowed

    def scores(self, nodes: Amounts) -> Amounts:
        """Return the scores of nodes that passed the filters, before the plugin's weight."""
        constraints = [one for one in self._asked.relations.spread if not one.is_required]
        if not constraints:
            return np.zeros(len(nodes), np.int64)
        labelled = np.ones(len(self._present), np.bool_)
        if not self._asked.relations.is_spread_by_default:
            labelled = self._with_labels(constraints)
        scored = labelled[nodes]
        total = np.zeros(len(nodes), np.float64)
        for one in constraints:
            total += self._score(one, nodes, scored, labelled)
        found = np.where(scored, np.floor(total + 0.5).astype(np.int64), 0)
        least, most = found[scored].min(initial=np.iinfo(np.int64).max), found[scored].max(initial=0)
        if most == 0:
            return np.where(scored, _BEST, 0)
        return np.where(scored, _BEST * (most + least - found) // most, 0)

    def _score(self, one: SpreadConstraint, nodes: Amounts, scored: NodeMask, labelled: NodeMask) -> Amounts:
        domains = self._index.domains(one.topology_key)
        counts = self._index.matching((one.selector,))
        if one.topology_key == HOSTNAME:
            size, found = int(scored.sum()), counts[nodes]
        else:
            size = len(np.unique(domains.codes[nodes][scored]))
            found = domains.spread(domains.sums(counts, labelled & self._counting(one)))[nodes]
        return np.where(domains.has_label[nodes], found * np.log(size + 2) + (one.max_skew - 1), 0.0)

    def _counting(self, one: SpreadConstraint) -> NodeMask:
        """Return the nodes whose pods count for a constraint."""
        counted = self._present
        if one.honors_affinity:
            counted = counted & self._table.matching(self._asked.fields)
        if one.honors_taints:
            counted = counted & self._table.tolerated(self._asked.fields)
        return counted

    def _with_labels(self, constraints: Sequence[SpreadConstraint]) -> NodeMask:
        labelled = np.ones(len(self._present), np.bool_)
        for one in constraints:
            labelled &= self._index.domains(one.topology_key).has_label
        return labelled


def feasible(table: NodeTable, asked: PodDemand) -> NodeMask:
    """Return the nodes that pass every filter."""
    return table.willing(asked) & table.fitting(asked) & friendly(table, asked)


def friendly(table: NodeTable, asked: PodDemand) -> NodeMask:
    """Return the nodes that the pods on all nodes let it run on: affinity, anti-affinity and spread constraints."""
    allowed = table.present
    if table.index.repelling or asked.relations.affinity or asked.relations.anti_affinity:
        allowed = allowed & affinity_allows(table.index, asked.relations, table.present)
    if any(one.is_required for one in asked.relations.spread):
        allowed = allowed & SpreadView(table, asked).allows()
    return allowed


class Scoring(Enum):
    """How the scheduler's plugin NodeResourcesFit scores; the value is the name in its configuration."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    RATIO = "RequestedToCapacityRatio"


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


def strategy_of(text: str, *, extender: bool = False) -> Strategy:
    """Return the strategy of a name, with the extender where the name or the argument says so.

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
    agent, numa, kinds = False, None, {one.value: one for one in NUMAScoring}
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
    counts = table.disliked(asked.fields)[nodes]
    most = counts.max(initial=0)
    weights = table.preferred(asked.fields)[nodes]
    heaviest = weights.max(initial=0)
    total: Amounts = (
        RESOURCES_WEIGHT * _resources(table, asked, nodes, strategy)
        + BALANCE_WEIGHT * _balance(table, asked, nodes)
        + TAINT_WEIGHT * (np.full(len(counts), MOST) if most == 0 else MOST - MOST * counts // most)
        + AFFINITY_WEIGHT * (weights if heaviest == 0 else MOST * weights // heaviest)
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
