"""The filters of a scheduling cycle together.

Affinity and anti-affinity to pods: the filter and the score.

Source: kube-scheduler v1.37.1, plugin InterPodAffinity (filtering.go, scoring.go) by default a required
affinity term of a pod on a node adds 1 to the score of nodes for pods that the term means.

Topology spread constraints, those of pods and the scheduler's own: the filter and the score.

Source: kube-scheduler v1.37.1, plugin PodTopologySpread (filtering.go, scoring.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mooring.fleet.scheduler.table import Amounts, NodeMask, NodeTable, PodIndex
from mooring.fleet.work import PodDemand
from mooring.inputs.pods.pod_relations import HOSTNAME, PodAffinityTerm, PodRelations, SpreadConstraint

HARD_AFFINITY_WEIGHT: Final = 1
_BEST: Final = 100


def affinity_allows(index: PodIndex, relations: PodRelations, present: NodeMask) -> NodeMask:
    """Return the nodes that affinity and anti-affinity allow.

    Args:
        index: the pods on nodes.
        relations: of the pod.
        present: nodes that are in the cluster.
    """
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
    for one in relations.preferred:
        total += one.weight * _around(index, one.term, index.matching((one.term.selector,)), present)
    for one, holders in index.preferring.items():
        if relations.is_in(one.term.selector):
            total += one.weight * _around(index, one.term, holders, present)
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
    """Return the nodes that pass every filter.

    Args:
        table: of the cluster.
        asked: the pod.
    """
    return table.willing(asked) & table.fitting(asked) & friendly(table, asked)


def friendly(table: NodeTable, asked: PodDemand) -> NodeMask:
    """Return the nodes that the pods on all nodes let it run on: affinity, anti-affinity and spread constraints."""
    allowed = table.present
    if table.index.repelling or asked.relations.affinity or asked.relations.anti_affinity:
        allowed = allowed & affinity_allows(table.index, asked.relations, table.present)
    if any(one.is_required for one in asked.relations.spread):
        allowed = allowed & SpreadView(table, asked).allows()
    return allowed
