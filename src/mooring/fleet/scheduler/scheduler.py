"""One scheduling cycle: the nodes that are looked at, those that pass, the best of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.arrays import Amounts
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.filters import feasible
from mooring.fleet.scheduler.numa import NUMAMatch
from mooring.fleet.scheduler.preemption import Preemption, preempt
from mooring.fleet.scheduler.scores import nodes_to_find, scores
from mooring.fleet.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Choice:
    """What a scheduling cycle came to."""

    node: int | None
    """Place of the chosen node; None when no node takes the pod."""
    fitting: int
    """Nodes that passed the filters, as far as the search went."""
    refusing: int
    """Nodes among them that the extender filtered out."""
    causes: tuple[tuple[str, int], ...] = ()
    """Code of the extender's cause -> nodes."""


class Scheduler:
    """Chooses nodes; the search goes on where the one before it ended."""

    def __init__(self, nodes: Nodes, strategy: Strategy, seed: int) -> None:
        """Begin with the first node.

        Args:
            nodes: of the cluster.
            strategy: how it places pods.
            seed: of the choice among nodes of one score.
        """
        self._nodes, self._strategy = nodes, strategy
        self._draw = random.Random(seed)  # noqa: S311 - a simulation, repeatable by its seed
        self._next = 0
        self._numa = None if strategy.numa is None else NUMAMatch(strategy.numa)

    def choose(self, asked: PodDemand) -> Choice:
        """Return the node for a pod."""
        table = self._nodes.table
        turned = self._turned()
        to_find = nodes_to_find(len(turned))
        passing = np.flatnonzero(feasible(table, asked)[turned])
        looked_at = len(turned) if len(passing) <= to_find else int(passing[to_find - 1]) + 1
        found = turned[passing[:to_find]]
        if self._numa is not None:
            found, looked_at = self._aligned(self._numa, asked, turned, passing, to_find)
        self._next = (self._next + looked_at) % max(len(turned), 1)
        fitting = len(found)
        causes: dict[str, int] = {}
        if self._strategy.extender and fitting and not asked.plain:
            taking = []
            for node in found:
                prediction = self._nodes.would(int(node), asked)
                if prediction.admitted:
                    taking.append(node)
                else:
                    causes[prediction.code] = causes.get(prediction.code, 0) + 1
            found = np.array(taking, np.int64)
        if not len(found):
            return Choice(None, fitting, fitting, tuple(sorted(causes.items())))
        points = scores(table, asked, found, self._strategy)
        if self._numa is not None:
            points = points + np.array([self._numa.score(self._nodes.at[node], asked.shape) for node in found])
        best = found[points == points.max()]
        node = int(best[0]) if len(best) == 1 else int(best[self._draw.randrange(len(best))])
        return Choice(node, fitting, fitting - len(found), tuple(sorted(causes.items())))

    def _aligned(
        self, numa: NUMAMatch, asked: PodDemand, turned: Amounts, passing: Amounts, to_find: int
    ) -> tuple[Amounts, int]:
        """Return the nodes that pass NodeResourceTopologyMatch, too, and how many nodes were looked at."""
        found: list[int] = []
        for position in passing:
            node = int(turned[position])
            if numa.fits(self._nodes.at[node], asked.shape):
                found.append(node)
            if len(found) == to_find:
                return np.array(found, np.int64), int(position) + 1
        return np.array(found, np.int64), len(turned)

    def preempt(self, asked: PodDemand) -> Preemption | None:
        """Return where a pod that fits nowhere could go instead of others; None where nowhere."""
        return preempt(self._nodes, asked, self._draw, exactly=self._strategy.extender)

    def _turned(self) -> Amounts:
        """Return the nodes that are in the cluster, from the one on at which the search before this one ended."""
        order = self._nodes.table.order
        if not self._nodes.table.present.all():
            order = order[self._nodes.table.present[order]]
        return np.roll(order, -self._next)
