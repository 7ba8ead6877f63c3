"""The agent as a process: signals, the service manager, and the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType

from mooring.agent.agent import Agent, ready_fields
from mooring.agent.nri.session import Session
from mooring.agent.startup import AgentCommand, Startup, read_startup
from mooring.service.daemon import notify, settle, watchdog_seconds
from mooring.service.logs import LAST_LINES, Lines, Log, open_log, open_traces

PERIOD = 0.5
"""Seconds between two checks of what is due."""
_WAITING = 10.0
"""Seconds after which a start counts as done without a runtime; the service manager is not kept waiting."""
_TURN = 0.0005
"""Seconds that a thread may compute while others wait. With Python's 5 ms, a reply can wait for two such turns."""


class _StoppedError(BaseException):
    """The agent was stopped before it was complete; what it had opened is closed on the way out."""


def run_agent(asked: AgentCommand, environment: Mapping[str, str] | None = None, given: Session | None = None) -> None:
    """Be the agent of this node until SIGTERM or SIGINT, or until the runtime that started it hangs up.

    Args:
        asked: the command line.
        environment: the process's by default.
        given: the session of a plugin that the runtime started, registered.

    Raises:
        InputError: the agent cannot begin.
    """
    environment = os.environ if environment is None else environment
    stop, reload, begun = threading.Event(), threading.Event(), threading.Event()
    with _signals(stop, reload, begun), ExitStack() as turns:
        # No thread may compute for long while a reply to the runtime waits.
        turns.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(_TURN)
        made: tuple[Startup, Agent, Log, Lines] | None = None
        try:
            made = _put_together(asked, given)
            begun.set()
        except _StoppedError:
            if made is None:
                return
            begun.set()
        beginning, agent, log, lines = made
        try:
            state = beginning.configuration.options.state_dir
            log.info("agent started", node=beginning.node, machine=beginning.machine.name, state=state)
            for finding in beginning.configuration.findings:
                log.warning(finding.message, about=finding.subject)
            traces = open_traces("mooring-agent", environment, log.warning)
            if traces is not None:
                agent.trace_calls(traces)
            if not stop.is_set():
                # It takes 30 ms, for which no reply may wait; what Synchronize leaves behind is little.
                settle()
                agent.start()
            _until(agent, stop, reload, environment)
        finally:
            notify({"STOPPING": "1"}, environment)
            agent.close()
            log.info("agent stopped")
            lines.finish(LAST_LINES)
    if agent.failure is not None:
        raise agent.failure


def _put_together(asked: AgentCommand, given: Session | None) -> tuple[Startup, Agent, Log, Lines]:
    """Return an agent that has not begun to talk, with its log and the lines of that on their way."""
    beginning = read_startup(asked)
    options = beginning.configuration.options
    log, lines = open_log(options.log_format, options.log_level)
    try:
        # Nothing may come after it: a stop there would leave the sockets behind.
        return beginning, Agent(beginning, log, given), log, lines
    except BaseException:
        lines.finish(LAST_LINES)
        raise


def _until(agent: Agent, stop: threading.Event, reload: threading.Event, environment: Mapping[str, str]) -> None:
    """Run the agent's periodic work until it must stop."""
    period = watchdog_seconds(environment)
    began = barked = time.monotonic()
    is_told = False
    status: Mapping[str, str] = {}
    while not stop.wait(PERIOD) and not agent.is_over:
        if reload.is_set():
            reload.clear()
            # Take up the configuration, between the two words with which the service manager wants that framed
            notify({"RELOADING": "1", "MONOTONIC_USEC": str(time.monotonic_ns() // 1000)}, environment)
            agent.reload()
            agent.reconcile()
            notify({"READY": "1"}, environment)
        else:
            agent.reconcile()
        now = time.monotonic()
        if not is_told and (agent.listener.synchronized_once.is_set() or now - began > _WAITING):
            is_told = True
            notify({"READY": "1"}, environment)
            settle()
        if (found := ready_fields(agent.snapshot)) != status:
            status = found
            notify(status, environment)
        if period and now - barked >= period and agent.heartbeat.age() < period:
            barked = now
            notify({"WATCHDOG": "1"}, environment)


@contextmanager
def _signals(stop: threading.Event, reload: threading.Event, begun: threading.Event) -> Iterator[None]:
    """Take signals as requests: to stop, and to read the configuration again.

    Until the agent is put together, a request to stop ends that.
    """

    def ending(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        # Before, nothing checks whether it is set: a file or a server may hold the agent for a long time.
        if not begun.is_set():
            raise _StoppedError

    def reading(_number: int, _frame: FrameType | None) -> None:
        reload.set()

    wanted = {signal.SIGTERM: ending, signal.SIGINT: ending, signal.SIGHUP: reading}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
