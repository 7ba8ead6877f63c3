"""The diagnosis: does the kubelet start on these files, if not why, and what is the smallest repair?

The engine is asked three times: about both files, about each alone (a CPU manager that fails keeps the kubelet from
looking at the other file), and about the repaired ones. A repair on which it does not start is never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mooring.answers.base.answering import RESTART, STATE_FILES
from mooring.answers.base.plan import Question, RefusedPlan, make_plan
from mooring.answers.base.plan_findings import machine_findings, uncore_findings, wrap_findings
from mooring.answers.base.start import start_advice
from mooring.answers.doctor.cpu_repair import Dropped, EntryHolder, Problem, Repaired
from mooring.answers.doctor.entry_checks import (
    POD_LEVEL_GATE,
    changes,
    check_entries,
    check_hidden_pods,
    check_pod_entries,
    honoured,
    seen,
)
from mooring.answers.doctor.joint_checks import check_together
from mooring.answers.doctor.reports import (
    Report,
    State,
    cpu_report,
    memory_report,
    pod_file_problems,
    repair_cpu,
    repair_memory,
)
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import Release
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import StateTexts, cpu_text, memory_text
from mooring.engine.kubelet.start import crash_at_start, refusal_of, start_kubelet
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.explanations.phrases import joined, plural

BEFORE_THE_FILES = "MOOR-350"
UNEXPLAINED = "MOOR-351"

NOT_CHECKED = "not checked"
"""Stands for the format of a file that the kubelet does not come to."""
REFUSED_AT_START = "MOOR-344"


@dataclass(frozen=True, slots=True)
class Afterwards:
    """What becomes of a running container, or of a whole pod that is refused."""

    cpus: str
    """Its exclusive CPUs as a list; empty for the shared pool."""
    refused: str
    """The kubelet's reason when its pod is refused; empty when it stays."""


@dataclass(frozen=True, slots=True)
class RestartEffect:
    """What a start does to the running pods."""

    containers: Mapping[EntryHolder, Afterwards] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class FileDiagnosis:
    """What is said about one file."""

    file: str
    format: str
    """In words; empty when there is no file."""
    kubelet: str
    """The kubelet's message about this file alone; empty when it takes it, and when it does not come so far."""
    problems: tuple[Problem, ...]
    containers: int
    """How many containers have an entry that can be read."""

    @property
    def is_sound(self) -> bool:
        """Tell whether nothing has to be done about it."""
        return not any(problem.severity == "error" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class FileRepair:
    """What a file should hold instead."""

    file: str
    text: str | None
    """None: it is to be deleted."""
    dropped: tuple[Dropped, ...]
    kept: int
    """How many containers keep what they have."""
    changes: tuple[str, ...]
    """A unified diff of what the file says, line by line."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that the doctor has to say."""

    question: Question
    release: Release
    refusal: StartRefusal | None
    """Why the kubelet does not start on the files as they are."""
    files: tuple[FileDiagnosis, ...]
    problems: tuple[Problem, ...]
    """What is about more than one file, or none."""
    repairs: tuple[FileRepair, ...]
    """For the files that are to be replaced; verified: the kubelet starts on them."""
    afterwards: Mapping[EntryHolder, Afterwards]
    """For running containers, where pods were given."""
    findings: tuple[Finding, ...] = ()
    """About the node and its configuration, not about the files."""

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong, file by file."""
        return (*(problem for file in self.files for problem in file.problems), *self.problems)

    @property
    def is_sound(self) -> bool:
        """Tell whether the kubelet starts and nothing has to be done."""
        return self.refusal is None and not any(problem.severity == "error" for problem in self.all_problems)

    @property
    def is_blocked(self) -> bool:
        """Tell whether the kubelet does not start whatever the files hold."""
        return any(problem.code == BEFORE_THE_FILES for problem in self.problems)

    @property
    def remedy(self) -> str:
        """What to do when the kubelet does not start for another reason than its files."""
        return start_advice(self.question, self.refusal) if self.refusal is not None and self.is_blocked else ""


def diagnose(question: Question, release: Release | None = None, devices: DeviceRecord | None = None) -> Diagnosis:
    """Look at the state files of a question.

    Args:
        question: its machine, configuration, files and active pods are checked.
        release: of the kubelet that will start on the files; None is the one that the question is for.
        devices: the device manager's record; None where it is not known.
    """
    release = release or question.mooring.release
    question = replace(question, mooring=replace(question.mooring, release=release))
    config = honoured(question.config, release)
    settings = _settings(question, config)
    if isinstance(settings, StartRefusal):
        return _blocked(question, release, settings)
    files = seen(question.files, release, pod_level=settings.gates[POD_LEVEL_GATE])
    ask = replace(question, config=config, files=files)
    base = _refusal(replace(ask, files=StateTexts()))
    words = [
        _words(_refusal(replace(ask, files=alone)), base)
        for alone in (StateTexts(cpu=files.cpu), StateTexts(memory=files.memory))
    ]
    hardware = question.machine.hardware
    offline = hardware.offline.mask if hardware is not None else 0
    cpu = _explained(cpu_report(settings, files.cpu, offline), words[0])
    memory = _explained(memory_report(settings, files.memory), words[1])
    odd = list(check_pod_entries(cpu.state, memory.state, settings))
    if files != question.files:
        whole = cpu_report(settings, question.files.cpu).state, memory_report(settings, question.files.memory).state
        odd += check_hidden_pods(release.name, CPU_FILE, whole[0], cpu.state)
        odd += check_hidden_pods(release.name, MEMORY_FILE, whole[1], memory.state)
    cpu, memory = _with_own(cpu, odd), _with_own(memory, odd)
    odd = list(check_together(settings, ask.active, cpu, memory, devices or DeviceRecord()))
    shared = [*odd, *check_entries(settings, ask.active, cpu, memory)]
    if base is not None:
        shared.append(_before_the_files(base))
    repairs = _repairs(settings, ask, cpu, memory)
    restart = restarted(replace(ask, files=with_repairs(files, repairs)))
    return Diagnosis(
        question=question,
        release=release,
        refusal=_refusal(ask),
        files=(_said(cpu, words[0]), _said(memory, words[1])),
        problems=(*shared, *restart.problems),
        repairs=repairs,
        afterwards=restart.containers,
        findings=(
            *question.findings,
            *machine_findings(question.machine, question.config),
            *wrap_findings(settings),
            *uncore_findings(settings),
        ),
    )


def with_pod_files(diagnosis: Diagnosis, files: Mapping[str, str | None]) -> Diagnosis:
    """Return the diagnosis with the files of allocated and actuated pods, of which none is repaired.

    Args:
        diagnosis: of the managers' files.
        files: name -> text; None where there is no file.
    """
    found = [
        FileDiagnosis(name, *pod_file_problems(name, text, diagnosis.release), 0)
        for name, text in files.items()
        if text is not None
    ]
    refused = (StartRefusal.of("kubelet", Fault(one.kubelet, Cause.FILE_DAMAGED)) for one in found if one.kubelet)
    # The managers' files come first: the kubelet does not get to these.
    return replace(diagnosis, files=(*diagnosis.files, *found), refusal=diagnosis.refusal or next(refused, None))


def _settings(question: Question, config: KubeletConfig) -> Settings | StartRefusal:
    try:
        settings = build_settings(config, question.mooring, question.machine.info)
    except KubeletCrashError as error:
        return crash_at_start(error)
    if question.machine.info_error and not isinstance(settings, StartRefusal):
        return StartRefusal.of("machine", Fault(question.machine.info_error))
    return settings


def _refusal(question: Question) -> StartRefusal | None:
    """Ask the engine."""
    try:
        return refusal_of(start_kubelet(question.machine.info, question.config, question.mooring, question.files))
    except KubeletCrashError as error:
        return crash_at_start(error)


def _words(refusal: StartRefusal | None, base: StartRefusal | None) -> str:
    """Return what the kubelet says about a file; what it says without any file is not about the file."""
    return "" if refusal is None or refusal == base else refusal.message


def _blocked(question: Question, release: Release, refusal: StartRefusal) -> Diagnosis:
    present = ((CPU_FILE, question.files.cpu), (MEMORY_FILE, question.files.memory))
    files = tuple(FileDiagnosis(name, NOT_CHECKED if text is not None else "", "", (), 0) for name, text in present)
    noticed = (*question.findings, *machine_findings(question.machine, question.config))
    return Diagnosis(question, release, refusal, files, (_before_the_files(refusal),), (), {}, noticed)


def _before_the_files(refusal: StartRefusal) -> Problem:
    return Problem(
        BEFORE_THE_FILES,
        "error",
        "",
        f"The kubelet does not start whatever the state files hold: the configuration does not fit this machine, or "
        f"itself ({refusal.code}). No repair of the files helps.",
    )


def _explained(report: Report[State], words: str) -> Report[State]:
    """Make sure that no refusal stays without a problem."""
    if not words or not report.is_sound:
        return report
    problem = Problem(UNEXPLAINED, "error", report.file, f"The kubelet refuses this file: {words}")
    return replace(report, problems=(*report.problems, problem))


def _with_own(report: Report[State], found: list[Problem]) -> Report[State]:
    own: list[Problem] = [problem for problem in found if problem.file == report.file]
    return replace(report, problems=(*report.problems, *own))


def _said(report: Report[CPUState] | Report[MemoryState], words: str) -> FileDiagnosis:
    state = report.state
    entries = state.assignments if state is not None else {}
    containers = sum(len(held) for uid, held in entries.items() if state_owner(uid).is_pods)
    return FileDiagnosis(report.file, report.format, words, report.problems, containers)


def _repairs(
    settings: Settings, ask: Question, cpu: Report[CPUState], memory: Report[MemoryState]
) -> tuple[FileRepair, ...]:
    """Return what is to be written, when the kubelet starts on it."""
    active = {pod.uid for pod in ask.active}
    found = []
    if cpu.is_there and not cpu.is_sound:
        of_cpu = repair_cpu(settings, cpu, active)
        text = cpu_text(settings, of_cpu.state) if of_cpu.state is not None else None
        found.append(_file_repair(cpu, of_cpu, text))
    if memory.is_there and not memory.is_sound:
        of_memory = repair_memory(settings, memory, active)
        text = memory_text(settings, of_memory.state) if of_memory.state is not None else None
        found.append(_file_repair(memory, of_memory, text))
    # What the configuration itself is refused for is not the files' fault, and no file can mend it.
    settled = replace(ask, files=StateTexts())
    return tuple(found) if _refusal(replace(ask, files=with_repairs(ask.files, found))) == _refusal(settled) else ()


def _file_repair(report: Report[State], repaired: Repaired[State | None], text: str | None) -> FileRepair:
    state = repaired.state
    kept = sum(len(held) for held in state.assignments.values()) if state is not None else 0
    return FileRepair(report.file, text, repaired.dropped, kept, tuple(changes(report.state, state, report.file)))


def with_repairs(files: StateTexts, repairs: Iterable[FileRepair]) -> StateTexts:
    """Return the files after some of them were replaced or deleted."""
    for repair in repairs:
        is_cpu = repair.file == CPU_FILE
        files = replace(files, cpu=repair.text) if is_cpu else replace(files, memory=repair.text)
    return files


def restarted(question: Question) -> RestartEffect:
    """Start the kubelet on the files of a question and admit its active pods again."""
    if not question.active:
        return RestartEffect()
    plan = make_plan(replace(question, pods=()))
    if isinstance(plan, RefusedPlan):
        return RestartEffect()
    found: dict[EntryHolder, Afterwards] = {}
    refused = []
    for answer in plan.answers:
        decision = answer.decision
        reason = decision.rejection.reason if decision.rejection is not None else "" if decision.admitted else "crash"
        for container in answer.pod.containers:
            placement = decision.containers.get(container.name)
            cpus = str(placement.cpus) if placement is not None and not reason else ""
            found[EntryHolder(answer.pod.uid, container.name)] = Afterwards(cpus, reason)
        if reason:
            found[EntryHolder(answer.pod.uid, "")] = Afterwards("", reason)
            refused.append((answer.pod.uid, reason))
    problems: tuple[Problem, ...] = ()
    if refused:
        reasons = joined(sorted({reason for _, reason in refused}))
        problems = (
            Problem(
                REFUSED_AT_START,
                "warning",
                "",
                f"The kubelet refuses {plural(len(refused), 'running pod')} when it admits them again after the start: "
                f"{reasons}.",
                tuple(EntryHolder(uid, "") for uid, _ in refused),
            ),
        )
    emptied = plan.emptied_pool
    if emptied is not None:
        message = f"When the running pods are admitted again, {emptied.subject} {emptied.message}."
        problems += (Problem(emptied.code, "error", "", message),)
    names = {f"{answer.pod.namespace}/{answer.pod.name}": (EntryHolder(answer.pod.uid, ""),) for answer in plan.answers}
    problems += tuple(
        Problem(
            RESTART,
            "error" if one.subject == STATE_FILES else "warning",
            "",
            f"{one.subject}: {one.message}.",
            names.get(one.subject, ()),
        )
        for one in plan.findings
        if one.code == RESTART
    )
    return RestartEffect(found, problems)
