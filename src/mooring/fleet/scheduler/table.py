"""What the scheduler knows of all nodes: what they offer and what is requested of them, as arrays over the nodes.

Arrays over the nodes of a cluster.

Which pods are on which nodes, by selectors, and the domains that labels of nodes make: arrays over the nodes.

A selector is counted from the first question about it on; a pod that comes or goes then changes the counts of the
selectors that mean it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.fleet.cluster import UNSET, Member, PodDemand
from mooring.inputs.pods.pod_relations import NO_RELATIONS, PodAffinityTerm, PodRelations, PodSelector
from mooring.inputs.pods.scheduling_fields import SchedulingFields, Taint, meets_term

Amounts = npt.NDArray[np.int64]
NodeMask = npt.NDArray[np.bool_]


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
        self.domains = cache(partial(Domains, members))
        """Of the nodes, by the key of a label."""
        self._on: dict[PodRelations, dict[int, int]] = {}
        self._matching: dict[tuple[PodSelector, ...], Amounts] = {}
        self._arrays: dict[PodRelations, list[Amounts]] = {}
        self.required: dict[PodAffinityTerm, Amounts] = {}
        """Term of required affinity -> pods that have it, over the nodes."""
        self.repelling: dict[PodAffinityTerm, Amounts] = {}
        """Term of required anti-affinity -> pods that have it, over the nodes."""
        self.preferring: dict[tuple[int, PodAffinityTerm], Amounts] = {}

    def count(self, node: int, relations: PodRelations, sign: int) -> None:
        """Count a pod on a node, or count it no more."""
        if relations is NO_RELATIONS:
            return
        arrays = self._arrays.get(relations)
        if arrays is None:
            self._on[relations] = {}
            arrays = self._arrays[relations] = [
                found for selectors, found in self._matching.items() if all(map(relations.is_in, selectors))
            ]
            arrays += (self.required.setdefault(term, self._zeros()) for term in relations.affinity)
            arrays += (self.repelling.setdefault(term, self._zeros()) for term in relations.anti_affinity)
            arrays += (self.preferring.setdefault(term, self._zeros()) for term in relations.preferred)
        on = self._on[relations]
        on[node] = on.get(node, 0) + sign
        for array in arrays:
            array[node] += sign

    def matching(self, selectors: tuple[PodSelector, ...]) -> Amounts:
        """Return how many pods all of some selectors mean, over the nodes."""
        found = self._matching.get(selectors)
        if found is None:
            found = self._matching[selectors] = self._zeros()
            for relations, on in self._on.items():
                if all(map(relations.is_in, selectors)):
                    for node, count in on.items():
                        found[node] += count
                    self._arrays[relations].append(found)
        return found

    def _zeros(self) -> Amounts:
        return np.zeros(len(self._members), np.int64)


PODS: Final = "pods"


class NodeTable:
    """Offers and requests of all nodes; grows and shrinks with the pods on them."""

    def __init__(self, members: Sequence[Member], offers: Sequence[Mapping[str, int]]) -> None:
        """Begin with empty nodes.

        Args:
            members: the nodes.
            offers: allocatable resources of each, with ``pods``.
        """
        self.members = tuple(members)
        self.resources = {name: row for row, name in enumerate(sorted({PODS, *UNSET, *(n for o in offers for n in o)}))}
        self.offered: Amounts = np.zeros((len(self.resources), len(members)), np.int64)
        for column, offer in enumerate(offers):
            for name, amount in offer.items():
                self.offered[self.resources[name], column] = amount
        self.used: Amounts = np.zeros_like(self.offered)
        self.scored: dict[str, Amounts] = {name: np.zeros(len(members), np.int64) for name in UNSET}
        self.open: NodeMask = np.ones(len(members), np.bool_)
        """Nodes that take pods: neither cordoned nor gone."""
        self.present: NodeMask = np.ones(len(members), np.bool_)
        """Nodes that are in the cluster."""
        self.taints: list[tuple[Taint, ...]] = [one.group.taints for one in members]
        self.index = PodIndex(self.members)
        self.by_priority: dict[int, Amounts] = {}
        """Priority -> requests of the pods that have it."""
        zones: dict[str, list[int]] = {}
        for place, member in enumerate(members):
            zones.setdefault(member.zone, []).append(place)
        turns = max((len(found) for found in zones.values()), default=0)
        in_turn = [found[turn] for turn in range(turns) for found in zones.values() if turn < len(found)]
        self.order = np.array(in_turn, np.int64)
        """Places of the nodes in the order in which they are looked at: one of each zone in turn, as the scheduler's
        node tree gives them."""
        self.matching = cache(self._matching)
        self.tolerated = cache(self._tolerated)
        self.allowed = cache(self._allowed)
        self.disliked = cache(self._disliked)
        self.preferred = cache(self._preferred)

    def add(self, node: int, asked: PodDemand) -> None:
        """Count a pod on a node."""
        self._count(node, asked, 1)

    def remove(self, node: int, asked: PodDemand) -> None:
        """Count a pod on a node no more."""
        self._count(node, asked, -1)

    def _count(self, node: int, asked: PodDemand, sign: int) -> None:
        mine = self.by_priority.get(asked.priority)
        if mine is None:
            mine = self.by_priority[asked.priority] = np.zeros_like(self.offered)
        for name, amount in ((PODS, 1), *asked.requests.items()):
            row = self.resources.get(name)
            if row is not None:
                self.used[row, node] += sign * amount
                mine[row, node] += sign * amount
        for name, amount in asked.scored.items():
            self.scored[name][node] += sign * amount
        self.index.count(node, asked.relations, sign)

    def set_taints(self, node: int, taints: tuple[Taint, ...]) -> None:
        """Give a node other taints."""
        self.taints[node] = taints
        for known in (self.tolerated, self.allowed, self.disliked):
            known.cache_clear()

    def set_offer(self, node: int, offer: Mapping[str, int]) -> None:
        """Let a node offer other amounts; resources that no node had before are not taken over."""
        for name, row in self.resources.items():
            self.offered[row, node] = offer.get(name, 0)

    def row(self, table: Amounts, resource: str) -> Amounts:
        """Return one resource of offers or requests over the nodes."""
        found: Amounts = table[self.resources[resource]]
        return found

    def fitting(self, asked: PodDemand, *, without_lower_priority: bool = False) -> NodeMask:
        """Return the nodes whose free resources take a pod (plugin NodeResourcesFit).

        Args:
            asked: the pod.
            without_lower_priority: whether pods of lower priority count for nothing.
        """
        others = [used for one, used in self.by_priority.items() if without_lower_priority and one < asked.priority]

        def free(row: int) -> Amounts:
            found: Amounts = sum((used[row] for used in others), self.offered[row] - self.used[row])
            return found

        found: NodeMask = free(self.resources[PODS]) >= 1
        for name, amount in asked.requests.items():
            if amount <= 0:
                continue
            if name not in self.resources:
                return np.zeros(len(self.members), np.bool_)
            found &= free(self.resources[name]) >= amount
        return found

    def lacking(self, asked: PodDemand, node: int) -> str:
        """Return the first resource of which a node has too little; empty when it takes the pod."""
        if self.used[self.resources[PODS], node] >= self.offered[self.resources[PODS], node]:
            return PODS
        for name, amount in sorted(asked.requests.items()):
            row = self.resources.get(name)
            if amount > 0 and (row is None or self.offered[row, node] - self.used[row, node] < amount):
                return name
        return ""

    # Remembered: labels do not change, and those that taints decide are forgotten with them.

    def _matching(self, fields: SchedulingFields) -> NodeMask:
        """Return the nodes that selector and node affinity allow."""
        return self._mask(not fields.chooses_nodes or fields.allows(one.labels, one.name) for one in self.members)

    def _tolerated(self, fields: SchedulingFields) -> NodeMask:
        """Return the nodes without a taint that keeps a pod away."""
        return self._mask(fields.tolerates(taints) for taints in self.taints)

    def _allowed(self, fields: SchedulingFields) -> NodeMask:
        """Return the nodes that selector, node affinity and taints allow, and that declare what the pod needs."""
        found = self.matching(fields) & self.tolerated(fields)
        needed = fields.features
        return found & self._mask(needed <= one.group.declared for one in self.members) if needed else found

    def _disliked(self, fields: SchedulingFields) -> Amounts:
        """Return how many taints ``PreferNoSchedule`` a pod does not tolerate, over the nodes."""
        return self._amounts(
            sum(
                taint.effect == "PreferNoSchedule" and not any(one.tolerates(taint) for one in fields.tolerations)
                for taint in taints
            )
            for taints in self.taints
        )

    def _preferred(self, fields: SchedulingFields) -> Amounts:
        """Return the weights of the preferred node affinity that nodes meet."""
        return self._amounts(
            sum(weight for weight, term in fields.preferred if meets_term(term, one.labels, one.name))
            for one in self.members
        )

    def _mask(self, values: Iterable[bool]) -> NodeMask:
        return np.fromiter(values, np.bool_, len(self.members))

    def _amounts(self, values: Iterable[int]) -> Amounts:
        return np.fromiter(values, np.int64, len(self.members))

    def willing(self, asked: PodDemand) -> NodeMask:
        """Return the nodes that take pods, and that every filter but that of resources and of other pods passes."""
        found: NodeMask = self.open & self.allowed(asked.fields)
        return found
