"""Replaying whole files, with the machines that lie beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.core.errors import InputError
from mooring.core.machineinfo import MachineInfo
from mooring.discovery.machineinfo_json import machines_of_lines
from mooring.manifest.scenario import MergeCase, load_scenarios
from mooring.planner.agreement import Difference, differences
from mooring.planner.replay import replay_merge, replay_scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one line."""

    id: str
    answer: dict[str, Any]
    """``{"id", "expect"}``, ``{"id", "result"}`` or ``{"id", "unsupported"}``."""
    differences: tuple[Difference, ...] = field(default=())

    @property
    def unsupported(self) -> bool:
        """Tell whether the scenario needs something that this version does not have."""
        return "unsupported" in self.answer


def machine_files(file: Path) -> list[Path]:
    """Return the machine descriptions beside a scenario file."""
    try:
        return sorted(file.parent.glob("*machines.jsonl"))
    except OSError as error:
        raise InputError(f"the folder cannot be read ({error.strerror})", source=str(file.parent)) from None


def load_machines(files: Sequence[Path]) -> dict[str, MachineInfo]:
    """Read machine descriptions by name; a name in a later file wins.

    Raises:
        InputError: a file cannot be read or understood.
    """
    machines: dict[str, MachineInfo] = {}
    for file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError(f"the file cannot be read ({error.strerror})", source=str(file)) from None
        for described in machines_of_lines(data, str(file)):
            machines[described.name] = described.info
    return machines


def replay_file(file: Path, machines: Sequence[Path], *, compare: bool) -> Iterator[Outcome]:
    """Replay every line of a file.

    Args:
        file: JSON lines, gzip, or one YAML scenario.
        machines: machine descriptions; empty for those beside the file.
        compare: whether to compare with the recorded answers.

    Raises:
        InputError: a file or a line cannot be read or understood.
    """
    known: dict[str, MachineInfo] | None = None
    for case in load_scenarios(file):
        if isinstance(case, MergeCase):
            answer = replay_merge(case)
            found = differences({"result": case.result}, answer) if compare and case.result else []
        else:
            if known is None:
                known = load_machines(machines or machine_files(file))
            answer = replay_scenario(case, known)
            found = differences(case.expect, answer["expect"]) if compare and case.expect and "expect" in answer else []
        yield Outcome(case.id, answer, tuple(found))
