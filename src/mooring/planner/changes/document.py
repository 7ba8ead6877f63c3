"""``mooring whatif -o json``: changes made, and changes found, as versioned documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.pod import Pod
from mooring.planner.changes.change import (
    Amount,
    Change,
    ConfigField,
    FeatureGate,
    FreshState,
    MoreDevices,
    Move,
    PolicyOption,
    Removal,
    Turn,
)
from mooring.planner.changes.cost import Cost
from mooring.planner.changes.difference import Difference, Outcome, Place, differences
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.words import sentence
from mooring.planner.changes.writing import written
from mooring.planner.outcome import placement_fields
from mooring.planner.plan import Plan
from mooring.planner.plan_document import API_VERSION, plan_document
from mooring.planner.question import Question

WHAT_IF = "WhatIf"
NEAREST = "NearestChanges"

KINDS: dict[type[Change], str] = {
    Amount: "amount",
    ConfigField: "field",
    PolicyOption: "option",
    FeatureGate: "gate",
    FreshState: "stateFile",
    Removal: "removal",
    Move: "move",
    Turn: "turn",
    MoreDevices: "device",
}


def what_if_document(question: Question, changes: Sequence[Change], before: Plan, after: Plan) -> dict[str, Any]:
    """Return the document of changes that somebody asked about.

    Args:
        question: without the changes.
        changes: what was changed.
        before: the plan without them.
        after: the plan with them.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": WHAT_IF,
        "kubelet": KUBELET_VERSION,
        "machine": before.machine.name,
        "changes": change_fields(changes, question),
        "differences": [_difference_fields(one) for one in differences(before, after) if not one.is_none],
        "before": plan_document(before),
        "after": plan_document(after),
    }


def nearest_document(question: Question, pod: Pod | None, proposals: Iterable[Proposal], plan: Plan) -> dict[str, Any]:
    """Return the document of changes that were found.

    Args:
        question: the one that was searched.
        pod: whom they admit; None when every pod is admitted without a change.
        proposals: the nearest first.
        plan: the question as it is.
    """
    answer = next((answer for answer in plan.answers if pod is not None and answer.pod.uid == pod.uid), None)
    return {
        "apiVersion": API_VERSION,
        "kind": NEAREST,
        "kubelet": KUBELET_VERSION,
        "machine": plan.machine.name,
        "startError": plan.refusal.message if plan.refusal is not None else "",
        "pod": _pod_fields(pod) if pod is not None else None,
        "admitted": pod is None or (answer is not None and answer.admitted),
        "reason": answer.decision.reason if answer is not None else "",
        "code": answer.code if answer is not None else "",
        "why": answer.why if answer is not None else "",
        "proposals": [proposal_fields(proposal, question) for proposal in proposals],
        "findings": [finding.fields() for finding in plan.findings],
    }


def change_fields(changes: Iterable[Change], question: Question) -> list[dict[str, str]]:
    """Return changes with what they are, how they read, and the option that makes them."""
    fields = []
    for change in changes:
        option, value = written(change)
        text = sentence([change], question)
        fields.append({"kind": KINDS[type(change)], "text": text, "option": option, "value": value})
    return fields


def cost_fields(cost: Cost) -> dict[str, int]:
    """Return the figures of a cost, the weightiest first."""
    return {
        "podsTouched": cost.touched,
        "restarts": cost.restarts,
        "stateFiles": cost.state_files,
        "devices": cost.devices,
        "milliCPUs": cost.cpus,
        "bytes": cost.bytes,
    }


def proposal_fields(proposal: Proposal, question: Question) -> dict[str, Any]:
    """Return a proposal with its cost, its changes, and where the pod would be."""
    return {
        "text": proposal.text,
        "cost": cost_fields(proposal.cost),
        "changes": change_fields(proposal.changes, question),
        "containers": {name: placement_fields(place) for name, place in proposal.decision.containers.items()},
        "pod": placement_fields(proposal.decision.pod),
    }


def _pod_fields(pod: Pod) -> dict[str, str]:
    return {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}


def _difference_fields(difference: Difference) -> dict[str, Any]:
    return {
        **_pod_fields(difference.pod),
        "before": _outcome_fields(difference.before),
        "after": _outcome_fields(difference.after),
    }


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "state": outcome.state,
        "reason": outcome.reason,
        "code": outcome.code,
        "why": outcome.why,
        "containers": {place.container: _place_fields(place) for place in outcome.places if place.container},
        "pod": next((_place_fields(place) for place in outcome.places if not place.container), None),
    }


def _place_fields(place: Place) -> dict[str, Any]:
    return {"cpus": str(place.cpus), "mems": ",".join(map(str, place.mems)), "devices": list(place.devices)}
