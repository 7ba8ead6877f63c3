"""Keeping a node's ResourceSlices what its ledger can give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.core.hardware import Hardware
from mooring.core.topology import discover_topology
from mooring.dra.devices import Device, Grouping, devices_of
from mooring.dra.ledger import NodeNow
from mooring.dra.objects import Objects
from mooring.dra.slices import is_same, newest_generation, offered, slices

PAUSE: Final = 2.0
"""Seconds between two writes: a burst of pods is one change."""
LOOK: Final = 30.0
"""Seconds after which the cluster's slices are looked at although nothing has changed here.

The kubelet deletes those of a driver that was away.
"""


@dataclass(frozen=True, slots=True)
class Offer:
    """How a node's CPUs are published."""

    driver: str
    node: str
    grouping: Grouping
    hardware: Hardware | None = None
    pcie_roots: Mapping[str, int] | None = None


class Publisher:
    """Writes slices when they have changed, and not too often; called from one thread."""

    def __init__(self, offer: Offer, objects: Objects, log: Any) -> None:
        """Publish nothing yet.

        Args:
            offer: what is published how.
            objects: at the API server.
            log: of the driver.
        """
        self._offer, self._objects, self._log = offer, objects, log
        self._published: list[dict[str, Any]] | None = None
        self._wrote = self._looked = float("-inf")
        self.writes = 0
        """How often slices were written."""

    def publish(self, node: NodeNow, now: float) -> None:
        """Bring the slices up to date, if it is time.

        Args:
            node: as its agent says.
            now: seconds that only go forward.

        Raises:
            ClusterError: it is not done; the next call tries again.
        """
        devices = self.devices(node)
        wanted = offered(devices, self._offer.grouping, node.room)
        is_due = wanted != self._published or now - self._looked >= LOOK
        if not is_due or now - self._wrote < PAUSE:
            return
        offer = self._offer
        found = self._objects.slices(offer.driver, offer.node)
        generation = newest_generation(found)
        owner = self._objects.node_uid(offer.node)
        made = slices(offer.driver, offer.node, wanted, generation, owner)
        if not is_same(found, made):
            made = slices(offer.driver, offer.node, wanted, generation + 1, owner)
            for one in made:
                self._objects.apply_slice(one)
            names = {one["metadata"]["name"] for one in made}
            for name in {one["metadata"]["name"] for one in found} - names:
                self._objects.delete_slice(name)
            self.writes += 1
            self._wrote = now
            self._log.info("slices written", generation=generation + 1, devices=len(wanted))
        self._published, self._looked = wanted, now

    def devices(self, node: NodeNow) -> tuple[Device, ...]:
        """Return the devices of the node, without those that are all reserved."""
        offer = self._offer
        made = devices_of(discover_topology(node.info), offer.grouping, offer.hardware, offer.pcie_roots)
        return tuple(one for one in made if one.cpus & ~node.reserved)
