"""``mooring serve``: a node or a cluster as live pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import YES, Seconds, Verb, check_destination, emit_document, needs_extra, tell
from mooring.engine.core.errors import InputError
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.inputs import checks
    from mooring.answers.base.inputs import node as nodes
    from mooring.engine.checkpoint import device_file
    from mooring.engine.node import settings
    from mooring.monitoring.serve import app as apps
    from mooring.monitoring.serve import cluster_html, cluster_routes, node_routes, snapshot
    from mooring.service import agent_status as status_api
    from mooring.service import options as service_options
    from mooring.views import build as pictures

if TYPE_CHECKING:
    from mooring.monitoring.serve.snapshot import NodeSnapshot


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
                found = cluster_routes.listed_cluster(asked.kubeconfig)
                emit_document(cluster_html.exported_cluster(found, cluster_routes.NAME), export, _EXPORT)
            else:
                cluster_routes.serve_cluster(asked, tell)
            return YES
        if not export:
            check_rereadable(inputs)
        source = agent_source(socket) if agent or socket else described_source(inputs)
        first = source()
        if export:
            emit_document(node_routes.exported(first), export, _EXPORT)
            return YES
        recorded = node_routes.Recording(first)
        app = apps.node_application(recorded, apps.guard_of(asked), loopback=asked.is_loopback)
        with apps.looking(recorded, source, period):
            apps.run_application(app, asked, tell)
    return YES


def agent_source(socket: str) -> Callable[[], NodeSnapshot]:
    """Return what asks an agent.

    Raises:
        InputError: no agent answers.
    """
    path = socket or status_api.STATUS_SOCKET
    machine = status_api.ask_machine(path)

    def source() -> NodeSnapshot:
        document = status_api.ask_status(path)
        return snapshot.snapshot_of_status(pictures.status_view(machine, status_api.read_status(document)), document)

    return source


def described_source(inputs: NodeOptions) -> Callable[[], NodeSnapshot]:
    """Return what reads the node that options describe; without any, that of the kubelet of this computer."""

    def read() -> tuple[NodeSnapshot, list[Path]]:
        asked = checks.with_running_kubelet(inputs)
        names = settings.CPU_FILE, settings.MEMORY_FILE, device_file.DEVICE_FILE
        folders = (inputs.state, checks.state_folder(asked.running))
        marked = [Path(folder) / name for folder in folders if folder for name in names]
        marked += [Path(name) for name in (*inputs.manifests, *inputs.active, *inputs.config, inputs.node) if name]
        return snapshot.snapshot_of(nodes.question_of(asked)), marked

    return apps.WatchedNode(read)


def check_rereadable(inputs: NodeOptions) -> None:
    """Refuse standard input: a live page reads the node again and again, and standard input is empty the second time.

    Raises:
        InputError: an option names it.
    """
    if checks.STANDARD_INPUT in (*inputs.manifests, *inputs.active, *inputs.config, *inputs.machine.split("\n")):
        problem = "can be read only once, and the page reads the node periodically"
        raise InputError(problem, source="standard input", remedy="name a file, or write one page with --export")
