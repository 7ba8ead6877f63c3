"""Plans of kubelets that start."""

from __future__ import annotations

from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan


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
