"""Looking again at what pods hold: soon where something is unknown, now and then everywhere.

A thread of its own asks, so that a kubelet that hangs holds up nothing; the reactor learns of news only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from mooring.agent.devices.lookup import DeviceLookup
from mooring.agent.executor import WorkQueue
from mooring.agent.reactor.devices import follows_devices
from mooring.agent.reactor.devices_learned import devices_learned, is_news_of_devices
from mooring.agent.state_holder import StateHolder
from mooring.engine.devicemanager.state import Device
from mooring.service.logs import Log

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
            self._holder.apply(lambda now, hear: devices_learned(now, found, hear))

    @property
    def plugins(self) -> dict[str, tuple[Device, ...]]:
        """The healthy devices of plugins, by resource, as last told."""
        return self._lookup.plugins

    def close(self, patience: float) -> None:
        """End the thread, and wait for it for some seconds."""
        self._worker.finish(patience)
        self._lookup.close()
