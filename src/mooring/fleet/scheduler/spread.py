"""Topology spread constraints, those of pods and the scheduler's own: the filter and the score.

Source: kube-scheduler v1.37.1, plugin PodTopologySpread (filtering.go, scoring.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mooring.fleet.scheduler.arrays import Amounts, NodeMask
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.table import NodeTable
from mooring.inputs.pods.pod_relations import HOSTNAME, SpreadConstraint

_BEST: Final = 100


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
