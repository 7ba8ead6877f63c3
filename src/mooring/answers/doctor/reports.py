"""One state file from text to problems and repair: what the kubelet makes of the text, and what else can be made of it.

Source: spec: state-files.md sections 2 to 5.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from mooring.answers.doctor.answer import (
    OLD_FORMAT,
    DroppedEntryPart,
    EntryHolder,
    EntryPart,
    ProblemPart,
    dropped,
    problem,
)
from mooring.answers.doctor.cpu_checks import Held, check_cpu_state, repaired_cpu
from mooring.answers.doctor.memory_checks import blocks_text, check_memory_state, repaired_memory
from mooring.engine.checkpoint import formats
from mooring.engine.checkpoint.cpu_file import cpu_family
from mooring.engine.checkpoint.gojson import TypeFault
from mooring.engine.checkpoint.goscan import JSONObject, JSONSyntaxError, parse_prefix
from mooring.engine.checkpoint.gotypes import DATA_MEMBERS, MEMBERS
from mooring.engine.checkpoint.memory_file import memory_family
from mooring.engine.checkpoint.salvage import (
    DEPTH,
    CPUContents,
    MemoryContents,
    Salvage,
    Unreadable,
    containers_in,
    cpu_contents,
    member,
    memory_contents,
    salvaged,
    unknown_members,
)
from mooring.engine.core.bits import NO_CPUS, list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.gotext import quote
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE, Settings
from mooring.engine.releases.catalog import pod_file_versions, state_file_rules
from mooring.explanations.phrases import cpus_text, joined, plural


def _problem(file: str, text: str, unread: formats.Unread, salvage: Salvage | None) -> ProblemPart:
    """Name what keeps the kubelet from reading the text."""
    document, fault = parse_prefix(formats.bytes_of(text), DEPTH)
    left = _left(salvage)
    if fault is not None:
        before = formats.bytes_of(text)[: fault.at]
        line, column = before.count(b"\n") + 1, fault.at - before.rfind(b"\n")
        where = f"line {line}, column {column}"
        what = "The file is empty." if not text else f"The file is not JSON: {fault} ({where})."
        return problem("MOOR-301", file, what=what, left=left)
    if not isinstance(document, JSONObject):
        return problem("MOOR-302", file, why=unread.message)
    data, entries = member(document, "data"), member(document, "entries")
    if not data and isinstance(entries, JSONObject) and any(isinstance(value, str) for _, value in entries.members):
        return problem(OLD_FORMAT, file)
    if isinstance(data, str) and data:
        _, fault = parse_prefix(data.encode(errors="replace"), DEPTH)
        if fault is not None:
            return problem("MOOR-301 data", file, fault=str(fault), left=left)
    if unread.cause is None:
        return problem("MOOR-303", file, left=left)
    if not data and isinstance(unread.cause, JSONSyntaxError) and not unread.cause.at:
        return problem("MOOR-302 no data", file, left=left)
    reason = str(unread.cause).removeprefix("json: ") if isinstance(unread.cause, TypeFault) else unread.message
    return problem("MOOR-302 member", file, why=reason, left=left)


def _left(salvage: Salvage | None) -> str:
    """Say what can still be read."""
    if salvage is None:
        return "Nothing in it can be read."
    entries = plural(containers_in(salvage.document), "container")
    if salvage.trusted:
        copy = "data" if salvage.in_data else "the members for older kubelets"
        return f"The copy in {copy} is whole, with a right checksum: {entries}."
    if not salvage.whole:
        return f"Readable before the damage: {entries}."
    return f"What it says can be read, but nothing vouches for it: {entries}."


def _newer(file: str, text: str, salvage: Salvage | None, family: formats.FormatFamily) -> Iterator[ProblemPart]:
    """Report members that a newer kubelet, or an editor, has written."""
    document, fault = parse_prefix(formats.bytes_of(text), DEPTH)
    is_whole = fault is None or fault.is_behind
    names = unknown_members(document, MEMBERS) if is_whole and isinstance(document, JSONObject) else []
    if salvage is not None and salvage.in_data:
        names += unknown_members(salvage.document, DATA_MEMBERS | {field.member for field in family.data.fields})
    if names:
        shown = joined([quote(name) for name in dict.fromkeys(names)])
        yield problem("MOOR-307", file, names=shown)


def pod_file_problems(file: str, text: str, release: Release) -> tuple[tuple[str, str], str, tuple[ProblemPart, ...]]:
    """Return format, words of the kubelet and problems of a file of allocated or actuated pods."""
    version, found = formats.read_pod_file(text, release.name, json_v2=not release.rules.json_texts_of_go_126)
    if isinstance(found, formats.Unread):
        words = (
            f"could not restore state from checkpoint: failed to get pod resource information: {found.message}, please "
            f"drain this node and delete pod resource information checkpoint file {quote(file)} before restarting "
            "Kubelet"
        )
        words = words if file == formats.ALLOCATED_FILE else f"failed to initialize actuated state checkpoint: {words}"
        one = problem("MOOR-301 pods", file, kubelet=release.tag, problem=found.message)
        one.code = "MOOR-303" if found.message == formats.CORRUPTED else "MOOR-302" if version else "MOOR-301"
        return ("pods with their resources", "damaged"), words, (one,)
    problems: tuple[ProblemPart, ...] = ()
    if version not in pod_file_versions(release.name)[1]:
        problems = (problem("MOOR-307 pods", file, kubelet=release.tag, version=version),)
    held = f"format {version}, {plural(len(found), 'pod')}"
    return ("pods with their resources", held), "", problems


def _unreadable(file: str, entries: tuple[Unreadable, ...], what: str) -> Iterator[ProblemPart]:
    """Say which entries of a file cannot be read one by one."""
    pool = [one for one in entries if not one.uid and not one.container]
    rest = [one for one in entries if one not in pool]
    if pool:
        yield problem("MOOR-306", file, what=what, text=quote(pool[0].text))
    if rest:
        shown = joined([quote(one.text) for one in rest[:3]]) + (" and others" if len(rest) > 3 else "")
        holders = (EntryHolder(one.uid, one.container) for one in rest)
        containers = plural(len(rest), "container")
        yield problem("MOOR-306 entries", file, holders, containers=containers, what=what, shown=shown)


State = TypeVar("State", CPUState, MemoryState)


@dataclass(frozen=True, slots=True)
class Report(Generic[State]):
    """What there is to know about one file."""

    file: str
    format: tuple[str, str] = ("", "")
    """What it is in words, and its version, empty of a damaged one; both empty when there is no file."""
    problems: tuple[ProblemPart, ...] = ()
    state: State | None = None
    """What the file says, as far as it can be read; None when there is no file or nothing in it can be read."""
    trusted: bool = True
    """A checksum vouches for that."""
    unnamed: tuple[DroppedEntryPart, ...] = ()
    """Entries that no repair can keep, because they cannot be read or name no pod."""

    @property
    def is_there(self) -> bool:
        """Tell whether there is a file."""
        return bool(self.format[0])

    @property
    def is_sound(self) -> bool:
        """Tell whether nothing has to be done about it."""
        return not any(one.severity == "error" for one in self.problems)


Contents = TypeVar("Contents", CPUContents, MemoryContents)


def _read(
    file: str, text: str, family: formats.FormatFamily, configured: str, read: Callable[[Salvage], Contents], what: str
) -> tuple[Contents | None, list[ProblemPart], bool]:
    """Read a state file: return what it says, what is wrong with it as a text, and whether a checksum vouches for it.

    Args:
        file: its name.
        text: its content.
        family: the formats of its manager.
        configured: the policy.
        read: reads one copy of the state.
        what: an entry should be, in words.
    """
    answer = formats.read_checkpoint(text, family)
    salvage = salvaged(text, family, intact=not isinstance(answer, formats.Unread))
    problems = [_problem(file, text, answer, salvage)] if isinstance(answer, formats.Unread) else []
    problems += _newer(file, text, salvage, family)
    contents = read(salvage) if salvage is not None else None
    # Of a JSON null the kubelet still reads a policy, none.
    salvaged_policy = contents.state.policy if contents is not None else ""
    found = salvaged_policy if isinstance(answer, formats.Unread) else answer[0]["policyName"]
    # A file that the kubelet cannot read says something about its policy only when it names one.
    if found != configured and (found or not isinstance(answer, formats.Unread)):
        written = f"was written under policy {quote(found)}" if found else "names no policy"
        problems.append(problem("MOOR-305", file, configured=quote(configured), written=written))
    if contents is not None:
        problems += _unreadable(file, contents.unreadable, what)
    trusted = salvage is not None and (not isinstance(answer, formats.Unread) or salvage.trusted)
    return contents, problems, trusted


def cpu_report(settings: Settings, text: str | None, offline: int = 0) -> Report[CPUState]:
    """Look at the CPU manager's file; ``offline`` is the mask of the CPUs that the machine has offline."""
    if text is None:
        return Report(CPU_FILE)
    releases = settings.cpu is not None and settings.cpu.delays
    rules = state_file_rules(NEWEST.name, pod_level=settings.pod_level.managers)
    json_v2 = not settings.release.rules.json_texts_of_go_126
    family = cpu_family(rules.cpu, releases=releases, json_v2=json_v2)
    policy, form = settings.config.cpu_manager_policy, formats.describe_format(text)
    contents, problems, trusted = _read(CPU_FILE, text, family, policy, cpu_contents, "CPU list")
    if contents is None:
        return Report(CPU_FILE, form, tuple(problems), trusted=False)
    if not releases:
        # A kubelet does not see them.
        contents = replace(contents, state=replace(contents.state, pre_assignments={}))
    # Entries that name no pod leave their CPUs unaccounted for, which says nothing new.
    if settings.cpu is not None and not contents.by_id:
        problems += check_cpu_state(settings.cpu, contents, offline)
    for one in problems:
        if one.code == OLD_FORMAT:
            one.containers = [EntryPart("", "", "", by_id.container) for by_id in contents.by_id]
    unnamed = [
        dropped(EntryHolder(one.uid, one.container), "CPUs that cannot be read", "its CPU list cannot be read")
        for one in contents.unreadable
        if one.uid or one.container
    ]
    for by_id in contents.by_id:
        try:
            held = cpus_text(CPUSet.parse(by_id.text).mask)
        except CPUSetSyntaxError:
            held = "CPUs that cannot be read"
        unnamed.append(dropped(EntryHolder("", by_id.container), held, "the entry names no pod"))
    return Report(CPU_FILE, form, tuple(problems), contents.state, trusted, tuple(unnamed))


def memory_report(settings: Settings, text: str | None) -> Report[MemoryState]:
    """Look at the memory manager's file."""
    if text is None:
        return Report(MEMORY_FILE)
    json_v2 = not settings.release.rules.json_texts_of_go_126
    family = memory_family(state_file_rules(NEWEST.name, pod_level=False).memory, json_v2=json_v2)
    policy, form = settings.config.memory_manager_policy, formats.describe_format(text)
    contents, problems, trusted = _read(MEMORY_FILE, text, family, policy, memory_contents, "list of memory blocks")
    if contents is None:
        return Report(MEMORY_FILE, form, tuple(problems), trusted=False)
    state = contents.state
    # A file of the policy None has no machine state, and needs none.
    if settings.memory is not None and (state.nodes or state.assignments or contents.null):
        problems += check_memory_state(settings.memory, contents)
    unnamed = tuple(
        dropped(EntryHolder(one.uid, one.container), "memory that cannot be read", "its blocks cannot be read")
        for one in contents.unreadable
    )
    return Report(MEMORY_FILE, form, tuple(problems), state, trusted, unnamed)


def repair_cpu(
    settings: Settings, state: CPUState, active: Collection[str]
) -> tuple[CPUState, tuple[DroppedEntryPart, ...]]:
    """Return what the CPU manager's file should hold, and what it loses."""
    if settings.cpu is not None:
        return repaired_cpu(settings.cpu, state, active)
    lost = _given_up(state.assignments, cpus_text, "under policy none no container has exclusive CPUs")
    return CPUState(settings.config.cpu_manager_policy, NO_CPUS, {}), lost


def repair_memory(
    settings: Settings, state: MemoryState, active: Collection[str]
) -> tuple[MemoryState, tuple[DroppedEntryPart, ...]]:
    """Return what the memory manager's file should hold, and what it loses."""
    if settings.memory is not None:
        return repaired_memory(settings.memory, state, active)
    lost = _given_up(state.assignments, blocks_text, "under policy None no memory is guaranteed")
    return MemoryState(settings.config.memory_manager_policy, {}, {}), lost


def _given_up(
    assignments: Mapping[str, Mapping[str, Held]], words: Callable[[Held], str], why: str
) -> tuple[DroppedEntryPart, ...]:
    return tuple(
        dropped(EntryHolder(uid, name), words(what), why)
        for uid, held in sorted(assignments.items())
        for name, what in sorted(held.items())
    )


def changes(before: CPUState | MemoryState | None, after: CPUState | MemoryState | None, file: str) -> list[str]:
    """Return a unified diff of two states; None is a file that is not there."""
    old, new = ([] if state is None else [*_lines(state)] for state in (before, after))
    return list(difflib.unified_diff(old, new, file, f"{file} (repaired)", lineterm="", n=1))


def _entry_lines(title: str, entries: Mapping[str, Mapping[str, Held]], words: Callable[[Held], str]) -> Iterator[str]:
    for uid, held in sorted(entries.items()):
        for name, one in sorted(held.items()):
            yield f"{title}/{uid}/{name}: {words(one)}"


def _lines(state: CPUState | MemoryState) -> Iterator[str]:
    yield f"policyName: {state.policy}"
    if isinstance(state, MemoryState):
        yield from _memory_lines(state)
        return
    yield f"defaultCpuSet: {list_text(state.default)}"
    yield from _entry_lines("entries", state.assignments, list_text)
    for uid, mask in sorted(state.pods.items()):
        yield f"podEntries/{uid}: {list_text(mask)}"
    yield from _entry_lines("baselines", state.baselines, list_text)

    def release(pre: PreAssignment) -> str:
        return f"{list_text(pre.cpus)} at {pre.apply_at.since_boot} of {pre.apply_at.boot}"

    yield from _entry_lines("preAssignments", state.pre_assignments, release)


def _memory_lines(state: MemoryState) -> Iterator[str]:
    for node, account in sorted(state.nodes.items()):
        cells = ",".join(map(str, account.cells))
        yield f"machineState/{node}: assignments {account.assignments}, group {cells}"
        for name, table in sorted(account.memory.items()):
            parts = (
                ("total", table.total),
                ("systemReserved", table.system_reserved),
                ("allocatable", table.allocatable),
                ("reserved", table.reserved),
                ("free", table.free),
            )
            # Bytes exactly, in the largest unit that does it.
            amounts = ", ".join(f"{what} {Quantity.of_bytes(amount)}" for what, amount in parts)
            yield f"machineState/{node}/{name}: {amounts}"
    yield from _entry_lines("entries", state.assignments, blocks_text)
    for uid, blocks in sorted(state.pods.items()):
        yield f"podEntries/{uid}: {blocks_text(blocks)}"
