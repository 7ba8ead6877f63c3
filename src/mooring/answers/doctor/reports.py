"""One state file from text to problems and repair: what the kubelet makes of the text, and what else can be made of it.

Source: spec: state-files.md sections 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from mooring.answers.doctor.cpu_checks import check_cpu_state
from mooring.answers.doctor.cpu_repair import Dropped, EntryHolder, Problem, Repaired, repaired_cpu
from mooring.answers.doctor.memory_checks import blocks_text, check_memory_state, repaired_memory
from mooring.engine.checkpoint.contents import CPUContents, MemoryContents, Unreadable, cpu_contents, memory_contents
from mooring.engine.checkpoint.cpu_file import cpu_family
from mooring.engine.checkpoint.formats import (
    ALLOCATED_FILE,
    CORRUPTED,
    FormatFamily,
    bytes_of,
    describe_format,
    read_checkpoint,
    read_pod_file,
)
from mooring.engine.checkpoint.goscan import JSONObject, parse_prefix
from mooring.engine.checkpoint.gotypes import DATA_MEMBERS, MEMBERS
from mooring.engine.checkpoint.memory_file import memory_family
from mooring.engine.checkpoint.salvage import DEPTH, Salvage, containers_in, member, salvaged, unknown_members
from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.gotext import quote
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import Settings
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.engine.releases.state_files import pod_file_versions, state_file_rules
from mooring.explanations.phrases import cpus_text, joined, plural

NOT_JSON = "MOOR-301"
WRONG_TYPE = "MOOR-302"
WRONG_CHECKSUM = "MOOR-303"
OLD_FORMAT = "MOOR-304"
OTHER_POLICY = "MOOR-305"
BAD_CPU_LIST = "MOOR-306"
UNKNOWN_MEMBERS = "MOOR-307"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file's text comes to."""

    file: str
    format: str
    """Its format in words."""
    salvage: Salvage | None
    """The best copy of the state; None when nothing parses."""
    policy: str | None
    """The policy that the kubelet reads in the file; None when it cannot read it."""
    problems: tuple[Problem, ...]
    """What is wrong with the text."""


def read(file: str, text: str, family: FormatFamily) -> Reading:
    """Read the text of a state file and say what is wrong with it as a text."""
    answer = read_checkpoint(text, family)
    salvage = salvaged(text, family, intact=not isinstance(answer, str))
    problems = [_problem(file, text, answer, salvage)] if isinstance(answer, str) else []
    policy = None if isinstance(answer, str) else answer.members["policyName"]
    return Reading(file, describe_format(text), salvage, policy, (*problems, *_newer(file, text, salvage, family)))


def _problem(file: str, text: str, complaint: str, salvage: Salvage | None) -> Problem:
    """Name what keeps the kubelet from reading the text."""
    outer = parse_prefix(bytes_of(text), DEPTH)
    left = _left(salvage)
    if outer.fault:
        line, column = bytes_of(text)[: outer.fault_at].count(b"\n") + 1, _column(bytes_of(text), outer.fault_at)
        where = f"line {line}, column {column}"
        what = "The file is empty." if not text else f"The file is not JSON: {outer.fault} ({where})."
        return Problem(NOT_JSON, "error", file, f"{what} {left}")
    document = outer.value
    if not isinstance(document, JSONObject):
        return Problem(WRONG_TYPE, "error", file, f"The file is JSON but not a state file: {complaint}.")
    if _is_by_container_id(document):
        return Problem(
            OLD_FORMAT,
            "error",
            file,
            "The file has format V1, whose entries go by container id. Kubelets up to 1.36 turn it into a newer "
            "format; 1.37 no longer reads it.",
        )
    data = member(document, "data")
    inner = parse_prefix(data.encode(errors="replace"), DEPTH) if isinstance(data, str) and data else None
    if inner is not None and inner.fault:
        return Problem(NOT_JSON, "error", file, f"The text in data is not JSON: {inner.fault}. {left}")
    if complaint.endswith(CORRUPTED):
        return Problem(WRONG_CHECKSUM, "error", file, f"The checksum does not match the file's content. {left}")
    if inner is None and complaint.endswith("unexpected end of JSON input"):
        return Problem(WRONG_TYPE, "error", file, f"The file has a dataChecksum and no data. {left}")
    reason = complaint.rpartition(": json: ")[2] or complaint
    return Problem(WRONG_TYPE, "error", file, f"A member of the file has the wrong type: {reason}. {left}")


def _column(data: bytes, offset: int) -> int:
    return offset - data.rfind(b"\n", 0, offset)


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


def _is_by_container_id(document: JSONObject) -> bool:
    entries = member(document, "entries")
    if member(document, "data") or not isinstance(entries, JSONObject):
        return False
    return any(isinstance(value, str) for _, value in entries.members)


def _newer(file: str, text: str, salvage: Salvage | None, family: FormatFamily) -> Iterator[Problem]:
    """Report members that a newer kubelet, or an editor, has written."""
    outer = parse_prefix(bytes_of(text), DEPTH)
    names = unknown_members(outer.value, MEMBERS) if outer.whole and isinstance(outer.value, JSONObject) else []
    if salvage is not None and salvage.in_data:
        names += unknown_members(salvage.document, DATA_MEMBERS | {field.member for field in family.data.fields})
    if names:
        shown = joined([quote(name) for name in dict.fromkeys(names)])
        yield Problem(
            UNKNOWN_MEMBERS,
            "warning",
            file,
            f"The file has members that kubelet v1.37.1 does not know and loses with its next write: {shown}. A newer "
            "kubelet may have written it.",
        )


def pod_file_problems(file: str, text: str, release: Release) -> tuple[str, str, tuple[Problem, ...]]:
    """Return format, words of the kubelet and problems of a file of allocated or actuated pods."""
    found = read_pod_file(text, release.name, json_v2=not release.rules.json_texts_of_go_126)
    if found.problem:
        code = WRONG_CHECKSUM if found.problem == CORRUPTED else WRONG_TYPE if found.version else NOT_JSON
        words = (
            f"could not restore state from checkpoint: failed to get pod resource information: {found.problem}, please "
            f"drain this node and delete pod resource information checkpoint file {quote(file)} before restarting "
            "Kubelet"
        )
        words = words if file == ALLOCATED_FILE else f"failed to initialize actuated state checkpoint: {words}"
        message = f"Kubelet {release.tag} does not start on it ({found.problem}): drain the node and delete the file."
        return "pods with their resources, damaged", words, (Problem(code, "error", file, message),)
    problems: tuple[Problem, ...] = ()
    if found.version not in pod_file_versions(release.name)[1]:
        message = (
            f"Kubelet {release.tag} does not know format {found.version} and reads the amounts in it alone, not the "
            "names and specs of pods."
        )
        problems = (Problem(UNKNOWN_MEMBERS, "warning", file, message),)
    return f"pods with their resources, format {found.version}, {plural(len(found.pods), 'pod')}", "", problems


def policy_problem(configured: str, reading: Reading, salvaged_policy: str) -> Problem | None:
    """Say that another policy wrote the file; of one that the kubelet cannot read, only when it names a policy."""
    found = salvaged_policy if reading.policy is None else reading.policy
    if found == configured or (reading.policy is None and not found):
        return None
    what = f"was written under policy {quote(found)}" if found else "names no policy"
    return Problem(
        OTHER_POLICY, "error", reading.file, f"Policy {quote(configured)} is configured, and the file {what}."
    )


def unreadable_problems(file: str, entries: tuple[Unreadable, ...], *, what: str) -> Iterator[Problem]:
    """Say which entries of a file cannot be read one by one.

    Args:
        file: its name.
        entries: that cannot be read.
        what: an entry should be: ``CPU list`` or ``list of memory blocks``.
    """
    pool = [one for one in entries if not one.uid and not one.container]
    rest = [one for one in entries if one not in pool]
    if pool:
        yield Problem(BAD_CPU_LIST, "error", file, f"The shared pool is not a {what}: {quote(pool[0].text)}.")
    if rest:
        shown = joined([quote(one.text) for one in rest[:3]]) + (" and others" if len(rest) > 3 else "")
        holders = tuple(EntryHolder(one.uid, one.container) for one in rest)
        yield Problem(
            BAD_CPU_LIST,
            "error",
            file,
            f"{plural(len(rest), 'container')} without a readable {what}: {shown}.",
            holders,
        )


State = TypeVar("State", CPUState, MemoryState)
Held = TypeVar("Held")


@dataclass(frozen=True, slots=True)
class Report(Generic[State]):
    """What there is to know about one file."""

    file: str
    format: str
    """In words; empty when there is no file."""
    problems: tuple[Problem, ...] = ()
    state: State | None = None
    """What the file says, as far as it can be read; None when there is no file or nothing in it can be read."""
    trusted: bool = True
    """A checksum vouches for that."""
    unnamed: tuple[Dropped, ...] = ()
    """Entries that no repair can keep, because they cannot be read or name no pod."""

    @property
    def is_there(self) -> bool:
        """Tell whether there is a file."""
        return bool(self.format)

    @property
    def is_sound(self) -> bool:
        """Tell whether nothing has to be done about it."""
        return not any(problem.severity == "error" for problem in self.problems)


def cpu_report(settings: Settings, text: str | None, offline: int = 0) -> Report[CPUState]:
    """Look at the CPU manager's file; ``offline`` is the mask of the CPUs that the machine has offline."""
    if text is None:
        return Report(CPU_FILE, "")
    releases = settings.cpu is not None and settings.cpu.scale_down.is_on
    rules = state_file_rules(NEWEST.name, pod_level=settings.pod_level.managers)
    json_v2 = not settings.release.rules.json_texts_of_go_126
    reading = read(CPU_FILE, text, cpu_family(rules.cpu, releases=releases, json_v2=json_v2))
    if reading.salvage is None:
        return Report(
            CPU_FILE, reading.format, _without_state(settings.config.cpu_manager_policy, reading), trusted=False
        )
    contents = cpu_contents(reading.salvage)
    if not releases:
        # A kubelet does not see them.
        contents = replace(contents, state=replace(contents.state, pre_assignments={}))
    problems = [*reading.problems, *_cpu_problems(settings, reading, contents, offline)]
    ids = tuple(EntryHolder("", one.container) for one in contents.by_id)
    problems = [replace(one, holders=ids) if one.code == OLD_FORMAT else one for one in problems]
    unnamed = [
        Dropped(EntryHolder(one.uid, one.container), "CPUs that cannot be read", "its CPU list cannot be read")
        for one in contents.unreadable
        if one.uid or one.container
    ]
    unnamed += [
        Dropped(EntryHolder("", one.container), _held_by_id(one.text), "the entry names no pod")
        for one in contents.by_id
    ]
    return Report(CPU_FILE, reading.format, tuple(problems), contents.state, _is_trusted(reading), tuple(unnamed))


def _without_state(configured: str, reading: Reading) -> tuple[Problem, ...]:
    """Return what is wrong with a file that says nothing; of a JSON null the kubelet still reads a policy, none."""
    other = policy_problem(configured, reading, "")
    return reading.problems if other is None else (*reading.problems, other)


def _held_by_id(text: str) -> str:
    try:
        return cpus_text(CPUSet.parse(text).mask)
    except CPUSetSyntaxError:
        return "CPUs that cannot be read"


def _is_trusted(reading: Reading) -> bool:
    return reading.policy is not None or (reading.salvage is not None and reading.salvage.trusted)


def _cpu_problems(settings: Settings, reading: Reading, contents: CPUContents, offline: int) -> list[Problem]:
    other = policy_problem(settings.config.cpu_manager_policy, reading, contents.state.policy)
    found = [other] if other is not None else []
    found += unreadable_problems(CPU_FILE, contents.unreadable, what="CPU list")
    # Entries that name no pod leave their CPUs unaccounted for, which says nothing new.
    if settings.cpu is not None and not contents.by_id:
        found += check_cpu_state(settings.cpu, contents, offline)
    return found


def memory_report(settings: Settings, text: str | None) -> Report[MemoryState]:
    """Look at the memory manager's file."""
    if text is None:
        return Report(MEMORY_FILE, "")
    formats = state_file_rules(NEWEST.name, pod_level=False).memory
    json_v2 = not settings.release.rules.json_texts_of_go_126
    reading = read(MEMORY_FILE, text, memory_family(formats, json_v2=json_v2))
    if reading.salvage is None:
        problems = _without_state(settings.config.memory_manager_policy, reading)
        return Report(MEMORY_FILE, reading.format, problems, trusted=False)
    contents = memory_contents(reading.salvage)
    unnamed = tuple(
        Dropped(EntryHolder(one.uid, one.container), "memory that cannot be read", "its blocks cannot be read")
        for one in contents.unreadable
    )
    found = (*reading.problems, *_memory_problems(settings, reading, contents))
    return Report(MEMORY_FILE, reading.format, found, contents.state, _is_trusted(reading), unnamed)


def _memory_problems(settings: Settings, reading: Reading, contents: MemoryContents) -> list[Problem]:
    other = policy_problem(settings.config.memory_manager_policy, reading, contents.state.policy)
    found = [other] if other is not None else []
    found += unreadable_problems(MEMORY_FILE, contents.unreadable, what="list of memory blocks")
    # A file of the policy None has no machine state, and needs none.
    if settings.memory is not None and (contents.state.nodes or contents.state.assignments or contents.null):
        found += check_memory_state(settings.memory, contents)
    return found


def repair_cpu(settings: Settings, report: Report[CPUState], active: Collection[str]) -> Repaired[CPUState | None]:
    """Return what the CPU manager's file should hold."""
    state = report.state
    if state is None:
        return Repaired(None, report.unnamed)
    if settings.cpu is None:
        lost = _given_up(state.assignments, cpus_text, "under policy none no container has exclusive CPUs")
        return Repaired(CPUState(settings.config.cpu_manager_policy, NO_CPUS, {}), (*report.unnamed, *lost))
    repair = repaired_cpu(settings.cpu, state, active)
    return Repaired(repair.state, (*report.unnamed, *repair.dropped))


def repair_memory(
    settings: Settings, report: Report[MemoryState], active: Collection[str]
) -> Repaired[MemoryState | None]:
    """Return what the memory manager's file should hold."""
    state = report.state
    if state is None:
        return Repaired(None, report.unnamed)
    if settings.memory is None:
        lost = _given_up(state.assignments, blocks_text, "under policy None no memory is guaranteed")
        return Repaired(MemoryState(settings.config.memory_manager_policy, {}, {}), (*report.unnamed, *lost))
    repair = repaired_memory(settings.memory, state, active)
    return Repaired(repair.state, (*report.unnamed, *repair.dropped))


def _given_up(
    assignments: Mapping[str, Mapping[str, Held]], words: Callable[[Held], str], why: str
) -> Iterator[Dropped]:
    for uid, held in sorted(assignments.items()):
        for name, what in sorted(held.items()):
            yield Dropped(EntryHolder(uid, name), words(what), why)
