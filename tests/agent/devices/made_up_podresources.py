"""A kubelet's PodResources API, as a real gRPC server on a Unix socket, which can hang, refuse and forget."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from mooring.engine.devicemanager.state import Device
from mooring.service import messages

Held = Mapping[str, Mapping[str, tuple[Device, ...]]]
"""Container -> resource -> devices."""


@dataclass(frozen=True)
class ClaimDevice:
    """What a claim gives."""

    claim: str
    driver: str
    pool: str
    name: str


@dataclass
class PodResources:
    """What the kubelet tells, and how."""

    path: Path
    plugins: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> devices that are healthy."""
    pods: dict[str, Held] = field(default_factory=dict)
    """Name of the pod -> what its containers hold."""
    claims: dict[str, Mapping[str, tuple[ClaimDevice, ...]]] = field(default_factory=dict)
    """Name of the pod -> container -> devices of claims."""
    namespace: str = "default"
    """Of all pods."""
    refusing: grpc.StatusCode | None = None
    goes: threading.Event = field(default_factory=threading.Event)
    """Answers come while it is set."""
    unknown: set[str] = field(default_factory=set)
    """Methods that it does not have."""
    asked: list[str] = field(default_factory=list)
    """Methods that were asked."""
    _server: Any = None

    def start(self) -> None:
        self.goes.set()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {
            "List": self._handler(messages.ListPodResourcesRequestMessage, self._list),
            "Get": self._handler(messages.GetPodResourcesRequestMessage, self._get, "Get"),
            "GetAllocatableResources": self._handler(messages.AllocatableResourcesRequestMessage, self._allocatable),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(messages.PODRESOURCES_SERVICE, handlers),)
        )
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()

    def stop(self) -> None:
        self.goes.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def _handler(self, request: Any, answer: Any, name: str = "") -> Any:
        def called(asked: Any, context: grpc.ServicerContext) -> Any:
            self.asked.append(type(asked).__name__)
            self.goes.wait(60)
            if name in self.unknown:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
            if self.refusing is not None:
                context.abort(self.refusing, "made up")
            return answer(asked, context)

        return grpc.unary_unary_rpc_method_handler(
            called,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _list(self, _asked: Any, _context: Any) -> messages.ListPodResourcesResponseMessage:
        names = {**self.pods, **self.claims}
        return messages.ListPodResourcesResponseMessage(pod_resources=[self._pod(name) for name in names])

    def _get(self, asked: messages.GetPodResourcesRequestMessage, context: grpc.ServicerContext) -> Any:
        if asked.pod_name not in self.pods and asked.pod_name not in self.claims:
            text = f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"
            context.abort(grpc.StatusCode.UNKNOWN, text)
        return messages.GetPodResourcesResponseMessage(pod_resources=self._pod(asked.pod_name))

    def _allocatable(self, _asked: Any, _context: Any) -> messages.AllocatableResourcesResponseMessage:
        return messages.AllocatableResourcesResponseMessage(devices=_entries(self.plugins))

    def _pod(self, name: str) -> messages.PodResourcesMessage:
        held, claims = self.pods.get(name, {}), self.claims.get(name, {})
        message = messages.PodResourcesMessage(name=name, namespace=self.namespace)
        for container in dict.fromkeys((*held, *claims)):
            made = message.containers.add(name=container)
            made.devices.extend(_entries(held.get(container, {})))
            for one in claims.get(container, ()):
                claim = messages.DynamicResourceMessage(claim_name=one.claim, claim_namespace=self.namespace)
                claim.claim_resources.add(driver_name=one.driver, pool_name=one.pool, device_name=one.name)
                made.dynamic_resources.append(claim)
        return message


def _entries(devices: Mapping[str, tuple[Device, ...]]) -> list[messages.ContainerDevicesMessage]:
    """Return devices as the kubelet tells them: one entry for each."""
    return [
        messages.ContainerDevicesMessage(
            resource_name=resource,
            device_ids=[device.id],
            topology=messages.TopologyInfoMessage(
                nodes=[messages.NUMANodeMessage(ID=node) for node in device.numa or ()]
            ),
        )
        for resource, each in devices.items()
        for device in each
    ]
