"""Reading ``memory_manager_state``: every format that a release reads, with its checks and messages.

Left to the memory manager: whether the state fits the machine (spec: memory-manager.md section 7).

Source: memorymanager/state of each release (checkpoint.go, state_checkpoint.go); spec: state-files.md section 4,
releases.md section 4.
"""

from __future__ import annotations

from functools import cache

from mooring.engine.checkpoint.canonical import canonical_data, canonical_members
from mooring.engine.checkpoint.formats import FormatFamily, older_formats, read_checkpoint
from mooring.engine.checkpoint.gotypes import GoValue
from mooring.engine.checkpoint.memory_file import memory_text_of
from mooring.engine.checkpoint.structures import MEMORY_DATA, MEMORY_STRUCTURES, MEMORY_V3
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import quote
from mooring.engine.core.release import NEWEST
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.start import not_restored, other_policy
from mooring.engine.releases.state_files import FileFormats, state_file_rules


def load_memory_state(
    text: str, *, policy: str, pod_level: bool, release: str = NEWEST.name
) -> MemoryState | StartRefusal:
    """Read the memory manager's state file as the kubelet does when it starts.

    Lists that are null in the file are empty in the state; the kubelet's checks make no difference between
    them either. A node or a table that is null is refused: the kubelet would crash on it.

    Args:
        text: The file.
        policy: The configured memory manager policy.
        pod_level: Gate PodLevelResourceManagers: pod blocks are taken over.
        release: Of the kubelet, such as ``1.34``.

    >>> load_memory_state("", policy="Static", pod_level=False).message[:99]
    'start memory manager error: could not restore state from checkpoint: unexpected end of JSON input, '
    """
    known = canonical_memory_state(text, pod_level=pod_level, release=release)
    if known is not None and known.policy == policy:
        return known
    return read_strictly(text, policy=policy, pod_level=pod_level, release=release)


def canonical_memory_state(text: str, *, pod_level: bool, release: str = NEWEST.name) -> MemoryState | None:
    """Return the state of which ``text`` is the file; None when it is not what would be written for any.

    >>> text = memory_text_of("1.37", MemoryState("Static", {}, {}), pod_level=False)
    >>> canonical_memory_state(text, pod_level=False)
    MemoryState(policy='Static', nodes={}, assignments={}, pods={})
    """
    formats = state_file_rules(release, pod_level=pod_level).memory
    if formats.data:
        found = canonical_data(text, MEMORY_DATA)
    else:
        found = canonical_members(text, MEMORY_STRUCTURES[formats.written])
    if found is None:
        return None
    state = _state(found, pod_level=pod_level)
    return state if memory_text_of(release, state, pod_level=pod_level) == text else None


def read_strictly(text: str, *, policy: str, pod_level: bool, release: str = NEWEST.name) -> MemoryState | StartRefusal:
    """Read the text of a file by Go's rules alone; see :func:`load_memory_state`, which answers the same, sooner."""
    checkpoint = read_checkpoint(text, memory_family(state_file_rules(release, pod_level=pod_level).memory))
    if isinstance(checkpoint, str):
        return not_restored("memory", checkpoint)
    found = checkpoint.members
    if found["policyName"] != policy:
        return other_policy("memory", policy, found["policyName"])
    try:
        return _state(found, pod_level=pod_level)
    except _NullError as error:
        return not_restored("memory", str(error))


class _NullError(MooringError):
    """Something is null that the kubelet follows without looking."""


def _state(checkpoint: dict[str, GoValue], *, pod_level: bool) -> MemoryState:
    # Format V1 lacks the member podEntries; an explicit null is the same as none.
    pods = checkpoint.get("podEntries") or {} if pod_level else {}
    return MemoryState(
        policy=checkpoint["policyName"],
        nodes={node: _node(node, value) for node, value in (checkpoint["machineState"] or {}).items()},
        assignments={
            pod: {name: blocks_of(blocks) for name, blocks in (containers or {}).items()}
            for pod, containers in (checkpoint["entries"] or {}).items()
        },
        pods={pod: blocks_of(entry.get("memoryBlocks")) for pod, entry in pods.items()},
    )


def _node(node: int, value: dict[str, GoValue] | None) -> NUMANodeState:
    if value is None:
        raise _NullError(f"the kubelet would crash: the machine state of NUMA node {node} is null")
    return NUMANodeState(
        assignments=value["numberOfAssignments"],
        memory={name: _known_table(node, name, table) for name, table in (value["memoryMap"] or {}).items()},
        cells=tuple(value["cells"] or ()),
    )


def _known_table(node: int, name: str, table: dict[str, int] | None) -> MemoryTable:
    if table is None:
        raise _NullError(f"the kubelet would crash: the table of {quote(name)} on NUMA node {node} is null")
    return table_of(table)


def table_of(table: dict[str, int]) -> MemoryTable:
    """Return the account that a table is."""
    return MemoryTable(
        total=table["total"],
        system_reserved=table["systemReserved"],
        allocatable=table["allocatable"],
        reserved=table["reserved"],
        free=table["free"],
    )


def blocks_of(blocks: list[dict[str, GoValue]] | None) -> tuple[Block, ...]:
    """Return the blocks of a list; one that is null is empty."""
    return tuple([Block(tuple(b["numaAffinity"] or ()), b["type"], b["size"]) for b in blocks or ()])


@cache
def memory_family(formats: FileFormats) -> FormatFamily:
    """Return the formats of ``memory_manager_state`` as a release reads them."""
    older = older_formats(MEMORY_STRUCTURES, formats)
    return FormatFamily("memory manager", "v3", MEMORY_V3, MEMORY_DATA, older, reads_data=bool(formats.data))


MEMORY_FAMILY = memory_family(state_file_rules(NEWEST.name, pod_level=False).memory)
"""The formats of ``memory_manager_state`` in the newest release."""
