"""``mooring fleet fit``, ``drain`` and ``upgrade``: what fits into a live cluster, and where its pods find a place."""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, emit_document
from mooring.fleet.commands import fleet as common
from mooring.fleet.commands.fleet import FleetOptions
from mooring.lazy import lazily

with lazily():
    from mooring.fleet.relocation import drain, fit, text


FIT_EXAMPLES = """\b
Examples:
  mooring fleet fit --cluster cluster.json -f deployment.yaml --replicas 40
  mooring fleet fit --live -f deployment.yaml --replicas 40 --movable tier!=database
  mooring fleet fit --live -f deployment.yaml -o evictions --to evictions.json
"""


@click.command("fit", cls=Verb, epilog=FIT_EXAMPLES)
@common.cluster_options
@common.file_option(
    "-f",
    "--filename",
    "files",
    required=True,
    help="Manifest of the replicas: a Deployment, or anything else with pods of one kind.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 100_000), default=None, help="Default: as many as the file has, at least 1."
)
@click.option("--movable", default="", metavar="SELECTOR", help="Labels of the pods that may move. Default: all.")
@click.option("--moves/--no-moves", default=True, help="Whether a plan moves pods for the replicas that do not fit.")
@options.output(("text", "markdown", "json", "evictions"), "text")
@options.to_file
def fit_command(
    inputs: FleetOptions, files: tuple[str, ...], replicas: int | None, movable: str, form: str, to: str, *, moves: bool
) -> int:
    """Count the replicas that the nodes would admit now, and plan the fewest moves of pods for the rest.

    Exit code 1 when not all fit now.
    """
    question = common.fit_question(files, replicas, movable, moves=moves)
    live = inputs.read()
    answer = fit.fit(live, question, inputs.seed)
    if form == "json":
        answer.fixed = dict(sorted(answer.fixed.items()))
    if form == "evictions":
        emit_document(text.evictions_text(answer), to)
    else:
        common.print_answer(form, to, answer, text.fit_parts(answer, question, live.cluster.size))
    return YES if answer.fits_now >= question.replicas else NO


DRAIN_EXAMPLES = """\b
Examples:
  mooring fleet drain --cluster cluster.json worker-1
  mooring fleet drain --live --extender worker-1 worker-2
"""


@click.command("drain", cls=Verb, epilog=DRAIN_EXAMPLES)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@common.cluster_options
@common.scoring
@common.extender
@options.output(("text", "markdown", "json"), "text")
@options.to_file
def drain_command(
    inputs: FleetOptions, nodes: tuple[str, ...], scoring: str, form: str, to: str, *, extender: bool
) -> int:
    """Drain nodes together, and show where each of their pods finds a place, or why it does not.

    Exit code 1 when a pod finds none.
    """
    live = inputs.read()
    answer = drain.drain(live, nodes, common.chosen_strategy(scoring, extender=extender), inputs.seed)
    common.print_answer(form, to, answer, text.drain_parts(answer, live.cluster.size))
    return YES if drain.is_clean(answer.pods) else NO


UPGRADE_EXAMPLES = """\b
Examples:
  mooring fleet upgrade v1.37.1 --cluster cluster.json
  mooring fleet upgrade --live --new-config kubelet.yaml --nodes pool=gpu --max-unavailable 2 --extender
"""


@click.command("upgrade", cls=Verb, epilog=UPGRADE_EXAMPLES)
@click.argument("version", default="", metavar="[VERSION]", shell_complete=options.complete_release)
@common.cluster_options
@common.file_option(
    "--new-config", "new_config", help="Whole configuration of the new kubelets; repeatable. Default: as they are."
)
@click.option("--nodes", "selector", default="", metavar="SELECTOR", help="Labels of the nodes. Default: all.")
@click.option(
    "--max-unavailable",
    "unavailable",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Nodes that are upgraded together.",
)
@common.scoring
@common.extender
@options.output(("text", "markdown", "json"), "text")
@options.to_file
def upgrade_command(
    inputs: FleetOptions,
    version: str,
    new_config: tuple[str, ...],
    selector: str,
    unavailable: int,
    scoring: str,
    form: str,
    to: str,
    *,
    extender: bool,
) -> int:
    """Restart kubelet after kubelet as the release VERSION, with another configuration, or both.

    Shown are pods that a kubelet refuses at its restart, nodes that have to be drained because the new kubelet does not
    start on their state files, and where these pods find a place.

    Exit code 1 when a pod finds none.
    """
    live = inputs.read()
    new = common.new_kubelet(version, new_config)
    names = common.node_names(live, selector)
    strategy = common.chosen_strategy(scoring, extender=extender)
    answer = drain.upgrade(live, names, new, strategy, unavailable, inputs.seed)
    common.print_answer(form, to, answer, text.upgrade_parts(answer, live.cluster.size))
    return YES if drain.is_clean(answer.pods) else NO
