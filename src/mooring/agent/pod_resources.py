"""The kubelet's PodResources API v1 as the agent serves it: List, Get and GetAllocatableResources.

Exporters read the agent's assignments by it unchanged. Its content is that of
:mod:`mooring.documents.of_kubelet`. The kubelet of the node has an API of its own under its own socket, which
knows the devices and nothing of the agent's CPUs.

Source: kubelet v1.37.1, pkg/kubelet/apis/podresources; spec: pod-level.md section 5.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message
from msgspec import Struct, to_builtins

from mooring.agent.status.snapshot import SnapshotProvider
from mooring.documents.of_kubelet import allocatable_message, list_message
from mooring.engine.node import Node
from mooring.service.grpc_socket import CallRefusedError, GRPCSocket, Method, Methods
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
