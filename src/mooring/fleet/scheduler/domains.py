"""Which pods are on which nodes, by selectors, and the domains that labels of nodes make: arrays over the nodes.

A selector is counted from the first question about it on; a pod that comes or goes then changes the counts of the
selectors that mean it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.fleet.cluster import Member
from mooring.fleet.scheduler.arrays import Amounts, NodeMask
from mooring.inputs.pods.pod_relations import NO_RELATIONS, PodAffinityTerm, PodRelations, PodSelector, WeightedPodTerm


class Domains:
    """The values that a label has over the nodes, numbered."""

    def __init__(self, members: Sequence[Member], key: str) -> None:
        """Number the values of a label.

        Args:
            members: the nodes.
            key: of the label.
        """
        numbers: dict[str, int] = {}
        codes = []
        for member in members:
            value = member.labels.get(key)
            codes.append(-1 if value is None else numbers.setdefault(value, len(numbers)))
        self.codes: Amounts = np.array(codes, np.int64)
        """Number of each node's value; -1 where it lacks the label."""
        self.has_label: NodeMask = self.codes >= 0
        self._count = len(numbers)

    def sums(self, amounts: Amounts, nodes: NodeMask) -> Amounts:
        """Return the sum of an amount over the nodes of each domain.

        Args:
            amounts: over the nodes.
            nodes: those that count.
        """
        counted = nodes & self.has_label
        return np.bincount(self.codes[counted], amounts[counted], self._count).astype(np.int64)

    def spread(self, sums: Amounts) -> Amounts:
        """Return for each node the sum of its domain; 0 where it lacks the label."""
        if not self._count:
            return np.zeros(len(self.codes), np.int64)
        return np.where(self.has_label, sums[self.codes], 0)

    def present(self, nodes: NodeMask) -> Amounts:
        """Return the domains that some nodes make."""
        return np.unique(self.codes[nodes & self.has_label])


class PodIndex:
    """Pods on nodes by what they are to other pods."""

    def __init__(self, members: Sequence[Member]) -> None:
        """Begin without pods.

        Args:
            members: the nodes.
        """
        self._members = members
        self._domains: dict[str, Domains] = {}
        self._on: dict[PodRelations, dict[int, int]] = {}
        self._matching: dict[tuple[PodSelector, ...], Amounts] = {}
        self._arrays: dict[PodRelations, list[Amounts]] = {}
        self.required: dict[PodAffinityTerm, Amounts] = {}
        """Term of required affinity -> pods that have it, over the nodes."""
        self.repelling: dict[PodAffinityTerm, Amounts] = {}
        """Term of required anti-affinity -> pods that have it, over the nodes."""
        self.preferring: dict[WeightedPodTerm, Amounts] = {}

    def count(self, node: int, relations: PodRelations, sign: int) -> None:
        """Count a pod on a node, or count it no more."""
        if relations is NO_RELATIONS:
            return
        arrays = self._arrays.get(relations)
        if arrays is None:
            arrays = self._arrays[relations] = self._arrays_of(relations)
        on = self._on[relations]
        on[node] = on.get(node, 0) + sign
        for array in arrays:
            array[node] += sign

    def domains(self, key: str) -> Domains:
        """Return the domains of a label."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(self._members, key)
        return found

    def matching(self, selectors: tuple[PodSelector, ...]) -> Amounts:
        """Return how many pods all of some selectors mean, over the nodes."""
        found = self._matching.get(selectors)
        if found is None:
            found = self._matching[selectors] = self._zeros()
            for relations, on in self._on.items():
                if all(relations.is_in(one) for one in selectors):
                    for node, count in on.items():
                        found[node] += count
                    self._arrays[relations].append(found)
        return found

    def _arrays_of(self, relations: PodRelations) -> list[Amounts]:
        self._on[relations] = {}
        arrays = [
            found
            for selectors, found in self._matching.items()
            if all(relations.is_in(selector) for selector in selectors)
        ]
        arrays += (self.required.setdefault(term, self._zeros()) for term in relations.affinity)
        arrays += (self.repelling.setdefault(term, self._zeros()) for term in relations.anti_affinity)
        arrays += (self.preferring.setdefault(term, self._zeros()) for term in relations.preferred)
        return arrays

    def _zeros(self) -> Amounts:
        return np.zeros(len(self._members), np.int64)
