"""The services of a running agent: HTTP pages, gRPC sockets, and the publisher beside it."""

from __future__ import annotations

from contextlib import ExitStack

from mooring.agent.claims import ClaimsService
from mooring.agent.options import AgentOptions
from mooring.agent.podresources import PodResourcesService
from mooring.agent.startup import RunningPublisher, Startup
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.api import status_pages
from mooring.agent.status.health import health_pages
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.status.snapshot import Heartbeat, SnapshotProvider
from mooring.core.errors import InputError
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.fields import Report
from mooring.service.http import serve_tcp, serve_unix
from mooring.service.logs import Log


def serve(
    options: AgentOptions,
    provider: SnapshotProvider,
    holder: StateHolder,
    metrics: AgentMetrics,
    heartbeat: Heartbeat,
    opened: ExitStack,
    log: Log,
) -> tuple[str, int] | None:
    """Serve status, metrics, health, PodResources and claims; return the address of metrics, None without one.

    Args:
        options: of the agent.
        provider: has the newest snapshot.
        holder: has the state.
        metrics: of the agent.
        heartbeat: of the agent's main thread.
        opened: closes the servers at the end.
        log: of the agent.

    Raises:
        InputError: a socket or address cannot be used.
    """
    address: tuple[str, int] | None = None
    if options.status_socket:
        opened.callback(serve_unix(options.status_socket, status_pages(provider, metrics.counts)).close)
    if options.metrics_address is not None:
        pages = {**health_pages(provider, heartbeat), "/metrics": metrics.page}
        server = serve_tcp(options.metrics_address, pages)
        opened.callback(server.close)
        address = server.address
    if options.pod_resources_socket:
        opened.callback(PodResourcesService(options.pod_resources_socket, provider, log).close)
    if options.claims_socket:
        opened.callback(ClaimsService(options.claims_socket, provider, holder, log).close)
    return address


def start_publisher(startup: Startup, provider: SnapshotProvider, report: Report) -> RunningPublisher:
    """Start the publisher beside the agent.

    Raises:
        InputError: there is no kubeconfig, it cannot be used, or this program has no publisher.
    """
    path = startup.configuration.options.kubeconfig
    if startup.publish is None:
        raise InputError("this program has no publisher", field="publish", remedy="run mooring agent")
    if not path:
        raise InputError("needs the API server", field="publish", remedy="write kubeconfig, or publish: false")
    # Needs the client of the API server, half of the agent's memory.
    from mooring.agent.pods.accounts import AgentAccount, connector, own_accounts  # noqa: PLC0415 - as said above

    def kubelet() -> Kubelet | None:
        state = provider.snapshot().state
        return None if state is None else state.kubelet

    connect = own_accounts(path).get(AgentAccount.PUBLISH) or connector(path)
    return startup.publish(kubelet, connect, startup.node, report)
