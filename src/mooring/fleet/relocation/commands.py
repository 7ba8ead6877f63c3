"""``mooring fleet fit``, ``drain`` and ``upgrade``: what fits into a cluster, and where its pods find a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, emit_document
from mooring.engine.core.errors import InputError
from mooring.fleet import command as common
from mooring.fleet.command import FleetOptions
from mooring.lazy import lazily

with lazily():
    from mooring.engine.core import release
    from mooring.engine.kubelet import events
    from mooring.engine.releases import catalog
    from mooring.fleet import live_objects, work_files
    from mooring.fleet.relocation import answer as relocation
    from mooring.fleet.relocation import text as texts
    from mooring.fleet.scheduler import strategy as placing
    from mooring.inputs.configuration import node_configuration
    from mooring.inputs.decoding import documents
    from mooring.inputs.pods import pod_relations

if TYPE_CHECKING:
    from mooring.engine.kubelet.events import Restart
    from mooring.fleet.live_cluster import LiveCluster
    from mooring.fleet.relocation.answer import FitQuestion

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
    question = fit_question(files, replicas, movable, moves=moves)
    live = inputs.read()
    answer = relocation.fit(live, question, inputs.seed)
    if form == "json":
        answer.fixed = dict(sorted(answer.fixed.items()))
    if form == "evictions":
        emit_document(texts.evictions_text(answer), to)
    else:
        common.print_answer(form, to, answer, texts.fit_parts(answer, question, live.cluster.size))
    return YES if answer.fits_now >= question.replicas else NO


def fit_question(files: tuple[str, ...], replicas: int | None, movable: str, *, moves: bool) -> FitQuestion:
    """Return what is to fit.

    Args:
        files: manifests.
        replicas: how many; None for as many as the manifests have, at least 1.
        movable: selector of the pods that may move; empty for all.
        moves: whether pods may move.

    Raises:
        InputError: the files have pods of several kinds, or cannot be read.
    """
    work = work_files.load_work(files, scaled_down=True)
    kinds = {one.asked.key: one.asked for one in work.asking}
    if len(kinds) > 1:
        raise InputError(
            f"has {len(kinds)} kinds of pods", source=work.name, remedy="ask about one Deployment or pod at a time"
        )
    [asked] = kinds.values()
    wanted = live_objects.requirements_of_text(movable, "--movable") if movable else ()
    selector = pod_relations.PodSelector(None, wanted)
    count = max(work.pods, 1) if replicas is None else replicas
    return relocation.FitQuestion(work.asking[0].name, asked, count, selector, moves)


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
    answer = relocation.drain(live, nodes, placing.strategy_of(scoring, extender=extender), inputs.seed)
    common.print_answer(form, to, answer, texts.drain_parts(answer, live.cluster.size))
    return YES if relocation.is_clean(answer.pods) else NO


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
    new = new_kubelet(version, new_config)
    names = node_names(live, selector)
    strategy = placing.strategy_of(scoring, extender=extender)
    answer = relocation.upgrade(live, names, new, strategy, unavailable, inputs.seed)
    common.print_answer(form, to, answer, texts.upgrade_parts(answer, live.cluster.size))
    return YES if relocation.is_clean(answer.pods) else NO


def new_kubelet(version: str, config: tuple[str, ...]) -> Restart:
    """Return what all kubelets become.

    Raises:
        InputError: there is no such release, or a file is no configuration.
        UsageError: nothing becomes different.
    """
    if not version and not config:
        raise click.UsageError("give VERSION, --new-config or both")
    chosen = catalog.release_of(version, "VERSION") if version else None
    if not config:
        return events.Restart(release=chosen)
    read = [one for path in config for one in documents.load_documents(path)]
    found = node_configuration.configuration_of(read, release.NEWEST if chosen is None else chosen)
    return events.Restart(found.kubelet, chosen)


def node_names(live: LiveCluster, selector: str) -> list[str]:
    """Return the names of the nodes with some labels, in order.

    Raises:
        InputError: there is none.
    """
    wanted = live_objects.requirements_of_text(selector, "--nodes") if selector else ()
    names = [one.name for one in live.cluster.members() if all(need.meets(one.labels) for need in wanted)]
    if not names:
        remedy = "see kubectl get nodes --show-labels"
        raise InputError(f"no node has the labels {selector!r:.80}", source="--nodes", remedy=remedy)
    return names
