"""The sockets that the kubelet uses: registration, and the interface of a driver.

The kubelet finds the registration socket in its folder of plugins, asks there for the driver's name, and calls the
other one.

Source: kubelet v1.37.1, pkg/kubelet/cm/dra/plugin. Measured order of the calls: GetInfo, NotifyRegistrationStatus,
NodePrepareResources at a pod's start, NodeUnprepareResources after its end.

Metrics of the driver: claims that the kubelet had prepared and unprepared, and how long that took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from mooring.cluster.dra.driver import ClaimName, Driver
from mooring.engine.core.errors import MooringError
from mooring.service.grpc_server import serve_at_once
from mooring.service.grpc_socket import CallLimits, Method, Methods
from mooring.service.http import PROMETHEUS, Page
from mooring.service.logs import Log
from mooring.service.messages import (
    DRA_SERVICE,
    DRA_VERSION,
    REGISTRATION_SERVICE,
    InfoRequestMessage,
    NodePrepareResourcesRequestMessage,
    NodePrepareResourcesResponseMessage,
    NodeUnprepareResourcesRequestMessage,
    NodeUnprepareResourcesResponseMessage,
    PluginInfoMessage,
    RegistrationStatusMessage,
    RegistrationStatusResponseMessage,
)

STEPS: Final = ("prepare", "unprepare")
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; the kubelet waits for 45."""


class DriverMetrics:
    """Counters of one driver, and the page that shows them; usable from any thread."""

    def __init__(self, is_ready: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin at zero.

        Args:
            is_ready: whether the driver can do its work.
            clock: seconds that only go forward.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives this function no types
        self._registry, self._clock = CollectorRegistry(), clock
        self.claims = Counter(
            "mooring_dra_claims",
            "Claims that the kubelet had prepared or unprepared, by result.",
            ["step", "result"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "mooring_dra_claim_seconds",
            "Time for preparing or unpreparing one claim.",
            ["step"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        ready = Gauge("mooring_dra_ready", "1 when the driver is ready.", registry=self._registry)
        ready.set_function(lambda: float(is_ready()))
        for step in STEPS:
            for result in ("done", "failed"):
                self.claims.labels(step, result)

    @contextmanager
    def counted(self, step: str) -> Iterator[None]:
        """Count one of :data:`STEPS` for one claim, as failed if it raises."""
        began, result = self._clock(), "failed"
        try:
            yield
            result = "done"
        finally:
            self.claims.labels(step, result).inc()
            self.seconds.labels(step).observe(self._clock() - began)

    def page(self) -> Page:
        """Return the page ``/metrics``."""
        return Page(generate_latest(self._registry), PROMETHEUS)


_LIMITS: Final = CallLimits(threads=4, waiting=64, grace=2.0)
"""The kubelet repeats a call that is refused because too many are under way."""


class Plugin:
    """Serves both sockets until it is closed."""

    def __init__(self, driver: Driver, plugin_folder: Path, registry: Path, log: Log, metrics: DriverMetrics) -> None:
        """Begin to serve; the registration socket comes last, when everything behind it is there.

        Args:
            driver: answers.
            plugin_folder: of this driver's own socket.
            registry: the kubelet's folder of registration sockets.
            log: of the driver.
            metrics: count claims.

        Raises:
            InputError: there can be no such socket.
        """
        self._driver, self._log, self._metrics = driver, log, metrics
        self.registered = Event()
        """Set when the kubelet has taken the driver."""
        self._endpoint = str(plugin_folder / "dra.sock")
        with ExitStack() as opened:
            opened.callback(self._served(self._endpoint, DRA_SERVICE, self._dra()))
            place = str(registry / f"{driver.name}-reg.sock")
            opened.callback(self._served(place, REGISTRATION_SERVICE, self._registration()))
            self._closing = opened.pop_all()

    def is_registered(self) -> bool:
        """Tell whether the kubelet has taken the driver."""
        return self.registered.is_set()

    def close(self) -> None:
        """Stop serving and remove the sockets' names."""
        self._closing.close()

    def _served(self, path: str, service: str, methods: Methods) -> Callable[[], object]:
        return serve_at_once(path, service, methods, self._log, _LIMITS, "check --kubelet-root")

    def _dra(self) -> Methods:
        return {
            "NodePrepareResources": Method(NodePrepareResourcesRequestMessage, self._prepare),
            "NodeUnprepareResources": Method(NodeUnprepareResourcesRequestMessage, self._unprepare),
        }

    def _registration(self) -> Methods:
        return {
            "GetInfo": Method(InfoRequestMessage, self._info),
            "NotifyRegistrationStatus": Method(RegistrationStatusMessage, self._notified),
        }

    def _info(self, _request: InfoRequestMessage) -> PluginInfoMessage:
        return PluginInfoMessage(
            type="DRAPlugin", name=self._driver.name, endpoint=self._endpoint, supported_versions=[DRA_VERSION]
        )

    def _notified(self, status: RegistrationStatusMessage) -> RegistrationStatusResponseMessage:
        if status.plugin_registered:
            self.registered.set()
            self._log.info("driver registered by the kubelet")
        else:
            self.registered.clear()
            self._log.error("driver rejected by the kubelet", problem=status.error)
        return RegistrationStatusResponseMessage()

    def _prepare(self, request: NodePrepareResourcesRequestMessage) -> NodePrepareResourcesResponseMessage:
        response = NodePrepareResourcesResponseMessage()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            try:
                with self._metrics.counted("prepare"):
                    devices = self._driver.prepare(ClaimName(claim.namespace, claim.uid, claim.name))
                for one in devices:
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
        return response

    def _unprepare(self, request: NodeUnprepareResourcesRequestMessage) -> NodeUnprepareResourcesResponseMessage:
        response = NodeUnprepareResourcesResponseMessage()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            try:
                with self._metrics.counted("unprepare"):
                    self._driver.unprepare(ClaimName(claim.namespace, claim.uid, claim.name))
            except MooringError as error:
                answer.error = str(error)
                self._log.warning("claim not unprepared", claim=f"{claim.namespace}/{claim.name}", why=str(error))
        return response
