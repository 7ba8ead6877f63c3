"""Recordings, as ``mooring record`` and ``mooring shadow`` write them: the scenarios of a node, one after another.

Each begins at what was observed, so that each replays alone. Here they are put together again: what happened to a node
over the whole time. What came or went while nothing was recorded happens when the next scenario begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.inputs.decoding.fields import as_mapping, list_at, mapping_at, name_at, within
from mooring.inputs.pods.scenario import MergeCase, Scenario, load_scenarios
from mooring.lazy import dataclass, field, replace

SCENARIO: Final = "scenario.jsonl"
"""Of the folder of a difference."""
RECORDING: Final = "recording-*.jsonl"
OBSERVED: Final = "observed"
"""The member of a scenario that tells of which node it is, and from when to when."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """Something that happened to a node."""

    at: float
    """Seconds since 1970."""
    step: Admit | Remove | Restart
    """A restart names its configuration and release where these changed."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """The object of an admitted pod."""
    admitted: bool = True
    """Whether the kubelet admitted the pod."""


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """What happened to a node."""

    node: str
    file: str
    """The first one; machines lie beside it."""
    first: Scenario
    begins: float
    """Seconds since 1970."""
    steps: tuple[RecordedStep, ...]

    @property
    def scenario(self) -> Scenario:
        """The whole as one scenario, without what is expected."""
        return replace(self.first, steps=tuple(one.step for one in self.steps), expect={})

    @property
    def running(self) -> Iterator[tuple[Pod, Mapping[str, Any]]]:
        """Yield the pods that ran at the beginning, with their objects."""
        return zip(self.first.active, map(as_mapping, list_at(self.first.raw, "active")), strict=True)


def recording_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the recordings of a folder and of the folders of nodes in it, the oldest first; a file is itself.

    The folder of a difference has one file of scenarios.

    Raises:
        InputError: the folder has none.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [os.fspath(path)]
    found = [*sorted(folder.glob(RECORDING)), *sorted(folder.glob(f"*/{RECORDING}"))] or [*folder.glob(SCENARIO)]
    if not found:
        raise InputError("has no recordings", source=os.fspath(path), remedy="mooring record writes recording-*.jsonl")
    return [str(file) for file in found]


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a folder, or a file whose first scenario tells when it was observed.

    Raises:
        InputError: it cannot be read.
    """
    if Path(path).is_dir():
        return True
    first = next(load_scenarios(path), None)
    return isinstance(first, Scenario) and OBSERVED in first.raw


def node_histories(path: str | os.PathLike[str]) -> list[RecordedNode]:
    """Return what was recorded of each node, in a file or in a folder.

    Raises:
        InputError: it cannot be read, or is no recording.
    """
    found: dict[str, list[tuple[str, Scenario]]] = {}
    for file in recording_files(path):
        for case in load_scenarios(file):
            if isinstance(case, MergeCase) or OBSERVED not in case.raw:
                problem = "does not tell when it was observed"
                raise InputError(problem, source=file, field=case.id, remedy="give a recording of mooring record")
            with within(source=f"{file}: {case.id}"):
                node = name_at(mapping_at(case.raw, OBSERVED), "node")
            found.setdefault(node, []).append((file, case))
    histories = []
    for node, cases in found.items():
        told = _Told()
        steps = [one for file, case in cases for one in told.steps_of(case, file)]
        file, first = cases[0]
        histories.append(RecordedNode(node, file, first, _time(first, file, "from"), tuple(steps)))
    return histories


@dataclass(slots=True)
class _Told:
    """What is known after the scenarios so far."""

    running: dict[str, Pod] | None = None
    settings: tuple[KubeletConfig, Release] | None = None

    def steps_of(self, case: Scenario, file: str) -> Iterator[RecordedStep]:
        begin, end = (_time(case, file, field) for field in ("from", "to"))
        yield from self._meanwhile(case, begin)
        expected = list_at(mapping_at(case.raw, "expect"), "steps")
        asked = list_at(case.raw, "steps")
        running = self.running if self.running is not None else {}
        for number, step in enumerate(case.steps):
            match step:
                case Admit(pod):
                    admitted = number >= len(expected) or as_mapping(expected[number]).get("admitted") is not False
                    yield RecordedStep(end, step, mapping_at(as_mapping(asked[number]), "admit"), admitted)
                    if admitted:
                        running[pod.uid] = pod
                case Remove(uid) if running.pop(uid, None) is not None:
                    yield RecordedStep(end, step)
                case Restart(kubelet, release):
                    config = case.kubelet if kubelet is None else kubelet
                    yield self._restarted(end, config, release or case.mooring.release)
                case _:
                    pass

    def _meanwhile(self, case: Scenario, begin: float) -> Iterator[RecordedStep]:
        """Yield what happened since the scenario before."""
        settings = (case.kubelet, case.mooring.release)
        active = {pod.uid: pod for pod in case.active}
        if self.running is None or self.settings is None:
            self.running, self.settings = active, settings
            return
        for uid in [uid for uid in self.running if uid not in active]:
            yield RecordedStep(begin, Remove(uid))
        if settings != self.settings:
            yield self._restarted(begin, *settings)
        for pod, content in zip(case.active, list_at(case.raw, "active"), strict=True):
            if pod.uid not in self.running:
                yield RecordedStep(begin, Admit(pod), as_mapping(content))
        self.running = active

    def _restarted(self, at: float, config: KubeletConfig, release: Release) -> RecordedStep:
        changed, self.settings = (config, release) != self.settings, (config, release)
        return RecordedStep(at, Restart(config, release) if changed else Restart())


def _time(case: Scenario, file: str, field: str) -> float:
    with within(source=f"{file}: {case.id}"):
        text = name_at(mapping_at(case.raw, OBSERVED), field)
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            remedy = "write 2026-01-31T12:00:00Z"
            raise InputError("is no time", field=f"{OBSERVED}.{field}", remedy=remedy) from None
