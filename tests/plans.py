"""Kubelets that start, and plans of them."""

from __future__ import annotations

from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet


def started_kubelet(
    machine: MachineInfo, config: KubeletConfig, mooring: MooringConfig | None = None, files: StateTexts | None = None
) -> Kubelet:
    """Return a kubelet that starts, by default without extensions and on no state files."""
    start = start_kubelet(machine, config, mooring or MooringConfig(), files or StateTexts())
    assert isinstance(start, Kubelet), start
    return start


def started_plan(question: Question) -> Plan:
    """Return the plan of a question whose kubelet starts."""
    plan = make_plan(question)
    assert not isinstance(plan, RefusedPlan), plan.sentence
    return plan


def refused_plan(question: Question) -> RefusedPlan:
    """Return the plan of a question whose kubelet does not start."""
    plan = make_plan(question)
    assert isinstance(plan, RefusedPlan)
    return plan
