"""What is allocated to a claim on this node.

The scheduler allocates a claim when a pod needs it. A claim with two annotations is allocated at once instead, by the
driver of the node that it names: the engine takes its CPUs first, then the driver writes the result into the claim.
The CPUs stay the claim's until it is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from mooring.cluster.dra.cdi import AllocationResult, PreparedClaim, name_of
from mooring.cluster.dra.devices import CAPACITY, CPUGroup
from mooring.cluster.dra.objects import ClaimableCPUs
from mooring.engine.core.errors import InputError
from mooring.engine.core.quantity import Quantity


class _Result(msgspec.Struct):
    request: str
    driver: str
    pool: str
    device: str
    consumed_capacity: dict[str, str | int] | None = msgspec.field(name="consumedCapacity", default=None)
    share_id: str | None = msgspec.field(name="shareID", default=None)


class _Parameters(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: Literal["mooring/v1alpha1"]
    kind: Literal["ClaimParameters"]
    numa_nodes: Annotated[int, msgspec.Meta(ge=1)]


class _Opaque(msgspec.Struct):
    driver: str = ""
    parameters: Any = None


class _Configuration(msgspec.Struct):
    requests: list[str] | None = None
    opaque: _Opaque | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None
    config: list[_Configuration] | None = None


class _Allocated(msgspec.Struct):
    devices: _Devices | None = None


class _Consumer(msgspec.Struct):
    uid: str
    resource: str = ""


class _Status(msgspec.Struct):
    allocation: _Allocated | None = None
    reserved_for: list[_Consumer] | None = msgspec.field(name="reservedFor", default=None)


def allocation_of(claim: Mapping[str, Any], driver: str, pool: str, device_cpus: Callable[[str], int]) -> PreparedClaim:
    """Return the allocation of a ResourceClaim.

    Args:
        claim: the object.
        driver: whose results count.
        pool: name of the node.
        device_cpus: mask of a device's CPUs; 0 for one that is none.

    Raises:
        InputError: nothing is allocated, or what is allocated cannot be understood; the text is for the pod's event.
    """
    metadata = claim["metadata"]
    source = f"claim {metadata['namespace']}/{metadata['name']}"
    try:
        status = msgspec.convert(claim.get("status") or {}, _Status)
    except msgspec.ValidationError as error:
        raise InputError(f"has a status that is none: {error}", source=source) from None
    devices = (status.allocation or _Allocated()).devices or _Devices()
    mine = [one for one in devices.results or () if one.driver == driver]
    if not mine:
        raise InputError(f"nothing of {driver} is allocated", source=source)
    for one in mine:
        if one.pool != pool:
            raise InputError(f"is allocated on {one.pool} and not on {pool}", source=source)
    numa_nodes = dict.fromkeys((one.request for one in mine), 0)
    for configured in devices.config or ():
        if configured.opaque is None or configured.opaque.driver != driver:
            continue
        try:
            wanted = msgspec.convert(configured.opaque.parameters, _Parameters).numa_nodes
        except msgspec.ValidationError as error:
            raise InputError(f"has parameters that this driver does not support: {error}", source=source) from None
        for request in numa_nodes:
            if not configured.requests or not {request, name_of(request)}.isdisjoint(configured.requests):
                numa_nodes[request] = wanted
    results = tuple(_result(one, device_cpus, numa_nodes[one.request], source) for one in mine)
    pods = tuple(sorted({one.uid for one in status.reserved_for or () if one.resource == "pods"}))
    pod_claim = (metadata.get("annotations") or {}).get("resource.kubernetes.io/pod-claim-name", "")
    return PreparedClaim(metadata["uid"], metadata["namespace"], metadata["name"], results, (), pods, pod_claim)


def _result(one: _Result, device_cpus: Callable[[str], int], numa_nodes: int, source: str) -> AllocationResult:
    cpus = device_cpus(one.device)
    if not cpus:
        raise InputError(f"device {one.device} is not on this node", source=source)
    consumed = (one.consumed_capacity or {}).get(CAPACITY)
    count = cpus.bit_count() if consumed is None else _whole(str(consumed), source)
    return AllocationResult(one.request, one.device, count, one.share_id or "", numa_nodes)


def _whole(text: str, source: str) -> int:
    amount = Quantity.parse(text)
    if amount.milli % 1000 or amount.milli <= 0:
        raise InputError(f"consumes {text} of {CAPACITY}, which is not a number of CPUs", source=source)
    return amount.milli // 1000


def shares_of(allocated: PreparedClaim) -> dict[tuple[str, str, int], int]:
    """Return the CPUs of each share of an allocation, by request, device and number of NUMA nodes."""
    counts: dict[tuple[str, str, int], int] = {}
    for one in allocated.results:
        key = one.request, one.device, one.numa_nodes
        counts[key] = counts.get(key, 0) + one.count
    return counts


_ALLOCATE: Final = "mooring/allocate"
NODE: Final = "mooring/node"
_IMMEDIATE: Final = "immediate"


def is_asked_for(claim: Mapping[str, Any], node: str) -> bool:
    """Tell whether a claim is to be allocated immediately on this node."""
    metadata = claim["metadata"]
    annotations = metadata.get("annotations") or {}
    if annotations.get(_ALLOCATE) != _IMMEDIATE or annotations.get(NODE) != node:
        return False
    return not metadata.get("deletionTimestamp")


def is_allocated(claim: Mapping[str, Any]) -> bool:
    """Tell whether the claim is allocated."""
    return bool((claim.get("status") or {}).get("allocation"))


def allocation_for(
    claim: Mapping[str, Any],
    driver: str,
    node: str,
    classes: Iterable[str],
    devices: Iterable[CPUGroup],
    room: ClaimableCPUs,
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
        InputError: the claim requests what only the scheduler can judge, or there is no room.
    """
    source = f"claim {claim['metadata']['namespace']}/{claim['metadata']['name']}"
    wanted = claim["spec"].get("devices") or {}
    if wanted.get("constraints") or wanted.get("config"):
        raise InputError("has constraints or parameters, which immediate allocation does not support", source=source)
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
        raise InputError("requests nothing", source=source)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def _count(request: Mapping[str, Any], classes: frozenset[str], source: str, room: ClaimableCPUs) -> int:
    exact = request.get("exactly")
    if exact is None or exact.get("deviceClassName") not in classes:
        raise InputError(f"request {request['name']} is for no class of this driver alone", source=source)
    if (
        exact.get("selectors")
        or exact.get("allocationMode", "ExactCount") != "ExactCount"
        or exact.get("count", 1) != 1
    ):
        problem = f"request {request['name']} has selectors or requests several devices: leave it to the scheduler"
        raise InputError(problem, source=source)
    step = room.group_size if room.whole_cores else 1
    text = str(((exact.get("capacity") or {}).get("requests") or {}).get(CAPACITY, step))
    amount = Quantity.parse(text)
    if amount.milli <= 0:
        raise InputError(f"request {request['name']} is for {text} CPUs", source=source)
    return -(-amount.milli // (1000 * step)) * step
