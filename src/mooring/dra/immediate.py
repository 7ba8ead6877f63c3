"""Immediate allocation: claims that are allocated when they are made, on a node that they name.

The scheduler allocates a claim when a pod needs it. A claim with two annotations is allocated at once instead, by the
driver of the node that it names: its CPUs are taken by the engine first and the result is written into the claim then,
so that a claim that is allocated this way has its CPUs, whatever the scheduler does meanwhile. They are its own until
the claim is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.core.errors import InputError
from mooring.core.quantity import Quantity
from mooring.dra.devices import CAPACITY, Device
from mooring.dra.slices import Room

ALLOCATE: Final = "mooring/allocate"
NODE: Final = "mooring/node"
IMMEDIATE: Final = "immediate"


def is_asked_for(claim: Mapping[str, Any], node: str) -> bool:
    """Tell whether a claim is to be allocated immediately on this node."""
    metadata = claim["metadata"]
    annotations = metadata.get("annotations") or {}
    if annotations.get(ALLOCATE) != IMMEDIATE or annotations.get(NODE) != node:
        return False
    return not metadata.get("deletionTimestamp")


def is_allocated(claim: Mapping[str, Any]) -> bool:
    """Tell whether somebody has allocated the claim."""
    return bool((claim.get("status") or {}).get("allocation"))


def allocation_for(
    claim: Mapping[str, Any], driver: str, node: str, classes: Iterable[str], devices: Iterable[Device], room: Room
) -> dict[str, Any]:
    """Return an allocation of a claim on this node, as its status has it.

    Each request gets the group that has just enough left.

    Args:
        claim: without an allocation.
        driver: its name.
        node: its node.
        classes: device classes that are this driver's and want nothing else.
        devices: groups of the node.
        room: what they can give.

    Raises:
        InputError: the claim asks for what only the scheduler can judge, or there is no room.
    """
    source = f"claim {claim['metadata']['namespace']}/{claim['metadata']['name']}"
    wanted = claim["spec"].get("devices") or {}
    if wanted.get("constraints") or wanted.get("config"):
        raise InputError("has constraints or parameters, which immediate allocation does not know", source=source)
    known = frozenset(classes)
    left = {one.name: (one.cpus & room.claimable).bit_count() for one in devices}
    results = []
    for request in wanted.get("requests") or ():
        count = _count(request, known, source, room)
        device = min((name for name in left if left[name] >= count), key=lambda name: left[name], default="")
        if not device:
            raise InputError(f"no group of {node} has {count} CPUs left", source=source)
        left[device] -= count
        results.append(
            {
                "request": request["name"],
                "driver": driver,
                "pool": node,
                "device": device,
                "shareID": str(uuid.uuid4()),
                "consumedCapacity": {CAPACITY: str(count)},
            }
        )
    if not results:
        raise InputError("asks for nothing", source=source)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def _count(request: Mapping[str, Any], classes: frozenset[str], source: str, room: Room) -> int:
    exact = request.get("exactly")
    if exact is None or exact.get("deviceClassName") not in classes:
        raise InputError(f"request {request['name']} is for no class of this driver alone", source=source)
    if (
        exact.get("selectors")
        or exact.get("allocationMode", "ExactCount") != "ExactCount"
        or exact.get("count", 1) != 1
    ):
        problem = f"request {request['name']} has selectors or asks for several devices: leave it to the scheduler"
        raise InputError(problem, source=source)
    step = room.group_size if room.whole_cores else 1
    text = str(((exact.get("capacity") or {}).get("requests") or {}).get(CAPACITY, step))
    amount = Quantity.parse(text)
    if amount.milli <= 0:
        raise InputError(f"request {request['name']} asks for {text} CPUs", source=source)
    return -(-amount.milli // (1000 * step)) * step
