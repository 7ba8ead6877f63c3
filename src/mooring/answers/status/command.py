"""``mooring status``: the status of the agent of this node, or the counts of a shadow of its kubelet."""

from __future__ import annotations

from pathlib import Path

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, emit, emit_document, json_text, needs_extra
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from mooring.answers.status import text
    from mooring.monitoring.shadow import judge
    from mooring.monitoring.shadow import text as shadow_text
    from mooring.service import agent_status


EPILOG = """\b
Examples:
  mooring status
  mooring status -o wide
  mooring status --socket /run/mooring/status.sock -o json
  mooring status --shadow /var/lib/mooring-shadow
"""


@click.command("status", cls=Verb, epilog=EPILOG)
@options.agent_socket
@options.text("--shadow", "DIR", "Show instead what mooring shadow --folder DIR has counted.", variable="folder")
@options.output(("text", "wide", "json"), "text")
@options.to_file
def command(socket: str, folder: str, form: str, to: str) -> int:
    """Show what the agent of this node does, and which container has which CPUs.

    Exit code 1 when the agent is not ready, or with --shadow when a decision differs.
    """
    if folder:
        if socket:
            raise click.UsageError("give --socket or --shadow, not both")
        with needs_extra("kube", source="mooring status --shadow"):
            return _counted(Path(folder), form, to)
    answer = agent_status.ask_status(socket or agent_status.STATUS_SOCKET)
    if form == "json":
        emit_document(json_text(answer), to)
    else:
        emit(text.status_text(agent_status.read_status(answer), to, wide=form == "wide"), to)
    return YES if answer["ready"] else NO


def _counted(folder: Path, form: str, to: str) -> int:
    found = judge.read_counts(folder)
    if found is None:
        remedy = "name the folder that mooring shadow --folder writes"
        raise InputError(f"there is no {judge.COUNTS}", source=str(folder), remedy=remedy)
    if form == "json":
        emit_document(json_text(found), to)
    else:
        emit(shadow_text.shadow_text(found, to), to)
    return NO if found.differs else YES
