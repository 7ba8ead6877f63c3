"""What a change is: one small thing about a question made otherwise, by hand or found by searching.

Every kind of change is a module of its own (:mod:`mooring.planner.changes.nearest` lists them). It says how a change is
applied to a question, how it reads, how it is written on the command line, and where to search for one that helps.
Changes name pods by uid and show them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Protocol

from mooring.core.errors import InputError
from mooring.explain.phrases import joined
from mooring.planner.question import Question


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod of a question."""

    uid: str
    shown: str
    """``NAMESPACE/NAME``, or the uid where two pods of the question share that."""

    def __str__(self) -> str:
        return self.shown


class ChangeStage(IntEnum):
    """When a change is made among several; within a stage they are made as they are given."""

    NODE = 0
    AMOUNT = 1
    ORDER = 2
    ABSENCE = 3
    """A pod is not asked at all. It goes before pods that end: nothing ends before a pod that is not asked."""
    END = 4


class PlannedChange(Protocol):
    """A change, as a value."""

    kind: ClassVar[str]
    """Its name in documents."""

    @property
    def stage(self) -> ChangeStage:
        """When it is made among several changes."""

    @property
    def target(self) -> str:
        """What it sets, in words, for changes of which there can be only one; else empty."""

    @property
    def option(self) -> tuple[str, str]:
        """The option of ``mooring whatif`` that makes it, and its value (docs/reference/whatif.md)."""

    def phrase(self, question: Question) -> str:
        """Return it as an instruction.

        Args:
            question: before the change.
        """

    def applied_to(self, question: Question) -> Question:
        """Return the question with the change.

        Raises:
            InputError: it cannot be made on this question.
        """


Reader = Callable[[Question, str], Sequence[PlannedChange]]
"""Reads the value of an option; a name with ``*`` makes one change for each pod.

Raises:
    InputError: the value cannot be understood.
"""


def applied(question: Question, changes: Sequence[PlannedChange]) -> Question:
    """Return the question with all changes made.

    Raises:
        InputError: changes contradict each other, or one cannot be made on this question.
    """
    seen: set[str] = set()
    for change in changes:
        if change.target in seen:
            raise InputError(f"{change.target} is changed twice", remedy="leave one of the changes out")
        if change.target:
            seen.add(change.target)
    for change in sorted(changes, key=lambda one: one.stage):
        question = change.applied_to(question)
    return question


def sentence(changes: Sequence[PlannedChange], question: Question) -> str:
    """Return changes of a question as one sentence.

    >>> from mooring.planner.changes.configuration import ConfigField
    >>> from mooring.core.config import KubeletConfig
    >>> from mooring.core.machine import Machine
    >>> from mooring.core.machineinfo import MachineInfo
    >>> question = Question(Machine("m", MachineInfo(1, 1, 0, ())), KubeletConfig())
    >>> sentence([ConfigField("topologyManagerScope", "pod")], question)
    'Set topologyManagerScope to pod.'
    """
    text = joined([change.phrase(question) for change in changes])
    return f"{text[:1].upper()}{text[1:]}."


def two_parts(text: str, form: str) -> tuple[str, str]:
    """Return what is left and right of the last ``=`` of an option's value.

    Args:
        text: the value.
        form: how it is to be written, for the message.

    Raises:
        InputError: a part is missing.
    """
    name, equals, value = text.rpartition("=")
    if not (equals and name):
        raise InputError(f"{text!r:.80} is incomplete", remedy=f"write {form}")
    return name, value
