"""What lets a kubelet start that does not: the fewest changes of its configuration and files, each of them run.

A refusal is about one fault at a time. So the kubelet is started again with each change that its text allows for, and
where it then refuses for another reason, with the changes for that one as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.answers.base.question import Question
from mooring.answers.base.start.changes import StartChange, changes_for, not_known
from mooring.engine.core.decision import StartRefusal
from mooring.engine.kubelet.start import refusal_of, start_on
from mooring.explain.phrases import joined
from mooring.explain.remedies import remedy

GENERAL = "In general (not run here): "
"""Before advice that was not tried."""

_MOST_FAULTS = 4
"""How many faults of one node are corrected together."""
_MOST_STARTS = 80
"""Starts after which the search ends."""


@dataclass(frozen=True, slots=True)
class StartAdvice:
    """Changes with which a kubelet starts."""

    changes: tuple[StartChange, ...]
    question: Question
    """With the changes made."""

    @property
    def sentence(self) -> str:
        """The changes as an instruction, and that they were run."""
        files = [change.words for change in self.changes if change.drains]
        fields = [change.words for change in self.changes if not change.drains]
        steps = [*fields, *([f"drain the node and delete {joined(files)}"] if files else [])]
        text = joined(steps)
        return f"{text[0].upper()}{text[1:]}: the kubelet then starts (run here)."


def start_advice(question: Question, refusal: StartRefusal) -> str:
    """Return what to do: changes that were run, else general advice marked as such, or nothing.

    Args:
        question: whose kubelet does not start.
        refusal: why it does not.
    """
    found = advice_to_start(question, refusal)
    if found is not None:
        return found.sentence
    if unknown := not_known(question, refusal):
        return f"What decides is not known: {unknown}."
    general = remedy(refusal)
    return f"{GENERAL}{general}" if general else ""


def advice_to_start(question: Question, refusal: StartRefusal) -> StartAdvice | None:
    """Return the fewest changes with which the kubelet starts; None when the search finds none."""
    waiting: list[tuple[tuple[StartChange, ...], Question, StartRefusal]] = [((), question, refusal)]
    starts = 0
    for made, asked, why in waiting:
        for change in changes_for(asked, why):
            if starts == _MOST_STARTS:
                return None
            starts += 1
            changed, changes = change.question, (*made, change)
            again = _refusal(changed)
            if again is None:
                return StartAdvice(changes, changed)
            if again.message != why.message and len(changes) < _MOST_FAULTS:
                waiting.append((changes, changed, again))
    return None


def _refusal(question: Question) -> StartRefusal | None:
    return refusal_of(start_on(question.machine, question.config, question.mooring, question.files))
