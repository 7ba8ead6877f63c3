"""cAdvisor's MachineInfo as JSON: what ``/api/v1.3/machine`` and ``/spec`` of old kubelets answer, read and written.

Read are the full form and the reduced one of the conformance corpora (only what the managers read), alone or in an
envelope ``{"name", "note", "info"}``; ``machineInfo`` is taken for ``info``. Unknown members are skipped, null is an
empty list, as in Go. Written is the full form. Identity of the computer and its disks, file systems and networks are
neither read nor written: no manager reads them, and a description without them can be shown to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

import msgspec

from mooring.documents.plan import learn
from mooring.engine.core.cpuset import HIGHEST_CPU
from mooring.engine.core.errors import InputError
from mooring.engine.core.gotext import INT64_MAX
from mooring.engine.core.machine import Finding, Machine, MachineOrigin
from mooring.engine.core.machineinfo import HIGHEST_NODE, Cache, Core, HugePages, MachineInfo, MemoryModules, NUMANode
from mooring.inputs.decoding.documents import json_error, places_of
from mooring.inputs.decoding.fields import Document

ODD: Final = "MOOR-464"
"""Code of findings about fields that no cAdvisor writes so."""
TIMESTAMP: Final = "2026-01-01T00:00:00Z"
"""Written in place of the time of reading, so that the same machine gives the same text."""

_REMEDY: Final = "pass a MachineInfo document as cAdvisor writes it"
_ENVELOPES: Final = ("info", "machineInfo")
_T = TypeVar("_T")

_Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
_CPUId = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_CPU)]
_NodeId = Annotated[int, msgspec.Meta(ge=-1, le=HIGHEST_NODE)]
_Id = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


_ORIGIN: Final = MachineOrigin("MachineInfo", ("what the hardware is beyond the kubelet's view", "PCI devices"))


class _HugePagesJSON(msgspec.Struct):
    page_size: _Count
    num_pages: _Count


class _CacheJSON(msgspec.Struct):
    id: _Id = 0
    size: _Count = 0
    type: str = ""
    level: _Id = 0


class _CoreJSON(msgspec.Struct):
    thread_ids: list[_CPUId] | None
    core_id: _Id = 0
    socket_id: _Id = 0
    caches: list[_CacheJSON] | None = None
    uncore_caches: list[_CacheJSON] | None = None
    book_id: str = ""
    drawer_id: str = ""

    def __post_init__(self) -> None:
        self.thread_ids = self.thread_ids or []
        self.caches, self.uncore_caches = self.caches or [], self.uncore_caches or []


class _NodeJSON(msgspec.Struct):
    node_id: _NodeId
    memory: _Count = 0
    hugepages: list[_HugePagesJSON] | None = None
    cores: list[_CoreJSON] | None = None
    caches: list[_CacheJSON] | None = None
    distances: list[_Count] | None = None

    def __post_init__(self) -> None:
        self.hugepages, self.cores, self.caches = self.hugepages or [], self.cores or [], self.caches or []


class _ModulesJSON(msgspec.Struct):
    capacity: _Count = 0
    dimm_count: _Count = 0


class _InfoJSON(msgspec.Struct):
    num_cores: _Count
    topology: list[_NodeJSON] | None
    num_sockets: _Count = 0
    memory_capacity: _Count = 0
    hugepages: list[_HugePagesJSON] | None = None
    num_physical_cores: _Count = 0
    vendor_id: str = ""
    cpu_frequency_khz: _Count = 0
    swap_capacity: _Count = 0
    modules: dict[str, _ModulesJSON] | None = msgspec.field(name="memory_by_type", default=None)
    num_books: _Count = 0
    num_drawers: _Count = 0

    def __post_init__(self) -> None:
        self.topology, self.hugepages = self.topology or [], self.hugepages or []

    @property
    def memory_by_type(self) -> list[MemoryModules]:
        modules = (self.modules or {}).items()
        return [MemoryModules(kind, part.capacity, part.dimm_count) for kind, part in modules]


class _LabelJSON(msgspec.Struct):
    name: str | None = None
    note: str | None = None


learn(_InfoJSON, _LabelJSON)


def parse_machine_info(data: bytes, source: str, line: int = 1) -> Machine:
    """Read one description, with or without its envelope, which may name the machine.

    Args:
        data: The JSON document.
        source: What its file is called in errors.
        line: On which it begins in the file.

    Raises:
        InputError: the document is no MachineInfo.
    """
    document = Document(None, source, 1, line, data, is_alone=True)
    members = _decoded(data, dict[str, msgspec.Raw], document)
    label = _decoded(data, _LabelJSON, document)
    wrapped = next((key for key in _ENVELOPES if key in members), "")
    body = bytes(members[wrapped]) if wrapped else data
    info = msgspec.convert(_decoded(body, _InfoJSON, document, wrapped), MachineInfo, from_attributes=True)
    odd = _oddities(info, f"{wrapped}." if wrapped else "")
    findings = tuple(
        Finding("warning", field, f"{place}: {odd[field]}", ODD, place)
        for field, place in (places_of(document, tuple(odd)) if odd else {}).items()
    )
    return Machine(label.name or "", info, origin=_ORIGIN, findings=findings)


_MOST_REPORTED: Final = 20


def _oddities(info: MachineInfo, prefix: str) -> dict[str, str]:
    """Return the paths of fields that no cAdvisor writes so, with what the kubelet makes of each.

    Source: kubelet v1.37.1, cm/cpumanager/topology; spec: topology.md section 1.
    """
    # No oddities are seen at less cost than looking for them: publishers' facts are read often.
    cores = [core for node in info.topology for core in node.cores]
    cpus = [cpu for core in cores for cpu in core.thread_ids]
    is_ordinary = (
        len(cpus) == len(set(cpus)) > 0
        and len({node.node_id for node in info.topology}) == len(info.topology)
        and min((core.core_id for core in cores), default=0) >= 0
    )
    if is_ordinary:
        return {}
    found: dict[str, str] = {}
    nodes: set[int] = set()
    listed: set[int] = set()
    for index, node in enumerate(info.topology):
        field = f"{prefix}topology[{index}]"
        if node.node_id in nodes:
            problem = f"NUMA node {node.node_id} is there twice: the kubelet adds its CPUs up and takes the last memory"
            found[f"{field}.node_id"] = problem
        nodes.add(node.node_id)
        for position, core in enumerate(node.cores):
            inner = f"{field}.cores[{position}]"
            if core.core_id < 0:
                problem = f"{core.core_id} is negative: the kubelet numbers cores by their first CPU"
                found[f"{inner}.core_id"] = problem
            if again := sorted(listed & set(core.thread_ids)):
                found[f"{inner}.thread_ids"] = f"CPU {again[0]} is in another core, too: the kubelet keeps the last"
            listed.update(core.thread_ids)
    if not listed:
        problem = "the kubelet starts and its managers find none" if info.num_cores else "the kubelet does not start"
        found[f"{prefix}topology"] = f"there are no CPUs: {problem}"
    return dict(islice(found.items(), _MOST_REPORTED))


def parse_machine_lines(data: bytes, source: str, name: str) -> Machine:
    """Read the description called ``name`` from a file with one description per line.

    An empty ``name`` means the only machine of the file.

    Raises:
        InputError: no line has that name, a line before it is no JSON object, or the description is malformed.
    """
    names: list[str] = []
    for number, line in _lines(data):
        document = Document(None, source, 1, number, line, is_alone=True)
        found = _decoded(line, _LabelJSON, document).name or ""
        if found == name:
            return parse_machine_info(line, source, number)
        names.append(found)
    if not name and len(names) == 1:
        return parse_machine_lines(data, source, names[0])
    problem = f"holds no machine {name!r}" if name else f"holds {len(names)} machines"
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    remedy = f"write {source}#NAME with one of: {listed}" if names else "is it the right file?"
    raise InputError(problem, source=source, remedy=remedy)


def machines_of_lines(data: bytes, source: str) -> Iterator[Machine]:
    """Yield every description of a file with one description per line.

    Raises:
        InputError: a line is no JSON object or a description is malformed.
    """
    for number, line in _lines(data):
        yield parse_machine_info(line, source, number)


def is_lines(data: bytes) -> bool:
    """Tell whether the bytes are several lines with an object each."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    return len(lines) > 1 and all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines[:2])


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield every line that is not blank with its number."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield number, line


def machine_info_document(info: MachineInfo, *, info_error: str = "") -> dict[str, object]:
    """Return the description with every member that cAdvisor writes, in its order, ready for any JSON encoder.

    Empty lists are null, as Go writes lists that were never filled. (The one exception in cAdvisor, a node whose CPUs
    are all offline and whose ``cores`` is therefore ``[]``, is null here too; readers take both alike.)

    Args:
        info: The description.
        info_error: cAdvisor's error, if the description is only the part that could be had.
    """
    complete = not info_error
    return {
        "timestamp": TIMESTAMP,
        "vendor_id": info.vendor_id,
        "num_cores": info.num_cores,
        "num_physical_cores": info.num_physical_cores,
        "num_sockets": info.num_sockets,
        **({"num_books": info.num_books} if info.num_books else {}),
        **({"num_drawers": info.num_drawers} if info.num_drawers else {}),
        "cpu_frequency_khz": info.cpu_frequency_khz,
        "memory_capacity": info.memory_capacity,
        "swap_capacity": info.swap_capacity,
        "memory_by_type": {
            entry.type: {"capacity": entry.capacity, "dimm_count": entry.dimm_count} for entry in info.memory_by_type
        }
        if complete
        else None,
        "nvm": {"memory_mode_capacity": 0, "app direct_mode_capacity": 0, "avg_power_budget": 0},
        "hugepages": _written(info.hugepages),
        "machine_id": "",
        "system_uuid": "",
        "boot_id": "",
        "filesystems": None,
        "disk_map": None,
        "network_devices": None,
        "topology": _written(info.topology),
        # Kubernetes stripped the detection of clouds from cAdvisor; these are what is left of it.
        "cloud_provider": "Unknown" if complete else "",
        "instance_type": "Unknown" if complete else "",
        "instance_id": "",
    }


def machine_info_json(info: MachineInfo) -> str:
    """Return :func:`machine_info_document` as indented JSON text with a newline at its end."""
    encoded = msgspec.json.encode(machine_info_document(info))
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def _written(part: Any) -> Any:
    """Return a part with its members in cAdvisor's order; books and drawers are left out where there are none."""
    if isinstance(part, tuple):
        return (list(map(_written, part)) if part and type(part[0]) in _ORDER else list(part)) or None
    if type(part) not in _ORDER:
        return part
    members = {name: _written(getattr(part, name)) for name in _ORDER[type(part)]}
    return {name: value for name, value in members.items() if value or name not in _OF_S390X}


_ORDER: Final[Mapping[type, tuple[str, ...]]] = {
    NUMANode: ("node_id", "memory", "hugepages", "cores", "caches", "distances"),
    Core: ("core_id", "thread_ids", "caches", "uncore_caches", "socket_id", "book_id", "drawer_id"),
    Cache: ("id", "size", "type", "level"),
    HugePages: ("page_size", "num_pages"),
}
_OF_S390X: Final = ("book_id", "drawer_id")


_MISMATCH: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_BOUND: Final = re.compile(r"Expected `int` (>=|<=) (-?[0-9]+)")
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a fraction",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_BOUNDS: Final = {">=": "must be at least", "<=": "must be at most"}


def _decoded(data: bytes, kind: type[_T], document: Document, prefix: str = "") -> _T:
    """Decode JSON of a document, or of its part under a prefix; complaints name line, column and field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        complaint, _, path = str(error).partition(" - at `$")
        field = f"{prefix}{path.rstrip('`')}".strip(".")
        if missing := _MISSING.match(complaint):
            field = f"{field}.{missing[1]}".strip(".")
        place = places_of(document, (field,))[field]
        raise InputError(_problem(complaint), source=str(place), field=field, remedy=_REMEDY) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError):
        whole = document.text if isinstance(document.text, bytes) else data
        raise json_error(whole, document.file, document.line) from None


def _problem(complaint: str) -> str:
    """Return msgspec's complaint in the words of the other readers."""
    if _MISSING.match(complaint):
        return "is missing"
    if match := _BOUND.match(complaint):
        return f"{_BOUNDS[match[1]]} {match[2]}"
    if match := _MISMATCH.match(complaint):
        wanted, given = (match[group].removesuffix(" | null") for group in (1, 2))
        return f"must be {_WORDS.get(wanted, wanted)}, not {_WORDS.get(given, given)}"
    return complaint.replace("`", "'")
