"""Replaying whole files, and comparing answers with a recording, field by field.

Only what the kubelet itself does not determine is excused, as the recordings' own description lists it: the order of
the memory blocks of a container with several memory types, the choice among equal devices, the order of messages about
several feature gates, which of the kubelet's two checks of them reports a fault, and which of several bad options is
named where the recording or the answer lists alternatives.

Source: docs/reference/scenarios.md, "What is excused".
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mooring.answers.base.scenario import replay_merge, replay_scenario
from mooring.answers.base.trace import load_machines, machine_files, machines_for
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.release import DECODE_PREFIX
from mooring.inputs.decoding.files import STANDARD_INPUT, Paths, paths_of
from mooring.inputs.pods.scenario import MergeCase, Scenario, load_scenarios

_MEMORY_STATES = frozenset({"memoryManagerState", "memoryManagerStateAdmitted"})
_CHECKED_BY_ORDER = frozenset({"checksum", "data", "dataChecksum"})
_GATE_FAULT = re.compile(
    " is enabled, but depends on features that are disabled: |cannot set feature gate |unrecognized feature gate: "
)
_GATE_CHECKS = {"decode", "validation"}
_GATE_WORDS = re.compile(r", |[\[\]]")


ABSENT = "(absent)"
"""Stands for a field that one side lacks."""


class FieldDifference(NamedTuple):
    """One field in which an answer departs from the recording: its path, such as ``steps[2].containers.c0.cpus``."""

    field: str
    recorded: Any
    answered: Any


def differences(recorded: Mapping[str, Any], answered: Mapping[str, Any]) -> list[FieldDifference]:
    """Return every recorded field in which the answer departs; fields that were not recorded are not compared."""
    return [FieldDifference(*found) for found in _fields(recorded, answered, recorded)]


def _fields(
    recorded: Mapping[str, Any], answered: Mapping[str, Any], expect: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    for name, value in recorded.items():
        if name in ("nondeterministic", "startErrorAlternatives"):
            continue
        if name not in answered and (name, value) == ("steps", []):
            continue  # An admission that never ends before the first result is recorded in both ways.
        if name not in answered:
            yield name, value, ABSENT
        elif name in ("steps", "readmitted") and isinstance(value, list) and isinstance(answered[name], list):
            for position, (one, given) in enumerate(zip_longest(value, answered[name], fillvalue=ABSENT)):
                if one is not None or given == ABSENT:
                    yield from _part(f"{name}[{position}]", one, given, expect)
        elif name in ("pods", "retried") and isinstance(value, Mapping) and isinstance(answered[name], Mapping):
            for uid, part in value.items():
                yield from _part(f"{name}.{uid}", part, answered[name].get(uid, ABSENT), expect)
        elif name in ("start", "afterReadmission", "files"):
            yield from _part(name, value, answered[name], expect)
        elif not _agree(name, value, answered[name], expect, _listed(answered, "startErrorAlternatives")):
            yield from _leaves(name, value, answered[name])


def _part(name: str, recorded: Any, answered: Any, expect: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    if not (isinstance(recorded, Mapping) and isinstance(answered, Mapping)):
        if recorded != answered:
            yield name, recorded, answered
        return
    for field, old, new in _fields(recorded, answered, expect):
        yield f"{name}.{field}", old, new


def _leaves(name: str, recorded: Any, answered: Any) -> Iterator[tuple[str, Any, Any]]:
    """Point at the innermost members that differ, so that a person sees one CPU set and not a whole mapping."""
    if not (isinstance(recorded, Mapping) and isinstance(answered, Mapping)):
        yield name, recorded, answered
        return
    for member in sorted({*recorded, *answered}):
        left, right = recorded.get(member, ABSENT), answered.get(member, ABSENT)
        if left != right:
            yield from _leaves(f"{name}.{member}", left, right)


def _agree(name: str, recorded: Any, answered: Any, expect: Mapping[str, Any], alternatives: list[Any]) -> bool:
    """Tell whether a field is answered as it was recorded, or as the kubelet could have answered as well.

    Args:
        name: of the field.
        recorded: what the kubelet did.
        answered: what the engine does.
        expect: the recording.
        alternatives: start errors among which the kubelet chooses at random, as the answer lists them.
    """
    if recorded == answered:
        return True
    if name == "startErrorStage":
        return {recorded, answered} == _GATE_CHECKS and bool(_GATE_FAULT.search(str(expect.get("startError"))))
    if name == "startError":
        is_listed = recorded in alternatives and answered in alternatives
        listed = is_listed or answered in _listed(expect, "startErrorAlternatives")
        return listed or _same_gate_messages(recorded, answered)
    if name in _MEMORY_STATES:
        # Whether two memory state files differ in the order of some container's blocks and in nothing else. Checksums
        # cover the text, and so the order: they are compared only where the order is the same.
        try:
            left, right = _memory_parts(recorded), _memory_parts(answered)
            return left is not None and left != right and _blocks_sorted(left) == _blocks_sorted(right)
        except RecursionError:  # nested too deeply for a state file
            return False
    if name == "devices" and "devices.ids" in _listed(expect, "nondeterministic"):
        places = _without_ids(recorded)
        return places is not None and places == _without_ids(answered)
    return False


def _listed(expect: Mapping[str, Any], name: str) -> list[Any]:
    found = expect.get(name)
    return found if isinstance(found, list) else []


def _same_gate_messages(recorded: Any, answered: Any) -> bool:
    """Tell whether two texts about feature gates differ in nothing but order, which is random in the kubelet.

    The kubelet checks gates twice, while it decodes the configuration and when it validates it, in the same words; the
    recordings have the same fault at either stage.
    """
    if not (isinstance(recorded, str) and isinstance(answered, str) and _GATE_FAULT.search(recorded)):
        return False
    texts = (recorded.removeprefix(DECODE_PREFIX), answered.removeprefix(DECODE_PREFIX))
    left, right = (sorted(_GATE_WORDS.split(text)) for text in texts)
    return left == right


def _memory_parts(text: Any) -> list[Any] | None:
    """Return what a memory state file says, twice where the file does; None when it is no such file."""
    try:
        outer = msgspec.json.decode(text)
        data = msgspec.json.decode(outer["data"]) if "data" in outer else outer["machineState"]
        return [{name: outer[name] for name in outer if name not in _CHECKED_BY_ORDER}, data]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _blocks_sorted(parts: Any) -> Any:
    """Return the same with every list of memory blocks sorted by type."""
    if isinstance(parts, Mapping):
        return {name: _blocks_sorted(value) for name, value in parts.items()}
    if isinstance(parts, list):
        values = [_blocks_sorted(value) for value in parts]
        is_blocks = all(isinstance(value, Mapping) and "type" in value for value in values)
        return sorted(values, key=lambda block: str(block["type"])) if is_blocks else values
    return parts


def _without_ids(devices: Any) -> dict[str, Any] | None:
    try:
        return {
            container: {resource: held["numa"] for resource, held in resources.items()}
            for container, resources in devices.items()
        }
    except (AttributeError, KeyError, TypeError):
        return None


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
    def standing(self) -> str:
        """``unsupported`` where this version lacks something; ``differ`` and ``agree``; ``unknown`` if not compared."""
        if "unsupported" in self.answer:
            return "unsupported"
        return "differ" if self.differences else "agree" if self.compared else "unknown"


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
        stem = "scenario" if file == "-" else Path(file).name.split(".")[0]
        named = case if case.id else replace(case, id=stem if number == 1 else f"{stem}-{number}")
        try:
            if isinstance(named, MergeCase):
                answer = replay_merge(named)
                recorded, answered = named.result and {"result": named.result}, answer
            else:
                answer = replay_scenario(named, machines_for(named, known or {}))
                recorded, answered = named.expect, answer.get("expect", {})
        except InputError as error:
            source = STANDARD_INPUT if file == "-" else file
            place = ": ".join(dict.fromkeys(filter(None, (source, named.id, error.source))))
            raise InputError(error.problem, source=place, field=error.field, remedy=error.remedy) from None
        if compare and recorded and answered:
            yield ReplayOutcome(named, answer, tuple(differences(recorded, answered)), compared=True)
        else:
            yield ReplayOutcome(named, answer)


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
