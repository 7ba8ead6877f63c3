"""``mooring agent``: be the agent of this node."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.options import complete_file, complete_folder
from mooring.cli.output import NO, YES, Verb, emit, needs_extra
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily
from mooring.service.daemon import handled_signals, notify, settle, short_turns, uncollected, watchdog_seconds

with lazily():
    from mooring.agent import agent as agents
    from mooring.agent import startup, uninstall
    from mooring.agent.nri import plugin, types
    from mooring.service import logs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mooring.agent.nri.session import Session
    from mooring.agent.startup import AgentCommand, Startup
    from mooring.service.logs import Lines, Log

EPILOG = """\b
Examples:
  mooring agent --config /etc/mooring/agent.yaml
  mooring agent --config agent.yaml --state-dir /tmp/mooring --nri-socket /run/nri/nri.sock
  mooring agent --config agent.yaml --machine epyc-7763-2s-nps4
  mooring agent --config /etc/mooring/agent.yaml --leave
"""


@click.command("agent", cls=Verb, epilog=EPILOG)
@options.configuration("AgentConfiguration, and the KubeletConfiguration whose policies the agent follows.")
@click.option(
    "--state-dir",
    "state_dir",
    default="",
    metavar="DIR",
    shell_complete=complete_folder,
    help="Directory of the state. Default: the configuration's stateDir.",
)
@click.option(
    "--nri-socket",
    "nri_socket",
    default="",
    metavar="PATH",
    shell_complete=complete_file,
    help="Socket on which the runtime accepts plugins. Default: the configuration's nriSocket.",
)
@options.machine
@click.option(
    "--leave",
    is_flag=True,
    help="Do not run: return all CPUs, memory nodes and CFS quotas to running containers, and exit.",
)
def command(config: str, state_dir: str, nri_socket: str, machine: str, *, leave: bool) -> int:
    """Place the containers of this node, as a plugin of its container runtime, until SIGTERM or SIGINT.

    The kubelet beside it has policies none and None. SIGHUP takes up a changed configuration.

    With --machine, for tests and simulations, decisions are those of another machine, and cgroups are left alone.

    With --leave, once the agent has been stopped, running containers get back what they would have had without it. Exit
    code 1 when something could not be restored.
    """
    with needs_extra("agent", source="mooring agent"), uncollected():
        given = None if leave else _given()
        asked = startup.AgentCommand(config, _absolute(state_dir), _absolute(nri_socket), machine)
        if leave:
            left = uninstall.uninstall(asked)
            containers = "1 container" if left.containers == 1 else f"{left.containers} containers"
            quotas = "1 group has its" if left.quotas == 1 else f"{left.quotas} groups have their"
            emit(f"{containers} may use every CPU and memory node again, and {quotas} CFS quota restored.")
            for problem in left.problems:
                emit(f"Not restored: {problem}")
            return NO if left.problems else YES
        run_agent(asked, given=given)
    return YES


def _given() -> Session | None:
    """Return the session of an agent that the runtime started, registered before the rest of the agent is imported.

    Raises:
        InputError: the environment names no socket, or the runtime does not take the agent.
    """
    if "NRI_PLUGIN_SOCKET" not in os.environ:
        return None
    try:
        return plugin.given_by(os.environ)
    except types.MisuseError as error:
        raise InputError(str(error), remedy="start the agent without it") from None
    except types.NRIError as error:
        problem = f"the runtime that started the agent does not take it: {error}"
        remedy = "check the name of the program, such as 50-mooring, and the runtime's log"
        raise InputError(problem, remedy=remedy) from None


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


PERIOD = 0.5
"""Seconds between two checks of what is due."""
_WAITING = 10.0
"""Seconds after which a start counts as done without a runtime; the service manager is not kept waiting."""


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

    def end() -> None:
        stop.set()
        # Before, nothing checks whether it is set: a file or a server may hold the agent for a long time.
        if not begun.is_set():
            raise _StoppedError

    signals = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload.set}
    with handled_signals(signals), short_turns():
        made: tuple[Startup, agents.Agent, Log, Lines] | None = None
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
            traces = logs.open_traces("mooring-agent", environment, log.warning)
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
            lines.finish(logs.LAST_LINES)
    if agent.failure is not None:
        raise agent.failure


def _put_together(asked: AgentCommand, given: Session | None) -> tuple[Startup, agents.Agent, Log, Lines]:
    """Return an agent that has not begun to talk, with its log and the lines of that on their way."""
    beginning = startup.read_startup(asked)
    options = beginning.configuration.options
    log, lines = logs.open_log(options.log_format, options.log_level)
    try:
        # Nothing may come after it: a stop there would leave the sockets behind.
        return beginning, agents.Agent(beginning, log, given), log, lines
    except BaseException:
        lines.finish(logs.LAST_LINES)
        raise


def _until(agent: agents.Agent, stop: threading.Event, reload: threading.Event, environment: Mapping[str, str]) -> None:
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
        if (found := agents.ready_fields(agent.snapshot)) != status:
            status = found
            notify(status, environment)
        if period and now - barked >= period and agent.heartbeat.age() < period:
            barked = now
            notify({"WATCHDOG": "1"}, environment)
