"""``mooring doctor -o json``: what is wrong with the state files, and the repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from mooring.answers.doctor.cpu_repair import EntryHolder, Problem
from mooring.answers.doctor.diagnosis import Diagnosis, FileDiagnosis, FileRepair
from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Code,
    Count,
    CPUList,
    DocumentPart,
    FindingPart,
    KubeletRelease,
    Numbers,
    finding_parts,
    one_of,
)
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod


class EntryPart(DocumentPart):
    """An entry of a state file; the names are empty when no given pod has its uid."""

    uid: str
    namespace: str
    name: str
    container: Annotated[str, Meta(description="Empty for a pod as a whole.")]


class ProblemPart(DocumentPart):
    """Something that is wrong."""

    code: Code
    severity: Annotated[str, one_of("error", "warning", "note")]
    message: str
    cpus: CPUList
    numa_nodes: Numbers
    containers: list[EntryPart]


class StateFilePart(DocumentPart):
    """One state file."""

    file: str
    exists: bool
    format: str
    sound: bool
    containers: Annotated[Count, Meta(description="How many containers have an entry that can be read.")]
    kubelet_message: Annotated[str, Meta(description="The kubelet's message about the file; empty when it takes it.")]
    problems: list[ProblemPart]


class DroppedEntryPart(EntryPart):
    """An entry that the repair leaves out."""

    held: str
    why: str


class RepairPart(DocumentPart):
    """What becomes of one state file."""

    file: str
    action: Annotated[str, one_of("replace", "delete")]
    text: Annotated[str, Meta(description="The new text; empty for a file that is deleted.")]
    kept: Annotated[int, Meta(description="How many containers keep what they have.")]
    dropped: list[DroppedEntryPart]
    changes: Annotated[list[str], Meta(description="A unified diff of what the file says, line by line.")]
    written: bool
    backup: Annotated[str, Meta(description="The copy of the old file; empty when nothing was written.")]


class RepairedEntryPart(EntryPart):
    """What a container has after the repair."""

    cpus: str
    refused: Annotated[str, Meta(description="Why the kubelet refuses its pod; empty when it does not.")]


class DiagnosisDocument(DocumentPart, kw_only=True):
    """What mooring doctor -o json prints: what is wrong with the state files, and the repair."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Diagnosis"] = "Diagnosis"
    kubelet: KubeletRelease
    release: Annotated[str, Meta(description="The release for which the files are repaired.")]
    machine: str
    sound: bool
    starts: bool
    start_error: str
    start_error_stage: str
    remedy: Annotated[str, Meta(description="What to do if the configuration is wrong.")]
    files: list[StateFilePart]
    problems: Annotated[
        list[ProblemPart], Meta(description="About both files or none; those of one file are in its object.")
    ]
    repairs: list[RepairPart]
    afterwards: Annotated[
        list[RepairedEntryPart], Meta(description="Running containers when the kubelet starts on the (repaired) files.")
    ]
    findings: Annotated[list[FindingPart], Meta(description="About the input.")]


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
        dropped=[
            DroppedEntryPart(*_names(dropped.holder, pods), held=dropped.held, why=dropped.why)
            for dropped in repair.dropped
        ],
        changes=list(repair.changes),
        written=repair.file in backups,
        backup=backups.get(repair.file, ""),
    )
