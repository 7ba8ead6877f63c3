"""Events without an answer of their own, each to its function."""

from __future__ import annotations

from mooring.agent.nri.types import Container, Event, PodSandbox
from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.progress import container_created, container_started, container_updated
from mooring.agent.reactor.sandbox import end_sandbox, run_sandbox
from mooring.agent.reactor.start_container import start_container
from mooring.agent.reactor.stop_container import remove_container
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import AgentState
from mooring.core.observer import Observer
from mooring.core.pod import Pod

EVENTS = frozenset(Event)
"""What the agent wants to hear of; a runtime does not send what it does not know."""


def needs_pod(state: AgentState, event: Event, sandbox: PodSandbox | None, container: Container | None) -> bool:
    """Tell whether :func:`state_change` must be given the pod: of a container whose creation nobody was asked about."""
    if event not in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER) or sandbox is None or container is None:
        return False
    return container.id not in state.containers or sandbox.uid not in state.kubelet.node.active


def state_change(
    state: AgentState,
    event: Event,
    sandbox: PodSandbox | None,
    container: Container | None,
    pod: Pod | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Return what an event comes to; one that says nothing to the agent changes nothing."""
    match event, sandbox, container:
        case Event.RUN_POD_SANDBOX, PodSandbox(), _:
            return run_sandbox(state, sandbox)
        case Event.STOP_POD_SANDBOX | Event.REMOVE_POD_SANDBOX, PodSandbox(), _:
            return end_sandbox(state, sandbox, observer)
        case Event.POST_CREATE_CONTAINER, PodSandbox(), Container():
            return container_created(state, sandbox, container, pod, observer)
        case Event.START_CONTAINER, PodSandbox(), Container():
            return start_container(state, sandbox, container, pod, observer)
        case Event.POST_START_CONTAINER, PodSandbox(), Container():
            return container_started(state, sandbox, container)
        case ((Event.POST_UPDATE_CONTAINER | Event.POST_UPDATE_POD_SANDBOX), PodSandbox(), _):
            return container_updated(state, sandbox, container)
        case Event.REMOVE_CONTAINER, _, Container():
            return remove_container(state, sandbox, container, observer)
        case _:
            return outcome(state, state)
