"""The driver as the kubelet sees it: the sockets that it uses, and what the driver says of itself and of its devices.

The kubelet finds the registration socket in its folder of plugins, asks there for the driver's name, and calls the
other one.

Source: kubelet v1.37.1, pkg/kubelet/cm/dra/plugin. Measured order of the calls: GetInfo, NotifyRegistrationStatus,
NodePrepareResources at a pod's start, NodeUnprepareResources after its end. Source for the messages of the devices'
health: k8s.io/kubelet v0.37.1, pkg/apis/dra-health/v1 and v1alpha1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Condition, Event
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from mooring.cluster.dra.devices import CPUGroup
from mooring.engine.core.bits import NO_CPUS, list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import MooringError
from mooring.engine.extensions.owners import HeldClaim
from mooring.service import messages
from mooring.service.grpc_socket import Method, Methods, serve_at_once
from mooring.service.http import Page, ProgramMetrics
from mooring.service.messages import Int32, Int64, Repeated, TypedMessage, at

if TYPE_CHECKING:
    from mooring.cluster.dra.driver import Driver

HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Their messages are the same."""
_HEALTH_PACKAGE: Final = "v1"
_UNKNOWN: Final = (0, "the list of online CPUs cannot be read")
_HEALTHY: Final = (1, "")
_UNHEALTHY: Final = 2
_REPEAT: Final = 10.0
"""Seconds between two reports of the same; after 30 the kubelet forgets one."""


class NodeWatchResourcesRequestMessage(TypedMessage, package=_HEALTH_PACKAGE):
    """Has no field."""


class DeviceIdentifierMessage(TypedMessage, package=_HEALTH_PACKAGE):
    """Names a device."""

    pool_name: str = at(1)
    device_name: str = at(2)


class DeviceHealthMessage(TypedMessage, package=_HEALTH_PACKAGE):
    """The health of one device."""

    device: DeviceIdentifierMessage = at(1)
    health: Int32 = at(2)
    last_updated_time: Int64 = at(3)
    message: str = at(5)


class NodeWatchResourcesResponseMessage(TypedMessage, package=_HEALTH_PACKAGE):
    """The health of all devices."""

    devices: Repeated[DeviceHealthMessage] = at(1)


class DeviceHealth:
    """Reports the health of the devices; usable from any thread."""

    def __init__(self, pool: str, sysfs: Path) -> None:
        """Know of no device yet.

        Args:
            pool: name of the node.
            sysfs: has the list of the CPUs that are online.
        """
        self._pool, self._online = pool, sysfs / "devices/system/cpu/online"
        self._found: dict[str, tuple[int, str]] = {}
        self._updated = float("-inf")
        self._closed = False
        self._changed = Condition()

    def update(self, devices: Iterable[CPUGroup], claims: Iterable[HeldClaim], now: float) -> None:
        """Look which CPUs of devices are offline: of those that claims have, or else of all.

        Args:
            devices: of the node.
            claims: that have CPUs.
            now: seconds that only go forward.
        """
        held: dict[str, int] = {}
        for claim in claims:
            for (device, _), mask in claim.shares.items():
                held[device] = held.get(device, 0) | mask
        try:
            online = CPUSet.parse(self._online.read_text(encoding="ascii").strip()).mask
        except (OSError, CPUSetSyntaxError, UnicodeDecodeError):
            online = NO_CPUS
        cpus = {one.name: one.cpus for one in devices} | held
        found = dict.fromkeys(cpus, _HEALTHY if online else _UNKNOWN)
        if online:
            lost = {name: mask & ~online for name, mask in cpus.items() if mask & ~online}
            found |= {name: (_UNHEALTHY, f"offline CPUs: {list_text(mask)}") for name, mask in lost.items()}
        with self._changed:
            if found != self._found or now - self._updated >= _REPEAT:
                self._found, self._updated = found, now
                self._changed.notify_all()

    def watch(self, _request: NodeWatchResourcesRequestMessage) -> Iterator[NodeWatchResourcesResponseMessage]:
        """Yield the health of all devices after each update that counts."""
        sent: dict[str, tuple[int, str]] | None = None
        while True:
            with self._changed:
                while self._found is sent and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                sent = self._found
            report = NodeWatchResourcesResponseMessage()
            for name, (health, message) in sent.items():
                device = DeviceIdentifierMessage(pool_name=self._pool, device_name=name)
                report.devices.add(device=device, health=health, last_updated_time=int(time.time()), message=message)
            yield report

    def close(self) -> None:
        """End all reports."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Health:
    """Whether the driver can do its work, and what keeps it from that."""

    def __init__(self) -> None:
        self.problem = "the agent was not asked yet"
        self.is_registered: Callable[[], bool] = bool
        """Tells whether the kubelet has taken the driver; not so at first."""

    def is_ready(self) -> bool:
        """Tell whether the driver can do its work."""
        return not self.problem and self.is_registered()

    def page(self) -> Page:
        """Return the answer to a probe."""
        if self.is_ready():
            return Page(b"ok\n")
        problem = self.problem or "the kubelet has not registered the driver"
        return Page(f"{problem}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


STEPS: Final = ("prepare", "unprepare")
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; the kubelet waits for 45."""


class DriverMetrics(ProgramMetrics):
    """Counters of one driver, and the page that shows them; usable from any thread."""

    def __init__(self, is_ready: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin at zero.

        Args:
            is_ready: whether the driver can do its work.
            clock: seconds that only go forward.
        """
        super().__init__("mooring_dra")
        self._is_ready, self._clock = is_ready, clock
        says = "Claims that the kubelet had prepared or unprepared, by result."
        self.claims = self.counter("claims", says, "step", "result")
        says = "Time for preparing or unpreparing one claim."
        self.seconds = self.seconds_of("claim_seconds", says, "step", _BUCKETS)
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

    def seen(self) -> Iterator[Metric]:
        """Yield whether the driver is ready."""
        yield GaugeMetricFamily("mooring_dra_ready", "1 when the driver is ready.", value=float(self._is_ready()))


class Plugin:
    """Serves both sockets until it is closed."""

    def __init__(
        self, driver: Driver, plugin_folder: Path, registry: Path, metrics: DriverMetrics, devices: DeviceHealth
    ) -> None:
        """Begin to serve; the registration socket comes last, when everything behind it is there.

        Args:
            driver: answers.
            plugin_folder: of this driver's own socket.
            registry: the kubelet's folder of registration sockets.
            metrics: count claims.
            devices: reports their health.

        Raises:
            InputError: there can be no such socket.
        """
        self._driver, self._log, self._metrics = driver, driver.log, metrics
        self.registered = Event()
        """Set when the kubelet has taken the driver."""
        self._endpoint = str(plugin_folder / "dra.sock")
        with ExitStack() as opened:
            watch = Method(NodeWatchResourcesRequestMessage, devices.watch, is_stream=True)
            methods: Methods = {
                "NodePrepareResources": Method(messages.NodePrepareResourcesRequestMessage, self._prepare),
                "NodeUnprepareResources": Method(messages.NodeUnprepareResourcesRequestMessage, self._unprepare),
                **{f"{service}/NodeWatchResources": watch for service in HEALTH_SERVICES},
            }
            opened.callback(self._served(self._endpoint, messages.DRA_SERVICE, methods))
            opened.callback(devices.close)
            place = str(registry / f"{driver.name}-reg.sock")
            versions = [messages.DRA_VERSION, *HEALTH_SERVICES]
            info = messages.PluginInfoMessage(
                type="DRAPlugin", name=driver.name, endpoint=self._endpoint, supported_versions=versions
            )
            methods = {
                "GetInfo": Method(messages.InfoRequestMessage, lambda _: info),
                "NotifyRegistrationStatus": Method(messages.RegistrationStatusMessage, self._notified),
            }
            opened.callback(self._served(place, messages.REGISTRATION_SERVICE, methods))
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Stop serving and remove the sockets' names."""
        self._closing.close()

    def _served(self, path: str, service: str, methods: Methods) -> Callable[[], object]:
        # The kubelet repeats a call that is refused because too many are under way. Each report of health takes a
        # thread.
        return serve_at_once(
            path, service, methods, self._log, "check --kubelet-root", threads=8, waiting=64, grace=2.0
        )

    def _notified(self, status: messages.RegistrationStatusMessage) -> messages.RegistrationStatusResponseMessage:
        if status.plugin_registered:
            self.registered.set()
            self._log.info("driver registered by the kubelet")
        else:
            self.registered.clear()
            self._log.error("driver rejected by the kubelet", problem=status.error)
        return messages.RegistrationStatusResponseMessage()

    def _prepare(
        self, request: messages.NodePrepareResourcesRequestMessage
    ) -> messages.NodePrepareResourcesResponseMessage:
        response = messages.NodePrepareResourcesResponseMessage()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            with self._step("prepare", claim, answer):
                answer.devices.extend(self._driver.prepare(claim))
        return response

    def _unprepare(
        self, request: messages.NodeUnprepareResourcesRequestMessage
    ) -> messages.NodeUnprepareResourcesResponseMessage:
        response = messages.NodeUnprepareResourcesResponseMessage()
        for claim in request.claims:
            with self._step("unprepare", claim, response.claims[claim.uid]):
                self._driver.unprepare(claim)
        return response

    @contextmanager
    def _step(self, step: str, claim: messages.ClaimMessage, answer: Any) -> Iterator[None]:
        """Count one of :data:`STEPS`; what it raises is the claim's error in the answer."""
        try:
            with self._metrics.counted(step):
                yield
        except MooringError as error:
            answer.error = str(error)
            self._log.warning(f"claim not {step}d", claim=f"{claim.namespace}/{claim.name}", why=str(error))
