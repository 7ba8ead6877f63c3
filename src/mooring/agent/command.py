"""``mooring agent``: be the agent of this node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.options import complete_file, complete_folder
from mooring.cli.output import NO, YES, Verb, emit, needs_extra
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily
from mooring.service.daemon import uncollected

with lazily():
    from mooring.agent import run, startup, uninstall
    from mooring.agent.nri import plugin, types

if TYPE_CHECKING:
    from mooring.agent.nri.session import Session

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
        run.run_agent(asked, given=given)
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
