"""What the page's scripts read: a document without anything that only a program of ours would understand.

Numbers of owners, pods, accounts and devices are positions in their lists; docs/reference/report.md describes it all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mooring.engine.core.errors import clean
from mooring.views.palette import owner_style, use_style
from mooring.views.report import ReportStep, ReportView
from mooring.views.view import CPUUse
from mooring.views.wording import MARKS

API_VERSION = "mooring/v1alpha1"
KIND = "Report"

UNSAFE: Mapping[int, str] = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What could end the element around the data, as JSON writes it."""


def data_text(report: ReportView) -> str:
    """Return the data as JSON that can stand inside a script element."""
    return json.dumps(report_data(report), separators=(",", ":")).translate(UNSAFE)


def report_data(report: ReportView) -> dict[str, Any]:
    """Return the data: dicts, lists, texts, numbers, flags and None."""
    view = report.node
    pods = {pod.uid: index for index, pod in enumerate(report.pods)}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": report.kubelet,
        "machine": view.name,
        "uses": [{"name": use.value, "style": use_style(use), "mark": MARKS.get(use, "")} for use in CPUUse],
        "cpus": [
            {"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "numa": cpu.numa, "l3": cpu.l3}
            for cpu in sorted(view.cpus(), key=lambda cpu: cpu.cpu)
        ],
        "owners": [
            {
                "label": owner.label,
                "forms": list(owner.forms[1:]),
                "mark": owner.mark,
                "style": owner_style(owner),
                "pod": pods.get(owner.uid),
            }
            for owner in view.owners
        ],
        "pods": [
            {
                "name": clean(pod.name),
                "verdict": pod.verdict,
                "admitted": pod.admitted,
                "step": pod.step,
                "reason": clean(pod.reason),
                "message": clean(pod.message),
                "why": clean(pod.why),
                "remedy": clean(pod.remedy),
                "code": pod.code,
            }
            for pod in report.pods
        ],
        "accounted": report.accounted,
        "accounts": [
            {
                "node": account.node,
                "resource": clean(account.resource),
                "total": account.total,
                "reserved": account.reserved,
                "allocatable": account.allocatable,
            }
            for account in report.accounts
        ],
        "devices": [
            {
                "resource": clean(device.resource),
                "id": clean(device.id),
                "numa": list(device.numa),
                "address": clean(device.address),
                "healthy": device.healthy,
                "offered": device.offered,
            }
            for device in report.devices
        ],
        "steps": [_step(step) for step in report.steps],
    }


def _step(step: ReportStep) -> dict[str, Any]:
    use_numbers = {use: number for number, use in enumerate(CPUUse)}
    return {
        "pod": step.pod,
        "cpus": [
            {"cpus": str(change.cpus), "use": use_numbers[change.state.use], "owners": list(change.state.owners)}
            for change in step.cpus
        ],
        "accounts": [
            {"account": index, "assigned": state.assigned, "free": state.free, "group": list(state.group)}
            for index, state in step.accounts
        ],
        "devices": [{"device": index, "holder": clean(holder)} for index, holder in step.devices],
    }
