"""What the page of a report adds up."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.views.report import ReportCPU, ReportView


def cpu_states(report: ReportView, step: int) -> Mapping[int, ReportCPU]:
    """Return every CPU's use and owners after a step, by adding up the changes."""
    found: dict[int, ReportCPU] = {}
    for cpus, state in (change for done in report.steps[: step + 1] for change in done.cpus):
        found.update(dict.fromkeys(cpus, state))
    return found
