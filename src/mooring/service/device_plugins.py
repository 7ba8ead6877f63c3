"""What the device plugins of this node say about themselves: only their options are asked for, which changes nothing.

Source: k8s.io/kubelet v0.37.1, pkg/apis/deviceplugin/v1beta1 (GetDevicePluginOptions). A plugin's other calls are for
the kubelet alone: some serve one listener.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from mooring.service.grpc_client import CallError, UnaryClient
from mooring.service.protobuf import TypedMessage, at

_PACKAGE: Final = "v1beta1"
_ANSWER_TIME: Final = 1.0
"""Seconds for an answer."""
_LARGEST: Final = 65536
"""Bytes of one; it has two fields."""
_KUBELET: Final = "kubelet.sock"
_MOST: Final = 64
"""Plugins that are asked."""


class DevicePluginOptionsMessage(TypedMessage, package=_PACKAGE):
    """What the kubelet is to ask the plugin besides Allocate."""

    pre_start_required: bool = at(1)
    get_preferred_allocation_available: bool = at(2)


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
