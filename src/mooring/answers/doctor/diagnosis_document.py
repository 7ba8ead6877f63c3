"""``mooring doctor -o json``: a diagnosis as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.answers.doctor.diagnosis import Diagnosis, FileDiagnosis, FileRepair
from mooring.answers.doctor.problem import Dropped, EntryHolder, Problem
from mooring.documents.diagnosis import (
    DiagnosisDocument,
    DroppedEntryPart,
    EntryPart,
    ProblemPart,
    RepairedEntryPart,
    RepairPart,
    StateFilePart,
)
from mooring.documents.parts import finding_parts
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod


def diagnosis_document(
    diagnosis: Diagnosis, findings: Sequence[Finding], backups: Mapping[str, str]
) -> DiagnosisDocument:
    """Return the document.

    Args:
        diagnosis: what was found.
        findings: what was noticed about the input.
        backups: file -> backup, of the files that were replaced; empty when nothing was written.
    """
    pods = {pod.uid: pod for pod in diagnosis.question.active}
    refusal = diagnosis.refusal
    return DiagnosisDocument(
        kubelet=diagnosis.question.mooring.release.tag,
        release=diagnosis.release.name,
        machine=diagnosis.question.machine.name,
        sound=diagnosis.is_sound,
        starts=refusal is None,
        start_error=refusal.message if refusal is not None else "",
        start_error_stage=refusal.stage if refusal is not None else "",
        remedy=diagnosis.remedy,
        files=[_file(file, pods) for file in diagnosis.files],
        problems=[_problem(problem, pods) for problem in diagnosis.problems],
        repairs=[_repair(repair, pods, backups) for repair in diagnosis.repairs],
        afterwards=[
            RepairedEntryPart(*_names(holder, pods), cpus=after.cpus, refused=after.refused)
            for holder, after in sorted(diagnosis.afterwards.items())
        ],
        findings=finding_parts(findings),
    )


def _names(holder: EntryHolder, pods: Mapping[str, Pod]) -> tuple[str, str, str, str]:
    """Return the uid of an entry, namespace and name of its pod, and its container."""
    pod = pods.get(holder.uid)
    return holder.uid, pod.namespace if pod is not None else "", pod.name if pod is not None else "", holder.container


def _file(file: FileDiagnosis, pods: Mapping[str, Pod]) -> StateFilePart:
    return StateFilePart(
        file=file.file,
        exists=bool(file.format),
        format=file.format,
        sound=file.is_sound,
        containers=file.containers,
        kubelet_message=file.kubelet,
        problems=[_problem(problem, pods) for problem in file.problems],
    )


def _problem(problem: Problem, pods: Mapping[str, Pod]) -> ProblemPart:
    return ProblemPart(
        code=problem.code,
        severity=problem.severity,
        message=problem.message,
        cpus=str(problem.cpus),
        numa_nodes=list(problem.nodes),
        containers=[EntryPart(*_names(holder, pods)) for holder in problem.holders],
    )


def _repair(repair: FileRepair, pods: Mapping[str, Pod], backups: Mapping[str, str]) -> RepairPart:
    return RepairPart(
        file=repair.file,
        action="replace" if repair.text is not None else "delete",
        text=repair.text or "",
        kept=repair.kept,
        dropped=[_dropped(dropped, pods) for dropped in repair.dropped],
        changes=list(repair.changes),
        written=repair.file in backups,
        backup=backups.get(repair.file, ""),
    )


def _dropped(dropped: Dropped, pods: Mapping[str, Pod]) -> DroppedEntryPart:
    return DroppedEntryPart(*_names(dropped.holder, pods), held=dropped.held, why=dropped.why)
