"""The ResourceSlices of this node, followed at the API server: where the devices of drivers are.

The agent asks for slices of its own node only. A driver without any offers devices that belong to no node.

Source: resource.k8s.io/v1 of v1.37, field selector spec.nodeName (pkg/apis/resource/v1/conversion.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Final

import msgspec

from mooring.engine.core.dynamic import DynamicDevice
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import LocationRules, dynamic_devices, located, pci_address_of
from mooring.inputs.decoding.fields import Report, ignore
from mooring.inputs.pods.claims import ResourceSlice, current_devices, slice_of
from mooring.service.cluster.apiserver import Cluster, ClusterError
from mooring.service.cluster.following import CACHED, Follower, mapping_of

SLICES: Final = "apis/resource.k8s.io/v1/resourceslices"
_SUBJECT: Final = "ResourceSlices"


class SliceWatch:
    """Follows the slices of one node; read from any thread."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        pci: tuple[PCIDevice, ...],
        rules: Callable[[], LocationRules],
        report: Report = ignore,
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            connect: opens the way to the API server, again after every failure.
            node: name of the node.
            pci: the machine's PCI devices.
            rules: returns the configured attributes of drivers.
            report: receives outages, recoveries and slices that cannot be read; called by the thread.
        """
        self._node, self._pci, self._rules, self._report = node, pci, rules, report
        self._lock = Lock()
        self._slices: dict[str, ResourceSlice] = {}
        self._devices: Mapping[tuple[str, str], DynamicDevice] = {}
        self._drivers: frozenset[str] = frozenset()
        self._has_listed = self._is_out = False
        self._follower = Follower(
            connect,
            SLICES,
            self,
            query={"fieldSelector": f"spec.nodeName={node}"},
            first=CACHED,
            answered=self._answered,
            name=node,
        )

    def start(self) -> None:
        """Begin to list and watch."""
        self._follower.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, and wait for it for a while."""
        self._follower.stop(patience)

    def device(self, driver: str, name: str) -> Device | None:
        """Return a device, named ``POOL/DEVICE``; None while slices are not known, or its driver's lack it."""
        with self._lock:
            found, is_known = self._devices.get((driver, name)), self._has_listed and driver not in self._drivers
        if found is None:
            return Device(name) if is_known else None
        return Device(name, located(driver, found.attributes, self._pci, self._rules()))

    def offered(self) -> dict[str, tuple[Device, ...]]:
        """Return all devices of the node's slices, by driver."""
        with self._lock:
            devices = tuple(self._devices.values())
        return dynamic_devices(devices, self._pci, self._rules())

    def address(self, driver: str, name: str) -> str:
        """Return the PCI address of a device, named ``POOL/DEVICE``; empty when none is known."""
        with self._lock:
            found = self._devices.get((driver, name))
        return "" if found is None else pci_address_of(driver, found.attributes, self._rules())

    # What the follower's thread tells.

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all slices that there are."""
        found = [self._slice(item) for page in pages for item in page]
        self._slices = {one.name: one for one in found if one is not None}
        self._take(has_listed=True)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a slice that is new or changed."""
        found = self._slice(item)
        if found is not None:
            self._slices[found.name] = found
            self._take()

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget a slice."""
        found = self._slice(item)
        if found is not None:
            self._slices.pop(found.name, None)
            self._take()

    def failed(self, error: ClusterError, times: int) -> None:
        """Hear of an outage; it is reported at its beginning, and now and then. What is known stays."""
        if times <= 2 or times % 20 == 0:
            self._is_out = True
            message = f"slices of node {self._node} may be stale (attempt {times}): {error}"
            self._report(Finding("warning", _SUBJECT, message))

    def _answered(self) -> None:
        if self._is_out:
            self._is_out = False
            self._report(Finding("info", _SUBJECT, f"slices of node {self._node} are current again"))

    def _slice(self, item: msgspec.Raw) -> ResourceSlice | None:
        try:
            return slice_of(mapping_of(item), source=_SUBJECT)
        except InputError as error:
            self._report(Finding("warning", _SUBJECT, f"a slice cannot be read: {error}"))
            return None

    def _take(self, *, has_listed: bool = False) -> None:
        devices = {(one.driver, one.id): one for one in current_devices(self._slices.values())}
        drivers = frozenset(one.driver for one in self._slices.values())
        with self._lock:
            self._devices, self._drivers = devices, drivers
            self._has_listed = self._has_listed or has_listed
