"""``mooring fleet simulate``: what does a cluster do with its work?"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, tell
from mooring.fleet.commands import inputs as inputs_of
from mooring.fleet.commands.inputs import FleetOptions
from mooring.lazy import lazily

with lazily():
    from mooring.fleet import answer, history, simulation, text
    from mooring.fleet import work as records
    from mooring.fleet.report import charts, page, report

if TYPE_CHECKING:
    from mooring.fleet.answer import FleetAnswer
    from mooring.fleet.history import NodeHistory
    from mooring.fleet.simulation import Simulation, SimulationResult

EPILOG = """\b
Examples:
  mooring fleet simulate --cluster cluster.yaml -f work.yaml
  mooring fleet simulate --cluster nodes.csv -f pods.csv --config kubelet.yaml --extender
  mooring fleet simulate --cluster cluster.yaml -f work.jsonl -o json --to answer.json
  mooring fleet simulate --cluster cluster.yaml -f work.jsonl -o html --to cluster.html
"""


@click.command("simulate", cls=Verb, epilog=EPILOG)
@inputs_of.fleet_options
@inputs_of.scoring
@inputs_of.extender
@options.output(("text", "wide", "json", "html", "svg"), "text")
@options.to_file
def command(inputs: FleetOptions, scoring: str, form: str, to: str, *, extender: bool) -> int:
    """Run the work through the cluster, from the first pod to the last event; every node decides as its kubelet.

    Exit code 1 when a kubelet refuses a pod, or a pod waits at the end.
    """
    check_destination(to)
    cluster, work = inputs.read_cluster(), inputs.read_work()
    strategy = inputs_of.chosen_strategy(scoring, extender=extender)
    kept = history.NodeHistory() if form in ("html", "svg") else None
    found = answer.answer_of(_run(simulation.Simulation(cluster, work, strategy, inputs.seed, kept)))
    if kept is not None:
        emit_document(_drawn(found, kept, form), to)
    elif form == "json":
        emit_document(json_text(answer.fleet_document(found)), to)
    else:
        emit(text.fleet_text(found, to=to, wide=form == "wide"), to)
    unhappy = found.fates[records.PodPhase.REFUSED] or found.fates[records.PodPhase.WAITS] or found.result.cut_short
    return NO if unhappy else YES


def _run(simulated: Simulation) -> SimulationResult:
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


def _drawn(found: FleetAnswer, kept: NodeHistory, form: str) -> str:
    """Return the report, or the heat map of the CPUs alone."""
    if form == "svg":
        return charts.heatmap_svg(report.heat_of(found, kept))
    return page.fleet_page_text(report.fleet_view(found, kept))
