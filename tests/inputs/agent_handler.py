"""An agent that answers calls of a runtime with the reactor alone: no sockets, threads or files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache

from tests.agent.small_node import CONFIG, INFO, container, guaranteed, sandbox, small_state

from mooring.agent.journal import KIND, VERSION
from mooring.agent.nri.methods import EVENT_METHODS, Dispatcher, PluginAnswer
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RefusalError,
    RuntimeContainer,
    SessionObserver,
)
from mooring.agent.pods.source import pod_of
from mooring.agent.reactor.containers import requested_containers
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.lifecycle import EVENTS, needs_pod, state_change, stop_container
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import Accepted, Adjusted, EventOutcome, Refused
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.update_container import update_container
from mooring.agent.state import AgentState
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.pod import Pod

METHODS = (
    *("Configure", "Synchronize", "CreateContainer", "UpdateContainer", "StopContainer", "StateChange", "Shutdown"),
    *EVENT_METHODS,
)
"""What a runtime can call."""


@cache
def busy_state() -> AgentState:
    """A node with a pod that has two CPUs of its own."""
    state = small_state()
    box, pod = sandbox("a"), guaranteed("a", "2")
    state = state_change(state, Event.RUN_POD_SANDBOX, box, None).state
    return create_container(state, box, container("a"), pod).state


class _Raises(SessionObserver):
    """A defect of the handler becomes a refusal for the runtime; here it is a finding."""

    def failed(self, _method: str, error: Exception) -> None:
        raise error


class AgentHandler:
    """The handler of one connection, from the same state each time."""

    def __init__(self) -> None:
        self._state = busy_state()
        self._dispatcher = Dispatcher(self, _Raises())

    def answer(self, method: str, payload: bytes) -> PluginAnswer:
        """Answer one call."""
        found = self._dispatcher.answer(method, payload)
        self._dispatcher.delivered(method)
        return found

    def configure(self, _config: str, _runtime: str, _version: str) -> frozenset[Event]:
        return EVENTS

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        missing = unknown_pods(self._state, pods, containers, frozenset())
        specs: Mapping[str, Pod] = {
            one.uid: pod_of(one, [known for known in containers if known.pod_sandbox_id == one.id]) for one in missing
        }
        return self._updates(synchronize(self._state, pods, containers, specs))

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        spec = pod_of(pod, [*requested_containers(self._state, pod.id), container])
        answer = self._done(create_container(self._state, pod, container, spec)).answer
        assert isinstance(answer, Adjusted)
        return answer.adjustment, answer.updates

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        return self._updates(update_container(self._state, pod, container, resources))

    def stop_container(self, _pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        return self._updates(stop_container(self._state, container))

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        spec = None
        if pod is not None and container is not None and needs_pod(self._state, event, pod, container):
            spec = pod_of(pod, [*requested_containers(self._state, pod.id), container])
        self._done(state_change(self._state, event, pod, container, spec))

    def _done(self, outcome: EventOutcome) -> EventOutcome:
        self._state = outcome.state
        if isinstance(outcome.answer, Refused):
            raise RefusalError(outcome.answer.text)
        return outcome

    def _updates(self, outcome: EventOutcome) -> Sequence[ContainerUpdate]:
        answer = self._done(outcome).answer
        assert isinstance(answer, Accepted)
        return answer.updates


def sealed(body: bytes) -> str:
    """Return a journal of this body, with its checksum."""
    head = {"kind": KIND, "version": VERSION, "checksum": f"sha256:{hashlib.sha256(body).hexdigest()}"}
    return json.dumps(head)[:-1] + ', "body": ' + body.decode(errors="surrogateescape") + "}"


def body_of(journal: bytes) -> bytes:
    """Return the body of a journal."""
    return json.dumps(json.loads(journal)["body"], separators=(",", ":")).encode()


def resumed(journal: Stored) -> AgentState:
    """Start an agent on a journal."""
    stored = Stored(
        journal.texts, journal.pods, offline=journal.offline, displaced=journal.displaced, last_seen=journal.last_seen
    )
    return resume(INFO, CONFIG, MooringConfig(), stored).state
