"""The states in damaged files: entry by entry, so that one that cannot be read does not cost the others.

What is read here is never taken for what the kubelet reads: that is the work of ``cpu_load`` and ``memory_load``.

Source: the formats of spec: state-files.md section 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.checkpoint.gojson import decode
from mooring.engine.checkpoint.goscan import JSONObject, JSONValue
from mooring.engine.checkpoint.gotypes import BLOCKS, NODES, RELEASE, GoField, GoStruct, GoType, GoValue, zero
from mooring.engine.checkpoint.memory_file import blocks_of, table_of
from mooring.engine.checkpoint.salvage import Salvage, member
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.memorymanager.state import Block, MemoryState, NUMANodeState
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that cannot be read."""

    uid: str
    """Of the pod; empty for the shared pool and for entries by container id."""
    container: str
    """Name or id of the container; empty for what belongs to a whole pod."""
    text: str
    """What stands there."""


@dataclass(frozen=True, slots=True)
class CPUContents:
    """What a CPU manager's file says."""

    state: CPUState
    """Pod sets, baselines and pending releases included, whatever the gates; the shared pool is 0 when it cannot be
    read."""
    has_pool: bool
    """Whether the shared pool can be read."""
    unreadable: tuple[Unreadable, ...] = ()
    by_id: tuple[Unreadable, ...] = ()
    """Entries of format V1, by container id."""


@dataclass(frozen=True, slots=True)
class MemoryContents:
    """What a memory manager's file says."""

    state: MemoryState
    """Pod blocks included, whatever the gate; nodes that cannot be read are left out."""
    has_nodes: bool
    """Whether the whole machine state can be read."""
    null: tuple[str, ...] = ()
    """Nodes and tables that are null, on which the kubelet crashes."""
    unreadable: tuple[Unreadable, ...] = ()


def cpu_contents(salvage: Salvage) -> CPUContents:
    """Return what the copy says, as far as it can be read.

    Sets that no kubelet can read are left out; so are pod sets that a cut may have emptied.
    """
    document = salvage.document
    unreadable: list[Unreadable] = []
    by_id: list[Unreadable] = []
    assignments: dict[str, dict[str, CPUMask]] = {}
    for uid, held in _members(member(document, "entries")):
        if isinstance(held, str):
            by_id.append(Unreadable("", uid, held))
            continue
        assignments[uid] = {}
        for name, text in _members(held):
            cpus = _mask("" if text is None else text)
            if cpus is None:
                unreadable.append(Unreadable(uid, name, _shown(text)))
            else:
                assignments[uid][name] = cpus
    pods: dict[str, CPUMask] = {}
    for uid, entry in _members(member(document, "podEntries")):
        mask = _mask(_inner(entry, "cpuSet", whole=salvage.whole))
        if mask is None:
            unreadable.append(Unreadable(uid, "", _shown(entry)))
        else:
            pods[uid] = mask
    baselines = {
        uid: {
            name: mask
            for name, entry in _members(containers)
            if (mask := _mask(_inner(entry, "baseline", whole=True))) is not None
        }
        for uid, containers in _members(member(document, "baselines"))
    }
    releases = {
        uid: {
            name: PreAssignment(cpus, Moment(read["applyAt"], read["bootId"]), is_written=True)
            for name, entry in _members(held)
            if (read := _decoded(RELEASE, entry)) and (cpus := _mask(read["cpuSet"]))
        }
        for uid, held in _members(member(document, "preAssignments"))
    }
    default = member(document, "defaultCpuSet")
    pool = _mask(default) if default is not None else None if not salvage.whole else NO_CPUS
    if pool is None and default is not None:
        unreadable.append(Unreadable("", "", _shown(default)))
    state = CPUState(_policy(document), pool or NO_CPUS, assignments, pods, baselines, releases)
    return CPUContents(state, pool is not None, tuple(unreadable), tuple(by_id))


def memory_contents(salvage: Salvage) -> MemoryContents:
    """Return what the copy says, as far as it can be read. The nodes of a copy that is cut off are not read."""
    document = salvage.document
    unreadable: list[Unreadable] = []
    assignments = {
        uid: dict(_block_lists(uid, _members(held), unreadable)) for uid, held in _members(member(document, "entries"))
    }
    of_pods = [
        (uid, _inner(entry, "memoryBlocks", whole=salvage.whole))
        for uid, entry in _members(member(document, "podEntries"))
    ]
    pods = {uid: blocks for uid, value in of_pods for _, blocks in _block_lists(uid, [("", value)], unreadable)}
    raw = member(document, "machineState")
    read = _decoded(NODES, raw) if salvage.whole and raw is not None else {} if salvage.whole else None
    null: list[str] = []
    nodes = {node: known for node, value in (read or {}).items() if (known := _node(node, value, null)) is not None}
    state = MemoryState(_policy(document), nodes, assignments, pods)
    return MemoryContents(state, read is not None and not null, tuple(null), tuple(unreadable))


def _block_lists(
    uid: str, held: Iterator[tuple[str, JSONValue]] | list[tuple[str, JSONValue]], unreadable: list[Unreadable]
) -> Iterator[tuple[str, tuple[Block, ...]]]:
    for name, value in held:
        blocks = _decoded(BLOCKS, value)
        if blocks is None:
            unreadable.append(Unreadable(uid, name, _shown(value)))
        else:
            yield name, blocks_of(blocks)


def _node(node: int, value: dict[str, GoValue] | None, null: list[str]) -> NUMANodeState | None:
    if value is None:
        null.append(f"NUMA node {node}")
        return None
    tables = {}
    for name, table in (value["memoryMap"] or {}).items():
        if table is None:
            null.append(f"{name} on NUMA node {node}")
        else:
            tables[name] = table_of(table)
    return NUMANodeState(value["numberOfAssignments"], tables, tuple(value["cells"] or ()))


def _decoded(kind: GoType, value: JSONValue) -> GoValue | None:
    """Decode one value by itself; None when its JSON does not fit its type. A null list is an empty one."""
    box = GoStruct("Box", (GoField("value", "Value", kind),))
    read = decode(JSONObject([("value", value)]), box, zero(box))
    return None if read.fault is not None else read.value["value"] or ({} if isinstance(value, JSONObject) else [])


def _members(value: JSONValue) -> list[tuple[str, JSONValue]]:
    """Return the members of an object; of anything else none. Of equal names the last one counts."""
    return list(dict(value.members).items()) if isinstance(value, JSONObject) else []


def _inner(entry: JSONValue, name: str, *, whole: bool) -> JSONValue:
    """Return a member of an entry. Empty ones are left out by the kubelet; in pieces that may be the cut's work."""
    if not isinstance(entry, JSONObject):
        return entry
    found = member(entry, name)
    if found is not None:
        return found
    return ("" if name != "memoryBlocks" else None) if whole else False


def _mask(value: JSONValue) -> CPUMask | None:
    if not isinstance(value, str):
        return None
    try:
        return CPUSet.parse(value).mask
    except CPUSetSyntaxError:
        return None


def _policy(document: JSONObject) -> str:
    name = member(document, "policyName")
    return name if isinstance(name, str) else ""


def _shown(value: JSONValue) -> str:
    return value if isinstance(value, str) else "no text" if value is not None else "null"
