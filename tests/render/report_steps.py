"""What the page of a report adds up."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.views.report import ReportView
from mooring.views.view import CPUView


def cpu_states(report: ReportView, step: int) -> Mapping[int, CPUView]:
    """Return every CPU's use and owners after a step, by adding up the changes."""
    return {view.cpu: view for done in report.steps[: step + 1] for views in done.cpus for view in views}
