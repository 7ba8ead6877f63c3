"""The pod is asked earlier: before one of the pods that were admitted before it."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.manifest.scenario import Admit
from mooring.planner.changes.change import Turn
from mooring.planner.changes.cost import Cost
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.search import Search, cheaper
from mooring.planner.question import pods_in

MOST_PLACES = 48
"""How many places before the pod's own are tried at most, the nearest first, and then the very first."""


def proposals(search: Search) -> Iterator[Proposal]:
    """Yield the place that disturbs the fewest pods, the latest of several. Running pods cannot be asked later."""
    if not (search.is_new and search.has_room):
        return
    best: Proposal | None = None
    for place in _places(search):
        found = _at(search, place, best)
        best = found or best
    if best is not None:
        yield best


def _places(search: Search) -> list[int]:
    """Return the places in the queue before each admitted pod that is new, too; in between nothing changes."""
    admitted = [
        place
        for place in range(search.place - 1, -1, -1)
        if isinstance(entry := search.queue[place], Admit) and search.course.admitted(entry.pod.uid)
    ]
    return admitted if len(admitted) <= MOST_PLACES else [*admitted[: MOST_PLACES - 1], admitted[-1]]


def _at(search: Search, place: int, best: Proposal | None) -> Proposal | None:
    """Return the proposal if it is better than the best so far."""
    between = search.queue[place : search.place]
    change = Turn(search.names[search.pod.uid], search.names[pods_in(between)[0].uid])
    course = search.tried((change,), search.course.before[place], (search.entry, *between, *search.tail))
    if course is None:
        return None
    cost = Cost(touched=search.touched(course))
    return search.proposal((change,), cost, course) if cheaper(cost, best) else None
