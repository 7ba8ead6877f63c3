"""Scenarios: a node's configuration, pods that start and end, and what is expected of the node.

The format is that of the project's recordings: one JSON object per line, compressed or not, or scenarios
written by hand as YAML documents. Lines are read one by one, so a corpus of any length takes the memory of
one scenario.

Recordings, as ``mooring record`` and ``mooring shadow`` write them, are the scenarios of a node, one after another.
Each begins at what was observed, so that each replays alone. Here they are put together again: what happened to a node
over the whole time. What came or went while nothing was recorded happens when the next scenario begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.moment import SECOND
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.events import Admit, Advance, Reboot, Remove, ResizeTo, Restart, Step
from mooring.engine.releases.catalog import release_of
from mooring.inputs.configuration.kubelet_config import kubelet_config
from mooring.inputs.configuration.mooring_config import mooring_config
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.documents import load_lines, located
from mooring.inputs.decoding.fields import as_mapping, mapping_at, name_at, text_at, within
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import hotplug_step, pod_from_object, resizing
from mooring.lazy import dataclass, field, replace

_STEPS = (
    "write admit: with a pod, remove: with a uid, resize: with a uid and containers or with a pod, "
    "advance: with a time, offline: or online: with CPUs, restart: true or reboot: true"
)
LONGEST_SPAN = 24 * 3600 * SECOND
"""How much time one step may take."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One node's story."""

    id: str
    machine: str
    """Name of the machine; where it is described is for the reader to know."""
    kubelet: KubeletConfig
    mooring: MooringConfig
    """Extensions, and defects that are fixed; nothing of the kind in the recordings."""
    files: Mapping[str, str]
    """Checkpoint files that exist before the first start: file name -> text."""
    active: tuple[Pod, ...]
    """Pods that run already when the kubelet starts."""
    devices: Mapping[str, Any]
    """Resource -> list of ``{"id", "numa", "unhealthy"?}``, as written."""
    steps: tuple[Step, ...]
    expect: Mapping[str, Any]
    """What was recorded, as written; empty when nothing is expected."""
    note: str
    raw: Mapping[str, Any]
    """The whole object, for fields that only some readers know."""
    held: Holdings = field(default_factory=dict)
    """What active pods hold of the devices, and what others are given where the kubelet draws one of equal ones."""
    readmits: bool = True
    """Whether the kubelet starts at the beginning and admits the active pods again; otherwise it runs already."""

    @property
    def container_ids(self) -> dict[str, tuple[str, str]]:
        """The ids of the containers that run at the start -> pod uid and container name, in the recordings' form."""
        return {
            f"{pod.uid}-{container.name}-0": (pod.uid, container.name)
            for pod in self.active
            for container in pod.containers
        }


@dataclass(frozen=True, slots=True)
class MergeCase:
    """One merge of hints, apart from any node; everything as written."""

    id: str
    numa_nodes: list[int]
    distances: list[list[int]] | None
    policy: str
    options: Mapping[str, str]
    providers: list[Any]
    result: Mapping[str, Any]


def load_scenarios(
    path: str | os.PathLike[str], *, report: reading.Report = reading.ignore
) -> Iterator[Scenario | MergeCase]:
    """Yield the scenarios of a file in order: JSON lines (also gzip, also ``-``), YAML or JSON documents.

    Args:
        path: the file.
        report: receives what was odd, such as fields that the kubelet does not know.

    Raises:
        InputError: the file cannot be used, or a scenario is not valid; also in the middle of the iteration.
    """
    for document in load_lines(path):
        with located(document):
            fields, place = as_mapping(document.content), document.source
            if "providers" not in fields:
                yield scenario(fields, source=place, report=report)
                continue
            yield MergeCase(
                id=text_at(fields, "id"),
                numa_nodes=reading.list_at(fields, "numaNodes"),
                distances=reading.list_at(fields, "distances") or None,
                policy=text_at(fields, "policy"),
                options=reading.texts_at(fields, "options"),
                providers=reading.list_at(fields, "providers"),
                result=mapping_at(fields, "result"),
            )


def scenario(
    content: Mapping[str, Any], *, source: str, report: reading.Report = reading.ignore, release: Release | None = None
) -> Scenario:
    """Return the scenario that an object describes.

    Pods get the defaults that the recordings' pods had, those that the kubelet itself applies: pod-level resources
    are not completed.

    Args:
        content: the object.
        source: where it comes from, for messages.
        report: receives what was odd.
        release: decides in place of the one that the scenario names.

    Raises:
        InputError: it is not valid.
    """
    with within(source=source):
        with within("mooring"):
            mooring = mooring_config(mapping_at(content, "mooring"), source=source)
        if release := release or _release(content):
            mooring = replace(mooring, release=release)
        kubelet = _kubelet(content, source, report, mooring)
        gates = _gates(kubelet, mooring)
        return Scenario(
            id=text_at(content, "id"),
            machine=text_at(content, "machine"),
            kubelet=kubelet,
            mooring=mooring,
            files=reading.texts_at(content, "files"),
            active=tuple(
                reading.each_at(content, "active", lambda pod: pod_from_object(pod, source=source, gates=gates))
            ),
            devices=mapping_at(content, "devices"),
            held=_held(content),
            readmits=reading.flag_at(content, "readmit", default=True),
            steps=tuple(_steps(content, source, kubelet, mooring, report)),
            expect=mapping_at(content, "expect"),
            note=text_at(content, "note"),
            raw=content,
        )


def _kubelet(content: Mapping[str, Any], source: str, report: reading.Report, mooring: MooringConfig) -> KubeletConfig:
    try:
        return kubelet_config(mapping_at(content, "kubelet"), source=source, report=report, release=mooring.release)
    except InputError as error:
        raise reading.inside(error, "kubelet") if error.field != "kubelet" else error from None


def _release(content: Mapping[str, Any]) -> Release | None:
    version = text_at(content, "release")
    return release_of(version, "release") if version else None


def _gates(kubelet: KubeletConfig, mooring: MooringConfig) -> PodGates:
    return replace(PodGates.of_node(kubelet, mooring), api_server=False)


def _held(content: Mapping[str, Any]) -> Holdings:
    with within("held"):
        given = mapping_at(content, "held")
        pods = {uid: mapping_at(given, uid) for uid in given}
        return {
            uid: {
                name: {resource: frozenset(map(str, reading.list_at(held, resource))) for resource in held}
                for name in pod
                for held in [mapping_at(pod, name)]
            }
            for uid, pod in pods.items()
        }


def _steps(
    content: Mapping[str, Any], source: str, kubelet: KubeletConfig, mooring: MooringConfig, report: reading.Report
) -> Iterator[Step]:
    gates = _gates(kubelet, mooring)
    for index, item in enumerate(reading.list_at(content, "steps")):
        with within(f"steps[{index}]"):
            step = hotplug_step(as_mapping(item), mooring) or _step(item, source, gates, report, mooring)
        if isinstance(step, Restart):
            kubelet = kubelet if step.kubelet is None else step.kubelet
            mooring = mooring if step.release is None else replace(mooring, release=step.release)
            gates = _gates(kubelet, mooring)
        yield step


def _step(item: Any, source: str, gates: PodGates, report: reading.Report, mooring: MooringConfig) -> Step:
    step = as_mapping(item)
    if "admit" in step:
        return Admit(_pod(step["admit"], "admit", source, gates))
    if "remove" in step:
        return Remove(name_at(step, "remove"))
    if "resize" in step:
        if isinstance(step["resize"], Mapping) and "spec" in step["resize"]:
            return ResizeTo(_pod(step["resize"], "resize", source, gates))
        with within("resize"):
            return resizing(as_mapping(step["resize"]))
    if "advance" in step:
        text = name_at(step, "advance")
        with within("advance"):
            span = nanoseconds(text)
            if not 0 <= span <= LONGEST_SPAN:
                raise InputError("must be between 0s and 24h")
        return Advance(span)
    if step.get("reboot") is True:
        return Reboot()
    if step.get("restart") is True:
        release = _release(step)
        after = mooring if release is None else replace(mooring, release=release)
        return Restart(_kubelet(step, source, report, after) if "kubelet" in step else None, release)
    raise InputError("is not a step", remedy=_STEPS)


def _pod(item: Any, field: str, source: str, gates: PodGates) -> Pod:
    with within(field):
        return pod_from_object(as_mapping(item), source=source, gates=gates)


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
        return zip(self.first.active, map(as_mapping, reading.list_at(self.first.raw, "active")), strict=True)


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
    return [
        RecordedNode(node, file, first, _time(first, file, "from"), tuple(_happened(cases)))
        for node, cases in found.items()
        for file, first in cases[:1]
    ]


def _happened(cases: Sequence[tuple[str, Scenario]]) -> Iterator[RecordedStep]:
    """Yield what happened to a node in its scenarios, and between each and the one before."""
    first = cases[0][1]
    running, settings = {pod.uid: pod for pod in first.active}, (first.kubelet, first.mooring.release)
    for file, case in cases:
        begin, end = (_time(case, file, field) for field in ("from", "to"))
        active, now = {pod.uid: pod for pod in case.active}, (case.kubelet, case.mooring.release)
        yield from (RecordedStep(begin, Remove(uid)) for uid in running if uid not in active)
        if now != settings:
            yield RecordedStep(begin, Restart(*now))
        for pod, content in zip(case.active, reading.list_at(case.raw, "active"), strict=True):
            if pod.uid not in running:
                yield RecordedStep(begin, Admit(pod), as_mapping(content))
        running, settings = active, now
        expected, asked = reading.list_at(mapping_at(case.raw, "expect"), "steps"), reading.list_at(case.raw, "steps")
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
                    now = (case.kubelet if kubelet is None else kubelet, release or case.mooring.release)
                    yield RecordedStep(end, Restart(*now) if now != settings else Restart())
                    settings = now
                case _:
                    pass


def _time(case: Scenario, file: str, field: str) -> float:
    with within(source=f"{file}: {case.id}"):
        text = name_at(mapping_at(case.raw, OBSERVED), field)
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            remedy = "write 2026-01-31T12:00:00Z"
            raise InputError("is no time", field=f"{OBSERVED}.{field}", remedy=remedy) from None
