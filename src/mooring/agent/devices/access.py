"""What a running agent has to learn of devices: the kubelet's answers, and the slices of drivers where there is an API.

It looks soon again where something is unknown, now and then everywhere. A thread of its own asks, so that a kubelet
that hangs holds up nothing; the reactor learns of news only. Opened with the extension device-alignment only: gRPC, and
a second watch, are a good part of the agent's memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mooring.agent.devices.lookup import ClaimedNodes, DeviceLookup, NoSlices
from mooring.agent.executor import WorkQueue
from mooring.agent.reactor.devices import follows_devices
from mooring.agent.reactor.hotplug import devices_learned, is_news_of_devices
from mooring.agent.state_holder import StateHolder
from mooring.engine.core.machine import Machine
from mooring.engine.devicemanager.state import Device
from mooring.inputs.decoding.fields import Report
from mooring.service.logs import Log

if TYPE_CHECKING:
    from mooring.agent.devices.slices import SliceWatch
    from mooring.engine.extensions.device_alignment import LocationRules


@dataclass(slots=True)
class DeviceAccess:
    """Open ways to learn of devices."""

    lookup: DeviceLookup
    """For the thread that answers the runtime."""
    slices: SliceWatch | None
    _socket: Callable[[], str]
    _claimed: ClaimedNodes
    reconciler: DeviceReconciler | None = None

    def begin(self, holder: StateHolder, log: Log) -> None:
        """Begin to look at the devices of pods that are there."""
        again = DeviceLookup(self._socket, self.slices or NoSlices(), claimed=self._claimed)
        self.reconciler = DeviceReconciler(again, holder, log)

    def reconcile(self) -> None:
        """Look again when it is time to; waits for nothing."""
        if self.reconciler is not None:
            self.reconciler.reconcile()

    def offered(self) -> dict[str, tuple[Device, ...]]:
        """Return the devices of the node as last told, by resource and by driver; from any thread."""
        slices = {} if self.slices is None else self.slices.offered()
        return {**slices, **({} if self.reconciler is None else self.reconciler.plugins)}

    def close(self, patience: float) -> None:
        """End what runs, and wait for it for some seconds."""
        if self.reconciler is not None:
            self.reconciler.close(patience)
        if self.slices is not None:
            self.slices.stop(patience)
        self.lookup.close()


def open_device_access(
    kubeconfig: str,
    node: str,
    machine: Machine,
    socket: Callable[[], str],
    rules: Callable[[], LocationRules],
    claimed: ClaimedNodes,
    report: Report,
) -> DeviceAccess:
    """Open what there is.

    Args:
        kubeconfig: of the API server; empty for none, so that devices of drivers are known by name only.
        node: name of the node.
        machine: whose PCI devices tell where others are.
        socket: returns the path of the kubelet's socket.
        rules: returns the configured attributes of drivers.
        claimed: returns the NUMA nodes of CPUs that a claim has.
        report: receives what goes wrong on the way.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    slices = _slices(kubeconfig, node, machine, rules, report) if kubeconfig else None
    return DeviceAccess(DeviceLookup(socket, slices or NoSlices(), claimed=claimed), slices, socket, claimed)


def _slices(
    kubeconfig: str, node: str, machine: Machine, rules: Callable[[], LocationRules], report: Report
) -> SliceWatch:
    # Needs the client of the API server, which a node without one does not load.
    from mooring.agent.devices.slices import SliceWatch  # noqa: PLC0415 - as said above
    from mooring.agent.pods.cluster import AgentAccount, connector, own_accounts  # noqa: PLC0415 - as above

    connect = own_accounts(kubeconfig).get(AgentAccount.PODS) or connector(kubeconfig)
    watch = SliceWatch(connect, node, machine.pci, rules, report)
    watch.start()
    return watch


SOON: Final = 1.0
"""Seconds until the next look while devices of a pod are not known; doubled by each look that brings no news."""
LOOKING: Final = 10.0
"""Seconds between two looks otherwise."""
TIMEOUT: Final = 5.0
"""Seconds for an answer, which nothing waits for."""


class DeviceReconciler:
    """Keeps the record of devices as the kubelet tells it."""

    def __init__(
        self, lookup: DeviceLookup, holder: StateHolder, log: Log, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Look for the first time after a while: Synchronize has asked already.

        Args:
            lookup: asks; no other thread uses it.
            holder: has the state.
            log: of the agent.
            clock: seconds that only go forward.
        """
        self._lookup, self._holder, self._clock = lookup, holder, clock
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
        found = self._lookup.of_all(state.kubelet.node.active, missing, TIMEOUT)
        if is_news_of_devices(self._holder.state, found):
            self._holder.apply(lambda now, observer: devices_learned(now, found, observer))

    @property
    def plugins(self) -> dict[str, tuple[Device, ...]]:
        """The healthy devices of plugins, by resource, as last told."""
        return self._lookup.plugins

    def close(self, patience: float) -> None:
        """End the thread, and wait for it for some seconds."""
        self._worker.finish(patience)
        self._lookup.close()
