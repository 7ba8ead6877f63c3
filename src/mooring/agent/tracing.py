"""Spans of the agent: one for each call of the runtime, with what was decided and how long engine and writing took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mooring.agent.reactor.outcomes import Adjusted, Answer, EventOutcome, Refused
from mooring.agent.reactor.values import AgentState
from mooring.service.tracing import Attribute, CompletedSpan, Traces


@dataclass(frozen=True, slots=True)
class AppliedEvent:
    """An event that changed the state; times are seconds of the monotonic clock."""

    uid: str
    """Of its pod; empty if it has none."""
    before: AgentState
    outcome: EventOutcome
    began: float
    decided: float
    """When the engine had decided."""
    stored: float
    """When the state was written."""


class CallTraces:
    """Makes a span of each call; :meth:`applied` may be called from any thread, the others from the plugin's."""

    def __init__(self, traces: Traces, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no call.

        Args:
            traces: where spans go.
            clock: seconds that only go forward.
        """
        self._traces, self._clock = traces, clock
        self._thread = 0
        self._events: list[AppliedEvent] = []

    def begun(self) -> None:
        """Learn that a call goes to the handler."""
        self._thread = threading.get_ident()
        self._events.clear()

    def applied(self, event: AppliedEvent) -> None:
        """Learn what an event came to; events of other threads belong to no call."""
        if threading.get_ident() == self._thread:
            self._events.append(event)

    def answered(self, method: str, seconds: float, problem: str = "") -> None:
        """Record a call.

        Args:
            method: of the Node Resource Interface.
            seconds: from its arrival to the answer.
            problem: why the answer did not reach the runtime.
        """
        ended = self._clock()
        attributes: dict[str, Attribute] = {"rpc.system": "ttrpc", "rpc.method": method}
        parts: list[CompletedSpan] = []
        for event in self._events:
            attributes.update(_attributes(event))
            problem = problem or (event.outcome.answer.text if isinstance(event.outcome.answer, Refused) else "")
            parts.append(CompletedSpan("engine", event.began, event.decided))
            parts.append(CompletedSpan("write state", event.decided, event.stored))
        self._events.clear()
        self._traces.record(CompletedSpan(f"NRI {method}", ended - seconds, ended, attributes, problem, tuple(parts)))


def _attributes(event: AppliedEvent) -> Iterator[tuple[str, Attribute]]:
    state, outcome = event.outcome.state, event.outcome
    settings = state.kubelet.settings
    yield "mooring.cpu_manager_policy", settings.config.cpu_manager_policy or "none"
    yield "mooring.topology_manager_policy", settings.topology_policy
    yield "mooring.decision", _decision(outcome.answer)
    pod = state.kubelet.node.active.get(event.uid) or event.before.kubelet.node.active.get(event.uid)
    if event.uid:
        yield "k8s.pod.uid", event.uid
    if pod is not None:
        yield "k8s.namespace.name", pod.namespace
        yield "k8s.pod.name", pod.name
    created = [one for key, one in state.containers.items() if key not in event.before.containers]
    if len(created) == 1:
        yield "k8s.container.name", created[0].name
    if isinstance(outcome.answer, Refused):
        yield "mooring.reason", outcome.answer.text.partition(":")[0]
        return
    if isinstance(outcome.answer, Adjusted):
        yield "mooring.cpus", outcome.answer.adjustment.resources.cpus or ""
    yield "mooring.updates", len(outcome.answer.updates)


def _decision(answer: Answer) -> str:
    return {"Adjusted": "placed", "Refused": "refused"}.get(type(answer).__name__, "accepted")
