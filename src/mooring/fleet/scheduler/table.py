"""What the scheduler knows of all nodes: what they offer and what is requested of them, as arrays over the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.fleet.cluster import Member
from mooring.fleet.scheduler.asked import UNSET, PodDemand
from mooring.manifest.scheduling_fields import SchedulingFields

Amounts = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.bool_]
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
        self.open: Nodes = np.ones(len(members), np.bool_)
        """Nodes that take pods: neither cordoned nor gone."""
        self.order = np.array(_in_turn(self.members), np.int64)
        """Places of the nodes in the order in which they are looked at: zones in turn."""
        self._allowed: dict[SchedulingFields, Nodes] = {}

    def add(self, node: int, asked: PodDemand) -> None:
        """Count a pod on a node."""
        self._count(node, asked, 1)

    def remove(self, node: int, asked: PodDemand) -> None:
        """Count a pod on a node no more."""
        self._count(node, asked, -1)

    def _count(self, node: int, asked: PodDemand, sign: int) -> None:
        for name, amount in asked.requests.items():
            row = self.resources.get(name)
            if row is not None:
                self.used[row, node] += sign * amount
        self.used[self.resources[PODS], node] += sign
        for name, amount in asked.scored.items():
            self.scored[name][node] += sign * amount

    def row(self, table: Amounts, resource: str) -> Amounts:
        """Return one resource of offers or requests over the nodes."""
        found: Amounts = table[self.resources[resource]]
        return found

    def fitting(self, asked: PodDemand) -> Nodes:
        """Return the nodes whose free resources take a pod (plugin NodeResourcesFit)."""
        pods = self.row(self.used, PODS) < self.row(self.offered, PODS)
        for name, amount in asked.requests.items():
            if amount <= 0:
                continue
            if name not in self.resources:
                return np.zeros(len(self.members), np.bool_)
            pods &= self.row(self.offered, name) - self.row(self.used, name) >= amount
        return pods

    def lacking(self, asked: PodDemand, node: int) -> str:
        """Return the first resource of which a node has too little; empty when it takes the pod."""
        if self.used[self.resources[PODS], node] >= self.offered[self.resources[PODS], node]:
            return PODS
        for name, amount in sorted(asked.requests.items()):
            row = self.resources.get(name)
            if amount > 0 and (row is None or self.offered[row, node] - self.used[row, node] < amount):
                return name
        return ""

    def allowed(self, fields: SchedulingFields) -> Nodes:
        """Return the nodes that selector, affinity and taints allow; remembered, because labels do not change."""
        found = self._allowed.get(fields)
        if found is None:
            found = self._allowed[fields] = np.array(
                [fields.allows(one.labels, one.name) and fields.tolerates(one.group.taints) for one in self.members],
                np.bool_,
            )
        return found

    def feasible(self, asked: PodDemand) -> Nodes:
        """Return the nodes that pass every filter."""
        return self.open & self.allowed(asked.fields) & self.fitting(asked)


def _in_turn(members: Sequence[Member]) -> list[int]:
    """Return the places of the nodes, one of each zone in turn (the scheduler's node tree)."""
    zones: dict[str, list[int]] = {}
    for place, member in enumerate(members):
        zones.setdefault(member.zone, []).append(place)
    turns = max((len(found) for found in zones.values()), default=0)
    return [found[turn] for turn in range(turns) for found in zones.values() if turn < len(found)]
