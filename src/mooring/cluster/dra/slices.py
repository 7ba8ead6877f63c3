"""ResourceSlices: what the scheduler sees of a node's CPUs, and how they are kept up to date.

A group's capacity is what claims have of it and what they could still get: CPUs that pods hold for themselves are not
in it. Every capacity has a default request, because one without is consumed whole by a claim that does not name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.cluster.dra.devices import CAPACITY, Attribute, CPUGroup, Grouping, devices_of, near_nodes
from mooring.cluster.dra.objects import AgentNode, ClaimableCPUs, ClaimObjects
from mooring.engine.core.hardware import Hardware
from mooring.engine.core.topology import discover_topology
from mooring.service.logs import Log

API_VERSION: Final = "resource.k8s.io/v1"
_MOST_DEVICES: Final = 128
"""Devices of one slice; the API server refuses more."""


def offered(devices: Iterable[CPUGroup], grouping: Grouping, room: ClaimableCPUs) -> list[dict[str, Any]]:
    """Return the devices that can be allocated, as a slice lists them.

    A group that has nothing to give, and gave nothing, is left out: a capacity below the smallest request is refused by
    the API server.
    """
    step = room.group_size if room.whole_cores else 1
    amounts = {one.name: _capacity(one, grouping, room) for one in devices}
    if room.last and grouping is not Grouping.CPU:
        _withhold(devices, amounts, room)
    rows = []
    for device in devices:
        amount = amounts[device.name] // step * step
        if amount < step:
            continue
        row: dict[str, Any] = {"name": device.name, "attributes": _attributes(device.attributes)}
        if grouping is not Grouping.CPU:
            row["allowMultipleAllocations"] = True
            policy = {"default": str(step), "validRange": {"min": str(step), "step": str(step)}}
            row["capacity"] = {CAPACITY: {"value": str(amount), "requestPolicy": policy}}
        rows.append(row)
    return rows


def slices(
    driver: str, node: str, devices: list[dict[str, Any]], generation: int, owner: str = ""
) -> list[dict[str, Any]]:
    """Return the slices of a node's pool; there is always one, if only to say that there is nothing.

    Args:
        driver: its name.
        node: name of the node, and of the pool.
        devices: from :func:`offered`.
        generation: of the pool.
        owner: uid of the Node object, with which the slices go.
    """
    parts = [devices[first : first + _MOST_DEVICES] for first in range(0, len(devices), _MOST_DEVICES)] or [[]]
    references = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": True}] if owner else []
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{driver}-{number}", "ownerReferences": references},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def is_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Tell whether the cluster has these slices, whatever their generation, and one generation for all."""
    have = {one["metadata"]["name"]: one["spec"] for one in found}
    want = {one["metadata"]["name"]: one["spec"] for one in wanted}
    generations = {one["pool"]["generation"] for one in have.values()}
    return (
        have.keys() == want.keys()
        and len(generations) == 1
        and all(_content(have[name]) == _content(want[name]) for name in want)
    )


def newest_generation(found: Iterable[Mapping[str, Any]]) -> int:
    """Return the highest generation of slices; 0 without any."""
    return max((int(one["spec"]["pool"]["generation"]) for one in found), default=0)


def _content(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    return spec["driver"], spec.get("nodeName"), spec["pool"]["resourceSliceCount"], spec.get("devices") or []


def _capacity(device: CPUGroup, grouping: Grouping, room: ClaimableCPUs) -> int:
    given = sum(
        share.cpus.bit_count() for claim in room.claims for share in claim.shares if share.device == device.name
    )
    if grouping is Grouping.CPU:
        return 1 if given or device.cpus & room.claimable else 0
    return given + (device.cpus & room.claimable).bit_count()


def _withhold(devices: Iterable[CPUGroup], amounts: dict[str, int], room: ClaimableCPUs) -> None:
    """Keep one CPU back, where most are free: the last one of the shared pool is never given."""
    free = {one.name: (one.cpus & room.claimable).bit_count() for one in devices}
    most = max(free, key=lambda name: free[name], default="")
    if most and free[most]:
        amounts[most] -= 1


def _attributes(attributes: Mapping[str, Attribute]) -> dict[str, dict[str, Any]]:
    return {name: _value(value) for name, value in attributes.items()}


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, str):
        return {"string": value}
    return {"ints" if all(isinstance(one, int) for one in value) else "strings": list(value)}


PAUSE: Final = 2.0
"""Seconds between two writes: a burst of pods is one change."""
_LOOK: Final = 30.0
"""Seconds after which the cluster's slices are checked although nothing has changed here.

The kubelet deletes those of a driver that was away.
"""


@dataclass(frozen=True, slots=True)
class SliceOffer:
    """How a node's CPUs are published."""

    driver: str
    node: str
    grouping: Grouping
    hardware: Hardware | None = None
    pcie_roots: Mapping[str, int] | None = None
    numa_node_list: bool = False


class SlicePublisher:
    """Writes slices when they have changed, and not too often; called from one thread."""

    def __init__(self, offer: SliceOffer, objects: ClaimObjects, log: Log) -> None:
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

    def publish(self, node: AgentNode, now: float) -> None:
        """Update the slices when they changed or a check is due.

        Args:
            node: as its agent says.
            now: seconds that only go forward.

        Raises:
            ClusterError: it is not done; the next call tries again.
        """
        devices = self.devices(node)
        wanted = offered(devices, self._offer.grouping, node.room)
        is_due = wanted != self._published or now - self._looked >= _LOOK
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

    def devices(self, node: AgentNode) -> tuple[CPUGroup, ...]:
        """Return the devices of the node, without those that are all reserved."""
        offer = self._offer
        near = near_nodes(node.info) if offer.numa_node_list else None
        made = devices_of(discover_topology(node.info), offer.grouping, offer.hardware, offer.pcie_roots, near)
        return tuple(one for one in made if one.cpus & ~node.reserved)
