"""A report about a picture, as if all of it had come in one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mooring.views.report import ReportPod, ReportStep, ReportView, changes_between
from mooring.views.view import CPUUse, CPUView, NodeView


def report_on(view: NodeView, **more: Any) -> ReportView:
    states = {cpu.cpu: cpu for cpu in view.cpus()}
    start = {cpu: CPUView(cpu, CPUUse.SHARED) for cpu in states}
    steps = (ReportStep(None, changes_between({}, start)), ReportStep(0, changes_between(start, states)))
    pods = (ReportPod("ns/pod", "uid", "admitted", admitted=True, step=1),)
    return replace(ReportView("v1.37.1", view, steps, pods), **more)
