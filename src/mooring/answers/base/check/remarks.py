"""What a check says, each remark at its place: rejections, node types that do not start, warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mooring.answers.base.check.check import Case, Check, NodeType
from mooring.answers.base.check.places import ManifestPlace, place_in, place_of
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Finding
from mooring.explain.phrases import joined
from mooring.explain.reason import POOL_EMPTY

Gravity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that a check says."""

    code: str
    gravity: Gravity
    """An error is a reason for the answer no."""
    text: str
    place: ManifestPlace | None
    subject: str
    """The pod, the node type, or the subject of a finding."""
    node_types: tuple[str, ...]


def remarks_of(check: Check) -> tuple[Remark, ...]:
    """Return what a check says, rejections first."""
    return (*_rejections(check), *_not_started(check), *_warnings(check))


def _rejections(check: Check) -> Iterator[Remark]:
    """Yield a remark for each rejected pod and node type; replicas that are rejected alike share one.

    A node type on which a pod may not run is passed over, unless the pod fails everywhere.
    """
    alike: dict[tuple[int, str, str, str], list[Case]] = {}
    for case in check.cases:
        has_answer = not case.allowed or case.node_type.plan.refusal is None
        if not case.admitted and has_answer and (case.allowed or check.is_failure(case)):
            origin = check.origins[case.pod.uid]
            alike.setdefault((id(origin), case.node_type.name, case.code, case.why), []).append(case)
    for cases in alike.values():
        first = cases[0]
        yield Remark(
            first.code,
            "error" if any(check.is_failure(case) for case in cases) else "warning",
            rejection_words(check, first, len(cases)),
            place_of(first, check.origins[first.pod.uid]),
            _name(first),
            (first.node_type.name,),
        )


def rejection_words(check: Check, case: Case, replicas: int = 1) -> str:
    """Return what is said of a rejected pod: the kubelet's reason, why, what to do, and which node types admit it.

    Args:
        check: the check.
        case: of the pod.
        replicas: how many pods are rejected alike, this one included.
    """
    who = f"{_name(case)} and {replicas - 1} more of its replicas are" if replicas > 1 else f"{_name(case)} is"
    verb = "rejected on" if case.allowed else "kept away from"
    answer = case.answer if case.allowed else None
    reason = f" ({answer.decision.reason})" if answer is not None and answer.decision.reason else ""
    sentences = [f"{who} {verb} node type {case.node_type.name}{reason}. {case.why}"]
    if answer is not None and answer.remedy:
        sentences.append(answer.remedy)
    if admitted := check.admitted_by(case.pod):
        sentences.append(f"Node type {joined(admitted)} admits it.")
    return clean(" ".join(sentences))


def _name(case: Case) -> str:
    return f"{case.pod.namespace}/{case.pod.name}"


def _not_started(check: Check) -> Iterator[Remark]:
    for one in check.node_types:
        if one.plan.refusal is not None:
            text = clean(f"The kubelet of node type {one.name} would not start: {one.plan.refusal.message}")
            gravity: Gravity = "warning" if check.is_yes else "error"
            yield Remark(one.plan.refusal_code, gravity, text, _settings(check), one.name, (one.name,))


def _warnings(check: Check) -> Iterator[Remark]:
    files = {origin.document.file for origin in check.origins.values()} | {check.settings}
    for finding in check.findings:
        if finding.code and finding.severity == "warning":
            place = place_in(finding, files)
            text = finding.message if place is not None else f"{finding.subject}: {finding.message}"
            gravity: Gravity = "error" if finding.code == POOL_EMPTY else "warning"
            node_types = tuple(one.name for one in check.node_types if _has(one, finding))
            yield Remark(finding.code, gravity, clean(text), place or _settings(check), finding.subject, node_types)


def _settings(check: Check) -> ManifestPlace | None:
    return ManifestPlace(check.settings, 1, 1) if check.settings else None


def _has(node_type: NodeType, finding: Finding) -> bool:
    return finding in node_type.plan.findings
