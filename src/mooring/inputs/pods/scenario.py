"""Scenarios: a node's configuration, pods that start and end, and what is expected of the node.

The format is that of the project's recordings: one JSON object per line, compressed or not, or scenarios
written by hand as YAML documents. Lines are read one by one, so a corpus of any length takes the memory of
one scenario.

The objects of a scenario file, one at a time.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

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
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.documents import SUFFIXES, json_error, load_documents, located
from mooring.inputs.decoding.fields import as_mapping, mapping_at, name_at, text_at, within
from mooring.inputs.decoding.files import STANDARD_INPUT, check_regular, open_problem, read_standard_input, shown
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import hotplug_step, pod_from_object, resizing
from mooring.lazy import dataclass, field, replace

LONGEST_LINE = 32 * 1024**2
"""Bytes that one scenario may have, unpacked; the longest recorded one has a hundredth of that."""
_GZIP = b"\x1f\x8b"


def scenario_documents(path: str | os.PathLike[str]) -> Iterator[reading.Document]:
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
    decoder: msgspec.json.Decoder[reading.Value] = msgspec.json.Decoder()
    is_empty = True
    for number, line in enumerate(_lines(path, name), 1):
        if not line.isspace():
            is_empty = False
            try:
                content = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise json_error(line, name, number) from None
            yield reading.Document(content, name, 1, number, line, is_alone=True)
    if is_empty:
        raise InputError("nothing in it", source=name)


def _lines(path: str | os.PathLike[str], name: str) -> Iterator[bytes]:
    number = 0
    try:
        with ExitStack() as stack:
            opened: io.RawIOBase | io.BytesIO
            opened = io.BytesIO(read_standard_input()) if path == "-" else stack.enter_context(io.FileIO(path))
            packed = stack.enter_context(io.BufferedReader(opened))
            stream: IO[bytes] = packed
            if packed.peek(2)[:2] == _GZIP:
                stream = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=packed)))
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    limit = LONGEST_LINE // 1024**2
                    raise InputError(f"a line longer than {limit} MiB", source=f"{name}:{number}")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        remedy = "copy the file again"
        problem = "the compressed data is damaged or cut short"
        raise InputError(problem, source=f"{name}:{number + 1}", remedy=remedy) from None
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=name) from None


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
    for document in scenario_documents(path):
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
