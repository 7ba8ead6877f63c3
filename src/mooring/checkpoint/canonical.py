"""State files read at the speed of C, where they are what a writer of today writes.

Nearly every file that is read was written by kubelet v1.37.1 or by Mooring, letter for letter as the writers of
``cpu_file.py`` and ``memory_file.py`` write the same state. So a text is taken apart here without any of Go's rules,
and what was found is written again. Only when that gives the same text, checksums included, the state is returned.

Why that is the state which the strict readers return: they read back what the writers write (a law of the tests), for
every state whose numbers Go's types can hold. The text is the writer's text of the state that was found, so the strict
readers read it as that state. For all other texts nothing is returned, and the strict readers decide and complain.

Source: the formats of spec: state-files.md section 2.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from mooring.checkpoint.cpu_file import cpu_state_text
from mooring.checkpoint.memory_file import memory_state_text
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.core.gotext import INT64_MAX, INT64_MIN
from mooring.cpumanager.state import CPUState
from mooring.memorymanager.state import Block, MemoryState, MemoryTable, NodeState

_Int = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
# Go's unsigned type holds twice as much; texts with such sizes are left to the strict readers.
_Size = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class _Outer(msgspec.Struct, rename="camel"):
    data: str


class _PodCPUs(msgspec.Struct, rename="camel"):
    cpu_set: str = ""


class _Baseline(msgspec.Struct, rename="camel"):
    baseline: str


class _CPUData(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str
    entries: dict[str, dict[str, str]] = {}
    pod_entries: dict[str, _PodCPUs] = {}
    baselines: dict[str, dict[str, _Baseline]] = {}


class _Table(msgspec.Struct, rename="camel"):
    total: _Size
    system_reserved: _Size
    allocatable: _Size
    reserved: _Size
    free: _Size


class _Node(msgspec.Struct, rename="camel"):
    number_of_assignments: _Int
    memory_map: dict[str, _Table]
    cells: list[_Int]


class _Block(msgspec.Struct, rename="camel"):
    numa_affinity: list[_Int]
    type: str
    size: _Size


class _PodBlocks(msgspec.Struct, rename="camel"):
    memory_blocks: list[_Block] = []


class _MemoryData(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[_Int, _Node]
    entries: dict[str, dict[str, list[_Block]]] = {}
    pod_entries: dict[str, _PodBlocks] = {}


_OUTER = msgspec.json.Decoder(_Outer)
_CPU_DATA = msgspec.json.Decoder(_CPUData)
_MEMORY_DATA = msgspec.json.Decoder(_MemoryData)
_T = TypeVar("_T")


def cpu_state_as_written(text: str, *, pod_level: bool, baselines: bool) -> CPUState | None:
    """Return the state of which ``text`` is the file; None when it is not what would be written for any.

    Args:
        text: The file.
        pod_level: Gate PodLevelResourceManagers, as for the writer.
        baselines: Gate InPlacePodVerticalScalingExclusiveCPUs, as for the writer.

    >>> text = cpu_state_text(CPUState("none", 0b110, {}), pod_level=False, baselines=False)
    >>> cpu_state_as_written(text, pod_level=False, baselines=False).default
    6
    >>> cpu_state_as_written(text + " ", pod_level=False, baselines=False)
    """
    found = _data_in(text, _CPU_DATA)
    if found is None:
        return None
    try:
        state = _cpu_state(found, pod_level=pod_level, baselines=baselines)
    except CPUSetSyntaxError:
        return None
    return state if cpu_state_text(state, pod_level=pod_level, baselines=baselines) == text else None


def memory_state_as_written(text: str, *, pod_level: bool) -> MemoryState | None:
    """Return the state of which ``text`` is the file; None when it is not what would be written for any.

    Args:
        text: The file.
        pod_level: Gate PodLevelResourceManagers, as for the writer.

    >>> text = memory_state_text(MemoryState("Static", {}, {}), pod_level=False)
    >>> memory_state_as_written(text, pod_level=False)
    MemoryState(policy='Static', nodes={}, assignments={}, pods={})
    """
    found = _data_in(text, _MEMORY_DATA)
    if found is None:
        return None
    state = MemoryState(
        policy=found.policy_name,
        nodes={node: _node(one) for node, one in found.machine_state.items()},
        assignments={
            pod: {name: _blocks(blocks) for name, blocks in held.items()} for pod, held in found.entries.items()
        },
        pods={pod: _blocks(one.memory_blocks) for pod, one in found.pod_entries.items()} if pod_level else {},
    )
    return state if memory_state_text(state, pod_level=pod_level) == text else None


def _data_in(text: str, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    """Return what the member ``data`` holds, which is everything that the newest formats say."""
    try:
        return decoder.decode(_OUTER.decode(text).data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _cpu_state(found: _CPUData, *, pod_level: bool, baselines: bool) -> CPUState:
    # Without the gate, and where a file has no baselines, the text of the state shows what the strict reader would say.
    recorded = {pod: {name: _mask(one.baseline) for name, one in held.items()} for pod, held in found.baselines.items()}
    assignments = {pod: {name: _mask(cpus) for name, cpus in held.items()} for pod, held in found.entries.items()}
    return CPUState(
        policy=found.policy_name,
        default=_mask(found.default_cpu_set),
        assignments=assignments,
        pods={pod: _mask(one.cpu_set) for pod, one in found.pod_entries.items()} if pod_level else {},
        baselines=(recorded or {pod: dict(held) for pod, held in assignments.items()}) if baselines else {},
    )


def _mask(cpus: str) -> int:
    return CPUSet.parse(cpus).mask


def _node(found: _Node) -> NodeState:
    return NodeState(
        assignments=found.number_of_assignments,
        memory={
            name: MemoryTable(one.total, one.system_reserved, one.allocatable, one.reserved, one.free)
            for name, one in found.memory_map.items()
        },
        cells=tuple(found.cells),
    )


def _blocks(found: list[_Block]) -> tuple[Block, ...]:
    return tuple([Block(tuple(one.numa_affinity), one.type, one.size) for one in found])
