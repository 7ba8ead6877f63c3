"""``mooring fleet simulate``, ``compare`` and ``size``: what a cluster does with its work."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Seconds, Verb, emit_document, tell
from mooring.engine.core.release import NEWEST
from mooring.fleet import MOST_SECONDS
from mooring.fleet import command as common
from mooring.fleet.command import FleetOptions
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.changes import configuration
    from mooring.cli import terminal
    from mooring.fleet import charts, nodes, page, ranking, simulation, text, trials
    from mooring.fleet.scheduler import strategy as placing

if TYPE_CHECKING:
    from mooring.fleet.simulation import Simulation
    from mooring.fleet.trials import Figures, FinishedTrials, FleetTrial

SIMULATE_EXAMPLES = """\b
Examples:
  mooring fleet simulate --cluster cluster.yaml -f work.yaml
  mooring fleet simulate --cluster nodes.csv -f pods.csv --config kubelet.yaml --extender
  mooring fleet simulate --cluster cluster.yaml -f work.jsonl -o json --to answer.json
  mooring fleet simulate --cluster cluster.yaml -f work.jsonl -o html --to cluster.html
"""


@click.command("simulate", cls=Verb, epilog=SIMULATE_EXAMPLES)
@common.fleet_options
@common.scoring
@common.extender
@options.output(("text", "wide", "markdown", "json", "html", "svg"), "text")
@options.to_file
def simulate_command(inputs: FleetOptions, scoring: str, form: str, to: str, *, extender: bool) -> int:
    """Run the work through the cluster, from the first pod to the last event; every node decides as its kubelet.

    Exit code 1 when a kubelet refuses a pod, or a pod waits at the end.
    """
    cluster, work = inputs.read_cluster(), inputs.read_work()
    strategy = placing.strategy_of(scoring, extender=extender)
    kept = nodes.NodeHistory() if form in ("html", "svg") else None
    result = _run(simulation.Simulation(cluster, work, strategy, inputs.seed, kept))
    found = simulation.answer_of(result)
    if kept is not None and form == "svg":
        emit_document(charts.heat_svg(result, kept), to)
    elif kept is not None:
        emit_document(page.fleet_page_text(found, result, kept), to)
    else:
        document = simulation.with_pods(found, result) if form == "json" else found
        common.print_answer(form, to, document, text.fleet_parts(found, result, wide=form == "wide"))
    return NO if found.pods.refused or found.pods.waits or found.cut_short else YES


def _run(simulated: Simulation) -> Simulation:
    """Run a simulation; an interrupt ends it, and what has happened until then is the answer.

    A second interrupt ends the command: one moment of a large cluster can take long.
    """

    def stop(_signal: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        simulated.stop()
        tell("cut short: the answer is that of the time until now; Ctrl-C again ends without one")

    before = signal.signal(signal.SIGINT, stop)
    try:
        return simulated.run()
    finally:
        signal.signal(signal.SIGINT, before)


COMPARE_EXAMPLES = """\b
Examples:
  mooring fleet compare --cluster cluster.yaml -f work.yaml --strategy LeastAllocated --strategy LeastAllocated+extender
  mooring fleet compare --cluster cluster.yaml -f work.yaml --set topologyManagerPolicy=best-effort,single-numa-node
  mooring fleet compare --cluster cluster.yaml -f work.yaml --seeds 5 --jobs 2
  mooring fleet compare --cluster cluster.yaml -f work.yaml --dask tcp://127.0.0.1:8786
"""


@click.command("compare", cls=Verb, epilog=COMPARE_EXAMPLES)
@common.fleet_options
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help=f"{common.STRATEGY_HELP}; repeatable. Default: LeastAllocated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE[,VALUE...]",
    shell_complete=options.among(lambda: configuration.settings(NEWEST.name)),
    help="Values of a field of every kubelet's configuration; repeatable for the product.",
)
@click.option(
    "--kubelet-version",
    default="",
    metavar="VERSION[,VERSION...]",
    shell_complete=options.complete_release,
    help="Releases of every kubelet, as with --set.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Simulations of each.")
@common.jobs
@common.dask
@common.resume
@options.output(("text", "markdown", "json", "html", "svg"), "text")
@options.to_file
def compare_command(
    inputs: FleetOptions,
    strategies: tuple[str, ...],
    settings: tuple[str, ...],
    kubelet_version: str,
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
    cluster = inputs.read_cluster()
    chosen = [placing.strategy_of(one) for one in strategies or ("LeastAllocated",)]
    works = [inputs.read_work(number) for number in range(seeds)]
    if kubelet_version:
        settings = (*settings, f"{ranking.RELEASE}={kubelet_version}")
    asked = ranking.variants(cluster, works, chosen, settings, inputs.seed)
    found = _figures(asked, jobs, dask, trials.FinishedTrials(resume) if resume else None)
    plot = text.comparison_plot(cluster.name, works[0], found)
    parts = text.comparison_parts(cluster.name, works[0], found)
    common.print_answer(form, to, ranking.comparison_document(works[0].name, found), parts, plot)
    return YES


def _figures(asked: Sequence[FleetTrial], jobs: int, dask: str, store: FinishedTrials | None) -> list[Figures]:
    """Run trials with a bar; an interrupt ends the run, and what is done is the answer."""
    found: dict[int, Figures] = {}
    watched = terminal.Watched("simulations", lambda: len(asked), on_screen=True)
    try:
        for place, figures in watched.items(trials.run_trials(asked, jobs, dask, store)):
            found[place] = figures  # noqa: PERF403 - what is done before an interrupt counts
    except KeyboardInterrupt:
        if not found:
            raise
        hint = "" if store is not None else "; with --resume FOLDER the next run goes on from here"
        tell(f"cut short after {len(found)} of {len(asked)} simulations{hint}")
    return [found[place] for place in sorted(found)]


SIZE_EXAMPLES = """\b
Examples:
  mooring fleet size --cluster cluster.yaml -f work.yaml --group gpu
  mooring fleet size --cluster cluster.yaml -f work.jsonl --group gpu --refused 10 --extender
"""


@click.command("size", cls=Verb, epilog=SIZE_EXAMPLES)
@common.fleet_options
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
@common.scoring
@common.extender
@options.output(("text", "markdown", "json", "html", "svg"), "text")
@options.to_file
def size_command(
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
    cluster, work = inputs.read_cluster(), inputs.read_work()
    goal = ranking.Goal(refused, longest_wait=within)
    trial = trials.FleetTrial("", cluster, work, placing.strategy_of(scoring, extender=extender), inputs.seed)
    sizes = [(group, ranking.tried_sizes(trial, group, groups, goal, most)) for group in groups]
    plot = text.sizes_plot(cluster.name, work, sizes, goal)
    parts = text.sizes_parts(cluster.name, work, sizes, goal)
    common.print_answer(form, to, ranking.sizes_document(work.name, sizes, goal), parts, plot)
    return YES if any(ranking.fewest(tried, goal) is not None for _, tried in sizes) else NO
