"""Reading ``memory_manager_state``: every format that kubelet v1.37.1 reads, with its checks and messages.

Left to the memory manager: whether the state fits the machine (spec: memory-manager.md section 7).

Source: kubelet v1.37.1, memorymanager/state (checkpoint.go, state_checkpoint.go); spec: state-files.md section 4.
"""

from __future__ import annotations

from mooring.checkpoint.canonical import canonical_data
from mooring.checkpoint.checksum import legacy_checksum
from mooring.checkpoint.formats import Created, FormatFamily, LoadRefusal, OlderFormat, read_checkpoint
from mooring.checkpoint.gotypes import GoValue
from mooring.checkpoint.memory_file import initial_memory_text, memory_state_text
from mooring.checkpoint.structures import MEMORY_DATA, MEMORY_LEGACY_NAME, MEMORY_V1, MEMORY_V2, MEMORY_V3
from mooring.core.errors import MooringError
from mooring.core.gotext import quote
from mooring.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.node.start import policy_mismatch


def load_memory_state(text: str | None, *, policy: str, pod_level: bool) -> MemoryState | Created | LoadRefusal:
    """Read the memory manager's state file as the kubelet does when it starts.

    Lists that are null in the file are empty in the state; the kubelet's checks make no difference between
    them either. A node or a table that is null is refused: the kubelet would crash on it.

    Args:
        text: The file, or None when there is none.
        policy: The configured memory manager policy.
        pod_level: Gate PodLevelResourceManagers: pod blocks are taken over.

    >>> load_memory_state("", policy="Static", pod_level=False)
    LoadRefusal(manager='memory', message='unexpected end of JSON input')
    """
    if text is None:
        return Created(initial_memory_text(policy))
    known = canonical_memory_state(text, pod_level=pod_level)
    if known is not None and known.policy == policy:
        return known
    return read_strictly(text, policy=policy, pod_level=pod_level)


def canonical_memory_state(text: str, *, pod_level: bool) -> MemoryState | None:
    """Return the state of which ``text`` is the file; None when it is not what would be written for any.

    >>> text = memory_state_text(MemoryState("Static", {}, {}), pod_level=False)
    >>> canonical_memory_state(text, pod_level=False)
    MemoryState(policy='Static', nodes={}, assignments={}, pods={})
    """
    found = canonical_data(text, MEMORY_DATA)
    if found is None:
        return None
    state = _state(found, pod_level=pod_level)
    return state if memory_state_text(state, pod_level=pod_level) == text else None


def read_strictly(text: str, *, policy: str, pod_level: bool) -> MemoryState | LoadRefusal:
    """Read the text of a file by Go's rules alone; see :func:`load_memory_state`, which answers the same, sooner."""
    checkpoint = read_checkpoint(text, MEMORY_FAMILY)
    if isinstance(checkpoint, str):
        return LoadRefusal("memory", checkpoint)
    if checkpoint["policyName"] != policy:
        return LoadRefusal("memory", policy_mismatch("memory", policy, checkpoint["policyName"]))
    try:
        return _state(checkpoint, pod_level=pod_level)
    except _NullError as error:
        return LoadRefusal("memory", str(error))


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


def _v2_accepted(value: dict[str, GoValue]) -> bool:
    """Accept the checksum under the legacy name; 0 has no special meaning."""
    return bool(value["checksum"] == legacy_checksum(MEMORY_V2, value, MEMORY_LEGACY_NAME))


def _v1_accepted(value: dict[str, GoValue]) -> bool:
    """Accept the checksum under the legacy name, or 0: the file back end of old kubelets wrote none."""
    return value["checksum"] in (0, legacy_checksum(MEMORY_V1, value, MEMORY_LEGACY_NAME))


MEMORY_FAMILY = FormatFamily(
    "memory manager",
    "v3",
    MEMORY_V3,
    MEMORY_DATA,
    (OlderFormat(MEMORY_V2, _v2_accepted), OlderFormat(MEMORY_V1, _v1_accepted)),
)
"""The formats of ``memory_manager_state``."""
