"""What is allocated to a claim on this node, read off the ResourceClaim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.core.errors import InputError
from mooring.core.quantity import Quantity
from mooring.dra.devices import CAPACITY


@dataclass(frozen=True, slots=True)
class Result:
    """One device that a request of a claim got."""

    request: str
    device: str
    count: int
    """CPUs."""
    share: str = ""
    """Id of the share, of a device that others share."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a claim has of this driver on this node."""

    uid: str
    namespace: str
    name: str
    results: tuple[Result, ...]
    pods: frozenset[str]
    """Uids of the pods for which the claim is reserved."""


def allocation_of(claim: Mapping[str, Any], driver: str, pool: str, device_cpus: Callable[[str], int]) -> Allocation:
    """Return the allocation of a ResourceClaim.

    Args:
        claim: the object.
        driver: whose results count.
        pool: name of the node.
        device_cpus: mask of a device's CPUs; 0 for one that is none.

    Raises:
        InputError: nothing is allocated, or what is allocated cannot be understood; the text is for the pod's event.
    """
    metadata, status = claim["metadata"], claim.get("status") or {}
    source = f"claim {metadata['namespace']}/{metadata['name']}"
    allocation = (status.get("allocation") or {}).get("devices") or {}
    results = [_result(one, device_cpus, source) for one in allocation.get("results") or () if one["driver"] == driver]
    if not results:
        raise InputError(f"nothing of {driver} is allocated", source=source)
    for one in allocation["results"]:
        if one["driver"] == driver and one["pool"] != pool:
            raise InputError(f"is allocated on {one['pool']} and not on {pool}", source=source)
    for one in allocation.get("config") or ():
        if (one.get("opaque") or {}).get("driver") == driver:
            raise InputError("has parameters, and this driver knows none", source=source)
    pods = frozenset(one["uid"] for one in status.get("reservedFor") or () if one.get("resource") == "pods")
    return Allocation(metadata["uid"], metadata["namespace"], metadata["name"], tuple(results), pods)


def _result(one: Mapping[str, Any], device_cpus: Callable[[str], int], source: str) -> Result:
    device = one["device"]
    cpus = device_cpus(device)
    if not cpus:
        raise InputError(f"device {device} is none of this node", source=source)
    consumed = (one.get("consumedCapacity") or {}).get(CAPACITY)
    count = cpus.bit_count() if consumed is None else _whole(str(consumed), source)
    return Result(one["request"], device, count, one.get("shareID") or "")


def _whole(text: str, source: str) -> int:
    amount = Quantity.parse(text)
    if amount.milli % 1000 or amount.milli <= 0:
        raise InputError(f"consumes {text} of {CAPACITY}, which is no number of CPUs", source=source)
    return amount.milli // 1000
