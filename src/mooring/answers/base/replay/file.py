"""Replaying whole files."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mooring.answers.base.replay.agreement import FieldDifference, differences
from mooring.answers.base.replay.scenario import replay_merge, replay_scenario
from mooring.answers.base.trace import load_machines, machine_files, machines_for
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.decoding.files import STANDARD_INPUT, Paths, paths_of
from mooring.inputs.pods.scenario import MergeCase, Scenario, load_scenarios


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The answer to one line."""

    case: Scenario | MergeCase
    """What was asked."""
    answer: dict[str, Any]
    """``{"id", "expect"}``, ``{"id", "result"}`` or ``{"id", "unsupported"}``."""
    differences: tuple[FieldDifference, ...] = ()
    compared: bool = False
    """Whether there was a recording to compare with, and it was."""

    @property
    def id(self) -> str:
        """Name of the scenario."""
        return self.case.id

    @property
    def unsupported(self) -> bool:
        """Tell whether the scenario needs something that this version does not have."""
        return "unsupported" in self.answer


def replay_file(
    file: str | os.PathLike[str], machines: Paths = (), *, compare: bool = False
) -> Iterator[ReplayOutcome]:
    """Replay every line of a file.

    Args:
        file: JSON lines (also gzip), YAML or JSON documents; ``-`` for JSON lines from standard input.
        machines: files with machine descriptions; empty for those beside the file.
        compare: whether to compare with the recorded answers.

    Raises:
        InputError: a file or a line cannot be read or understood.
    """
    file = os.fspath(file)
    known: dict[str, MachineInfo] | None = None
    for number, case in enumerate(load_scenarios(file), 1):
        if known is None and isinstance(case, Scenario):
            known = load_machines(paths_of(machines) or machine_files(file))
        # Scenarios written by hand may go without a name.
        named = case if case.id else replace(case, id=_name(file, number))
        try:
            if isinstance(named, MergeCase):
                yield _merged(named, compare=compare)
            else:
                yield _replayed(named, known or {}, compare=compare)
        except InputError as error:
            source = STANDARD_INPUT if file == "-" else file
            place = ": ".join(dict.fromkeys(filter(None, (source, named.id, error.source))))
            raise InputError(error.problem, source=place, field=error.field, remedy=error.remedy) from None


def _merged(case: MergeCase, *, compare: bool) -> ReplayOutcome:
    answer = replay_merge(case)
    if not (compare and case.result):
        return ReplayOutcome(case, answer)
    return ReplayOutcome(case, answer, tuple(differences({"result": case.result}, answer)), compared=True)


def _replayed(case: Scenario, known: dict[str, MachineInfo], *, compare: bool) -> ReplayOutcome:
    answer = replay_scenario(case, machines_for(case, known))
    if not (compare and case.expect and "expect" in answer):
        return ReplayOutcome(case, answer)
    return ReplayOutcome(case, answer, tuple(differences(case.expect, answer["expect"])), compared=True)


def _name(file: str, number: int) -> str:
    stem = "scenario" if file == "-" else Path(file).name.split(".")[0]
    return stem if number == 1 else f"{stem}-{number}"


def count_lines(file: str) -> int | None:
    """Return how many lines a file of JSON lines has, for a progress bar; None when that is not known beforehand."""
    path = Path(file)
    try:
        if not path.is_file() or not path.name.endswith((".jsonl", ".jsonl.gz")):
            return None
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return sum(1 for line in stream if not line.isspace())
    except (OSError, EOFError, ValueError, zlib.error):
        return None
