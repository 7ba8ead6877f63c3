"""``mooring record``: the decisions of kubelets as scenarios that can be replayed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.published_node import (
    KUBELET_PODS,
    Asked,
    connector,
    kubelet_pods_option,
    pod_resources_option,
)
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import YES, Verb, check_destination, emit, emit_document, json_text, needs_extra, tell, warn
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from mooring.monitoring.shadow import folder as folders
    from mooring.monitoring.shadow import judgement as judgements
    from mooring.monitoring.shadow import shadow as shadows
    from mooring.monitoring.shadow import sources, text
    from mooring.monitoring.shadow import tally as tallies
    from mooring.monitoring.shadow.commands import shadow as beside
    from mooring.service import daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mooring.engine.core.machine import Finding
    from mooring.inputs.pods.defaults import PodGates
    from mooring.monitoring.shadow.shadow import Shadow
    from mooring.service.following import Follower


EPILOG = """\b
Examples:
  mooring record --folder recordings --config /var/lib/kubelet/config.yaml
  mooring record node-1 node-2 --folder recordings --for 24h --anonymous
  mooring replay recordings --check
"""
_SOURCE = "mooring record"


@click.command("record", cls=Verb, epilog=EPILOG)
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--folder", "folder", required=True, metavar="DIR", help="A folder for each node is made there.")
@click.option("--for", "span", default="", metavar="DURATION", help="End after this time. Default: at SIGTERM.")
@click.option("--anonymous", "anonymous", is_flag=True, help="Make up names of nodes, pods and namespaces.")
@options.kubeconfig("the service account of the pod that this runs in")
@options.node_name("$NODE_NAME, or else this computer's name", "NODE_NAME")
@pod_resources_option
@kubelet_pods_option
@options.node_options(without=["node_name", "node", "active", "debug_image"])
@options.output(("text", "json"), "text")
@options.to_file
def command(
    nodes: tuple[str, ...],
    folder: str,
    span: str,
    kubeconfig: str,
    pod_resources: str,
    kubelet_pods: str,
    form: str,
    to: str,
    inputs: NodeOptions,
    *,
    anonymous: bool,
) -> int:
    """Record the decisions of kubelets as scenarios, until SIGTERM, and change nothing.

    With NODE: what these nodes publish (mooring publish) and the pods of the API server are followed, from anywhere.
    Without: the kubelet of this node, by its files and its PodResources API; the options that describe a node are for
    it.

    Decisions in which the engine differs are recorded, too, and printed on standard error.
    """
    check_destination(to)
    seconds = beside.seconds_of(span)
    if nodes and kubelet_pods:
        problem = "is for the kubelet of this computer, and NODE names others"
        raise InputError(problem, field=KUBELET_PODS, remedy="leave out one of the two")
    with needs_extra("kube", source=_SOURCE), ExitStack() as stack:
        if nodes:
            found = _of_nodes(tuple(dict.fromkeys(nodes)), kubeconfig, stack, beside.listing_time(seconds))
        else:
            asked = Asked(inputs, kubeconfig, pod_resources, dry_run=False, kubelet_pods=kubelet_pods)
            found = [beside.beside_kubelet(asked, _SOURCE, stack, beside.listing_time(seconds))]
        for number, one in enumerate(found, 1):
            one.anonymous, one.alias = anonymous, f"node-{number}"
            _keep(one, Path(folder))
        with daemon.stop_signals() as stopping:
            shadows.watch(found, stopping, seconds)
    document = tallies.RecordingDocument(nodes=[_part(one, folder) for one in found])
    if form == "json":
        emit_document(json_text(document), to)
    else:
        emit(text.recording_text(document, to), to)
    return YES


def _of_nodes(names: Sequence[str], kubeconfig: str, stack: ExitStack, patience: float) -> list[Shadow]:
    """Return shadows that follow what nodes publish.

    Raises:
        InputError: the API server does not answer, or a node publishes nothing.
    """
    connect, nodes = connector(kubeconfig), sources.PublishedNodes()
    _start(sources.followers_of(nodes, names, connect, _report), stack, "what nodes publish", patience)
    for name in names:
        try:
            nodes.known(name)
        except sources.UnpublishedError as error:
            remedy = "run mooring publish on it, or mooring record without NODE"
            raise InputError(str(error), source=_SOURCE, remedy=remedy) from None
    found, followers = [], []
    for name in names:
        source = sources.PublishedKubelet(name, nodes)
        pods = sources.BoundPods(_gates(source), _report)
        followers.append(sources.follower_of(pods, connect, name))
        tally = tallies.new_tally(name, "")
        found.append(shadows.Shadow(source, pods, tally, report=_report, quiet=sources.QUIET))
    _start(followers, stack, "the pods of the nodes", patience)
    return found


def _gates(source: sources.PublishedKubelet) -> Callable[[], PodGates]:
    return lambda: source.gates


def _start(followers: Sequence[Follower], stack: ExitStack, what: str, patience: float) -> None:
    for one in followers:
        one.start()
        stack.callback(one.stop)
    if not all(one.has_listed.wait(patience) for one in followers):
        problem = f"the API server did not list {what} within {patience:g} s"
        raise InputError(problem, source=_SOURCE, remedy="check that the account may list them")


def _keep(one: Shadow, folder: Path) -> None:
    """Let a shadow record everything, and print only what did not agree."""
    name = one.alias if one.anonymous else one.tally.node
    if Path(name).name != name:
        raise InputError(f"{name!r:.80} is no name of a node", source=_SOURCE, remedy="write names of Node objects")

    def say(line: str) -> None:
        if not line.startswith(judgements.Agreement.AGREED.value):
            tell(line if line.startswith("watching") else f"{name}: {line}")

    one.said, one.folder = say, folders.ShadowFolder(folder / name, tuple(judgements.Agreement))
    one.tally = tallies.continued(folder / name, name, one.tally.release, _report)


def _part(one: Shadow, folder: str) -> tallies.RecordedNodePart:
    kept, tally = one.folder, one.tally
    return tallies.RecordedNodePart(
        tally.node,
        tally.release,
        tally.since,
        str(Path(folder) / tally.node),
        0 if kept is None else kept.scenarios,
        0 if kept is None else kept.left_out,
        tally.agreed,
        tally.differs,
        tally.unknown,
        tally.blind,
    )


def _report(finding: Finding) -> None:
    warn([finding])
