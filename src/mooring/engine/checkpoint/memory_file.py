"""The text of ``memory_manager_state`` as each release writes it: V1, V2, or V3 around V1.

The plain way (``structures.py`` walked by ``dump.py``) is held against this one in the tests.

Source: memorymanager/state of each release (checkpoint.go, state_checkpoint.go); spec: state-files.md sections 2 and 3,
releases.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mooring.engine.checkpoint.checksum import Piece, data_checksum, fnv1a_32
from mooring.engine.checkpoint.gojson import quoted
from mooring.engine.checkpoint.structures import MEMORY_LEGACY_NAME
from mooring.engine.core.release import NEWEST
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable
from mooring.engine.releases.state_files import state_file_rules

_TABLES = "map[v1.ResourceName]*state.MemoryTable"


def memory_text_of(release: str, state: MemoryState, *, pod_level: bool) -> str:
    """Return the text of the state file as a release writes it, without a newline at its end.

    Args:
        release: Such as ``1.34``.
        state: What to write.
        pod_level: Gate PodLevelResourceManagers.

    >>> memory_text_of("1.34", MemoryState("None", {}, {}), pod_level=False)
    '{"policyName":"None","machineState":{},"checksum":4236770233}'
    """
    written = state_file_rules(release, pod_level=pod_level).memory.written
    if written == "V3":
        return memory_state_text(state, pod_level=pod_level)
    return memory_text_v2(state) if written == "V2" else memory_text_v1(state)


def memory_state_text(state: MemoryState, *, pod_level: bool) -> str:
    r"""Return the state in format V3, the newest.

    Args:
        state: What to write.
        pod_level: Gate PodLevelResourceManagers: pod blocks are written.

    >>> print(memory_state_text(MemoryState("Static", {}, {}), pod_level=False))  # doctest: +ELLIPSIS
    {"policyName":"Static","machineState":{},"checksum":3940083781,"data":"{...}","dataChecksum":3196122654}
    """
    old = _old_part(state)
    data = f"{{{old.json}{_pod_member(state.pods) if pod_level else ''}}}"
    # All special characters were escaped in the data already: only its quotes and backslashes are left to escape again.
    escaped = data.replace("\\", "\\\\").replace('"', '\\"')
    checksum = _checksum(old.dump)
    return f'{{{old.json},"checksum":{checksum},"data":"{escaped}","dataChecksum":{data_checksum(data)}}}'


def initial_memory_text(policy: str, release: str = NEWEST.name, *, pod_level: bool = False) -> str:
    """Return what the kubelet writes when there is no file, before the policy fills the state."""
    return memory_text_of(release, MemoryState(policy, {}, {}), pod_level=pod_level)


def memory_text_v1(state: MemoryState) -> str:
    """Return the state in format V1, for a kubelet rolled back to 1.36 or earlier; it has no pod blocks.

    >>> memory_text_v1(MemoryState("None", {}, {}))
    '{"policyName":"None","machineState":{},"checksum":4236770233}'
    """
    old = _old_part(state)
    return f'{{{old.json},"checksum":{_checksum(old.dump)}}}'


def memory_text_v2(state: MemoryState) -> str:
    """Return the state in format V2, for a kubelet 1.36 with PodLevelResourceManagers.

    >>> memory_text_v2(MemoryState("None", {}, {}))
    '{"policyName":"None","machineState":{},"checksum":512582496}'
    """
    old = _old_part(state)
    # A pod without blocks reads back as a nil list, because JSON leaves the empty one out.
    entries = [
        f"{pod}:{{MemoryBlocks:([]state.Block){_blocks(held).dump if held else '<nil>'}}}"
        for pod, held in sorted(state.pods.items())
    ]
    checksum = _checksum(f"{old.dump} PodEntries:(state.PodMemoryAssignments)map[{' '.join(entries)}]")
    return f'{{{old.json}{_pod_member(state.pods)},"checksum":{checksum}}}'


def _old_part(state: MemoryState) -> Piece:
    """Return what all formats have in common, without braces: policy, machine state, container entries."""
    nodes = {
        node: _node(held.assignments, tuple(held.memory.items()), held.cells) for node, held in state.nodes.items()
    }
    entries = [_entry(pod, tuple(held.items())) for pod, held in sorted(state.assignments.items())]
    # JSON sorts the node ids as texts (10 before 2), the dump as numbers.
    machine = ",".join([f'"{node}":{nodes[node].json}' for node in sorted(nodes, key=str)])
    machine_dump = " ".join([f"{node}:{nodes[node].dump}" for node in sorted(nodes)])
    json = f'"policyName":{quoted(state.policy)},"machineState":{{{machine}}}'
    if entries:
        json += f',"entries":{{{",".join([entry.json for entry in entries])}}}'
    dump = (
        f"PolicyName:(string){state.policy} MachineState:(state.NUMANodeMap)map[{machine_dump}] "
        f"Entries:(state.ContainerMemoryAssignments)map[{' '.join([entry.dump for entry in entries])}]"
    )
    return Piece(json, dump)


def _checksum(fields: str) -> int:
    """Return the checksum of an older format, given the dump of its other fields."""
    dump = f"(*state.{MEMORY_LEGACY_NAME}){{{fields} Checksum:(checksum.Checksum)0}}"
    return fnv1a_32(dump.encode(errors="surrogatepass"))


def _pod_member(pods: Mapping[str, tuple[Block, ...]]) -> str:
    """Return the JSON member of the pod blocks with its comma. What is empty is left out."""
    if not pods:
        return ""
    entries = [
        f'{quoted(pod)}:{{"memoryBlocks":{_blocks(held).json}}}' if held else f"{quoted(pod)}:{{}}"
        for pod, held in sorted(pods.items())
    ]
    return f',"podEntries":{{{",".join(entries)}}}'


# A write changes one node and the blocks of one pod; most pieces are those of the write before. They are remembered by
# content, never by the identity of a mapping that might change.


@lru_cache(maxsize=4096)
def _node(assignments: int, memory: tuple[tuple[str, MemoryTable], ...], cells: tuple[int, ...]) -> Piece:
    """Return one node's state."""
    tables = [(name, _table(table)) for name, table in sorted(memory)]
    json = ",".join([f"{quoted(name)}:{table.json}" for name, table in tables])
    dump = " ".join([f"{name}:{table.dump}" for name, table in tables])
    ids = [str(cell) for cell in cells]
    return Piece(
        f'{{"numberOfAssignments":{assignments},"memoryMap":{{{json}}},"cells":[{",".join(ids)}]}}',
        f"<*>{{NumberOfAssignments:(int){assignments} MemoryMap:({_TABLES})map[{dump}] "
        f"Cells:([]int)[{' '.join(ids)}]}}",
    )


@lru_cache(maxsize=4096)
def _table(table: MemoryTable) -> Piece:
    """Return one account."""
    return Piece(
        f'{{"total":{table.total},"systemReserved":{table.system_reserved},'
        f'"allocatable":{table.allocatable},"reserved":{table.reserved},"free":{table.free}}}',
        f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} "
        f"Free:(uint64){table.free}}}",
    )


@lru_cache(maxsize=4096)
def _entry(pod: str, containers: tuple[tuple[str, tuple[Block, ...]], ...]) -> Piece:
    """Return one pod's container blocks."""
    lists = [(name, _blocks(held)) for name, held in sorted(containers)]
    json = ",".join([f"{quoted(name)}:{blocks.json}" for name, blocks in lists])
    dump = " ".join([f"{name}:{blocks.dump}" for name, blocks in lists])
    return Piece(f"{quoted(pod)}:{{{json}}}", f"{pod}:map[{dump}]")


@lru_cache(maxsize=4096)
def _blocks(blocks: tuple[Block, ...]) -> Piece:
    """Return a list of blocks."""
    json, dump = [], []
    for block in blocks:
        numa = [str(node) for node in block.numa]
        json.append(f'{{"numaAffinity":[{",".join(numa)}],"type":{quoted(block.type)},"size":{block.size}}}')
        dump.append(
            f"{{NUMAAffinity:([]int)[{' '.join(numa)}] Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"
        )
    return Piece(f"[{','.join(json)}]", f"[{' '.join(dump)}]")
