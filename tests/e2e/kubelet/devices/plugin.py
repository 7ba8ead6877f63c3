"""A device plugin on the kubelet's real gRPC interface, version v1beta1: registered, watched, asked and killed.

Its devices are only names with NUMA nodes: a container finds those that it was given in a variable.

Source for numbers, names and types: k8s.io/kubelet v0.37.1, pkg/apis/deviceplugin/v1beta1/api.proto.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
from tests.e2e.kubelet.patience import until

from mooring.engine.devicemanager.state import Device
from mooring.service.messages import Int32, Int64, Map, Repeated, TypedMessage, at
from mooring.service.podresources import DevicePluginOptionsMessage

PACKAGE: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"
_OPTIONS: Final = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))

Choose: TypeAlias = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""Returns which of the available devices a container should get: available, those that must be among them, how many."""


class EmptyMessage(TypedMessage, package=PACKAGE):
    """Has no field."""


class RegisterRequestMessage(TypedMessage, package=PACKAGE):
    version: str = at(1)
    endpoint: str = at(2)
    resource_name: str = at(3)
    options: DevicePluginOptionsMessage = at(4)


class NUMANodeMessage(TypedMessage, package=PACKAGE):
    ID: Int64 = at(1)


class TopologyInfoMessage(TypedMessage, package=PACKAGE):
    nodes: Repeated[NUMANodeMessage] = at(1)


class DeviceMessage(TypedMessage, package=PACKAGE):
    ID: str = at(1)
    health: str = at(2)
    topology: TopologyInfoMessage = at(3)


class ListAndWatchResponseMessage(TypedMessage, package=PACKAGE):
    devices: Repeated[DeviceMessage] = at(1)


class ContainerPreferredAllocationRequestMessage(TypedMessage, package=PACKAGE):
    available_ids: Repeated[str] = at(1)
    required_ids: Repeated[str] = at(2)
    allocation_size: Int32 = at(3)


class PreferredAllocationRequestMessage(TypedMessage, package=PACKAGE):
    container_requests: Repeated[ContainerPreferredAllocationRequestMessage] = at(1)


class ContainerPreferredAllocationResponseMessage(TypedMessage, package=PACKAGE):
    ids: Repeated[str] = at(1)


class PreferredAllocationResponseMessage(TypedMessage, package=PACKAGE):
    container_responses: Repeated[ContainerPreferredAllocationResponseMessage] = at(1)


class ContainerAllocateRequestMessage(TypedMessage, package=PACKAGE):
    devices_ids: Repeated[str] = at(1)


class AllocateRequestMessage(TypedMessage, package=PACKAGE):
    container_requests: Repeated[ContainerAllocateRequestMessage] = at(1)


class ContainerAllocateResponseMessage(TypedMessage, package=PACKAGE):
    envs: Map[str, str] = at(1)


class AllocateResponseMessage(TypedMessage, package=PACKAGE):
    container_responses: Repeated[ContainerAllocateResponseMessage] = at(1)


@dataclass(slots=True)
class DevicePlugin:
    """A plugin for one resource; it can be started more than once."""

    folder: Path
    """The kubelet's folder of device plugins."""
    resource: str
    devices: tuple[Device, ...]
    choose: Choose | None = None
    """Answers GetPreferredAllocation; None for a plugin without it."""
    asked: list[Sequence[str]] = field(default_factory=list)
    """The devices of each Allocate."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _generation: int = 0
    _watched: int = -1
    """Generation that the kubelet was told last."""
    _server: grpc.Server | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.resource.rpartition('/')[2]}.sock"

    @property
    def variable(self) -> str:
        """The variable in which a container finds its devices."""
        return f"E2E_{self.resource.rpartition('/')[2].upper()}"

    def start(self) -> None:
        """Serve, register with the kubelet, and wait until it was told the devices."""
        self._watched = -1
        # A kubelet that starts empties the folder before it makes its socket.
        until((self.folder / KUBELET_SOCKET).exists, "the kubelet takes device plugins")
        server = grpc.server(futures.ThreadPoolExecutor(4, self.endpoint))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{PACKAGE}.DevicePlugin", self._rpc()),))
        (self.folder / self.endpoint).unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{self.folder / self.endpoint}")
        server.start()
        self._server = server
        request = RegisterRequestMessage(
            version=PACKAGE, endpoint=self.endpoint, resource_name=self.resource, options=self._options(None, None)
        )
        with grpc.insecure_channel(f"unix:{self.folder / KUBELET_SOCKET}", options=_OPTIONS) as channel:
            register: Any = channel.unary_unary(
                f"/{PACKAGE}.Registration/Register",
                request_serializer=_bytes,
                response_deserializer=EmptyMessage.FromString,
            )
            register(request, timeout=10, wait_for_ready=True)
        until(lambda: self._watched == self._generation, f"the kubelet knows the devices of {self.resource}")

    def die(self) -> None:
        """End as a plugin that is killed: at once, and its socket stays."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        with self._changed:
            self._changed.notify_all()

    def turn(self, name: str, *, healthy: bool) -> None:
        """Tell the kubelet of another health of a device."""
        with self._changed:
            self.devices = tuple(replace(one, healthy=healthy) if one.id == name else one for one in self.devices)
            self._generation += 1
            self._changed.notify_all()
        until(lambda: self._watched == self._generation, "the kubelet was told")

    def _rpc(self) -> dict[str, Any]:
        def unary(answer: Callable[[Any, Any], Any], kind: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(answer, kind.FromString, _bytes)

        return {
            "GetDevicePluginOptions": unary(self._options, EmptyMessage),
            "GetPreferredAllocation": unary(self._preferred, PreferredAllocationRequestMessage),
            "Allocate": unary(self._allocate, AllocateRequestMessage),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._watch, EmptyMessage.FromString, _bytes),
        }

    def _options(self, _request: Any, _context: Any) -> DevicePluginOptionsMessage:
        return DevicePluginOptionsMessage(get_preferred_allocation_available=self.choose is not None)

    def _watch(self, _request: Any, context: Any) -> Iterator[ListAndWatchResponseMessage]:
        told = -1
        while context.is_active() and self._server is not None:
            with self._changed:
                if told == self._generation:
                    self._changed.wait(0.5)
                    continue
                told, devices = self._generation, self.devices
            yield ListAndWatchResponseMessage(devices=[_device(one) for one in devices])
            # gRPC has taken the message when it comes back for the next one.
            self._watched = told

    def _allocate(self, request: AllocateRequestMessage, _context: Any) -> AllocateResponseMessage:
        answer = AllocateResponseMessage()
        for one in request.container_requests:
            ids = sorted(one.devices_ids)
            self.asked.append(ids)
            answer.container_responses.add(envs={self.variable: ",".join(ids)})
        return answer

    def _preferred(
        self, request: PreferredAllocationRequestMessage, _context: Any
    ) -> PreferredAllocationResponseMessage:
        assert self.choose is not None
        answer = PreferredAllocationResponseMessage()
        for one in request.container_requests:
            chosen = self.choose(sorted(one.available_ids), sorted(one.required_ids), one.allocation_size)
            answer.container_responses.add(ids=list(chosen))
        return answer


@contextlib.contextmanager
def plugins_on(*plugins: DevicePlugin) -> Iterator[None]:
    """Run device plugins until the end of the block."""
    with contextlib.ExitStack() as opened:
        for one in plugins:
            opened.callback(one.die)
            one.start()
        yield


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _device(device: Device) -> DeviceMessage:
    topology = TopologyInfoMessage(nodes=[NUMANodeMessage(ID=node) for node in device.numa or ()])
    health = "Healthy" if device.healthy else "Unhealthy"
    return DeviceMessage(ID=device.id, health=health, **({"topology": topology} if device.numa else {}))
