"""The nearest changes that would admit a pod.

Families of small changes are searched one after another, each for its cheapest member. A change counts only when the
engine, run with it, admits the pod and all pods that are admitted without it (docs/explanation/nearest-change.md).
"""

from __future__ import annotations

from mooring.core.decision import StartRefusal
from mooring.planner.changes import configuration_search
from mooring.planner.changes.kinds import FAMILIES
from mooring.planner.changes.search import Proposal, begun
from mooring.planner.question import Question


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
        return _ranked([*configuration_search.proposals_to_start(question, uid)], limit)
    found: list[Proposal] = []
    for least, family in FAMILIES:
        best = _ranked(found, limit)
        if len(best) == limit and best[-1].cost <= least:
            break
        found.extend(family(search))
    return _ranked(found, limit)


def _ranked(found: list[Proposal], limit: int) -> tuple[Proposal, ...]:
    return tuple(sorted(found, key=lambda proposal: proposal.cost)[:limit])
