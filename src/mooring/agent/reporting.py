"""What effects say in the log."""

from __future__ import annotations

from typing import Any

from mooring.agent.reactor.effects import Report, ResizeAnswered


def log_report(log: Any, report: Report) -> None:
    """Log a report with what it is about."""
    said = {"pod": report.uid, "container": report.container_id, "reason": report.reason}
    log.warning(report.message, finding=report.finding.value, **{key: text for key, text in said.items() if text})


def log_resize(log: Any, answer: ResizeAnswered) -> None:
    """Log what was decided about a resize; one that is refused is a warning."""
    tell = log.info if answer.result == "accepted" else log.warning
    tell(answer.message, resize=answer.result, pod=answer.uid, container=answer.container_id)
