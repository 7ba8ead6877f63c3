"""Affinity and anti-affinity to pods: the filter and the score.

Source: kube-scheduler v1.37.1, plugin InterPodAffinity (filtering.go, scoring.go) by default a required
affinity term of a pod on a node adds 1 to the score of nodes for pods that the term means.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mooring.fleet.scheduler.arrays import Amounts, NodeMask
from mooring.fleet.scheduler.domains import PodIndex
from mooring.inputs.pods.pod_relations import PodAffinityTerm, PodRelations

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
