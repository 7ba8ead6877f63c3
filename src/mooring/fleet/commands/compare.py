"""``mooring fleet compare``: which configuration, strategy or release does best with the same work?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import YES, Verb, check_destination, emit, emit_document, json_text, tell
from mooring.cli.terminal import Watched
from mooring.fleet.commands import inputs as inputs_of
from mooring.fleet.commands.inputs import FleetOptions
from mooring.lazy import lazily

with lazily():
    from mooring.fleet.trials import ranking, running
    from mooring.fleet.trials import text as pictures
    from mooring.views.html import document as page
    from mooring.views.svg import plot

if TYPE_CHECKING:
    from mooring.fleet.trials.running import Figures, FinishedTrials, FleetTrial

EPILOG = """\b
Examples:
  mooring fleet compare --cluster cluster.yaml -f work.yaml --strategy LeastAllocated --strategy LeastAllocated+extender
  mooring fleet compare --cluster cluster.yaml -f work.yaml --set topologyManagerPolicy=best-effort,single-numa-node
  mooring fleet compare --cluster cluster.yaml -f work.yaml --seeds 5 --jobs 2
  mooring fleet compare --cluster cluster.yaml -f work.yaml --dask tcp://127.0.0.1:8786
"""


@click.command("compare", cls=Verb, epilog=EPILOG)
@inputs_of.fleet_options
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help=f"{inputs_of.STRATEGY_HELP}; repeatable. Default: LeastAllocated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE[,VALUE...]",
    help="Values of a field of every kubelet's configuration, or of release; repeatable for the product.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Simulations of each.")
@inputs_of.jobs
@inputs_of.dask
@inputs_of.resume
@options.output(("text", "json", "html", "svg"), "text")
@options.to_file
def command(
    inputs: FleetOptions,
    strategies: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: int,
    jobs: int,
    dask: str,
    resume: str,
    form: str,
    to: str,
) -> int:
    """Run the same work through variants of the cluster, and rank them: most pods admitted, fewest refused first.

    With several seeds the figures are means, with the interval that holds them with 95 % confidence.
    """
    check_destination(to)
    cluster = inputs.read_cluster()
    chosen = [inputs_of.chosen_strategy(one) for one in strategies or ("LeastAllocated",)]
    works = [inputs.read_work(number) for number in range(seeds)]
    asked = ranking.variants(cluster, works, chosen, settings, inputs.seed)
    found = _figures(asked, jobs, dask, running.FinishedTrials(resume) if resume else None)
    if form == "json":
        emit_document(json_text(ranking.comparison_document(works[0].name, found)), to)
    elif form == "html":
        emit_document(page.plot_page_text(pictures.comparison_plot(cluster.name, works[0], found)), to)
    elif form == "svg":
        emit_document(plot.plot_svg(pictures.comparison_plot(cluster.name, works[0], found)), to)
    else:
        emit(pictures.comparison_text(cluster.name, works[0], found, to=to), to)
    return YES


def _figures(asked: Sequence[FleetTrial], jobs: int, dask: str, store: FinishedTrials | None) -> list[Figures]:
    """Run trials with a bar; an interrupt ends the run, and what is done is the answer."""
    found: dict[int, Figures] = {}
    watched = Watched("simulations", lambda: len(asked), on_screen=True)
    try:
        for place, figures in watched.items(running.run_trials(asked, jobs, dask, store)):
            found[place] = figures  # noqa: PERF403 - what is done before an interrupt counts
    except KeyboardInterrupt:
        if not found:
            raise
        hint = "" if store is not None else "; with --resume FOLDER the next run goes on from here"
        tell(f"cut short after {len(found)} of {len(asked)} simulations{hint}")
    return [found[place] for place in sorted(found)]
