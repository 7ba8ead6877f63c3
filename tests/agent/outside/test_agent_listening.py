"""A runtime that takes connections and does not answer: noticed, said once, and forgotten when it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from tests.service.recorded_log import RecordedLog

from mooring.agent.adapter import RuntimeAdapter, SessionListener
from mooring.agent.nri.types import CallTimeoutError, ConnectionLostError, Runtime
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.api import SILENCE, AgentMetrics
from mooring.documents.status import RuntimePart

RUNTIME = Runtime("containerd", "2.4.2")


class Ignoring:
    """Counts and answers nothing."""

    def __getattr__(self, _name: str) -> Any:
        return self

    def __call__(self, *_args: object, **_fields: object) -> None:
        return None


@dataclass
class Around:
    """What a listener talks to, and its clock."""

    now: float = 1000.0
    is_silent: bool = False
    links: list[RuntimePart] = field(default_factory=list)
    log: RecordedLog = field(default_factory=RecordedLog)

    def show(self, runtime: RuntimePart, *, is_silent: bool) -> None:
        self.links.append(runtime)
        self.is_silent = is_silent

    def listener(self) -> SessionListener:
        rest = Ignoring()
        return SessionListener(
            cast("StateHolder", self),
            cast("RuntimeAdapter", rest),
            cast("AgentMetrics", rest),
            self.log,
            lambda: self.now,
        )

    def later(self, listener: SessionListener, seconds: float) -> bool:
        """Let time go by and return whether the runtime counts as silent then."""
        self.now += seconds
        listener.check()
        return self.is_silent


def said(around: Around) -> int:
    return around.log.events("warning").count("runtime silent")


def test_a_runtime_that_configures_the_plugin_and_never_synchronizes_it_is_silent_after_a_while() -> None:
    around = Around()
    listener = around.listener()
    assert not around.later(listener, 10 * SILENCE)
    listener.connected(RUNTIME)
    assert not around.later(listener, SILENCE - 1)
    assert around.later(listener, 1)
    assert around.later(listener, SILENCE)
    assert said(around) == 1
    listener.synchronized(1, 1)
    assert around.links[-1] == RuntimePart("containerd", "2.4.2", True, True, around.links[-1].since)
    assert not around.later(listener, 10 * SILENCE)


def test_a_runtime_that_registers_no_plugin_is_silent_too_however_often_the_agent_connects() -> None:
    around = Around()
    listener = around.listener()
    for _ in range(6):
        listener.disconnected(CallTimeoutError("no answer"), 5.0)
        assert not around.later(listener, SILENCE / 6 - 0.01)
    listener.disconnected(CallTimeoutError("no answer"), 5.0)
    assert around.later(listener, 1)
    assert not around.links[-1].connected


def test_a_runtime_that_is_away_is_not_silent() -> None:
    around = Around()
    listener = around.listener()
    listener.disconnected(ConnectionLostError("nobody listens"), 5.0)
    assert not around.later(listener, 10 * SILENCE)
    assert said(around) == 0


def test_a_restart_of_a_silent_runtime_is_the_end_of_its_silence() -> None:
    around = Around()
    listener = around.listener()
    listener.connected(RUNTIME)
    assert around.later(listener, SILENCE)
    listener.disconnected(ConnectionLostError("the other side has closed the connection"), 0.1)
    assert not around.later(listener, 10 * SILENCE)
    listener.connected(RUNTIME)
    assert around.later(listener, SILENCE)
    assert said(around) == 2
