"""The nearest changes that would admit a pod.

Families of small changes are searched one after another, each for its cheapest member. A change counts only when the
engine, run with it, admits the pod and everybody who is admitted without it (docs/explanation/nearest-change.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mooring.core.decision import StartRefusal
from mooring.planner.changes import by_amount, by_configuration, by_device, by_order, by_removal
from mooring.planner.changes.cost import NOTHING, Cost
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.search import Search, begun
from mooring.planner.question import Question

Family = Callable[[Search], Iterator[Proposal]]

FAMILIES: tuple[tuple[Cost, Family], ...] = (
    (NOTHING, by_amount.proposals),
    (NOTHING, by_order.proposals),
    (Cost(devices=1), by_device.proposals),
    (Cost(restarts=1), by_configuration.proposals),
    (Cost(touched=1), by_removal.moves),
    (Cost(touched=1), by_removal.removals),
    (Cost(touched=2), by_removal.pairs),
)
"""Families in the order of what their members cost at least. Of proposals that cost the same, the one of the earlier
family is nearer."""


def nearest_changes(question: Question, uid: str, limit: int = 3) -> tuple[Proposal, ...]:
    """Return the nearest changes that would admit a pod, the nearest first; empty when it is admitted or none is known.

    Args:
        question: the node and its pods.
        uid: of a pod of the question that is not admitted.
        limit: how many at most.
    """
    search = begun(question, uid)
    if search is None:
        return ()
    if isinstance(search, StartRefusal):
        return _ranked([*by_configuration.proposals_to_start(question, uid)], limit)
    found: list[Proposal] = []
    for least, family in FAMILIES:
        best = _ranked(found, limit)
        if len(best) == limit and best[-1].cost <= least:
            break
        found.extend(family(search))
    return _ranked(found, limit)


def _ranked(found: list[Proposal], limit: int) -> tuple[Proposal, ...]:
    return tuple(sorted(found, key=lambda proposal: proposal.cost)[:limit])
