"""A pod is asked earlier, and the search for the place where that helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from mooring.answers.base.changes.change import (
    ChangeStage,
    Cost,
    PodRef,
    asked_about,
    listed,
    named_pair,
    pair_text,
    refs,
)
from mooring.answers.base.changes.search import Proposal, Search, cheaper
from mooring.answers.base.pod_names import find_pod
from mooring.answers.base.question import Question, pods_in
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Admit

MOST_PLACES = 48
"""How many places before the pod's own are tried at most, the nearest first, and then the very first."""


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """A pod is asked earlier."""

    kind: ClassVar[str] = "turn"
    stage: ClassVar[ChangeStage] = ChangeStage.ORDER
    target: ClassVar[str] = ""
    """Empty: several turns are made one after another."""

    pod: PodRef
    before: PodRef | None = None
    """The pod that is asked next; without it the pod is the first of all that are yet to be admitted."""

    @property
    def option(self) -> tuple[str, str]:
        """``--first POD[=NEXT]``."""
        return "--first", pair_text(self.pod, self.before)

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the pod that is asked next."""
        return f"ask {self.pod} before {self.before}" if self.before else f"ask {self.pod} first"

    def applied_to(self, question: Question) -> Question:
        """Return the question with its pods in the other order."""
        pod = listed(question, self.pod)
        others = tuple(other for other in question.pods if other.uid != pod.uid)
        if self.before is None:
            return replace(question, pods=(pod, *others))
        if self.before.uid == pod.uid:
            raise InputError(f"{pod.namespace}/{pod.name} cannot come before itself", remedy="name two pods")
        place = others.index(listed(question, self.before))
        return replace(question, pods=(*others[:place], pod, *others[place:]))


def read_first(question: Question, text: str) -> list[EarlierTurn]:
    """Read the value of ``--first``.

    Raises:
        InputError: it cannot be understood.
    """
    name, before = named_pair(question, text)
    return [EarlierTurn(refs(question)[find_pod(asked_about(question), name).uid], before)]


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
    change = EarlierTurn(search.names[search.pod.uid], search.names[pods_in(between)[0].uid])
    course = search.tried((change,), search.course.before[place], (search.entry, *between, *search.tail))
    if course is None:
        return None
    cost = Cost(touched=search.touched(course))
    return search.proposal((change,), cost, course) if cheaper(cost, best) else None
