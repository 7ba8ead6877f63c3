"""``mooring shadow`` compares the decisions of this node's kubelet with the engine; ``mooring record`` keeps them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs import published_node
from mooring.cli import options
from mooring.cli.options import NodeOptions, complete_file
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, needs_extra, tell, warn
from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import within
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.inputs import collection as collect_inputs
    from mooring.inputs.configuration import node_configuration
    from mooring.inputs.decoding import quantities
    from mooring.inputs.pods import defaults
    from mooring.monitoring.shadow import judge as judging
    from mooring.monitoring.shadow import judgement as judgements
    from mooring.monitoring.shadow import reports, sources
    from mooring.monitoring.shadow import shadow as shadows
    from mooring.service import daemon, http
    from mooring.service import options as service_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mooring.engine.core.machine import Finding
    from mooring.monitoring.shadow.shadow import Shadow
    from mooring.service.following import Follower


SHADOW_EXAMPLES = """\b
Examples:
  mooring shadow --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  mooring shadow --kubeconfig kubelet.conf --config config.yaml --folder /var/lib/mooring-shadow --for 168h
  mooring shadow --kubeconfig kubelet.conf --config config.yaml --would-be proposed.yaml
  mooring shadow --kubelet-pods http://127.0.0.1:10255 --config config.yaml
  mooring replay /var/lib/mooring-shadow/recording-000001.jsonl --check
"""
SHORTEST_LISTING, LONGEST_LISTING = 5.0, 30.0
"""Seconds within which the API server must list everything once, with a short ``--for`` and without."""


@click.command("shadow", cls=Verb, epilog=SHADOW_EXAMPLES)
@options.kubeconfig("the service account of the pod that this runs in")
@options.node_name("$NODE_NAME, or else this computer's name", "NODE_NAME")
@published_node.pod_resources_option
@published_node.kubelet_pods_option
@options.node_options(without=["node_name", "node", "active", "debug_image"])
@click.option(
    "--would-be",
    "proposed",
    default="",
    metavar="FILE",
    shell_complete=complete_file,
    help="Count, too, what the kubelet would refuse with this configuration.",
)
@click.option(
    "--folder",
    "folder",
    default="",
    metavar="DIR",
    help="Keep counts and recordings there, and a folder for each difference.",
)
@click.option("--anonymous", "anonymous", is_flag=True, help="Keep them with made-up names of pods and namespaces.")
@click.option(
    "--publish", "publish", is_flag=True, help="Write the counts to the cluster, too, as the node's NodeShadow."
)
@click.option("--for", "span", default="", metavar="DURATION", help="End after this time. Default: at SIGTERM.")
@click.option(
    "--metrics-address", "metrics", default="", metavar="HOST:PORT", help="Serve /metrics there, for Prometheus."
)
@options.output(("text", "json"), "text")
@options.to_file
def shadow_command(
    kubeconfig: str,
    pod_resources: str,
    kubelet_pods: str,
    proposed: str,
    folder: str,
    span: str,
    metrics: str,
    form: str,
    to: str,
    inputs: NodeOptions,
    *,
    anonymous: bool,
    publish: bool,
) -> int:
    """Compare every decision of the kubelet of this node with the engine, until SIGTERM, and change nothing.

    It reads the kubelet's state files, its record of devices, its PodResources API and the pods of the API server, or
    with --kubelet-pods those that the kubelet lists: static pods of a node without an API server. Each decision is a
    line on standard error: agreed, differs, or cannot tell, and why. The counts are printed at the end.

    Exit code 1 when a decision differs.
    """
    check_destination(to)
    asked = published_node.Asked(inputs, kubeconfig, pod_resources, dry_run=False, kubelet_pods=kubelet_pods)
    if publish and kubelet_pods:
        raise InputError(
            "writes to an API server, and there is none",
            field="--publish",
            remedy=f"leave out {published_node.KUBELET_PODS}",
        )
    address = service_options.parse_address(metrics, source="--metrics-address")
    seconds = seconds_of(span)
    with needs_extra("kube", source="mooring shadow"), ExitStack() as stack:
        shadow = beside_kubelet(asked, "mooring shadow", stack, listing_time(seconds))
        shadow.anonymous = anonymous
        if folder:
            shadow.folder = reports.ShadowFolder(Path(folder))
            shadow.packed = partial(_packed, asked, anonymous=anonymous)
            shadow.tally = judging.continued(Path(folder), asked.name, shadow.tally.release, _report)
        shadow.proposed = node_configuration.load_config(proposed).kubelet if proposed else None
        if publish:
            connect = published_node.connector(asked.kubeconfig)
            stack.callback(reports.ShadowPublisher(shadow.tally, connect, _report).start().close)
        if address is not None:
            page = {"/metrics": reports.ShadowMetrics(shadow.tally).page}
            stack.callback(http.serve_tcp(address, page).close)
        with daemon.stop_signals() as stopping:
            shadows.watch([shadow], stopping, seconds)
    document = shadow.tally
    document.observed_at = judging.now_text()
    if form == "json":
        emit_document(json_text(document), to)
    else:
        emit(reports.shadow_text(document, to), to)
    return NO if document.differs else YES


def seconds_of(span: str) -> float | None:
    """Return how long ``--for`` says; None without it.

    Raises:
        InputError: it is no time.
    """
    if not span:
        return None
    with within("--for"):
        return quantities.nanoseconds(span) / 1e9


def listing_time(seconds: float | None) -> float:
    """Return how many seconds the first list may take, of a watch of so many: who asks for one does not wait for 30."""
    return LONGEST_LISTING if seconds is None else min(max(seconds, SHORTEST_LISTING), LONGEST_LISTING)


def beside_kubelet(asked: published_node.Asked, program: str, stack: ExitStack, patience: float) -> Shadow:
    """Return a shadow that watches the kubelet of this computer.

    Args:
        asked: the options.
        program: names this program in messages.
        stack: closes its connections.
        patience: seconds that the first list of pods may take.

    Raises:
        InputError: an option cannot be used, or the API server does not list the pods of the node.
    """
    teller = "kubelet" if asked.kubelet_pods else "API server"
    known = sources.BoundPods(lambda: gates, _report, teller)
    connect = published_node.pods_connector(asked) if asked.kubelet_pods else published_node.connector(asked.kubeconfig)
    source, end = published_node.kubelet_source(asked, known.names)
    stack.callback(end)
    facts = source.facts
    gates = defaults.PodGates.of_node(facts.config, facts.mooring)
    follower: Follower | sources.KubeletPods
    if asked.kubelet_pods:
        follower = sources.KubeletPods(connect, known)
    else:
        follower = sources.follower_of(known, connect, asked.name)
    problem = f"the {teller} did not list the pods of the node within {patience:g} s"
    remedy = "check that the account may list and watch pods"
    _start([follower], stack, patience, InputError(problem, source=program, remedy=remedy))
    tally = judging.new_tally(asked.name, facts.mooring.release.tag)
    return shadows.Shadow(source, known, tally, report=_report, said=tell)


def _packed(asked: published_node.Asked, pods: Sequence[object], *, anonymous: bool) -> bytes:
    """Pack this computer and its kubelet, as ``mooring collect`` does."""
    inputs = asked.inputs
    return collect_inputs.collection_of(
        collect_inputs.CollectOptions(
            root="/",
            kubelet_root=inputs.state or published_node.KUBELET_ROOT,
            config=inputs.config,
            pods=(),
            node=asked.name,
            kubelet=inputs.kubelet_version,
            ask=False,
            anonymous=anonymous,
            objects=pods,
        )
    ).packed()


def _report(finding: Finding) -> None:
    warn([finding])


RECORD_EXAMPLES = """\b
Examples:
  mooring record --folder recordings --config /var/lib/kubelet/config.yaml
  mooring record node-1 node-2 --folder recordings --for 24h --anonymous
  mooring replay recordings --check
"""


@click.command("record", cls=Verb, epilog=RECORD_EXAMPLES)
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--folder", "folder", required=True, metavar="DIR", help="A folder for each node is made there.")
@click.option("--for", "span", default="", metavar="DURATION", help="End after this time. Default: at SIGTERM.")
@click.option("--anonymous", "anonymous", is_flag=True, help="Make up names of nodes, pods and namespaces.")
@options.kubeconfig("the service account of the pod that this runs in")
@options.node_name("$NODE_NAME, or else this computer's name", "NODE_NAME")
@published_node.pod_resources_option
@published_node.kubelet_pods_option
@options.node_options(without=["node_name", "node", "active", "debug_image"])
@options.output(("text", "json"), "text")
@options.to_file
def record_command(
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
    seconds = seconds_of(span)
    if nodes and kubelet_pods:
        problem = "is for the kubelet of this computer, and NODE names others"
        raise InputError(problem, field=published_node.KUBELET_PODS, remedy="leave out one of the two")
    with needs_extra("kube", source="mooring record"), ExitStack() as stack:
        if nodes:
            found = _of_nodes(tuple(dict.fromkeys(nodes)), kubeconfig, stack, listing_time(seconds))
        else:
            asked = published_node.Asked(inputs, kubeconfig, pod_resources, dry_run=False, kubelet_pods=kubelet_pods)
            found = [beside_kubelet(asked, "mooring record", stack, listing_time(seconds))]
        for number, one in enumerate(found, 1):
            one.anonymous, one.alias = anonymous, f"node-{number}"
            _keep(one, Path(folder))
        with daemon.stop_signals() as stopping:
            shadows.watch(found, stopping, seconds)
    nodes_seen = []
    for one in found:
        kept, tally = one.folder, one.tally
        counts = (0, 0) if kept is None else (kept.scenarios, kept.left_out)
        judged = (tally.agreed, tally.differs, tally.unknown, tally.blind)
        where = str(Path(folder) / tally.node)
        nodes_seen.append(judging.RecordedNodePart(tally.node, tally.release, tally.since, where, *counts, *judged))
    document = judging.RecordingDocument(nodes=nodes_seen)
    if form == "json":
        emit_document(json_text(document), to)
    else:
        emit(reports.recording_text(document, to), to)
    return YES


def _of_nodes(names: Sequence[str], kubeconfig: str, stack: ExitStack, patience: float) -> list[Shadow]:
    """Return shadows that follow what nodes publish.

    Raises:
        InputError: the API server does not answer, or a node publishes nothing.
    """
    connect, nodes = published_node.connector(kubeconfig), sources.PublishedNodes()

    def unlisted(what: str) -> InputError:
        problem = f"the API server did not list {what} within {patience:g} s"
        return InputError(problem, source="mooring record", remedy="check that the account may list them")

    _start(sources.followers_of(nodes, names, connect, _report), stack, patience, unlisted("what nodes publish"))
    for name in names:
        try:
            nodes.known(name)
        except sources.UnpublishedError as error:
            remedy = "run mooring publish on it, or mooring record without NODE"
            raise InputError(str(error), source="mooring record", remedy=remedy) from None
    found, followers = [], []
    for name in names:
        source = sources.PublishedKubelet(name, nodes)
        pods = sources.BoundPods(source.gates, _report)
        followers.append(sources.follower_of(pods, connect, name))
        tally = judging.new_tally(name, "")
        found.append(shadows.Shadow(source, pods, tally, report=_report, quiet=sources.QUIET))
    _start(followers, stack, patience, unlisted("the pods of the nodes"))
    return found


def _start(
    followers: Sequence[Follower | sources.KubeletPods], stack: ExitStack, patience: float, unlisted: InputError
) -> None:
    for one in followers:
        one.start()
        stack.callback(one.stop)
    if not all(one.has_listed.wait(patience) for one in followers):
        raise unlisted


def _keep(one: Shadow, folder: Path) -> None:
    """Let a shadow record everything, and print only what did not agree."""
    name = one.alias if one.anonymous else one.tally.node
    if Path(name).name != name:
        raise InputError(
            f"{name!r:.80} is no name of a node", source="mooring record", remedy="write names of Node objects"
        )

    def say(line: str) -> None:
        if not line.startswith(judgements.Agreement.AGREED.value):
            tell(line if line.startswith("watching") else f"{name}: {line}")

    one.said, one.folder = say, reports.ShadowFolder(folder / name, tuple(judgements.Agreement))
    one.tally = judging.continued(folder / name, name, one.tally.release, _report)
