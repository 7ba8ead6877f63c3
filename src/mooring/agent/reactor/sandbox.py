"""Sandboxes: a pod begins with its first container, and ends with its last sandbox."""

from __future__ import annotations

from mooring.agent.nri.types import PodSandbox
from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.knowing import with_sandbox, without_sandbox
from mooring.agent.reactor.placing import ended, waiting_placed
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState
from mooring.core.observer import Observer


def run_sandbox(state: AgentState, sandbox: PodSandbox) -> Outcome:
    """Learn of a new sandbox. Nothing is decided yet: NRI knows no more of the pod."""
    return outcome(state, with_sandbox(state, sandbox))


def end_sandbox(state: AgentState, sandbox: PodSandbox, observer: Observer | None = None) -> Outcome:
    """Learn that a sandbox was stopped or removed; with the last one of its pod the pod's place is free.

    The reply carries no updates, so that containers of a shared pool that grows are widened by their cgroups.
    """
    after = without_sandbox(state, sandbox.id)
    if any(one.uid == sandbox.uid for one in after.sandboxes.values()):
        return outcome(state, after)
    placed = waiting_placed(ended(after, sandbox.uid, observer), observer)
    now, changed = enforced(state, placed.state)
    return outcome(state, now, None, (*changed, *placed.effects))
