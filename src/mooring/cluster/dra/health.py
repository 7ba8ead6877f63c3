"""What the driver says of itself and of its devices: whether it is ready, metrics, and the devices' health.

Source for the messages of the devices' health: k8s.io/kubelet v0.37.1, pkg/apis/dra-health/v1 and v1alpha1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Condition
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from mooring.cluster.dra.devices import CPUGroup
from mooring.engine.core.bits import NO_CPUS, list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.extensions.owners import HeldClaim
from mooring.service.http import Page, ProgramMetrics
from mooring.service.messages import Int32, Int64, Repeated, TypedMessage, at

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
        for share in (share for claim in claims for share in claim.shares):
            held[share.device] = held.get(share.device, 0) | share.cpus
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
