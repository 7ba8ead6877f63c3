"""The kinds of changes, how they are read from options, and the search for the nearest that would admit a pod.

Families of small changes are searched one after another, each for its cheapest member. A change counts only when the
engine, run with it, admits the pod and all pods that are admitted without it (docs/explanation/nearest-change.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from mooring.answers.base.changes import configuration_search, device, order, other_devices, removal, request_search
from mooring.answers.base.changes.change import NOTHING, Cost, PlannedChange, Reader
from mooring.answers.base.changes.configuration import read_fresh_state, read_set
from mooring.answers.base.changes.requests import read_ask
from mooring.answers.base.changes.search import Proposal, Search, begun
from mooring.answers.base.question import Question
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError

Family = Callable[[Search], Iterator[Proposal]]

FAMILIES: tuple[tuple[Cost, Family], ...] = (
    (NOTHING, request_search.proposals),
    (NOTHING, order.proposals),
    (NOTHING, other_devices.proposals),
    (Cost(devices_added=1), device.proposals),
    (Cost(restarts=1), configuration_search.proposals),
    (Cost(touched=1), removal.moves),
    (Cost(touched=1), removal.removals),
    (Cost(touched=2), removal.pairs),
)
"""Families in the order of what their members cost at least. Of proposals that cost the same, the one of the earlier
family is nearer."""

READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "--ask": read_ask,
        "--set": read_set,
        "--remove": removal.read_removal,
        "--move": partial(removal.read_removal, comes_back=True),
        "--first": order.read_first,
        "--device": device.read_device,
        "--hold": other_devices.read_hold,
        "--fresh-state": read_fresh_state,
    }
)
"""Option of ``mooring whatif`` -> how its value is read."""


def understood(question: Question, option: str, text: str) -> Sequence[PlannedChange]:
    """Return the changes that an option requests; a name with ``*`` makes one for each pod.

    Raises:
        InputError: it cannot be understood.
    """
    try:
        return READERS[option](question, text)
    except InputError as error:
        raise InputError(error.problem, source=option, field=error.field, remedy=error.remedy) from None


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
