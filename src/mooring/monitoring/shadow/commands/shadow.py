"""``mooring shadow``: compares the decisions of this node's kubelet with the engine."""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs.published_node import (
    KUBELET_PODS,
    KUBELET_ROOT,
    Asked,
    connector,
    kubelet_pods_option,
    kubelet_source,
    pod_resources_option,
    pods_connector,
)
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
    from mooring.monitoring.shadow import folder as folders
    from mooring.monitoring.shadow import shadow as shadows
    from mooring.monitoring.shadow import sources, text
    from mooring.monitoring.shadow import tally as tallies
    from mooring.service import daemon, http
    from mooring.service import options as service_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mooring.engine.core.machine import Finding
    from mooring.monitoring.shadow.shadow import Shadow
    from mooring.service.following import Follower


EPILOG = """\b
Examples:
  mooring shadow --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  mooring shadow --kubeconfig kubelet.conf --config config.yaml --folder /var/lib/mooring-shadow --for 168h
  mooring shadow --kubeconfig kubelet.conf --config config.yaml --would-be proposed.yaml
  mooring shadow --kubelet-pods http://127.0.0.1:10255 --config config.yaml
  mooring replay /var/lib/mooring-shadow/recording-000001.jsonl --check
"""
_SOURCE = "mooring shadow"
SHORTEST_LISTING, LONGEST_LISTING = 5.0, 30.0
"""Seconds within which the API server must list everything once, with a short ``--for`` and without."""


@click.command("shadow", cls=Verb, epilog=EPILOG)
@options.kubeconfig("the service account of the pod that this runs in")
@options.node_name("$NODE_NAME, or else this computer's name", "NODE_NAME")
@pod_resources_option
@kubelet_pods_option
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
def command(
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
    asked = Asked(inputs, kubeconfig, pod_resources, dry_run=False, kubelet_pods=kubelet_pods)
    if publish and kubelet_pods:
        raise InputError(
            "writes to an API server, and there is none", field="--publish", remedy=f"leave out {KUBELET_PODS}"
        )
    address = service_options.parse_address(metrics, source="--metrics-address")
    seconds = seconds_of(span)
    with needs_extra("kube", source=_SOURCE), ExitStack() as stack:
        shadow = beside_kubelet(asked, _SOURCE, stack, listing_time(seconds))
        shadow.anonymous = anonymous
        if folder:
            shadow.folder = folders.ShadowFolder(Path(folder))
            shadow.packed = partial(_packed, asked, anonymous=anonymous)
            shadow.tally = tallies.continued(Path(folder), asked.name, shadow.tally.release, _report)
        shadow.proposed = node_configuration.load_config(proposed).kubelet if proposed else None
        serving = nullcontext() if address is None else closing(_serving(shadow, address))
        publisher = folders.ShadowPublisher(shadow.tally, connector(asked.kubeconfig), _report) if publish else None
        published = nullcontext() if publisher is None else closing(publisher.start())
        with published, daemon.stop_signals() as stopping, serving:
            shadows.watch([shadow], stopping, seconds)
    document = shadow.tally
    document.observed_at = tallies.now_text()
    if form == "json":
        emit_document(json_text(document), to)
    else:
        emit(text.shadow_text(document, to), to)
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


def beside_kubelet(asked: Asked, program: str, stack: ExitStack, patience: float) -> Shadow:
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
    connect = pods_connector(asked) if asked.kubelet_pods else connector(asked.kubeconfig)
    source, end = kubelet_source(asked, known.names)
    stack.callback(end)
    facts = source.facts
    gates = defaults.PodGates.of_node(facts.config, facts.mooring)
    follower: Follower | sources.KubeletPods
    if asked.kubelet_pods:
        follower = sources.KubeletPods(connect, known)
    else:
        follower = sources.follower_of(known, connect, asked.name)
    follower.start()
    stack.callback(follower.stop)
    if not follower.has_listed.wait(patience):
        problem = f"the {teller} did not list the pods of the node within {patience:g} s"
        raise InputError(problem, source=program, remedy="check that the account may list and watch pods")
    tally = tallies.new_tally(asked.name, facts.mooring.release.tag)
    return shadows.Shadow(source, known, tally, report=_report, said=_say)


def _packed(asked: Asked, pods: Sequence[object], *, anonymous: bool) -> bytes:
    """Pack this computer and its kubelet, as ``mooring collect`` does."""
    inputs = asked.inputs
    return collect_inputs.collection_of(
        collect_inputs.CollectOptions(
            root="/",
            kubelet_root=inputs.state or KUBELET_ROOT,
            config=inputs.config,
            pods=(),
            node=asked.name,
            kubelet=inputs.kubelet_version,
            ask=False,
            anonymous=anonymous,
            objects=pods,
        )
    ).packed()


def _say(line: str) -> None:
    tell(line)


def _report(finding: Finding) -> None:
    warn([finding])


def _serving(shadow: Shadow, address: service_options.Address) -> http.HTTPServer:
    return http.serve_tcp(address, {"/metrics": folders.ShadowMetrics(shadow.tally).page})
