"""One state file from text to problems and repair."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from mooring.answers.doctor.cpu_checks import check_cpu_state
from mooring.answers.doctor.cpu_repair import repaired_cpu
from mooring.answers.doctor.memory_checks import check_memory_state
from mooring.answers.doctor.memory_repair import blocks_text, repaired_memory
from mooring.answers.doctor.problem import Dropped, EntryHolder, Problem, Repaired
from mooring.answers.doctor.reading import OLD_FORMAT, Reading, policy_problem, read, unreadable_problems
from mooring.engine.checkpoint.contents import CPUContents, MemoryContents, cpu_contents, memory_contents
from mooring.engine.checkpoint.cpu_file import cpu_family
from mooring.engine.checkpoint.memory_file import memory_family
from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.release import NEWEST
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import Settings
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.engine.releases.state_files import state_file_rules
from mooring.explain.phrases import cpus_text

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
