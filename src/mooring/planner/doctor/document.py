"""``mooring doctor -o json``: a diagnosis as a versioned document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.machine import Finding
from mooring.core.pod import Pod
from mooring.planner.doctor.cpu_repair import Dropped
from mooring.planner.doctor.diagnosis import Diagnosis, FileDiagnosis, FileRepair
from mooring.planner.doctor.problem import Holder, Problem
from mooring.planner.plan_document import API_VERSION

KIND = "Diagnosis"


def diagnosis_document(diagnosis: Diagnosis, findings: Sequence[Finding], backups: Mapping[str, str]) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers and flags.

    Args:
        diagnosis: what was found.
        findings: what was noticed about the input.
        backups: file -> backup, of the files that were replaced; empty when nothing was written.
    """
    pods = {pod.uid: pod for pod in diagnosis.question.active}
    refusal = diagnosis.refusal
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": KUBELET_VERSION,
        "release": diagnosis.release.name,
        "machine": diagnosis.question.machine.name,
        "sound": diagnosis.is_sound,
        "starts": refusal is None,
        "startError": refusal.message if refusal is not None else "",
        "startErrorStage": refusal.stage if refusal is not None else "",
        "remedy": diagnosis.remedy,
        "files": [_file_fields(file, pods) for file in diagnosis.files],
        "problems": [_problem_fields(problem, pods) for problem in diagnosis.problems],
        "repairs": [_repair_fields(repair, pods, backups) for repair in diagnosis.repairs],
        "afterwards": [
            {**holder_fields(holder, pods), "cpus": after.cpus, "refused": after.refused}
            for holder, after in sorted(diagnosis.afterwards.items())
        ],
        "findings": [
            {
                "severity": finding.severity,
                "code": finding.code,
                "subject": finding.subject,
                "message": finding.message,
            }
            for finding in findings
        ],
    }


def holder_fields(holder: Holder, pods: Mapping[str, Pod]) -> dict[str, str]:
    """Return an entry with the names of its pod; they are empty when no given pod has its uid."""
    pod = pods.get(holder.uid)
    return {
        "uid": holder.uid,
        "namespace": pod.namespace if pod is not None else "",
        "name": pod.name if pod is not None else "",
        "container": holder.container,
    }


def _file_fields(file: FileDiagnosis, pods: Mapping[str, Pod]) -> dict[str, Any]:
    return {
        "file": file.file,
        "exists": bool(file.format),
        "format": file.format,
        "sound": file.is_sound,
        "containers": file.containers,
        "kubeletMessage": file.kubelet,
        "problems": [_problem_fields(problem, pods) for problem in file.problems],
    }


def _problem_fields(problem: Problem, pods: Mapping[str, Pod]) -> dict[str, Any]:
    return {
        "code": problem.code,
        "severity": problem.severity,
        "message": problem.message,
        "cpus": str(problem.cpus),
        "numaNodes": list(problem.nodes),
        "containers": [holder_fields(holder, pods) for holder in problem.holders],
    }


def _repair_fields(repair: FileRepair, pods: Mapping[str, Pod], backups: Mapping[str, str]) -> dict[str, Any]:
    return {
        "file": repair.file,
        "action": "replace" if repair.text is not None else "delete",
        "text": repair.text or "",
        "kept": repair.kept,
        "dropped": [_dropped_fields(dropped, pods) for dropped in repair.dropped],
        "changes": list(repair.changes),
        "written": repair.file in backups,
        "backup": backups.get(repair.file, ""),
    }


def _dropped_fields(dropped: Dropped, pods: Mapping[str, Pod]) -> dict[str, str]:
    return {**holder_fields(dropped.holder, pods), "held": dropped.held, "why": dropped.why}
