"""``mooring doctor``: does the kubelet start on these files, if not why, and what is the smallest repair?

The engine is asked three times: about both files, about each alone (a CPU manager that fails keeps the kubelet from
looking at the other file), and about the repaired ones. A repair on which it does not start is never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

from mooring.answers.base.answering import RESTART, STATE_FILES
from mooring.answers.base.plan import Question, RefusedPlan, make_plan
from mooring.answers.base.plan_findings import machine_findings, uncore_findings, wrap_findings
from mooring.answers.base.start import start_advice
from mooring.answers.doctor import entry_checks
from mooring.answers.doctor.answer import (
    MISSING,
    DiagnosisDocument,
    EntryHolder,
    ProblemPart,
    RepairedEntryPart,
    RepairPart,
    name_entries,
    problem,
    state_file,
)
from mooring.answers.doctor.reports import (
    Report,
    State,
    changes,
    cpu_report,
    memory_report,
    pod_file_problems,
    repair_cpu,
    repair_memory,
)
from mooring.documents.plan import finding_parts
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import Release
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import StateTexts, cpu_text, memory_text
from mooring.engine.kubelet.start import crash_at_start, refusal_of, start_kubelet
from mooring.engine.memorymanager.policy import STATIC
from mooring.engine.memorymanager.state import Block, MemoryState
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE, Settings, build_settings
from mooring.explanations.phrases import joined, plural
from mooring.inputs.machines.isolation import PinnedContainer

NOT_CHECKED = "not checked"
"""Stands for the format of a file that the kubelet does not come to."""


def diagnose(
    question: Question,
    devices: DeviceRecord | None = None,
    pod_files: Mapping[str, str | None] | None = None,
    pinned: Sequence[PinnedContainer] = (),
) -> DiagnosisDocument:
    """Look at the state files of a question.

    Args:
        question: its machine, configuration, files and active pods are checked.
        devices: the device manager's record; None where it is not known.
        pod_files: the files of allocated and actuated pods, of which none is repaired: name -> text, None without one.
        pinned: what running containers have of their own; a file that has lost it gets it back.
    """
    release = question.mooring.release
    found = _diagnosed(question, release, devices or DeviceRecord(), pinned)
    # The managers' files come first: without them the kubelet does not get to the files of pods.
    for name, text in (pod_files or {}).items():
        if text is None:
            continue
        form, words, problems = pod_file_problems(name, text, release)
        found.files.append(state_file(name, form, list(problems), words))
        if words and found.starts:
            refusal = StartRefusal.of("kubelet", Fault(words, Cause.FILE_DAMAGED))
            found.starts, found.start_error, found.start_error_stage = False, refusal.message, refusal.stage
    found.sound = found.starts and not any(one.severity == "error" for one in found.all_problems)
    return found


def _diagnosed(
    question: Question, release: Release, devices: DeviceRecord, pinned: Sequence[PinnedContainer]
) -> DiagnosisDocument:
    """Look at the managers' files."""
    config = entry_checks.honoured(question.config, release)
    noticed = [*question.findings, *machine_findings(question.machine, question.config)]
    settings = _settings(question, config)
    if isinstance(settings, StartRefusal):
        present = ((CPU_FILE, question.files.cpu), (MEMORY_FILE, question.files.memory))
        reports: list[Report[CPUState]] = [
            Report(name, ("" if text is None else NOT_CHECKED, "")) for name, text in present
        ]
        said = ((report, "") for report in reports)
        return _document(
            question, settings, said, [problem("MOOR-350", "", code=settings.code)], noticed, is_blocked=True
        )
    files = entry_checks.seen(question.files, release, pod_level=settings.gates[entry_checks.POD_LEVEL_GATE])
    ask = replace(question, config=config, files=files)
    base = _refusal(replace(ask, files=StateTexts()))
    words = [
        # What the kubelet says without any file is not about the file.
        found.message if found is not None and found != base else ""
        for found in (
            _refusal(replace(ask, files=alone))
            for alone in (StateTexts(cpu=files.cpu), StateTexts(memory=files.memory))
        )
    ]
    hardware = question.machine.hardware
    offline = hardware.offline.mask if hardware is not None else 0
    cpu = _explained(cpu_report(settings, files.cpu, offline), words[0])
    memory = _explained(memory_report(settings, files.memory), words[1])
    odd = list(entry_checks.check_pod_entries(cpu.state, memory.state, settings))
    if files != question.files:
        whole = cpu_report(settings, question.files.cpu).state, memory_report(settings, question.files.memory).state
        odd += entry_checks.check_hidden_pods(release.name, CPU_FILE, whole[0], cpu.state)
        odd += entry_checks.check_hidden_pods(release.name, MEMORY_FILE, whole[1], memory.state)
    cpu, memory = _with_own(cpu, odd), _with_own(memory, odd)
    if settings.cpu is not None:
        own = {one: CPUMask(one.cpus.mask) for one in pinned if one.cpus}
        cpu = _with_pinned(cpu, cpu.state or CPUState("static", NO_CPUS, {}), own)
    if settings.memory is not None:
        memory_of = {
            one: tuple(Block(one.nodes, resource, amount) for resource, amount in one.memory)
            for one in pinned
            if one.nodes and one.memory
        }
        memory = _with_pinned(memory, memory.state or MemoryState(STATIC, {}, {}), memory_of)
    running = {pod.uid for pod in ask.active} | {one.uid for one in pinned}
    repairs = _repairs(settings, ask, cpu, memory, running)
    afterwards, met = restarted(replace(ask, files=with_repairs(files, repairs)))
    shared = [
        *entry_checks.check_together(settings, ask.active, cpu, memory, devices),
        *entry_checks.check_entries(settings, ask.active, cpu, memory),
        *([problem("MOOR-350", "", code=base.code)] if base is not None else []),
        *met,
    ]
    return _document(
        question,
        _refusal(ask),
        ((cpu, words[0]), (memory, words[1])),
        shared,
        [*noticed, *wrap_findings(settings), *uncore_findings(settings)],
        repairs,
        afterwards,
        is_blocked=base is not None,
    )


def _document(
    question: Question,
    refusal: StartRefusal | None,
    reports: Iterable[tuple[Report[CPUState] | Report[MemoryState], str]],
    problems: Iterable[ProblemPart],
    findings: Iterable[Finding],
    repairs: Sequence[RepairPart] = (),
    afterwards: Sequence[RepairedEntryPart] = (),
    *,
    is_blocked: bool,
) -> DiagnosisDocument:
    files = []
    for report, words in reports:
        entries: Mapping[str, Sized] = {} if report.state is None else report.state.assignments
        held = sum(len(one) for uid, one in entries.items() if state_owner(uid).is_pods)
        files.append(state_file(report.file, report.format, list(report.problems), words, held))
    found = DiagnosisDocument(
        kubelet=question.mooring.release.tag,
        release=question.mooring.release.name,
        machine=question.machine.name,
        sound=False,
        starts=refusal is None,
        start_error="" if refusal is None else refusal.message,
        start_error_stage="" if refusal is None else refusal.stage,
        remedy=start_advice(question, refusal) if refusal is not None and is_blocked else "",
        files=files,
        problems=list(problems),
        repairs=list(repairs),
        afterwards=list(afterwards),
        findings=finding_parts(findings),
    )
    pods = {pod.uid: pod for pod in question.active}
    name_entries((entry for one in found.all_problems for entry in one.containers), pods)
    name_entries((entry for one in found.repairs for entry in one.dropped), pods)
    return found


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


def _explained(report: Report[State], words: str) -> Report[State]:
    """Make sure that no refusal stays without a problem."""
    if not words or not report.is_sound:
        return report
    return replace(report, problems=(*report.problems, problem("MOOR-351", report.file, words=words)))


def _with_own(report: Report[State], found: list[ProblemPart]) -> Report[State]:
    return replace(report, problems=(*report.problems, *(one for one in found if one.file == report.file)))


def _with_pinned(report: Report[State], state: State, own: Mapping[PinnedContainer, Any]) -> Report[State]:
    """Return a report on a file that has again what running containers have, if it is missing or has lost entries."""
    if not own or (report.is_sound and report.is_there):
        return report
    entries = {uid: dict(held) for uid, held in state.assignments.items()}
    lost = []
    for one, held in own.items():
        if one.uid in state.pods:
            continue
        known = entries.setdefault(one.uid, {})
        if one.name not in known or not report.trusted:
            lost += [EntryHolder(one.uid, one.name)] if known.get(one.name) != held else []
            known[one.name] = held
    state = replace(state, assignments={uid: held for uid, held in entries.items() if held})
    if report.is_there:
        return replace(report, state=state)
    if not lost:
        return report
    missing = problem("MOOR-345 running", report.file, lost, count=plural(len(lost), "container"))
    return replace(report, format=(MISSING, ""), problems=(*report.problems, missing), state=state)


def _repairs(
    settings: Settings, ask: Question, cpu: Report[CPUState], memory: Report[MemoryState], running: Collection[str]
) -> list[RepairPart]:
    """Return what is to be written, when the kubelet starts on it."""
    found = []
    managers: tuple[tuple[Report[Any], Callable[..., Any], Callable[..., str]], ...] = (
        (cpu, repair_cpu, cpu_text),
        (memory, repair_memory, memory_text),
    )
    for report, repaired, text_of in managers:
        if not report.is_there or report.is_sound:
            continue
        kept, lost = (None, ()) if report.state is None else repaired(settings, report.state, running)
        text = "" if kept is None else text_of(settings, kept)
        count = 0 if kept is None else sum(map(len, kept.assignments.values()))
        action, diff = "delete" if kept is None else "replace", changes(report.state, kept, report.file)
        dropped = [*report.unnamed, *lost]
        found.append(RepairPart(report.file, action, text, count, dropped, diff, written=False, backup=""))
    # What the configuration itself is refused for is not the files' fault, and no file can mend it.
    settled = replace(ask, files=StateTexts())
    return found if _refusal(replace(ask, files=with_repairs(ask.files, found))) == _refusal(settled) else []


def with_repairs(files: StateTexts, repairs: Iterable[RepairPart]) -> StateTexts:
    """Return the files after some of them were replaced or deleted."""
    texts = {one.file: one.text if one.action == "replace" else None for one in repairs}
    return replace(files, cpu=texts.get(CPU_FILE, files.cpu), memory=texts.get(MEMORY_FILE, files.memory))


def restarted(question: Question) -> tuple[list[RepairedEntryPart], list[ProblemPart]]:
    """Start the kubelet on the files of a question and admit its active pods again.

    Returns:
        What containers have then, and where their pod is refused also the pod itself; and what goes wrong.
    """
    plan = make_plan(replace(question, pods=())) if question.active else None
    if plan is None or isinstance(plan, RefusedPlan):
        return [], []
    found: list[RepairedEntryPart] = []
    problems: list[ProblemPart] = []
    refused = []
    for answer in plan.answers:
        decision, pod = answer.decision, answer.pod
        reason = decision.rejection.reason if decision.rejection is not None else "" if decision.admitted else "crash"
        for container in pod.containers:
            placement = decision.containers.get(container.name)
            cpus = str(placement.cpus) if placement is not None and not reason else ""
            found.append(RepairedEntryPart(pod.uid, pod.namespace, pod.name, container.name, cpus, reason))
        if reason:
            found.append(RepairedEntryPart(pod.uid, pod.namespace, pod.name, "", "", reason))
            refused.append((pod.uid, reason))
    if refused:
        reasons = joined(sorted({reason for _, reason in refused}))
        holders = (EntryHolder(uid, "") for uid, _ in refused)
        problems.append(problem("MOOR-344", "", holders, pods=plural(len(refused), "running pod"), reasons=reasons))
    if (emptied := plan.emptied_pool) is not None:
        problems.append(problem(f"{emptied.code} after", "", text=f"{emptied.subject} {emptied.message}"))
    names = {f"{answer.pod.namespace}/{answer.pod.name}": (EntryHolder(answer.pod.uid, ""),) for answer in plan.answers}
    for one in plan.findings:
        if one.code == RESTART:
            problems.append(problem(RESTART, "", names.get(one.subject, ()), text=f"{one.subject}: {one.message}"))
            problems[-1].severity = "error" if one.subject == STATE_FILES else "warning"
    return sorted(found, key=lambda one: one.holder), problems
