"""What becomes of the running pods when the kubelet starts on the files, repaired or sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring.answers.base.plan import make_plan
from mooring.answers.base.question import Question
from mooring.answers.doctor.problem import EntryHolder, Problem
from mooring.explain.phrases import joined, plural

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


def restarted(question: Question) -> RestartEffect:
    """Start the kubelet on the files of a question and admit its active pods again."""
    if not question.active:
        return RestartEffect()
    plan = make_plan(replace(question, pods=()))
    if plan.refusal is not None:
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
    return RestartEffect(found, problems)
