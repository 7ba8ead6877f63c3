"""Containers whose creation nobody was asked about: the agent was away, or its answer came too late."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.effects import Finding, Report
from mooring.agent.reactor.placing import Placed, place, started
from mooring.agent.reactor.values import AgentState
from mooring.core.observer import Observer
from mooring.core.pod import Pod


def found(
    state: AgentState, sandbox: PodSandbox, container: Container, pod: Pod, observer: Observer | None = None
) -> Placed:
    """Place the pod of a container that is there already, and report it."""
    placed = place(state, pod, container.name, observer)
    if placed.rejection is not None:
        return placed
    kubelet = started(placed.state.kubelet, sandbox.uid, container.name, observer)
    effects = placed.effects
    if container.id not in state.containers:
        text = f"{sandbox.namespace}/{sandbox.name}: {container.name} was created while the agent was away"
        effects = (*effects, Report(Finding.FOUND_RUNNING, text, sandbox.uid, container.id))
    return Placed(replace(placed.state, kubelet=kubelet), None, effects)
