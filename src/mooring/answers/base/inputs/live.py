"""``mooring show --live``: the picture of a node, drawn again while its agent works."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from mooring.engine.core.errors import InputError, clean
from mooring.service.agent_status import ask_machine, ask_status, read_status
from mooring.views.console import TerminalSegments
from mooring.views.status import status_view
from mooring.views.terminal import picture

if TYPE_CHECKING:
    from mooring.engine.core.machine import Machine
    from mooring.views.view import NodeView

PERIOD = 2.0
"""Seconds between two pictures."""


def this_terminal() -> Console:
    """Return the terminal of this process."""
    return Console()


def live_view(socket: str) -> tuple[NodeView, bool]:
    """Return the picture of the node as it is, and whether its agent is ready.

    Raises:
        InputError: no agent answers.
    """
    return _view(socket, ask_machine(socket))


def _view(socket: str, machine: Machine) -> tuple[NodeView, bool]:
    document = read_status(ask_status(socket))
    return status_view(machine, document), document.ready


def watch(socket: str, width: int | None, *, console: Console, pause: Callable[[float], None] = time.sleep) -> bool:
    """Draw the node until it is interrupted, and return whether the agent was last ready.

    While the agent is unreachable, for example during a restart, its last picture stays.

    Args:
        socket: of the agent.
        width: columns; None for those of the terminal.
        console: the terminal.
        pause: waits for so many seconds.

    Raises:
        InputError: no agent answers at the beginning.
    """
    machine = ask_machine(socket)
    view, ready = _view(socket, machine)
    notice = ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                drawn = TerminalSegments(picture(view, width or console.width))
                live.update(_fitting(drawn, console, notice), refresh=True)
                pause(PERIOD)
                try:
                    (view, ready), notice = _view(socket, machine), ""
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
        return Group(SegmentLines(lines[:room], new_lines=True), Text(clean(last), no_wrap=True, overflow="ellipsis"))
    return SegmentLines(lines, new_lines=True)
