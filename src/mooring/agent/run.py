"""The agent as a process: signals, the service manager, and the end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from mooring.agent.agent import Agent, ready_fields
from mooring.agent.logs import start_log
from mooring.agent.notify import notify, watchdog_seconds
from mooring.agent.nri.errors import MisuseError
from mooring.agent.nri.plugin import Given, given_by
from mooring.agent.setting_up import Asked, beginning_of
from mooring.core.errors import InputError

PERIOD = 0.5
"""Seconds between two looks at what is due."""
_WAITING = 10.0
"""Seconds after which a start counts as done without a runtime; the service manager is not kept waiting."""


def run_agent(asked: Asked, environment: Mapping[str, str] | None = None) -> None:
    """Be the agent of this node until SIGTERM or SIGINT, or until the runtime that started it hangs up.

    Args:
        asked: the command line.
        environment: the process's by default.

    Raises:
        InputError: the agent cannot begin.
    """
    environment = os.environ if environment is None else environment
    beginning = beginning_of(asked)
    options = beginning.configuration.options
    given = _given(environment)
    log = start_log(options.log_format, options.log_level)
    agent = Agent(beginning, log, given)
    stop, reload = threading.Event(), threading.Event()
    with _signals(stop, reload):
        log.info("the agent begins", node=beginning.node, machine=beginning.machine.name, state=options.state_dir)
        for finding in beginning.configuration.findings:
            log.warning(finding.message, about=finding.subject)
        agent.start()
        try:
            _until(agent, stop, reload, environment)
        finally:
            notify({"STOPPING": "1"}, environment)
            agent.close()
            log.info("the agent ends")
    if agent.failure is not None:
        raise agent.failure


def _until(agent: Agent, stop: threading.Event, reload: threading.Event, environment: Mapping[str, str]) -> None:
    """Look after the agent until it is told to stop."""
    period = watchdog_seconds(environment)
    began = barked = time.monotonic()
    is_told = False
    status: Mapping[str, str] = {}
    while not stop.wait(PERIOD) and not agent.is_over:
        if reload.is_set():
            reload.clear()
            _reloaded(agent, environment)
        else:
            agent.look_after()
        now = time.monotonic()
        if not is_told and (agent.listener.synchronized_once.is_set() or now - began > _WAITING):
            is_told = True
            notify({"READY": "1"}, environment)
        if (found := ready_fields(agent.snapshot)) != status:
            status = found
            notify(status, environment)
        if period and now - barked >= period and agent.heartbeat.age() < period:
            barked = now
            notify({"WATCHDOG": "1"}, environment)


def _reloaded(agent: Agent, environment: Mapping[str, str]) -> None:
    """Take up the configuration, between the two words with which the service manager wants that framed."""
    notify({"RELOADING": "1", "MONOTONIC_USEC": str(time.monotonic_ns() // 1000)}, environment)
    agent.reload()
    agent.look_after()
    notify({"READY": "1"}, environment)


def _given(environment: Mapping[str, str]) -> Given | None:
    try:
        return given_by(environment)
    except MisuseError as error:
        raise InputError(str(error), remedy="start the agent without it") from None


@contextmanager
def _signals(stop: threading.Event, reload: threading.Event) -> Iterator[None]:
    """Take signals as requests: to stop, and to read the configuration anew."""

    def ending(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    def reading(_number: int, _frame: FrameType | None) -> None:
        reload.set()

    wanted = {signal.SIGTERM: ending, signal.SIGINT: ending, signal.SIGHUP: reading}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
