"""``mooring upgrade``: what does another release of the kubelet change on this node?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.checks import check_save
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit_document
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base import picture
    from mooring.answers.base import plan as planning
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.answers.base.inputs import configuration as configuration_inputs
    from mooring.answers.upgrade import answer, text
    from mooring.cli import terminal
    from mooring.engine.checkpoint import store
    from mooring.engine.releases import catalog
    from mooring.views.html import document as html
    from mooring.views.svg import elements
    from mooring.views.svg import picture as svg

if TYPE_CHECKING:
    from mooring.answers.upgrade.answer import UpgradeDocument, UpgradeListDocument
    from mooring.views.view import NodeView

EPILOG = """\b
Examples:
  mooring upgrade --node node.tar.gz
  mooring upgrade 1.36 --kubelet-version 1.34 --node node.tar.gz -o json
  mooring upgrade --kubelet-version 1.34 --state /var/lib/kubelet --config kubelet.yaml --active running.yaml
  mooring upgrade 1.37 --kubelet-version 1.34 -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring upgrade --node node.tar.gz -o html --to upgrade.html
  mooring upgrade --node node-1.tar.gz --node node-2.tar.gz
  kubectl get nodes,pods -A -o json | mooring upgrade -f - --machine node.tar.gz --config kubelet.yaml
"""


@click.command("upgrade", cls=Verb, epilog=EPILOG)
@click.argument("version", default="", metavar="[VERSION]", shell_complete=options.complete_release)
@options.pods(
    "Pods that the old kubelet admits first; or nodes and pods of a cluster, as kubectl lists them. Repeatable."
)
@options.node_options(without=["node", "debug_image", "kubelet_version"])
@options.text(
    "--kubelet-version",
    "VERSION",
    "Release of the kubelet before the upgrade. Default: the node's own, where it is known.",
    options.complete_release,
)
@options.text(
    "--node",
    "FILE",
    "A node archive of mooring collect, instead of --machine, --config, --state and --active; repeatable for several "
    "nodes.",
    options.complete_file,
    "archives",
    multiple=True,
)
@options.text(
    "--save-state", "DIR", "Write the state files as they are after the new kubelet's start.", variable="save"
)
@options.output(("text", "wide", "markdown", "json", "html"), "text")
@options.to_file
def command(version: str, archives: tuple[str, ...], save: str, form: str, to: str, inputs: NodeOptions) -> int:
    """Show what the kubelet of VERSION changes on a node: start, running pods, settings, and the way back.

    VERSION is the release after the upgrade, such as 1.36; by default the newest that is out.

    The kubelet of the new release starts on the state files of the old one and admits the running pods again. With
    several nodes there is one line for each; mooring fleet upgrade --cluster has where pods of a cluster go.

    Exit code 0 when nothing is decided differently and all running pods keep what they have, also at a later start;
    else 1; 2 when the input is wrong.
    """
    if save:
        inputs = inputs if archives else running_inputs.with_running_kubelet(inputs)
        check_save(save, inputs, archives)
    requested = configuration_inputs.requested_version(version, "VERSION")
    new = catalog.chosen_release([requested], nearest=inputs.nearest_release)
    found = list(answer.upgrades_of(inputs, archives, new))
    documents = [document for _, document in found]
    if save:
        if len(found) > 1:
            raise click.UsageError("--save-state needs one node; choose it with --node-name")
        [saved] = documents
        if saved.start_error is None:
            folder = store.StateFolder(store.make_folder(Path(save)))
            folder.write_both(saved.cpu_manager_state, saved.memory_manager_state)
    (plan, document), is_one = found[0], len(documents) == 1
    several = answer.upgrade_list(documents)
    if form == "html":
        view = None if isinstance(plan, planning.RefusedPlan) else picture.plan_view(plan)
        emit_document(upgrade_page(document, view) if is_one else upgrades_page(several), to)
    else:
        parts = text.upgrade_parts(document, wide=form == "wide") if is_one else text.upgrades_parts(documents)
        noticed = [one for place, one in enumerate(several.findings) if one not in several.findings[:place]]
        terminal.print_answer(form, to, document if is_one else several, parts, noticed)
    return NO if any(document.changed or not document.safe for document in documents) else YES


def upgrade_page(document: UpgradeDocument, view: NodeView | None) -> str:
    """Return the page of one node; it has no script.

    Args:
        document: what the new release changes.
        view: the node after the start of the new kubelet; None if it does not start.
    """
    # The styles of the page have the rules of the picture already, and the policy allows no other style element.
    drawing = "" if view is None else svg.svg_text(view, _PICTURE_WIDTH).replace(elements.style_sheet(), "")
    title = f"{document.node or document.machine}: kubelet {document.from_} to {document.to}"
    verdict = text.headline_text(document)
    return html.page_text("upgrade.html", title=title, upgrade=document, verdict=verdict, picture=drawing)


def upgrades_page(document: UpgradeListDocument) -> str:
    """Return the page of several nodes, with a row for each; it has no script."""
    safe = sum(node.safe for node in document.nodes)
    # Nodes of one cluster come from the same files, so that most findings are about all of them.
    found = [one for place, one in enumerate(document.findings) if one not in document.findings[:place]]
    return html.page_text("upgrades.html", title="Kubelet upgrade", nodes=document.nodes, safe=safe, found=found)


_PICTURE_WIDTH = 1144
"""Pixels that the page has for the picture."""
