"""Scenarios: a node's configuration, pods that start and end, and what is expected of the node.

The format is that of the project's recordings: one JSON object per line, compressed or not, or scenarios
written by hand as YAML documents. Lines are read one by one, so a corpus of any length takes the memory of
one scenario.

The objects of a scenario file, one at a time.

Recordings, as ``mooring record`` and ``mooring shadow`` write them: the scenarios of a node, one after another.

Each begins at what was observed, so that each replays alone. Here they are put together again: what happened to a node
over the whole time. What came or went while nothing was recorded happens when the next scenario begins.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec

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
from mooring.inputs.decoding.documents import SUFFIXES, json_error, load_documents, located
from mooring.inputs.decoding.fields import (
    Document,
    Report,
    Value,
    as_mapping,
    flag_at,
    ignore,
    inside,
    list_at,
    mapping_at,
    name_at,
    text_at,
    texts_at,
    within,
)
from mooring.inputs.decoding.files import STANDARD_INPUT, check_regular, open_problem, read_standard_input, shown
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.pod_fields import PodGates
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.steps import hotplug_step, resizing

LONGEST_LINE = 32 * 1024**2
"""Bytes that one scenario may have, unpacked; the longest recorded one has a hundredth of that."""
_GZIP = b"\x1f\x8b"


def scenario_documents(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Yield the objects of a file.

    Files called ``.yaml``, ``.yml`` and ``.json`` are read as documents, all others as JSON lines. A repeated
    key of a JSON line is not noticed: recordings are written by programs, and read several times faster this
    way.

    Raises:
        InputError: the file cannot be read or unpacked, or a line is not JSON.
    """
    if path != "-":
        check_regular(Path(path))
    if path != "-" and Path(path).suffix in SUFFIXES:
        yield from load_documents(path)
        return
    name = STANDARD_INPUT if path == "-" else shown(path)
    decoder: msgspec.json.Decoder[Value] = msgspec.json.Decoder()
    is_empty = True
    for number, line in enumerate(_lines(path, name), 1):
        if not line.isspace():
            is_empty = False
            yield Document(_decoded(decoder, line, name, number), name, 1, number, line, is_alone=True)
    if is_empty:
        raise InputError("nothing in it", source=name)


def _decoded(decoder: msgspec.json.Decoder[Value], line: bytes, name: str, number: int) -> Value:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise json_error(line, name, number) from None


def _lines(path: str | os.PathLike[str], name: str) -> Iterator[bytes]:
    number = 0
    try:
        with ExitStack() as stack:
            stream = _unpacked(path, stack)
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    limit = LONGEST_LINE // 1024**2
                    raise InputError(f"a line longer than {limit} MiB", source=f"{name}:{number}")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        remedy = "copy the file again"
        raise InputError(
            "the compressed data is damaged or cut short", source=f"{name}:{number + 1}", remedy=remedy
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=name) from None


def _unpacked(path: str | os.PathLike[str], stack: ExitStack) -> IO[bytes]:
    packed = stack.enter_context(_opened(path))
    if packed.peek(2)[:2] == _GZIP:
        return cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=packed)))
    return packed


def _opened(path: str | os.PathLike[str]) -> io.BufferedReader:
    if path == "-":
        return cast("io.BufferedReader", io.BufferedReader(io.BytesIO(read_standard_input())))
    return Path(path).open("rb")


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


def load_scenarios(path: str | os.PathLike[str], *, report: Report = ignore) -> Iterator[Scenario | MergeCase]:
    """Yield the scenarios of a file in order: JSON lines (also gzip, also ``-``), YAML or JSON documents.

    Args:
        path: the file.
        report: receives what was odd, such as fields that the kubelet does not know.

    Raises:
        InputError: the file cannot be used, or a scenario is not valid; also in the middle of the iteration.
    """
    for document in scenario_documents(path):
        with located(document):
            fields, place = as_mapping(document.content), document.source
            found = _merge_case(fields) if "providers" in fields else scenario(fields, source=place, report=report)
        yield found


def scenario(
    content: Mapping[str, Any], *, source: str, report: Report = ignore, release: Release | None = None
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
        mooring = _mooring(content, source, release)
        kubelet = _kubelet(content, source, report, mooring)
        gates = _gates(kubelet, mooring)
        return Scenario(
            id=text_at(content, "id"),
            machine=text_at(content, "machine"),
            kubelet=kubelet,
            mooring=mooring,
            files=texts_at(content, "files"),
            active=tuple(_active(content, source, gates)),
            devices=mapping_at(content, "devices"),
            held=_held(content),
            readmits=flag_at(content, "readmit", default=True),
            steps=tuple(_steps(content, source, kubelet, mooring, report)),
            expect=mapping_at(content, "expect"),
            note=text_at(content, "note"),
            raw=content,
        )


def _kubelet(content: Mapping[str, Any], source: str, report: Report, mooring: MooringConfig) -> KubeletConfig:
    try:
        return kubelet_config(mapping_at(content, "kubelet"), source=source, report=report, release=mooring.release)
    except InputError as error:
        raise inside(error, "kubelet") if error.field != "kubelet" else error from None


def _mooring(content: Mapping[str, Any], source: str, release: Release | None) -> MooringConfig:
    with within("mooring"):
        mooring = mooring_config(mapping_at(content, "mooring"), source=source)
    release = release or _release(content)
    return mooring if release is None else replace(mooring, release=release)


def _release(content: Mapping[str, Any]) -> Release | None:
    version = text_at(content, "release")
    return release_of(version, "release") if version else None


def _gates(kubelet: KubeletConfig, mooring: MooringConfig) -> PodGates:
    return replace(PodGates.of_node(kubelet, mooring), api_server=False)


def _active(content: Mapping[str, Any], source: str, gates: PodGates) -> Iterator[Pod]:
    for index, item in enumerate(list_at(content, "active")):
        yield _pod(item, f"active[{index}]", source, gates)


def _held(content: Mapping[str, Any]) -> Holdings:
    with within("held"):
        given = mapping_at(content, "held")
        pods = {uid: mapping_at(given, uid) for uid in given}
        return {uid: {name: _ids(mapping_at(pod, name)) for name in pod} for uid, pod in pods.items()}


def _ids(container: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    return {resource: frozenset(map(str, list_at(container, resource))) for resource in container}


def _steps(
    content: Mapping[str, Any], source: str, kubelet: KubeletConfig, mooring: MooringConfig, report: Report
) -> Iterator[Step]:
    gates = _gates(kubelet, mooring)
    for index, item in enumerate(list_at(content, "steps")):
        with within(f"steps[{index}]"):
            step = hotplug_step(as_mapping(item), mooring) or _step(item, source, gates, report, mooring)
        if isinstance(step, Restart):
            kubelet = kubelet if step.kubelet is None else step.kubelet
            mooring = mooring if step.release is None else replace(mooring, release=step.release)
            gates = _gates(kubelet, mooring)
        yield step


def _step(item: Any, source: str, gates: PodGates, report: Report, mooring: MooringConfig) -> Step:
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
        return Advance(_span(step))
    if step.get("reboot") is True:
        return Reboot()
    if step.get("restart") is True:
        return _restart(step, source, report, mooring)
    raise InputError("is not a step", remedy=_STEPS)


def _restart(step: Mapping[str, Any], source: str, report: Report, mooring: MooringConfig) -> Restart:
    release = _release(step)
    after = mooring if release is None else replace(mooring, release=release)
    return Restart(_kubelet(step, source, report, after) if "kubelet" in step else None, release)


def _span(step: Mapping[str, Any]) -> int:
    try:
        span = nanoseconds(name_at(step, "advance"))
    except InputError as error:
        raise InputError(error.problem, field="advance", remedy=error.remedy) from None
    if not 0 <= span <= LONGEST_SPAN:
        raise InputError("must be between 0s and 24h", field="advance")
    return span


def _pod(item: Any, field: str, source: str, gates: PodGates) -> Pod:
    with within(field):
        return pod_from_object(as_mapping(item), source=source, gates=gates)


def _merge_case(content: Mapping[str, Any]) -> MergeCase:
    return MergeCase(
        id=text_at(content, "id"),
        numa_nodes=list_at(content, "numaNodes"),
        distances=list_at(content, "distances") or None,
        policy=text_at(content, "policy"),
        options=texts_at(content, "options"),
        providers=list_at(content, "providers"),
        result=mapping_at(content, "result"),
    )


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
            found.setdefault(_node(case, file), []).append((file, case))  # type: ignore[arg-type]  # _node checks it
    return [_history(node, cases) for node, cases in found.items()]


def _node(case: Scenario | MergeCase, file: str) -> str:
    if isinstance(case, MergeCase) or OBSERVED not in case.raw:
        problem = "does not tell when it was observed"
        raise InputError(problem, source=file, field=case.id, remedy="give a recording of mooring record")
    with within(source=f"{file}: {case.id}"):
        return name_at(mapping_at(case.raw, OBSERVED), "node")


def _history(node: str, cases: list[tuple[str, Scenario]]) -> RecordedNode:
    told = _Told()
    steps = [one for file, case in cases for one in told.steps_of(case, file)]
    file, first = cases[0]
    return RecordedNode(node, file, first, _time(first, file, "from"), tuple(steps))


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
    try:
        text = name_at(mapping_at(case.raw, OBSERVED), field)
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        problem, remedy = "is no time", "write 2026-01-31T12:00:00Z"
        raise InputError(problem, source=f"{file}: {case.id}", field=f"{OBSERVED}.{field}", remedy=remedy) from None
    except InputError as error:
        raise error.at(f"{file}: {case.id}") from None
