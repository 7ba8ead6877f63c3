"""The kubelet's PodResources API v1 as a gRPC service, so that exporters read the agent's assignments unchanged.

Content is that of :mod:`mooring.planner.podresources`; this module carries it. The kubelet of the node has an API of
its own under its own socket, which knows the devices and nothing of the agent's CPUs.

Source: kubelet v1.37.1, pkg/kubelet/apis/podresources; spec: pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message
from msgspec import to_builtins

from mooring.agent.status.snapshot import SnapshotProvider
from mooring.node import Node
from mooring.planner.podresources import allocatable_message, list_message
from mooring.service.grpc_socket import CallRefusedError, GRPCSocket, Method
from mooring.service.logs import Log
from mooring.service.podresources_messages import MESSAGES, SERVICE

_Make = Callable[[Node, Message], dict[str, Any] | None]


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
        methods = {
            "List": self._method("ListPodResources", _listed),
            "Get": self._method("GetPodResources", _one),
            "GetAllocatableResources": self._method("AllocatableResources", _allocatable),
        }
        self._socket = GRPCSocket(path, SERVICE, methods, log)

    def close(self) -> None:
        """Stop serving and remove the socket's name."""
        self._socket.close()

    def _method(self, name: str, make: _Make) -> Method:
        response = MESSAGES[f"{name}Response"]

        def answer(asked: Message) -> Message:
            from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - late, as gRPC itself

            state = self._provider.snapshot().state
            if state is None:
                raise CallRefusedError("UNAVAILABLE", "the agent has no state yet")
            content = make(state.kubelet.node, asked)
            if content is None:
                raise CallRefusedError("UNKNOWN", _not_found(asked))
            return ParseDict(content, response())

        return Method(MESSAGES[f"{name}Request"], answer)


def _listed(node: Node, _asked: Message) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(list_message(node))
    return found


def _one(node: Node, asked: Message) -> dict[str, Any] | None:
    """Return the pod that was asked for; None when no active pod has its name."""
    wanted = _name(asked)
    pods = list_message(node).pod_resources
    found = next((pod for pod in pods if (pod.namespace, pod.name) == wanted), None)
    return None if found is None else {"pod_resources": to_builtins(found)}


def _allocatable(node: Node, _asked: Message) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(allocatable_message(node))
    return found


def _name(asked: Message) -> tuple[str, str]:
    return getattr(asked, "pod_namespace", ""), getattr(asked, "pod_name", "")


def _not_found(asked: Message) -> str:
    namespace, name = _name(asked)
    return f"pod {name} in namespace {namespace} not found"
