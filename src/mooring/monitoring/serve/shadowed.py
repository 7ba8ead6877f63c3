"""The timeline of a node from the recordings of ``mooring shadow``: a moment after each scenario.

A scenario says what the kubelet's files held and which pods ran, before and after; so a moment is planned again from
it, and its pods can be explained. The form is that of docs/reference/scenarios.md and docs/reference/shadow.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from cachetools import LRUCache

from mooring.answers.base.question import Question
from mooring.answers.base.scenario_machines import load_machines, machine_files
from mooring.engine.checkpoint.store import system_words
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.decoding.fields import as_mapping, mapping_at, text_at
from mooring.inputs.pods.scenario import Scenario, scenario
from mooring.monitoring.serve.history import DAY
from mooring.monitoring.serve.node_plan import snapshot_of
from mooring.monitoring.serve.recording import Recorded
from mooring.monitoring.serve.snapshot import NodeNotice, NodeSnapshot

_PATTERN: Final = "recording-*.jsonl"
_KEPT: Final = 16
"""Snapshots that are kept made."""


class _Head(msgspec.Struct):
    id: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    at: float
    path: Path
    offset: int


class ShadowedMoments:
    """What a shadow recorded in the last day, see :class:`mooring.monitoring.serve.recording.KeptMoments`."""

    first = 1

    def __init__(self, folder: Path, now: float | None = None) -> None:
        """Find the moments.

        Args:
            folder: of ``mooring shadow --folder``.
            now: Unix time.

        Raises:
            InputError: it is no such folder, or cannot be read.
        """
        since = (time.time() if now is None else now) - DAY
        remedy = "name the folder that mooring shadow --folder writes"
        try:
            files = sorted(path for path in folder.iterdir() if path.match(_PATTERN))
            self._places = [place for path in files for place in _places(path, since)]
        except OSError as error:
            raise InputError(f"cannot be read: {system_words(error)}", source=str(folder), remedy=remedy) from None
        described = machine_files(str(folder / "recording"))
        if not described:
            raise InputError("has no machines.jsonl", source=str(folder), remedy=remedy)
        self._machines = load_machines(described)
        self._made: LRUCache[int, NodeSnapshot] = LRUCache(_KEPT)

    @property
    def last(self) -> int:
        """See :class:`mooring.monitoring.serve.recording.KeptMoments`."""
        return len(self._places)

    def add(self, moment: Recorded) -> None:
        """Keep nothing: the folder is the shadow's."""

    def at(self, number: int) -> Recorded:
        """Return a moment.

        Raises:
            InputError: it cannot be read.
        """
        place = self._places[number - 1]
        snapshot = self._made.get(number)
        if snapshot is None:
            snapshot = self._made[number] = self._read(place)
        return Recorded(number, place.at, snapshot)

    def _read(self, place: _Place) -> NodeSnapshot:
        source = str(place.path)
        try:
            with place.path.open("rb") as file:
                file.seek(place.offset)
                content = msgspec.json.decode(file.readline(), type=dict[str, Any])
        except OSError as error:
            raise InputError(f"cannot be read: {system_words(error)}", source=source) from None
        except (ValueError, RecursionError):
            raise InputError("a line is no scenario", source=source) from None
        case = scenario(content, source=source)
        info = self._machines.get(case.machine)
        if info is None:
            raise InputError(f"no machine is called {case.machine!r:.80}", source=source, field="machine")
        question, refusals = scenario_end(case, Machine(case.id.rpartition("-")[0], info))
        found = snapshot_of(question)
        return replace(found, notices=(*found.notices, *refusals))


def scenario_end(case: Scenario, machine: Machine) -> tuple[Question, list[NodeNotice]]:
    """Return the node at the end of a scenario with the files and pods that were observed, and what was refused.

    Raises:
        InputError: what is expected is not written as it should be.
    """
    config, mooring = case.kubelet, case.mooring
    pods = {pod.uid: pod for pod in case.active}
    refusals = []
    expected = [as_mapping(one) for one in case.expect.get("steps") or ()]
    for position, step in enumerate(case.steps):
        outcome = expected[position] if position < len(expected) else {}
        match step:
            case Admit(pod) if outcome.get("admitted", True):
                pods[pod.uid] = pod
            case Admit(pod):
                text = f"{pod.namespace}/{pod.name} was refused: {outcome.get('reason')}: {outcome.get('message')}"
                refusals.append(NodeNotice(text, namespace=pod.namespace))
            case Remove(uid):
                pods.pop(uid, None)
            case Restart(kubelet, release):
                config = config if kubelet is None else kubelet
                mooring = mooring if release is None else replace(mooring, release=release)
            case _:
                pass
    start = mapping_at(case.expect, "start")
    texts = {"cpuManagerState": case.files.get(CPU_FILE, ""), "memoryManagerState": case.files.get(MEMORY_FILE, "")}
    for one in (start, mapping_at(start, "afterReadmission"), *expected):
        texts |= _texts(one)
    files = StateTexts(texts["cpuManagerState"] or None, texts["memoryManagerState"] or None)
    question = Question(
        machine,
        config,
        mooring,
        active=tuple(pods.values()),
        files=files,
        devices=device_table(case.devices),
        held={uid: held for uid, held in case.held.items() if uid in pods},
    )
    return question, refusals


def _texts(outcome: Mapping[str, Any]) -> dict[str, str]:
    return {name: text_at(outcome, name) for name in ("cpuManagerState", "memoryManagerState") if name in outcome}


def _places(path: Path, since: float) -> Iterator[_Place]:
    """Yield the moments of a file that are not older than a time; lines that are no scenarios are left out."""
    if path.stat().st_mtime < since:
        return
    offset = 0
    with path.open("rb") as file:
        for line in file:
            at = _moment_of(line)
            if at is not None and at >= since:
                yield _Place(at, path, offset)
            offset += len(line)


def _moment_of(line: bytes) -> float | None:
    """Return when a scenario was recorded; its id ends with the time."""
    try:
        name = msgspec.json.decode(line, type=_Head).id
        return datetime.strptime(name.rpartition("-")[2], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC).timestamp()
    except (ValueError, msgspec.MsgspecError):
        return None
