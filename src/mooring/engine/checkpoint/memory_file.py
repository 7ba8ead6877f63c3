"""The text of ``memory_manager_state`` as each release writes it: V1, V2, or V3 around V1.

The plain way (``structures.py`` walked by ``dump.py``) is held against this one in the tests.

Source: memorymanager/state of each release (checkpoint.go, state_checkpoint.go); spec: state-files.md sections 2 and 3,
releases.md section 4.

Reading ``memory_manager_state``: every format that a release reads, with its checks and messages.

Left to the memory manager: whether the state fits the machine (spec: memory-manager.md section 7).

Source: memorymanager/state of each release (checkpoint.go, state_checkpoint.go); spec: state-files.md section 4,
releases.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from mooring.engine.checkpoint.checksum import Piece, canonical_data, canonical_members, fnv1a_32, with_data
from mooring.engine.checkpoint.formats import FormatFamily, Unread, older_formats, read_checkpoint
from mooring.engine.checkpoint.gojson import quoted
from mooring.engine.checkpoint.gotypes import MEMORY_DATA, MEMORY_LEGACY_NAME, MEMORY_STRUCTURES, MEMORY_V3, GoValue
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.gotext import quote
from mooring.engine.core.release import NEWEST
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.settings import not_restored, other_policy
from mooring.engine.releases.catalog import FileFormats, state_file_rules

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
    pods = _pod_member(state.pods) if pod_level else ""
    return with_data(old.json, _checksum(old.dump), f"{old.json}{pods}")


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


def load_memory_state(
    text: str, *, policy: str, pod_level: bool, release: str = NEWEST.name, json_v2: bool = False
) -> MemoryState | StartRefusal:
    """Read the memory manager's state file as the kubelet does when it starts.

    Lists that are null in the file are empty in the state; the kubelet's checks make no difference between
    them either. A node or a table that is null is refused: the kubelet would crash on it.

    Args:
        text: The file.
        policy: The configured memory manager policy.
        pod_level: Gate PodLevelResourceManagers: pod blocks are taken over.
        release: Of the kubelet, such as ``1.34``.
        json_v2: Whether complaints about JSON are those of Go 1.27.

    >>> load_memory_state("", policy="Static", pod_level=False).message[:99]
    'start memory manager error: could not restore state from checkpoint: unexpected end of JSON input, '
    """
    known = canonical_memory_state(text, pod_level=pod_level, release=release)
    if known is not None and known.policy == policy:
        return known
    # By Go's rules, which answer the same for the text of any state, later.
    checkpoint = read_checkpoint(
        text, memory_family(state_file_rules(release, pod_level=pod_level).memory, json_v2=json_v2)
    )
    if isinstance(checkpoint, Unread):
        return not_restored("memory", checkpoint.message)
    found, _ = checkpoint
    if found["policyName"] != policy:
        return other_policy("memory", policy, found["policyName"])
    state, null = _state(found, pod_level=pod_level)
    if null:
        node, name = null[0]
        what = f"the table of {quote(name)} on NUMA node {node}" if name else f"the machine state of NUMA node {node}"
        return not_restored("memory", f"the kubelet would crash: {what} is null")
    return state


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
    state, _ = _state(found, pod_level=pod_level)
    return state if memory_text_of(release, state, pod_level=pod_level) == text else None


def _state(checkpoint: dict[str, GoValue], *, pod_level: bool) -> tuple[MemoryState, list[tuple[int, str]]]:
    """Return the state without what is null in it, and that."""
    # Format V1 lacks the member podEntries; an explicit null is the same as none.
    pods = checkpoint.get("podEntries") or {} if pod_level else {}
    nodes, null = nodes_of(checkpoint["machineState"])
    assignments = {
        pod: {name: blocks_of(blocks) for name, blocks in (containers or {}).items()}
        for pod, containers in (checkpoint["entries"] or {}).items()
    }
    of_pods = {pod: blocks_of(entry.get("memoryBlocks")) for pod, entry in pods.items()}
    return MemoryState(checkpoint["policyName"], nodes, assignments, of_pods), null


def nodes_of(machine: dict[int, GoValue] | None) -> tuple[dict[int, NUMANodeState], list[tuple[int, str]]]:
    """Return the machine state without what is null in it, and that: nodes, and nodes with the type of a table.

    The kubelet follows what is null without looking.
    """
    nodes: dict[int, NUMANodeState] = {}
    null: list[tuple[int, str]] = []
    for node, value in (machine or {}).items():
        if value is None:
            null.append((node, ""))
            continue
        tables = {}
        for name, table in (value["memoryMap"] or {}).items():
            if table is None:
                null.append((node, name))
                continue
            tables[name] = MemoryTable(
                total=table["total"],
                system_reserved=table["systemReserved"],
                allocatable=table["allocatable"],
                reserved=table["reserved"],
                free=table["free"],
            )
        nodes[node] = NUMANodeState(value["numberOfAssignments"], tables, tuple(value["cells"] or ()))
    return nodes, null


def blocks_of(blocks: list[dict[str, GoValue]] | None) -> tuple[Block, ...]:
    """Return the blocks of a list; one that is null is empty."""
    return tuple([Block(tuple(b["numaAffinity"] or ()), b["type"], b["size"]) for b in blocks or ()])


@cache
def memory_family(formats: FileFormats, *, json_v2: bool = False) -> FormatFamily:
    """Return the formats of ``memory_manager_state`` as a release reads them."""
    older = older_formats(MEMORY_STRUCTURES, formats)
    return FormatFamily("memory manager", "v3", MEMORY_V3, MEMORY_DATA, older, bool(formats.data), json_v2)
