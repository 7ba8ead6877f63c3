"""Go types as data: what the decoder fills in and what the dump prints.

The kubelet declares its state files as Go structures. Here each structure is one value (``structures.py``),
and decoding (``gojson.py``) and printing (``dump.py``) walk over it. Decoded values are plain Python: a
structure is a dictionary by member name, a map a dictionary, a slice a list, and nil is None.

The structures of the state files, declared once for decoding and for dumping.

Source: kubelet v1.37.1, cpumanager/state and memorymanager/state (checkpoint.go, state.go); spec:
state-files.md sections 2-4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from mooring.engine.core.bits import members
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import INT64_MAX, INT64_MIN
from mooring.lazy import dataclass, replace

UINT64_MAX = 2**64 - 1

GoValue: TypeAlias = Any
"""A decoded value. Its shape follows from its type, which only the structure's declaration knows."""


@dataclass(frozen=True, slots=True)
class GoString:
    """A string type."""

    name: str = "string"


@dataclass(frozen=True, slots=True)
class GoInteger:
    """An integer type with its range."""

    name: str = "int"
    low: int = INT64_MIN
    high: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class GoMap:
    """A map type with text keys, or with integer keys."""

    name: str
    element: GoType
    integer_keys: bool = False
    key: str = "int"
    """Name of the type of integer keys."""


@dataclass(frozen=True, slots=True)
class GoSlice:
    """A slice type."""

    name: str
    element: GoType


@dataclass(frozen=True, slots=True)
class GoBytes:
    """A slice of bytes: base64 in JSON, numbers in a dump; its value is ``bytes``."""

    name: str = "[]uint8"


@dataclass(frozen=True, slots=True)
class GoPointer:
    """A pointer; as an element of a map its target prints behind ``<*>``."""

    element: GoType


@dataclass(frozen=True, slots=True)
class GoField:
    """One field of a structure."""

    member: str
    """Name of the member in JSON."""

    name: str
    """Name of the field in Go, as the dump prints it."""

    type: GoType

    embedded: str = ""
    """Name of the embedded structure that the field comes from. It appears in the paths of type errors."""

    omit_empty: bool = False
    """Go's ``omitempty``: the writer leaves the member out when it is empty."""


@dataclass(frozen=True, slots=True)
class GoStruct:
    """A structure; its full name in messages is ``<package>.<name>``."""

    name: str
    fields: tuple[GoField, ...]
    package: str = "state"


@dataclass(frozen=True, slots=True)
class GoSelfDecoding:
    """A structure with an ``UnmarshalJSON`` of its own."""

    form: GoStruct
    """What that method decodes first, in a decoding of its own."""

    read: Callable[[dict[str, GoValue]], GoValue]
    """Makes the value of the form. A MooringError from here ends the whole decoding with its text."""

    dump: Callable[[GoValue], str]
    """Prints the value in the grammar of ``dump.py``."""

    zero: GoValue
    """The value before anything was decoded."""


GoType: TypeAlias = GoString | GoInteger | GoMap | GoSlice | GoBytes | GoPointer | GoStruct | GoSelfDecoding

STRING = GoString()
INT = GoInteger()
UINT64 = GoInteger("uint64", 0, UINT64_MAX)
INTS = GoSlice("[]int", INT)


def type_name(kind: GoType) -> str:
    """Return the name that messages and dumps give to a type.

    >>> type_name(INTS)
    '[]int'
    """
    match kind:
        case GoStruct(name=name, package=package):
            return f"{package}.{name}"
        case GoPointer(element=element):
            return type_name(element)
        case GoSelfDecoding(form=form):
            return type_name(form)
        case _:
            return kind.name


def zero(kind: GoType) -> GoValue:
    """Return the value of a type before anything is stored: maps, slices and pointers are nil.

    >>> zero(GoStruct("Pair", (GoField("a", "A", STRING), GoField("b", "B", INTS))))
    {'a': '', 'b': None}
    """
    match kind:
        case GoString():
            return ""
        case GoInteger():
            return 0
        case GoStruct(fields=fields):
            return {field.member: zero(field.type) for field in fields}
        case GoSelfDecoding():
            return kind.zero
        case _:
            return None


CHECKSUM = GoInteger("checksum.Checksum", 0, UINT64_MAX)
RESOURCE_NAME = GoString("v1.ResourceName")

CPU_LEGACY_NAME = "CPUManagerCheckpoint"
"""Name under which all older CPU formats are hashed when they are written, whatever their own name is."""

MEMORY_LEGACY_NAME = "MemoryManagerCheckpoint"
"""The same for the memory manager."""

_optional = partial(GoField, omit_empty=True)
_POLICY_NAME = GoField("policyName", "PolicyName", STRING)
_CHECKSUM = GoField("checksum", "Checksum", CHECKSUM)
_DATA = GoField("data", "Data", STRING)
_DATA_CHECKSUM = GoField("dataChecksum", "DataChecksum", CHECKSUM)


def fresh(struct: GoStruct) -> dict[str, GoValue]:
    """Return a structure as the kubelet hands it to the decoder: its own maps are there and empty, not nil.

    So a missing ``entries`` member hashes as ``map[]``, and only an explicit null as ``<nil>``.

    >>> fresh(CPU_V2)
    {'policyName': '', 'defaultCpuSet': '', 'entries': {}, 'checksum': 0}
    """
    return {f.member: {} if isinstance(f.type, GoMap) else zero(f.type) for f in struct.fields}


def _struct(name: str, *fields: tuple[str, str, GoType]) -> GoStruct:
    return GoStruct(name, tuple(GoField(*field) for field in fields))


def _embedded(struct: GoStruct) -> tuple[GoField, ...]:
    """Return the fields that a structure lends to the one that embeds it."""
    return tuple(replace(field, embedded=struct.name) for field in struct.fields)


# --- CPU manager ---


def _read_pod_entry(form: dict[str, GoValue]) -> int:
    """Parse a pod's CPU set while the file is decoded: a bad one is refused before any checksum is seen."""
    try:
        return CPUSet.parse(form["cpuSet"]).mask
    except CPUSetSyntaxError as error:
        raise MooringError(f"failed to parse cpuset: {error}") from None


def _dump_pod_entry(mask: int) -> str:
    elements = " ".join(f"{cpu}:{{}}" for cpu in members(mask))
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}"


_DEFAULT_SET = GoField("defaultCpuSet", "DefaultCPUSet", STRING)
_CPU_ENTRIES = _optional(
    "entries", "Entries", GoMap("map[string]map[string]string", GoMap("map[string]string", STRING))
)
_POD_SET = GoStruct("podEntryJSON", (_optional("cpuSet", "CPUSet", STRING),))
_CPU_POD_ENTRIES = _optional(
    "podEntries",
    "PodEntries",
    GoMap("state.PodCPUAssignments", GoSelfDecoding(_POD_SET, read=_read_pod_entry, dump=_dump_pod_entry, zero=0)),
)
# The names of the baseline types are inferred; they show only in messages about baselines of a wrong JSON type.
_BASELINE = GoStruct("ContainerCPUBaseline", (GoField("baseline", "Baseline", STRING),))
_BASELINES = _optional(
    "baselines",
    "Baselines",
    GoMap(
        "map[string]map[string]state.ContainerCPUBaseline", GoMap("map[string]state.ContainerCPUBaseline", _BASELINE)
    ),
)

CPU_V1 = GoStruct(
    "CPUManagerCheckpointV1",
    (_POLICY_NAME, _DEFAULT_SET, _optional("entries", "Entries", GoMap("map[string]string", STRING)), _CHECKSUM),
)
"""Containers by id. No kubelet since 1.31 writes it, and 1.37 does not read it any more."""

CPU_V2 = GoStruct("CPUManagerCheckpointV2", (_POLICY_NAME, _DEFAULT_SET, _CPU_ENTRIES, _CHECKSUM))
"""Containers by pod and name: kubelets up to 1.35, and 1.36 without PodLevelResourceManagers."""

CPU_V3 = GoStruct("CPUManagerCheckpointV3", (_POLICY_NAME, _DEFAULT_SET, _CPU_ENTRIES, _CPU_POD_ENTRIES, _CHECKSUM))
"""V2 and pod sets: kubelet 1.36 with PodLevelResourceManagers."""

CPU_DATA = GoStruct(
    "CPUManagerCheckpointData", (_POLICY_NAME, _DEFAULT_SET, _CPU_ENTRIES, _CPU_POD_ENTRIES, _BASELINES)
)
"""What the ``data`` member of V4 holds."""

RELEASE = _struct(
    "ContainerCPUPreAssignment", ("cpuSet", "CPUSet", STRING), ("applyAt", "ApplyAt", INT), ("bootId", "BootID", STRING)
)
"""A pending release (KEP-6122, extension scale-down-delay). No kubelet writes any yet: the names are this project's."""

_RELEASES = _optional(
    "preAssignments",
    "PreAssignments",
    GoMap(
        "map[string]map[string]state.ContainerCPUPreAssignment",
        GoMap("map[string]state.ContainerCPUPreAssignment", RELEASE),
    ),
)
CPU_DATA_WITH_RELEASES = GoStruct(CPU_DATA.name, (*CPU_DATA.fields, _RELEASES))
"""The data with pending releases."""

CPU_V4 = GoStruct("CPUManagerCheckpoint", (*_embedded(CPU_V2), _DATA, _DATA_CHECKSUM))
"""V2 for older kubelets around the data: kubelet 1.37."""

CPU_STRUCTURES: Mapping[str, GoStruct] = {"V1": CPU_V1, "V2": CPU_V2, "V3": CPU_V3}
"""The formats without data, by version."""


# --- memory manager ---


_TABLE = _struct(
    "MemoryTable",
    ("total", "TotalMemSize", UINT64),
    ("systemReserved", "SystemReserved", UINT64),
    ("allocatable", "Allocatable", UINT64),
    ("reserved", "Reserved", UINT64),
    ("free", "Free", UINT64),
)
_NODE = _struct(
    "NUMANodeState",
    ("numberOfAssignments", "NumberOfAssignments", INT),
    ("memoryMap", "MemoryMap", GoMap("map[v1.ResourceName]*state.MemoryTable", GoPointer(_TABLE))),
    ("cells", "Cells", INTS),
)
BLOCKS = GoSlice(
    "[]state.Block",
    _struct("Block", ("numaAffinity", "NUMAAffinity", INTS), ("type", "Type", RESOURCE_NAME), ("size", "Size", UINT64)),
)
NODES = GoMap("state.NUMANodeMap", GoPointer(_NODE), integer_keys=True)
_MACHINE_STATE = GoField("machineState", "MachineState", NODES)
_MEMORY_ENTRIES = _optional(
    "entries", "Entries", GoMap("state.ContainerMemoryAssignments", GoMap("map[string][]state.Block", BLOCKS))
)
_POD_BLOCKS = GoStruct("PodEntry", (_optional("memoryBlocks", "MemoryBlocks", BLOCKS),))
_MEMORY_POD_ENTRIES = _optional("podEntries", "PodEntries", GoMap("state.PodMemoryAssignments", _POD_BLOCKS))

MEMORY_V1 = GoStruct("MemoryManagerCheckpointV1", (_POLICY_NAME, _MACHINE_STATE, _MEMORY_ENTRIES, _CHECKSUM))
"""Blocks by pod and container: kubelets up to 1.35, and 1.36 without PodLevelResourceManagers."""

MEMORY_V2 = GoStruct(
    "MemoryManagerCheckpointV2", (_POLICY_NAME, _MACHINE_STATE, _MEMORY_ENTRIES, _MEMORY_POD_ENTRIES, _CHECKSUM)
)
"""V1 and pod blocks: kubelet 1.36 with PodLevelResourceManagers."""

MEMORY_DATA = GoStruct(
    "MemoryManagerCheckpointData", (_POLICY_NAME, _MACHINE_STATE, _MEMORY_ENTRIES, _MEMORY_POD_ENTRIES)
)
"""What the ``data`` member of V3 holds."""

MEMORY_V3 = GoStruct("MemoryManagerCheckpoint", (*_embedded(MEMORY_V1), _DATA, _DATA_CHECKSUM))
"""V1 for older kubelets around the data: kubelet 1.37."""

MEMORY_STRUCTURES: Mapping[str, GoStruct] = {"V1": MEMORY_V1, "V2": MEMORY_V2}
"""The formats without data, by version."""

_STRUCTURES = (CPU_V1, CPU_V2, CPU_V3, CPU_V4, MEMORY_V1, MEMORY_V2, MEMORY_V3)
MEMBERS = frozenset(field.member for structure in _STRUCTURES for field in structure.fields)
"""Members of a state file, in any format of either manager."""
DATA_MEMBERS = frozenset(field.member for structure in (CPU_DATA, MEMORY_DATA) for field in structure.fields)
"""The same of the ``data`` member."""
