"""What is left of a damaged state file, and how far it can be believed.

The newest formats hold the state twice: as members for older kubelets and as ``data``, each with a checksum of its own.
So a copy whose checksum is right is exactly what a kubelet wrote, even when the other copy, or the JSON around it, is
broken. Without such a copy the best of what can be read is taken, and marked as doubtful.

Source: the formats of spec: state-files.md sections 2 to 4.

The states are read entry by entry, so that one that cannot be read does not cost the others. They are never taken for
what the kubelet reads: that is the work of ``cpu_file`` and ``memory_file``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.checkpoint.formats import FormatFamily, Unread, bytes_of, read_older
from mooring.engine.checkpoint.gojson import decode, quoted
from mooring.engine.checkpoint.goscan import JSONNumber, JSONObject, JSONValue, parse_prefix, unquote
from mooring.engine.checkpoint.gotypes import BLOCKS, NODES, RELEASE, GoField, GoStruct, GoType, GoValue, zero
from mooring.engine.checkpoint.memory_file import blocks_of, nodes_of
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.memorymanager.state import Block, MemoryState
from mooring.lazy import dataclass

DEPTH = 3
"""Levels of unfinished JSON that still say something: the file, its entries, the containers of a pod."""

_DATA = re.compile(rb'"data"\s*:\s*"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_DATA_CHECKSUM = re.compile(rb'"dataChecksum"\s*:\s*([0-9]{1,20})')


@dataclass(frozen=True, slots=True)
class Salvage:
    """One copy of the state in a file."""

    document: JSONObject
    """Its members."""

    in_data: bool
    """Whether it is the copy in ``data``, the only one with pod entries."""

    trusted: bool
    """Its checksum is right: a kubelet wrote exactly this."""

    whole: bool
    """Nothing of it is cut off."""


_OF_STATE = {"policyname", "entries", "machinestate", "defaultcpuset"}


def salvaged(text: str, family: FormatFamily, *, intact: bool = False) -> Salvage | None:
    """Return the best copy of the state, or None when nothing can be read.

    Of an intact file it is the copy that the kubelet goes by, ``data`` where there is one. Else a trusted copy comes
    before all others, a whole one before pieces, then the one with more containers, then ``data``.

    Args:
        text: the file, read with ``surrogateescape``.
        family: the formats of its manager.
        intact: the kubelet reads the file.
    """
    copies = list(_copies(bytes_of(text), family))
    if not copies:
        return None
    return max(
        copies,
        key=lambda one: (intact and one.in_data, one.trusted, one.whole, containers_in(one.document), one.in_data),
    )


def _copies(raw: bytes, family: FormatFamily) -> Iterator[Salvage]:
    document, fault = parse_prefix(raw, DEPTH)
    is_whole = fault is None or fault.is_behind
    data, checksum = "", 0
    if not is_whole:
        # The text is no JSON. Inside of ``data`` every quote is escaped.
        text, number = _DATA.search(raw), _DATA_CHECKSUM.search(raw)
        data, checksum = unquote(text[1]) if text else "", int(number[1]) if number else 0
    elif isinstance(document, JSONObject):
        value, _ = family.decode(document, family.newest)
        data, checksum = value["data"], value["dataChecksum"]
    if data:
        inner, fault = parse_prefix(data.encode(), DEPTH)
        if isinstance(inner, JSONObject) and inner.members:
            trusted = fault is None and data_checksum(data) == checksum
            yield Salvage(inner, in_data=True, trusted=trusted, whole=fault is None or fault.is_behind)
    # Pieces count where there is more than the newest format's ``data`` and checksums.
    if isinstance(document, JSONObject) and (
        is_whole or any(name.lower() in _OF_STATE for name, _ in document.members)
    ):
        older = read_older(document, family)
        # A checksum 0, which any text can have, proves nothing.
        trusted = not isinstance(older, Unread) and older[0]["checksum"] != 0
        yield Salvage(document, in_data=False, trusted=trusted, whole=is_whole)


def member(document: JSONObject, name: str) -> JSONValue:
    """Return a member as Go finds it: the last one of its name, in any case; None when there is none."""
    found: JSONValue = None
    for known, value in document.members:
        if known.lower() == name.lower():
            found = value
    return found


def containers_in(document: JSONObject) -> int:
    """Return how many containers the entries name."""
    entries = member(document, "entries")
    if not isinstance(entries, JSONObject):
        return 0
    return sum(len(held.members) if isinstance(held, JSONObject) else 1 for _, held in entries.members)


def unknown_members(document: JSONObject, known: frozenset[str]) -> list[str]:
    """Return the members that no format of this kubelet has, as they stand there."""
    names = {name.lower() for name in known}
    return sorted({name for name, _ in document.members if name.lower() not in names})


def json_of(value: JSONValue) -> str:
    """Return a JSON value as text, members in their order."""
    match value:
        case JSONObject(members=members):
            return f"{{{','.join(f'{quoted(name)}:{json_of(item)}' for name, item in members)}}}"
        case list():
            return f"[{','.join(map(json_of, value))}]"
        case str():
            return quoted(value)
        case JSONNumber(text=text):
            return text
        case None:
            return "null"
        case _:
            return "true" if value else "false"


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
    nodes, nulls = nodes_of(read)
    null = tuple(f"{name} on NUMA node {node}" if name else f"NUMA node {node}" for node, name in nulls)
    state = MemoryState(_policy(document), nodes, assignments, pods)
    return MemoryContents(state, read is not None and not null, null, tuple(unreadable))


def _block_lists(
    uid: str, held: Iterator[tuple[str, JSONValue]] | list[tuple[str, JSONValue]], unreadable: list[Unreadable]
) -> Iterator[tuple[str, tuple[Block, ...]]]:
    for name, value in held:
        blocks = _decoded(BLOCKS, value)
        if blocks is None:
            unreadable.append(Unreadable(uid, name, _shown(value)))
        else:
            yield name, blocks_of(blocks)


def _decoded(kind: GoType, value: JSONValue) -> GoValue | None:
    """Decode one value by itself; None when its JSON does not fit its type. A null list is an empty one."""
    box = GoStruct("Box", (GoField("value", "Value", kind),))
    read, fault = decode(JSONObject([("value", value)]), box, zero(box))
    return None if fault is not None else read["value"] or ({} if isinstance(value, JSONObject) else [])


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
