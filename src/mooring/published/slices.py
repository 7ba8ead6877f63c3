"""The devices of a node's ResourceSlices, listed now and then: drivers change them when devices come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import LocationRules, dynamic_devices
from mooring.inputs.pods.dynamic.slices import current_devices, slice_of
from mooring.published.kubelet_source import Lister
from mooring.service.cluster.apiserver import Cluster, ClusterError
from mooring.service.cluster.watching import CACHED, Pages, mapping_of

SLICES: Final = "apis/resource.k8s.io/v1/resourceslices"
LISTING: Final = 30.0
"""Seconds between two lists."""


class ListedSlices:
    """Lists the slices of one node; used by one thread."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        pci: tuple[PCIDevice, ...] = (),
        rules: LocationRules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Do not connect yet.

        Args:
            connect: opens the way to the API server.
            node: name of the node.
            pci: the machine's PCI devices.
            rules: attributes of older drivers.
            clock: seconds that only go forward.
        """
        self._connect, self._node, self._pci, self._rules, self._clock = connect, node, pci, rules, clock
        self._cluster: Cluster | None = None
        self._known: Mapping[str, tuple[Device, ...]] = {}
        self._listed = float("-inf")

    def __call__(self) -> Mapping[str, tuple[Device, ...]]:
        """Return the devices by driver; the last ones when the API server does not answer, or may not."""
        now = self._clock()
        if now - self._listed >= LISTING:
            self._listed = now
            try:
                self._known = self._devices()
            except (ClusterError, InputError):
                # Without this right nothing else suffers: the kubelet tells what containers hold.
                self.close()
        return self._known

    def close(self) -> None:
        """Close the way to the API server; the next list opens it again, with renewed credentials."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _devices(self) -> Mapping[str, tuple[Device, ...]]:
        if self._cluster is None:
            self._cluster = self._connect()
        pages = Pages(self._cluster.http, SLICES, {"fieldSelector": f"spec.nodeName={self._node}", **CACHED})
        slices = [slice_of(mapping_of(item), source="ResourceSlices") for page in pages for item in page]
        return dynamic_devices(current_devices(slices), self._pci, self._rules)


class KubeletAndSlices:
    """A kubelet's API whose devices are also those of the node's slices; used by one thread."""

    def __init__(self, kubelet: Lister, slices: Callable[[], Mapping[str, tuple[Device, ...]]]) -> None:
        """Ask nothing yet.

        Args:
            kubelet: its API.
            slices: returns the devices of slices, by driver.
        """
        self._kubelet, self._slices = kubelet, slices

    def listed(self) -> bytes:
        """Return the kubelet's answer to List."""
        return self._kubelet.listed()

    def devices(self) -> dict[str, tuple[Device, ...]]:
        """Return the healthy devices of plugins, and those of slices."""
        return {**self._slices(), **self._kubelet.devices()}
