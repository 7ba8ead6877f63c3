"""The sockets that the kubelet uses: registration, and the interface of a driver.

The kubelet finds the registration socket in its folder of plugins, asks there for the driver's name, and calls the
other one.

Source: kubelet v1.37.1, pkg/kubelet/cm/dra/plugin; numbers, names and types of messages: k8s.io/kubelet v0.37.1,
pkg/apis/dra/v1 and pkg/apis/pluginregistration/v1. Measured order of the calls: GetInfo, NotifyRegistrationStatus,
NodePrepareResources at a pod's start, NodeUnprepareResources after its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any, Final

from google.protobuf.message import Message

from mooring.core.errors import MooringError
from mooring.dra.driver import ClaimName, Driver
from mooring.service.grpc_server import serve_at_once
from mooring.service.grpc_socket import CallLimits, Method
from mooring.service.logs import Log
from mooring.service.protobuf import build_messages

_LIMITS: Final = CallLimits(threads=4, waiting=64, grace=2.0)
"""The kubelet repeats a call that is refused because too many are under way."""


class Plugin:
    """Serves both sockets until it is closed."""

    def __init__(self, driver: Driver, plugin_folder: Path, registry: Path, log: Log) -> None:
        """Begin to serve; the registration socket comes last, when everything behind it is there.

        Args:
            driver: answers.
            plugin_folder: of this driver's own socket.
            registry: the kubelet's folder of registration sockets.
            log: of the driver.

        Raises:
            InputError: there can be no such socket.
        """
        self._driver, self._log = driver, log
        self.registered = Event()
        """Set when the kubelet has taken the driver."""
        self._endpoint = str(plugin_folder / "dra.sock")
        with ExitStack() as opened:
            opened.callback(self._served(self._endpoint, DRA_SERVICE, self._dra()))
            place = str(registry / f"{driver.name}-reg.sock")
            opened.callback(self._served(place, REGISTRATION_SERVICE, self._registration()))
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Stop serving and remove the sockets' names."""
        self._closing.close()

    def _served(self, path: str, service: str, methods: Mapping[str, Method]) -> Callable[[], object]:
        return serve_at_once(path, service, methods, self._log, _LIMITS, "check --kubelet-root")

    def _dra(self) -> Mapping[str, Method]:
        return {
            "NodePrepareResources": _method(DRA, "NodePrepareResources", self._prepare),
            "NodeUnprepareResources": _method(DRA, "NodeUnprepareResources", self._unprepare),
        }

    def _registration(self) -> Mapping[str, Method]:
        return {
            "GetInfo": Method(REGISTRATION["InfoRequest"], self._info),
            "NotifyRegistrationStatus": Method(REGISTRATION["RegistrationStatus"], self._notified),
        }

    def _info(self, _request: Any) -> Message:
        return REGISTRATION["PluginInfo"](
            type="DRAPlugin", name=self._driver.name, endpoint=self._endpoint, supported_versions=[_DRA_VERSION]
        )

    def _notified(self, status: Any) -> Message:
        if status.plugin_registered:
            self.registered.set()
            self._log.info("driver registered by the kubelet")
        else:
            self.registered.clear()
            self._log.error("driver rejected by the kubelet", problem=status.error)
        return REGISTRATION["RegistrationStatusResponse"]()

    def _prepare(self, request: Any) -> Message:
        response: Any = DRA["NodePrepareResourcesResponse"]()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            try:
                for one in self._driver.prepare(ClaimName(claim.namespace, claim.uid, claim.name)):
                    answer.devices.add(
                        request_names=[one.request],
                        pool_name=self._driver.node,
                        device_name=one.device,
                        cdi_device_ids=[one.cdi],
                        share_id=one.share,
                    )
            except MooringError as error:
                answer.error = str(error)
                self._log.warning("claim not prepared", claim=f"{claim.namespace}/{claim.name}", why=str(error))
        return response  # type: ignore[no-any-return]

    def _unprepare(self, request: Any) -> Message:
        response: Any = DRA["NodeUnprepareResourcesResponse"]()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            try:
                self._driver.unprepare(ClaimName(claim.namespace, claim.uid, claim.name))
            except MooringError as error:
                answer.error = str(error)
                self._log.warning("claim not unprepared", claim=f"{claim.namespace}/{claim.name}", why=str(error))
        return response  # type: ignore[no-any-return]


def _method(messages: Mapping[str, type[Message]], name: str, answer: Callable[[Any], Message]) -> Method:
    return Method(messages[f"{name}Request"], answer)


_DRA_PACKAGE = "k8s.io.kubelet.pkg.apis.dra.v1"
DRA_SERVICE = f"{_DRA_PACKAGE}.DRAPlugin"
_DRA_VERSION = "v1.DRAPlugin"
"""How the registration names the interface."""
_REGISTRATION_PACKAGE = "pluginregistration"
REGISTRATION_SERVICE = f"{_REGISTRATION_PACKAGE}.Registration"

DRA: Mapping[str, type[Message]] = build_messages(
    _DRA_PACKAGE,
    {
        "NodePrepareResourcesRequest": "1 claims repeated Claim",
        "NodePrepareResourcesResponse": "1 claims map string NodePrepareResourceResponse",
        "NodePrepareResourceResponse": """
            1 devices repeated Device
            2 error string""",
        # share_id is optional in the original: an empty one is not written, which says the same.
        "Device": """
            1 request_names repeated string
            2 pool_name string
            3 device_name string
            4 cdi_device_ids repeated string
            5 share_id string""",
        "NodeUnprepareResourcesRequest": "1 claims repeated Claim",
        "NodeUnprepareResourcesResponse": "1 claims map string NodeUnprepareResourceResponse",
        "NodeUnprepareResourceResponse": "1 error string",
        "Claim": """
            1 namespace string
            2 uid string
            3 name string""",
    },
)
"""Message class of the interface by name."""

REGISTRATION: Mapping[str, type[Message]] = build_messages(
    _REGISTRATION_PACKAGE,
    {
        "PluginInfo": """
            1 type string
            2 name string
            3 endpoint string
            4 supported_versions repeated string""",
        "RegistrationStatus": """
            1 plugin_registered bool
            2 error string""",
        "RegistrationStatusResponse": "",
        "InfoRequest": "",
    },
)
"""Message class of the registration by name."""
