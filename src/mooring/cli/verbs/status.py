"""``mooring status``: how is the agent of this node?"""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, check_destination, emit, emit_document, json_text

EPILOG = """\b
Examples:
  mooring status
  mooring status -o wide
  mooring status --socket /run/mooring/status.sock -o json
"""


@click.command("status", epilog=EPILOG)
@options.agent_socket
@options.output(("text", "wide", "json"), "text")
@options.to_file
def command(socket: str, form: str, to: str) -> int:
    """Show what the agent of this node does, and which container has which CPUs.

    Exit code 1 when the agent is not ready.
    """
    check_destination(to)
    from mooring.agent.options import STATUS_SOCKET  # noqa: PLC0415 - after the options are known to be good
    from mooring.agent.status.api import ask_status  # noqa: PLC0415 - as above

    document = ask_status(socket or STATUS_SOCKET)
    if form == "json":
        emit_document(json_text(document), to)
    else:
        from mooring.cli.text.status import status_text  # noqa: PLC0415 - rich is not needed for JSON

        emit(status_text(document, to, wide=form == "wide"), to)
    return YES if document["ready"] else NO
