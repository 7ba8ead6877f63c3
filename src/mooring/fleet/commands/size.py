"""``mooring fleet size``: how many nodes does the work need?"""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Seconds, Verb, check_destination, emit, emit_document, json_text
from mooring.fleet.commands import inputs as inputs_of
from mooring.fleet.commands.inputs import FleetOptions
from mooring.fleet.inputs.event_files import MOST_SECONDS
from mooring.lazy import lazily

with lazily():
    from mooring.fleet.trials import ranking, running
    from mooring.fleet.trials import text as pictures
    from mooring.views.html import document as page
    from mooring.views.svg import plot

EPILOG = """\b
Examples:
  mooring fleet size --cluster cluster.yaml -f work.yaml --group gpu
  mooring fleet size --cluster cluster.yaml -f work.jsonl --group gpu --refused 10 --extender
"""


@click.command("size", cls=Verb, epilog=EPILOG)
@inputs_of.fleet_options
@click.option("--group", "groups", multiple=True, required=True, help="Group whose nodes are counted; repeatable.")
@click.option("--most", type=click.IntRange(1, 100_000), default=4096, show_default=True, help="Nodes that are tried.")
@click.option("--refused", type=click.IntRange(0), default=0, show_default=True, help="Pods that kubelets may refuse.")
@click.option(
    "--within",
    type=Seconds(0, MOST_SECONDS),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time in which 99 % of the admitted pods have their node.",
)
@inputs_of.scoring
@inputs_of.extender
@options.output(("text", "json", "html", "svg"), "text")
@options.to_file
def command(
    inputs: FleetOptions,
    groups: tuple[str, ...],
    most: int,
    refused: int,
    within: float,
    scoring: str,
    form: str,
    to: str,
    *,
    extender: bool,
) -> int:
    """Search the fewest nodes of a group that take the work; the other groups stay as they are.

    With several groups each is sized while the others of them have no node, so that kinds of nodes can be compared.

    Exit code 1 when no number of nodes does.
    """
    check_destination(to)
    cluster, work = inputs.read_cluster(), inputs.read_work()
    goal = ranking.Goal(refused, longest_wait=within)
    trial = running.FleetTrial("", cluster, work, inputs_of.chosen_strategy(scoring, extender=extender), inputs.seed)
    sizes = [ranking.size_of(trial, group, groups, goal, most) for group in groups]
    if form == "json":
        emit_document(json_text(ranking.sizes_document(work.name, sizes)), to)
    elif form == "html":
        emit_document(page.plot_page_text(pictures.sizes_plot(cluster.name, work, sizes)), to)
    elif form == "svg":
        emit_document(plot.plot_svg(pictures.sizes_plot(cluster.name, work, sizes)), to)
    else:
        emit(pictures.sizes_text(cluster.name, work, sizes, goal, to=to), to)
    return YES if any(one.fewest is not None for one in sizes) else NO
