"""``mooring play``: nodes at an API server that admit and refuse pods as kubelets do."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import YES, Seconds, Verb, emit, needs_extra, tell
from mooring.engine.core.errors import clean
from mooring.lazy import lazily

if TYPE_CHECKING:
    from mooring.cluster.play.pods import PlayedPod
    from mooring.engine.core.decision import Rejection

with lazily():
    from mooring.cluster.play import run
    from mooring.fleet import event_files
    from mooring.service import apiserver, daemon

EPILOG = """\b
Examples:
  mooring play -f cluster.yaml --kubeconfig ~/.kube/config
  mooring play -f cluster.yaml --publish --speed 60
  mooring play -f cluster.yaml --state state --keep
"""
_LONGEST = 10 * 365 * 86400


@click.command("play", cls=Verb, epilog=EPILOG)
@click.option(
    "-f",
    "--filename",
    "file",
    required=True,
    metavar="FILE",
    shell_complete=options.complete_file,
    help="The nodes: a document of kind Cluster, as mooring fleet reads it.",
)
@options.kubeconfig("the service account of the pod that this runs in")
@click.option("--context", default="", help="Context of the kubeconfig. Default: the current one.")
@click.option(
    "--speed", type=click.FloatRange(0.01, 10_000), default=1.0, show_default=True, help="Of pods and events."
)
@click.option("--for", "seconds", type=Seconds(0, _LONGEST), metavar="SECONDS", help="End after that time.")
@click.option("--publish", is_flag=True, help="Publish NodeState, NodeFacts and NodeResourceTopology of each node.")
@click.option("--state", default="", metavar="FOLDER", help="Keep what nodes have allocated there, and go on from it.")
@click.option(
    "--pod-resources",
    "sockets",
    default="",
    metavar="FOLDER",
    help="Serve NODE.sock there: each node's PodResources API.",
)
@click.option("--keep", is_flag=True, help="Leave nodes and pods at the API server at the end.")
def command(
    file: str,
    kubeconfig: str,
    context: str,
    speed: float,
    seconds: float | None,
    state: str,
    sockets: str,
    *,
    publish: bool,
    keep: bool,
) -> int:
    """Play nodes at an API server, without machines, until SIGTERM or SIGINT: they decide as their kubelets.

    Every pod bound to one is admitted, or rejected with the kubelet's reason, message and event.
    """

    def decided(pod: PlayedPod, rejection: Rejection | None) -> None:
        if rejection is not None:
            emit(f"{pod.namespace}/{pod.name} on {pod.node}: {rejection.reason}: {clean(rejection.message)}")

    with needs_extra("dra,kube" if sockets else "kube", source="mooring play"):
        cluster = event_files.load_cluster(file).cluster
        connect = partial(apiserver.cluster_of, apiserver.configuration_of(kubeconfig or None, context or None))
        played = run.PlayedCluster(
            cluster,
            connect,
            lambda about, problem: tell(f"{about}: {problem}"),
            speed,
            publish,
            Path(state) if state else None,
            keep,
            Path(sockets) if sockets else None,
        )
        with played.playing() as play:
            play.decided = decided
            with daemon.stop_signals() as stop:
                emit(f"{len(play.nodes)} nodes of {cluster.name} are ready; Ctrl-C ends them.")
                stop.wait(seconds)
            counts = Counter(play.counts)
            admitted = counts.pop("admitted", 0)
            refused = "".join(f", {reason} {count}" for reason, count in counts.most_common())
            emit(f"Pods admitted: {admitted}; rejected: {counts.total()}{refused}.")
            if not keep:
                tell("nodes and their pods are removed; Ctrl-C again leaves them")
    return YES
