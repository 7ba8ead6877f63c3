"""``mooring show``: the picture of a machine and the owners of its CPUs."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.node import question_of, read_machine
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit, emit_document, tell, warn
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.moment import Moment
from mooring.lazy import lazily

with lazily():
    import rich.console as rich_console
    import rich.live as rich_live
    import rich.segment as rich_segment
    import rich.text as rich_text

    from mooring.answers.base import picture as pictures
    from mooring.answers.base import plan as planning
    from mooring.answers.base import plan_text, report
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.cli import terminal
    from mooring.inputs.machines import loader
    from mooring.service import agent_status
    from mooring.views import build, html
    from mooring.views import console as consoles
    from mooring.views import terminal as render_terminal
    from mooring.views.svg import picture as svg

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from mooring.engine.core.machine import Machine
    from mooring.views.view import NodeView


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

EPILOG = """\b
Examples:
  mooring show --machine epyc-7763-2s-nps4
  mooring show --node node.tar.gz
  kubectl mooring show --node worker-1
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o svg --to node.svg
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o html --to report.html
  mooring show --live
  mooring show --live --once -o svg --to node.svg
"""


@click.command("show", cls=Verb, epilog=EPILOG)
@options.pods("Pods to admit first; without them only the machine is drawn.")
@options.node_options("offline", "devices", "stop_at_crash")
@options.output(("terminal", "svg", "html", "resources"), "terminal")
@options.number("--width", range(20, 1001), "Columns of the terminal picture. Default: the terminal's.")
@options.flag("--live", "Draw the node of a running agent, and redraw it until interrupted.")
@options.flag("--once", "With --live: draw it once.")
@options.agent_socket
@options.to_file
def command(form: str, width: int | None, socket: str, to: str, inputs: NodeOptions, *, live: bool, once: bool) -> int:
    """Draw sockets, dies, NUMA nodes, caches, cores, CPUs and devices, coloured by owner.

    With -o resources: capacity and allocatable of the node, as kubectl describe node has them, and requests.

    Exit code 1 when a pod is rejected, the kubelet would not start, or the agent is not ready.
    """
    if live:
        # An agent cannot be asked for these.
        if inputs.describes_node or inputs.machine or inputs.kubelet_version:
            raise click.UsageError("--live shows the agent's own node: remove the options that describe another one")
        if form == "html":
            raise click.UsageError("--live draws for a terminal or as SVG; there is no report of a live node")
        if not once and (form != "terminal" or to):
            raise click.UsageError("add --once to draw into a file")
        socket, console = socket or agent_status.STATUS_SOCKET, rich_console.Console()
        # A pipe gets one picture: nothing in it could be drawn over.
        if once or not console.is_terminal:
            view, is_yes = _agent_view(socket, agent_status.ask_machine(socket))
            return _drawn(view, form, width, to, is_yes=is_yes)
        return YES if watch(socket, width, console=console) else NO
    if once or socket:
        raise click.UsageError("--once and --socket need --live")
    inputs = running_inputs.with_running_kubelet(inputs)
    if form == "html" and not inputs.describes_node:
        emit_document(html.html_text(report.machine_report(read_machine(inputs))), to)
        return YES
    if form in ("html", "resources"):
        plan = planning.make_plan(question_of(inputs))
        if form == "resources":
            emit(plan_text.resources_text(plan, to), to)
        else:
            # Findings and a refusal to start are in the report.
            emit_document(html.html_text(report.report_of(plan)), to)
        return YES if plan.is_yes else NO
    view, is_yes = _view(inputs)
    return _drawn(view, form, width, to, is_yes=is_yes)


def _drawn(view: NodeView, form: str, width: int | None, to: str, *, is_yes: bool) -> int:
    if form == "svg":
        emit_document(svg.svg_text(view), to)
    else:
        columns = width or terminal.width_for(to)
        emit(terminal.text_for(render_terminal.picture(view, columns), to, columns), to)
    return YES if is_yes else NO


def _view(inputs: NodeOptions) -> tuple[NodeView, bool]:
    if not inputs.describes_node:
        return pictures.machine_view(loader.load_machine(inputs.machine)), True
    plan = planning.make_plan(question_of(inputs))
    warn(plan.findings)
    if isinstance(plan, planning.RefusedPlan):
        tell(plan.sentence)
        if plan.remedy:
            tell(plan.remedy)
    # The time since boot, without time spent in suspend; none where the boot is not known.
    now = None
    with suppress(OSError, ValueError):
        boot = _BOOT_ID.read_text("ascii").strip()
        now = Moment(time.monotonic_ns(), boot) if boot else None
    return pictures.plan_view(plan, now=now), plan.is_yes


PERIOD = 2.0
"""Seconds between two pictures."""


def _agent_view(socket: str, machine: Machine) -> tuple[NodeView, bool]:
    document = agent_status.read_status(agent_status.ask_status(socket))
    return build.status_view(machine, document), document.ready


def watch(socket: str, width: int | None, *, console: Console) -> bool:
    """Draw the node until it is interrupted, and return whether the agent was last ready.

    While the agent is unreachable, for example during a restart, its last picture stays.

    Args:
        socket: of the agent.
        width: columns; None for those of the terminal.
        console: the terminal.

    Raises:
        InputError: no agent answers at the beginning.
    """
    machine = agent_status.ask_machine(socket)
    view, ready = _agent_view(socket, machine)
    notice = ""
    with rich_live.Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                drawn = consoles.terminal_segments(console, render_terminal.picture(view, width or console.width))
                live.update(_fitting(drawn, console, notice), refresh=True)
                time.sleep(PERIOD)
                try:
                    (view, ready), notice = _agent_view(socket, machine), ""
                except InputError as error:
                    ready, notice = False, f"Stale: {error.problem}; retrying"
        except KeyboardInterrupt:
            return ready


def _fitting(body: RenderableType, console: Console, notice: str) -> RenderableType:
    """Return what fits on the screen, with a last line that says what does not."""
    lines = console.render_lines(body, console.options.update(height=None), pad=False)
    room = console.height
    if len(lines) > room or notice:
        room -= 1
        hidden = max(len(lines) - room, 0)
        last = notice or f"{hidden} more lines: enlarge the window, or use --once"
        return rich_console.Group(
            rich_segment.SegmentLines(lines[:room], new_lines=True),
            rich_text.Text(clean(last), no_wrap=True, overflow="ellipsis"),
        )
    return rich_segment.SegmentLines(lines, new_lines=True)
