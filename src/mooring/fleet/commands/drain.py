"""``mooring fleet drain``: where do the pods of some nodes find a place?"""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text
from mooring.fleet.commands import inputs as common
from mooring.fleet.commands.inputs import LiveOptions
from mooring.lazy import lazily

with lazily():
    from mooring.fleet.relocation import documents as relocation_documents
    from mooring.fleet.relocation import drain as drains
    from mooring.fleet.relocation import text

EPILOG = """\b
Examples:
  mooring fleet drain --cluster cluster.json worker-1
  mooring fleet drain --live --extender worker-1 worker-2
"""


@click.command("drain", cls=Verb, epilog=EPILOG)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@common.live_options
@common.scoring
@common.extender
@options.output(("text", "json"), "text")
@options.to_file
def command(inputs: LiveOptions, nodes: tuple[str, ...], scoring: str, form: str, to: str, *, extender: bool) -> int:
    """Drain nodes together, and show where each of their pods finds a place, or why it does not.

    Exit code 1 when a pod finds none.
    """
    check_destination(to)
    answer = drains.drain(inputs.read(), nodes, common.chosen_strategy(scoring, extender=extender), inputs.seed)
    if form == "json":
        emit_document(json_text(relocation_documents.drain_document(answer)), to)
    else:
        emit(text.drain_text(answer, to=to), to)
    return YES if answer.is_clean else NO
