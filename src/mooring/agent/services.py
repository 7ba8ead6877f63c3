"""The services of a running agent: HTTP pages, gRPC sockets, and the publisher beside it.

Of these this module has the kubelet's PodResources API v1, so that exporters read the agent's assignments unchanged.
Its content is that of :mod:`mooring.answers.base.podresources`. The kubelet of the node has an API of its own under
its own socket, which knows the devices and nothing of the agent's CPUs.

Source: kubelet v1.37.1, pkg/kubelet/apis/podresources; spec: pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TypeVar

from google.protobuf.message import Message
from msgspec import Struct, to_builtins

from mooring.agent.claims import ClaimsService
from mooring.agent.options import AgentOptions
from mooring.agent.startup import RunningPublisher, Startup
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.api import status_pages
from mooring.agent.status.health import health_pages
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.status.snapshot import SnapshotProvider
from mooring.answers.base.podresources import allocatable_message, list_message
from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.inputs.decoding.fields import Report
from mooring.service.daemon import Heartbeat
from mooring.service.grpc_socket import CallRefusedError, GRPCSocket, Method, Methods
from mooring.service.http import serve_tcp, serve_unix
from mooring.service.logs import Log
from mooring.service.messages import (
    PODRESOURCES_SERVICE,
    AllocatableResourcesRequestMessage,
    AllocatableResourcesResponseMessage,
    GetPodResourcesRequestMessage,
    GetPodResourcesResponseMessage,
    ListPodResourcesRequestMessage,
    ListPodResourcesResponseMessage,
    PodResourcesMessage,
)


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


def start_publisher(
    startup: Startup,
    provider: SnapshotProvider,
    report: Report,
    offered: Callable[[], Mapping[str, tuple[Device, ...]]] | None = None,
) -> RunningPublisher:
    """Start the publisher beside the agent.

    Args:
        startup: what the agent runs with.
        provider: has the newest snapshot.
        report: receives outages.
        offered: returns the devices of the node, by resource and driver; None where nobody knows them.

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

    last: tuple[Kubelet, Mapping[str, tuple[Device, ...]], Kubelet] | None = None

    def kubelet() -> Kubelet | None:
        nonlocal last
        state = provider.snapshot().state
        if state is None or offered is None:
            return None if state is None else state.kubelet
        devices = offered()
        if last is None or last[0] is not state.kubelet or last[1] != devices:
            known = state.kubelet.node.providers.devices
            last = state.kubelet, devices, state.kubelet.with_devices(known.offering(devices))
        return last[2]

    connect = own_accounts(path).get(AgentAccount.PUBLISH) or connector(path)
    return startup.publish(kubelet, connect, startup.node, report)


_Response = TypeVar("_Response", bound=Message)


class PodResourcesService:
    """Serves List, Get and GetAllocatableResources on a Unix socket until it is closed."""

    def __init__(self, path: str, provider: SnapshotProvider, log: Log) -> None:
        """Begin to serve.

        Args:
            path: of the socket.
            provider: knows the node.
            log: of the agent.

        Raises:
            InputError: there can be no such socket.
        """
        self._provider = provider
        methods: Methods = {
            "List": Method(ListPodResourcesRequestMessage, lambda _asked: self._list()),
            "Get": Method(GetPodResourcesRequestMessage, self._get),
            "GetAllocatableResources": Method(AllocatableResourcesRequestMessage, lambda _asked: self._allocatable()),
        }
        self._socket = GRPCSocket(path, PODRESOURCES_SERVICE, methods, log)

    def close(self) -> None:
        """Stop serving and remove the socket's name."""
        self._socket.close()

    def _list(self) -> ListPodResourcesResponseMessage:
        return _message(list_message(self._node()), ListPodResourcesResponseMessage)

    def _get(self, asked: GetPodResourcesRequestMessage) -> GetPodResourcesResponseMessage:
        wanted = asked.pod_namespace, asked.pod_name
        pods = list_message(self._node()).pod_resources
        found = next((pod for pod in pods if (pod.namespace, pod.name) == wanted), None)
        if found is None:
            text = f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"
            raise CallRefusedError("UNKNOWN", text)
        return GetPodResourcesResponseMessage(pod_resources=_message(found, PodResourcesMessage))

    def _allocatable(self) -> AllocatableResourcesResponseMessage:
        return _message(allocatable_message(self._node()), AllocatableResourcesResponseMessage)

    def _node(self) -> Node:
        state = self._provider.snapshot().state
        if state is None:
            raise CallRefusedError("UNAVAILABLE", "the agent has no state yet")
        return state.kubelet.node


def _message(document: Struct, kind: type[_Response]) -> _Response:
    """Return a document as the message of the same form."""
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - late, as gRPC itself

    return ParseDict(to_builtins(document), kind())
