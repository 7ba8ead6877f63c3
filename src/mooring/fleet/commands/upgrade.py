"""``mooring fleet upgrade``: what does another release or configuration of all kubelets do with the pods?"""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text
from mooring.fleet.commands import inputs as common
from mooring.fleet.commands.inputs import LiveOptions
from mooring.lazy import lazily

with lazily():
    from mooring.fleet.relocation import documents as relocation_documents
    from mooring.fleet.relocation import drain as upgrades
    from mooring.fleet.relocation import text

EPILOG = """\b
Examples:
  mooring fleet upgrade --cluster cluster.json --release v1.37.1
  mooring fleet upgrade --live --new-config kubelet.yaml --nodes pool=gpu --max-unavailable 2 --extender
"""


@click.command("upgrade", cls=Verb, epilog=EPILOG)
@common.live_options
@click.option(
    "--release",
    default="",
    metavar="VERSION",
    help="Release of the new kubelets. Default: as they are.",
)
@click.option(
    "--new-config",
    "new_config",
    multiple=True,
    metavar="FILE",
    shell_complete=options.complete_file,
    help="Whole configuration of the new kubelets; repeatable. Default: as they are.",
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
@options.output(("text", "json"), "text")
@options.to_file
def command(
    inputs: LiveOptions,
    release: str,
    new_config: tuple[str, ...],
    selector: str,
    unavailable: int,
    scoring: str,
    form: str,
    to: str,
    *,
    extender: bool,
) -> int:
    """Restart kubelet after kubelet as another release or with another configuration.

    Shown are pods that a kubelet refuses at its restart, nodes that have to be drained because the new kubelet does not
    start on their state files, and where these pods find a place.

    Exit code 1 when a pod finds none.
    """
    check_destination(to)
    live = inputs.read()
    new = common.new_kubelet(release, new_config)
    names = common.node_names(live, selector)
    strategy = common.chosen_strategy(scoring, extender=extender)
    answer = upgrades.upgrade(live, names, new, strategy, unavailable, inputs.seed)
    if form == "json":
        emit_document(json_text(relocation_documents.cluster_upgrade_document(answer)), to)
    else:
        emit(text.upgrade_text(answer, to=to), to)
    return YES if answer.is_clean else NO
