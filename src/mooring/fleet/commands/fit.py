"""``mooring fleet fit``: how many replicas fit into the cluster now, and which pods to move for the rest?"""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text
from mooring.fleet.commands import inputs as inputs_of
from mooring.fleet.commands.inputs import LiveOptions
from mooring.lazy import lazily

with lazily():
    from mooring.fleet.relocation import documents, text
    from mooring.fleet.relocation import fit as fits

EPILOG = """\b
Examples:
  mooring fleet fit --cluster cluster.json -f deployment.yaml --replicas 40
  mooring fleet fit --live -f deployment.yaml --replicas 40 --movable tier!=database
  mooring fleet fit --live -f deployment.yaml -o evictions --to evictions.json
"""


@click.command("fit", cls=Verb, epilog=EPILOG)
@inputs_of.live_options
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    shell_complete=options.complete_file,
    help="Manifest of the replicas: a Deployment, or anything else with pods of one kind.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 100_000), default=None, help="Default: as many as the file has, at least 1."
)
@click.option("--movable", default="", metavar="SELECTOR", help="Labels of the pods that may move. Default: all.")
@click.option("--moves/--no-moves", default=True, help="Whether a plan moves pods for the replicas that do not fit.")
@options.output(("text", "json", "evictions"), "text")
@options.to_file
def command(
    inputs: LiveOptions,
    files: tuple[str, ...],
    replicas: int | None,
    movable: str,
    form: str,
    to: str,
    *,
    moves: bool,
) -> int:
    """Count the replicas that the nodes would admit now, and plan the fewest moves of pods for the rest.

    Exit code 1 when not all fit now.
    """
    check_destination(to)
    question = inputs_of.fit_question(files, replicas, movable, moves=moves)
    answer = fits.fit(inputs.read(), question, inputs.seed)
    if form == "json":
        emit_document(json_text(documents.fit_document(answer)), to)
    elif form == "evictions":
        emit_document(documents.evictions_text(answer), to)
    else:
        emit(text.fit_text(answer, to=to), to)
    return YES if answer.fits_now >= question.replicas else NO
