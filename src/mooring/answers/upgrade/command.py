"""``mooring upgrade``: what does another release of the kubelet change on this node?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.checks import check_save
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, emit, emit_document, json_text, warn
from mooring.cli.verb import Verb
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import kubelet_release
    from mooring.answers.base.inputs import release as release_inputs
    from mooring.answers.base.inputs import running as running_inputs
    from mooring.answers.base.views import picture
    from mooring.answers.upgrade import inputs as upgrade_inputs
    from mooring.answers.upgrade import text, upgrade_document, wording
    from mooring.engine.checkpoint import store
    from mooring.views.html import document as html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mooring.answers.upgrade.upgrade import Upgrade

EPILOG = """\b
Examples:
  mooring upgrade --node node.tar.gz
  mooring upgrade --from 1.34 --to 1.36 --node node.tar.gz -o json
  mooring upgrade --from 1.34 --state /var/lib/kubelet --config kubelet.yaml --active running.yaml
  mooring upgrade --from 1.34 -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring upgrade --node node.tar.gz -o html > upgrade.html
  mooring upgrade --node node-1.tar.gz --node node-2.tar.gz
  kubectl get nodes,pods -A -o json | mooring upgrade -f - --machine node.tar.gz --config kubelet.yaml
"""


@click.command("upgrade", cls=Verb, epilog=EPILOG)
@click.option(
    "--from",
    "before",
    default="",
    metavar="VERSION",
    help="Release of the kubelet before the upgrade. Default: the node's own, where it is known.",
)
@click.option(
    "--to",
    "after",
    default="",
    metavar="VERSION",
    help="Release of the kubelet after it. Default: the newest.",
)
@options.pods(
    "Pods that the old kubelet admits first; or nodes and pods of a cluster, as kubectl lists them. Repeatable."
)
@options.node_options(without=["node", "debug_image", "kubelet_version"])
@click.option(
    "--node",
    "archives",
    multiple=True,
    metavar="FILE",
    shell_complete=options.complete_file,
    help="A node archive of mooring collect, instead of --machine, --config, --state and --active; repeatable for "
    "several nodes.",
)
@click.option(
    "--save-state",
    "save",
    default="",
    metavar="DIR",
    help="Write the state files as they are after the new kubelet's start.",
)
@options.output(("text", "wide", "json", "html"), "text")
def command(
    before: str,
    after: str,
    archives: tuple[str, ...],
    save: str,
    form: str,
    inputs: NodeOptions,
) -> int:
    """Show what another release of the kubelet changes on a node: start, running pods, settings, and the way back.

    The kubelet of the new release starts on the state files of the old one and admits the running pods again. With
    several nodes there is one line for each.

    Exit code 0 when nothing is decided differently, 1 when anything is; 2 when the input is wrong.
    """
    if save:
        inputs = inputs if archives else running_inputs.with_running_kubelet(inputs)
        check_save(save, inputs, archives)
    inputs = replace(inputs, kubelet_version=before, version_option="--from")
    requested = release_inputs.requested_version(after, "--to")
    new = kubelet_release.chosen_release([requested], nearest=inputs.nearest_release)
    found = list(upgrade_inputs.upgrades_of(inputs, archives, new))
    if save:
        if len(found) > 1:
            raise click.UsageError("--save-state needs one node; choose it with --node-name")
        files = found[0].plan.files
        if found[0].plan.refusal is None:
            store.StateFolder(store.make_folder(Path(save))).write_both(files.cpu or "", files.memory or "")
    if form == "json":
        single = upgrade_document.upgrade_document(found[0]) if len(found) == 1 else None
        emit_document(json_text(single or upgrade_document.upgrade_list(found)))
    elif form == "html":
        emit_document(_html(found))
    else:
        warn(dict.fromkeys(finding for upgrade in found for finding in upgrade.findings))
        emit(
            text.upgrade_text(found[0], wide=form == "wide", to="")
            if len(found) == 1
            else text.upgrades_text(found, "")
        )
    return NO if any(upgrade.changed for upgrade in found) else YES


def _html(upgrades: Sequence[Upgrade]) -> str:
    if len(upgrades) != 1:
        return html.upgrades_page(upgrade_document.upgrade_list(upgrades))
    [upgrade] = upgrades
    view = None if upgrade.plan.kubelet is None else picture.plan_view(upgrade.plan)
    return html.upgrade_page(upgrade_document.upgrade_document(upgrade), wording.headline_text(upgrade), view)
