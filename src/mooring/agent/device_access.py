"""What a running agent has to learn of devices: the kubelet's answers, and the ResourceSlices of drivers on this node.

It looks soon again where something is unknown, now and then everywhere. A thread of its own asks, so that a kubelet
that hangs holds up nothing; the reactor learns of news only. Opened with the extension device-alignment only: gRPC, and
a second watch, are a good part of the agent's memory. A driver without a slice of this node offers devices that belong
to no NUMA node.

Source: resource.k8s.io/v1 of v1.37, field selector spec.nodeName (pkg/apis/resource/v1/conversion.go).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Final

import msgspec

from mooring.agent.device_lookup import DeviceLookup, by_name
from mooring.agent.executor import WorkQueue
from mooring.agent.pods.cluster import AgentAccount, connector, own_accounts
from mooring.agent.reactor.create_container import nodes_of_claim
from mooring.agent.reactor.devices import follows_devices
from mooring.agent.reactor.hotplug import devices_learned, is_news_of_devices
from mooring.agent.state_holder import StateHolder
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine, PCIDevice
from mooring.engine.core.pod import DynamicDevice
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import LocationRules, dynamic_devices, located, pci_address_of
from mooring.inputs.decoding.fields import Report, ignore
from mooring.inputs.pods.claims import ResourceSlice, current_devices, slice_of
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import CACHED, Follower, OutageReport, mapping_of
from mooring.service.logs import Log

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
        self._pci, self._rules, self._report = pci, rules, report
        self._lock = Lock()
        self._slices: dict[str, ResourceSlice] = {}
        self._devices: Mapping[tuple[str, str], DynamicDevice] = {}
        self._drivers: frozenset[str] = frozenset()
        self._has_listed = False
        self._outage = OutageReport(
            report, _SUBJECT, f"slices of node {node} may be stale", f"slices of node {node} are current again"
        )
        self._follower = Follower(
            connect,
            SLICES,
            self,
            query={"fieldSelector": f"spec.nodeName={node}"},
            first=CACHED,
            answered=self._outage.answered,
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
        self._outage.failed(error, times)

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


SOON: Final = 1.0
"""Seconds until the next look while devices of a pod are not known; doubled by each look that brings no news."""
LOOKING: Final = 10.0
"""Seconds between two looks otherwise."""
TIMEOUT: Final = 5.0
"""Seconds for an answer, which nothing waits for."""


class DeviceAccess:
    """Open ways to learn of devices; it keeps the record of those of pods that are there."""

    def __init__(
        self,
        lookup: DeviceLookup,
        again: DeviceLookup,
        slices: SliceWatch | None,
        holder: StateHolder,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look for the first time after a while: Synchronize has asked already.

        Args:
            lookup: for the thread that answers the runtime.
            again: asks for the record; no other thread uses it.
            slices: of drivers; None without an API server.
            holder: has the state.
            log: of the agent.
            clock: seconds that only go forward.
        """
        self.lookup, self.slices = lookup, slices
        self._again, self._holder, self._clock = again, holder, clock
        self._worker = WorkQueue(lambda error: log.error("internal error", exc_info=error), 1)
        self._worker.start()
        self._looked = clock()
        self._pause = SOON
        self._unknown: Mapping[str, object] = {}

    def reconcile(self) -> bool:
        """Look when it is time to; waits for nothing. Return whether it was time."""
        state, now = self._holder.state, self._clock()
        if state.without_devices != self._unknown:
            self._unknown, self._pause = state.without_devices, SOON
        if now - self._looked < (min(self._pause, LOOKING) if self._unknown else LOOKING):
            return False
        if not follows_devices(state) or not self._worker.put(self.look):
            return False
        self._looked = now
        self._pause *= 2
        return True

    def look(self) -> None:
        """Ask what all pods hold, and take up what is new."""
        state = self._holder.state
        missing = {uid: one.missing for uid, one in state.without_devices.items()}
        found = self._again.of_all(state.kubelet.node.active, missing, TIMEOUT)
        if is_news_of_devices(self._holder.state, found):
            self._holder.apply(lambda now, observer: devices_learned(now, found, observer))

    def offered(self) -> dict[str, tuple[Device, ...]]:
        """Return the devices of the node as last told, by resource and by driver; from any thread."""
        slices = {} if self.slices is None else self.slices.offered()
        return {**slices, **self._again.plugins}

    def address(self, driver: str, device: str) -> str:
        """Return the PCI address of a driver's device; empty when none is known."""
        return "" if self.slices is None else self.slices.address(driver, device)

    def close(self, patience: float) -> None:
        """End what runs, and wait for it for some seconds."""
        self._worker.finish(patience)
        self._again.close()
        if self.slices is not None:
            self.slices.stop(patience)
        self.lookup.close()


def open_device_access(
    kubeconfig: str,
    node: str,
    machine: Machine,
    socket: Callable[[], str],
    report: Report,
    holder: StateHolder,
    log: Log,
) -> DeviceAccess:
    """Open what there is.

    Args:
        kubeconfig: of the API server; empty for none, so that devices of drivers are known by name only.
        node: name of the node.
        machine: whose PCI devices tell where others are.
        socket: returns the path of the kubelet's socket.
        report: receives what goes wrong on the way.
        holder: has the state.
        log: of the agent.

    Raises:
        InputError: the kubeconfig cannot be used.
    """

    def rules() -> LocationRules:
        return holder.state.kubelet.mooring.device_attributes

    def claimed(namespace: str, claim: str, device: str) -> tuple[int, ...] | None:
        return nodes_of_claim(holder.state, namespace, claim, device)

    slices = None
    if kubeconfig:
        connect = own_accounts(kubeconfig).get(AgentAccount.PODS) or connector(kubeconfig)
        slices = SliceWatch(connect, node, machine.pci, rules, report)
        slices.start()
    lookup, again = (
        DeviceLookup(socket, by_name if slices is None else slices.device, claimed=claimed) for _ in range(2)
    )
    return DeviceAccess(lookup, again, slices, holder, log)
