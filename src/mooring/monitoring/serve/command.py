"""``mooring serve``: a node or a cluster as live pages."""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import YES, Seconds, Verb, check_destination, emit_document, needs_extra, tell
from mooring.lazy import lazily

with lazily():
    from mooring.monitoring.serve import app as apps
    from mooring.monitoring.serve import cluster_routes, node_routes, recording
    from mooring.service import options as service_options


DEFAULT_LISTEN = "127.0.0.1:9478"
_EXPORT = "--export"

EPILOG = """\b
Examples:
  mooring serve
  mooring serve --agent
  mooring serve --cluster --kubeconfig ~/.kube/config
  mooring serve --node node.tar.gz
  mooring serve --machine epyc-7763-2s-nps4 --config kubelet.yaml -f pods.yaml
  mooring serve --listen 0.0.0.0:9478 --certificate tls.crt --key tls.key --kubeconfig kubeconfig
  mooring serve --export node.html
"""


@click.command("serve", cls=Verb, epilog=EPILOG)
@options.pods("Pods to admit after those that run already; repeatable.")
@options.node_options("offline", "devices", "stop_at_crash")
@click.option("--agent", is_flag=True, help="Show the node of the agent on this computer, from its status.")
@click.option("--cluster", is_flag=True, help="Show all nodes of a cluster, from what they publish.")
@options.agent_socket
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Where the pages are served. Beyond loopback each person needs a token of the cluster.",
)
@click.option(
    "--period",
    type=Seconds(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings of the node.",
)
@click.option("--certificate", default="", metavar="FILE", help="Certificate for HTTPS, PEM.")
@click.option("--key", default="", metavar="FILE", help="Its key, PEM.")
@options.kubeconfig("the pod's service account")
@click.option(
    _EXPORT, "export", default="", metavar="FILE", help="Write the node as one file, with no server; - for stdout."
)
def command(
    inputs: NodeOptions,
    socket: str,
    listen: str,
    period: float,
    certificate: str,
    key: str,
    kubeconfig: str,
    export: str,
    *,
    agent: bool,
    cluster: bool,
) -> int:
    """Show a node in the browser, live: what holds what, why, and what would happen to other pods. Nothing is written.

    The node is that of the running kubelet on this computer, the one that the options describe, or with --agent that of
    the agent.
    """
    with needs_extra("kube", source="mooring serve"):
        if export:
            check_destination(export, _EXPORT)
        address = service_options.parse_address(listen, source="--listen", example=DEFAULT_LISTEN)
        if address is None:
            raise click.UsageError("--listen needs an address")
        asked = apps.ServeOptions(address, kubeconfig, certificate, key)
        if cluster:
            if export:
                emit_document(cluster_routes.export_cluster(asked.kubeconfig), export, _EXPORT)
            else:
                cluster_routes.serve_cluster(asked, tell)
            return YES
        if not export:
            recording.check_rereadable(inputs)
        source = recording.agent_source(socket) if agent or socket else recording.described_source(inputs)
        first = source()
        if export:
            emit_document(node_routes.exported(first), export, _EXPORT)
            return YES
        recorded = recording.Recording(first)
        app = apps.node_application(recorded, apps.guard_of(asked), loopback=asked.is_loopback)
        with apps.looking(recorded, source, period):
            apps.run_application(app, asked, tell)
    return YES
