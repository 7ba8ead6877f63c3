"""Asking the kubelet of this node: its PodResources API over a Unix socket, read only.

Source: k8s.io/kubelet v0.37.1, pkg/apis/podresources/v1; spec: pod-level.md section 5.

What the device plugins of this node say about themselves: only their options are asked for, which changes nothing.

Source: k8s.io/kubelet v0.37.1, pkg/apis/deviceplugin/v1beta1 (GetDevicePluginOptions). A plugin's other calls are for
the kubelet alone: some serve one listener.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct, to_builtins

from mooring.documents.of_kubelet import allocatable_message, list_message
from mooring.engine.core.bits import mask_of
from mooring.engine.core.cpuset import HIGHEST_CPU
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.core.pod import ClaimedDevice
from mooring.engine.devicemanager.state import NOWHERE, Device
from mooring.engine.node import Node
from mooring.lazy import lazily
from mooring.service import messages
from mooring.service.grpc_client import CallError, CallStatus, UnaryClient
from mooring.service.logs import Log

with lazily():
    # Only what serves the API needs gRPC.
    from mooring.service import grpc_socket

ANSWER_TIME: Final = 5.0
"""Seconds for an answer."""
LARGEST_ANSWER: Final = 16 * 1024**2
"""Bytes; the kubelet's own limit."""

_Answer = TypeVar("_Answer", bound=Message)


class PodResourcesError(MooringError):
    """The kubelet does not answer, or not so that it can be understood."""

    def __init__(self, problem: str, *, is_transient: bool = True) -> None:
        """Say what happened.

        Args:
            problem: one line.
            is_transient: whether a later question can be answered: the kubelet was not there, or too slow.
        """
        super().__init__(problem)
        self.is_transient = is_transient


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """A container that is not an init container, and what it has for itself."""

    name: str
    cpus: int
    """Exclusive CPUs as a mask."""
    devices: tuple[tuple[str, Device], ...] = ()
    """Resource and device."""
    dynamic: tuple[tuple[str, ClaimedDevice], ...] = ()
    """Name of a claim in the pod's namespace, and a device that it gives; known once the claim is prepared. The answer
    does not say for which of its requests."""


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A pod that the kubelet runs."""

    namespace: str
    name: str
    containers: tuple[ListedContainer, ...] = ()


class PodResourcesClient:
    """Asks one kubelet; used by one thread."""

    def __init__(self, path: str) -> None:
        """Do not connect yet; the first question does.

        Args:
            path: of the socket.
        """
        self._client = UnaryClient(path, LARGEST_ANSWER)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def listed(self, timeout: float = ANSWER_TIME) -> bytes:
        """Return the answer to List as it came, for a comparison with an earlier one.

        Args:
            timeout: seconds for the answer.

        Raises:
            PodResourcesError: there is none.
        """
        return self._ask("List", messages.ListPodResourcesRequestMessage(), timeout)

    def get(self, namespace: str, name: str, timeout: float = ANSWER_TIME) -> ListedPod | None:
        """Return one pod with what its containers have; None while the kubelet does not know it.

        Args:
            namespace: of the pod.
            name: of the pod.
            timeout: seconds for the answer.

        Raises:
            PodResourcesError: the kubelet does not tell it; lastingly so where it does not know the question (before
                v1.27, and without the feature gate KubeletPodResourcesGet).
        """
        try:
            found = self._ask(
                "Get", messages.GetPodResourcesRequestMessage(pod_name=name, pod_namespace=namespace), timeout
            )
        except _UnknownPodError:
            return None
        return _pod(_read(messages.GetPodResourcesResponseMessage, found).pod_resources.SerializeToString())

    def devices(self, timeout: float = ANSWER_TIME) -> dict[str, tuple[Device, ...]]:
        """Return the devices of all plugins that are healthy, by resource.

        Args:
            timeout: seconds for the answer.

        Raises:
            PodResourcesError: the kubelet does not tell them.
        """
        listed = self._ask("GetAllocatableResources", messages.AllocatableResourcesRequestMessage(), timeout)
        answer = _read(messages.AllocatableResourcesResponseMessage, listed)
        found: dict[str, dict[str, Device]] = {}
        for resource, device in _devices(answer.devices):
            found.setdefault(resource, {})[device.id] = device
        return {resource: tuple(devices.values()) for resource, devices in sorted(found.items())}

    def _ask(self, method: str, request: Message, timeout: float = ANSWER_TIME) -> bytes:
        try:
            return self._client.ask(f"{messages.PODRESOURCES_SERVICE}/{method}", request.SerializeToString(), timeout)
        except CallError as error:
            # The kubelet's error of a pod that it does not know has no code of its own (v1.37.1).
            is_unknown = error.status in (CallStatus.UNKNOWN, CallStatus.NOT_FOUND) and "not found" in str(error)
            if method == "Get" and is_unknown:
                raise _UnknownPodError from None
            problem = f"{self._client.path}: {method}: {error}"
            raise PodResourcesError(problem, is_transient=error.status in _TRANSIENT) from None


_TRANSIENT: Final = frozenset({CallStatus.UNAVAILABLE, CallStatus.DEADLINE_EXCEEDED, CallStatus.RESOURCE_EXHAUSTED})


class _UnknownPodError(Exception):
    """The kubelet does not know the pod."""


def pods_in(answer: bytes) -> tuple[ListedPod, ...]:
    """Return the pods of an answer to List.

    Raises:
        PodResourcesError: it is none.
    """
    message = _read(messages.ListPodResourcesResponseMessage, answer)
    return tuple(_pod(pod.SerializeToString()) for pod in message.pod_resources)


@lru_cache(maxsize=2048)
def _pod(answer: bytes) -> ListedPod:
    """Return one pod of an answer; those that are as they were in the answer before are remembered."""
    pod = _read(messages.PodResourcesMessage, answer)
    return ListedPod(pod.namespace, pod.name, tuple(_container(one) for one in pod.containers))


def _container(found: messages.ContainerResourcesMessage) -> ListedContainer:
    cpus = [cpu for cpu in found.cpu_ids if 0 <= cpu <= HIGHEST_CPU]
    dynamic = tuple(
        (one.claim_name, ClaimedDevice("", of.driver_name, of.pool_name, of.device_name, share=of.share_id))
        for one in found.dynamic_resources
        for of in one.claim_resources
    )
    return ListedContainer(found.name, mask_of(cpus), tuple(_devices(found.devices)), dynamic)


def _devices(entries: Iterable[messages.ContainerDevicesMessage]) -> Iterable[tuple[str, Device]]:
    for entry in entries:
        nodes = tuple(sorted({max(node.ID, NOWHERE) for node in entry.topology.nodes if node.ID <= HIGHEST_NODE}))
        for name in entry.device_ids:
            yield entry.resource_name, Device(name, nodes or None)


def _read(kind: type[_Answer], answer: bytes) -> _Answer:
    try:
        return kind.FromString(answer)
    except Exception as error:  # noqa: BLE001 - protobuf's versions have error classes of their own
        raise PodResourcesError(f"the kubelet's answer is no {kind.DESCRIPTOR.name}: {error}") from None


def serve_pod_resources(path: str, node: Callable[[], Node], log: Log) -> grpc_socket.GRPCSocket:
    """Serve List, Get and GetAllocatableResources on a Unix socket until that is closed, as a kubelet does.

    Exporters read the engine's assignments unchanged. The content is that of :mod:`mooring.documents.of_kubelet`.
    Beside an agent the kubelet has an API of its own, which knows the devices and nothing of the agent's CPUs.

    Args:
        path: of the socket.
        node: returns the newest.
        log: of the daemon.

    Raises:
        InputError: there can be no such socket.
    """

    def get(asked: messages.GetPodResourcesRequestMessage) -> messages.GetPodResourcesResponseMessage:
        wanted = asked.pod_namespace, asked.pod_name
        found = next((pod for pod in list_message(node()).pod_resources if (pod.namespace, pod.name) == wanted), None)
        if found is None:
            raise grpc_socket.CallRefusedError("UNKNOWN", "pod {} in namespace {} not found".format(*reversed(wanted)))
        return messages.GetPodResourcesResponseMessage(pod_resources=_message(found, messages.PodResourcesMessage))

    methods: grpc_socket.Methods = {
        "List": grpc_socket.Method(
            messages.ListPodResourcesRequestMessage,
            lambda _asked: _message(list_message(node()), messages.ListPodResourcesResponseMessage),
        ),
        "Get": grpc_socket.Method(messages.GetPodResourcesRequestMessage, get),
        "GetAllocatableResources": grpc_socket.Method(
            messages.AllocatableResourcesRequestMessage,
            lambda _asked: _message(allocatable_message(node()), messages.AllocatableResourcesResponseMessage),
        ),
    }
    return grpc_socket.GRPCSocket(path, messages.PODRESOURCES_SERVICE, methods, log)


def _message(document: Struct, kind: type[_Answer]) -> _Answer:
    """Return a document as the message of the same form."""
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - late, as gRPC itself

    return ParseDict(to_builtins(document), kind())


_PACKAGE: Final = "v1beta1"
_ANSWER_TIME: Final = 1.0
"""Seconds for an answer."""
_LARGEST: Final = 65536
"""Bytes of one; it has two fields."""
_KUBELET: Final = "kubelet.sock"
_MOST: Final = 64
"""Plugins that are asked."""


class DevicePluginOptionsMessage(messages.TypedMessage, package=_PACKAGE):
    """What the kubelet is to ask the plugin besides Allocate."""

    pre_start_required: bool = messages.at(1)
    get_preferred_allocation_available: bool = messages.at(2)


def preferring_plugins(folder: Path) -> tuple[str, ...]:
    """Return the names of the sockets whose plugins want to be asked which devices they prefer.

    Args:
        folder: of the device plugins' sockets.
    """
    try:
        sockets = sorted(one for one in folder.iterdir() if one.name != _KUBELET and one.is_socket())
    except OSError:
        return ()
    return tuple(one.name for one in sockets[:_MOST] if _prefers(one))


def resources_of(sockets: Iterable[str], resources: Collection[str]) -> frozenset[str]:
    """Return the resources that sockets serve, by their names; a socket whose name tells none or several is left out.

    >>> sorted(resources_of(["nvidia-gpu.sock", "gpu.intel.com-i915.sock"], ["nvidia.com/gpu", "gpu.intel.com/i915"]))
    ['gpu.intel.com/i915', 'nvidia.com/gpu']
    """
    found = set()
    for socket in sockets:
        stem = socket.removesuffix(".sock").lower()
        named = [one for one in resources if one.rpartition("/")[2].lower() in stem]
        if len(named) > 1:
            named = [one for one in named if one.partition(".")[0].lower() in stem]
        if len(named) == 1:
            found.add(named[0])
    return frozenset(found)


def _prefers(socket: Path) -> bool:
    with closing(UnaryClient(str(socket), _LARGEST)) as client:
        try:
            answer = client.ask(f"{_PACKAGE}.DevicePlugin/GetDevicePluginOptions", b"", _ANSWER_TIME)
            return DevicePluginOptionsMessage.FromString(answer).get_preferred_allocation_available
        except (CallError, DecodeError):  # nothing serves the socket, or another service
            return False
