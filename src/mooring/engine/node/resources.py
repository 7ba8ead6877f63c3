"""The kubelet's node resources check: do the requests of all admitted pods fit the node's allocatable?

The kubelet applies it after its managers, so a pod can be placed by them and still be refused here. It is not part of
the managers' recordings.

Source: kubelet v1.37.1, pkg/kubelet/lifecycle/predicate.go and the scheduler's NodeResourcesFit; spec: metrics.md
section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.engine.core.decision import Rejection, Shortage
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.node.reservation import Reservation

POD_LEVEL = ("cpu", "memory")
NO_DEVICES: Mapping[str, int] = {}


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return what a pod asks of the node: cpu in millicores, everything else in whole units.

    Apps and sidecars run together; a regular init container runs beside the sidecars started before it; pod-level
    requests replace the containers' where they are set; overhead comes on top.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    apps: dict[str, int] = {}
    for container in pod.containers:
        amounts = {resource: _amount(resource, quantity) for resource, quantity in container.requests.items()}
        if container.kind is ContainerKind.SIDECAR:
            _add(sidecars, amounts)
        elif container.kind is ContainerKind.APP:
            _add(apps, amounts)
        else:
            beside = dict(sidecars)
            _add(beside, amounts)
            for resource, amount in beside.items():
                peak[resource] = max(peak.get(resource, 0), amount)
    _add(apps, sidecars)
    total = {resource: max(apps.get(resource, 0), peak.get(resource, 0)) for resource in {**apps, **peak}}
    if pod.resources is not None:
        for resource, quantity in pod.resources.requests.items():
            if resource in POD_LEVEL or resource.startswith("hugepages-"):
                total[resource] = _amount(resource, quantity)
    _add(total, {resource: _amount(resource, quantity) for resource, quantity in pod.overhead.items()})
    return total


def _amount(resource: str, quantity: Quantity) -> int:
    return quantity.milli if resource == "cpu" else quantity.units


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def allocatable(reservation: Reservation) -> dict[str, int]:
    """Return what the node advertises; pools of huge pages are taken off its memory."""
    amounts = {resource: reservation.allocatable(resource) for resource in reservation.capacity}
    huge = sum(amount for resource, amount in amounts.items() if resource.startswith("hugepages-"))
    amounts["memory"] = max(amounts.get("memory", 0) - huge, 0)
    return amounts


def check_fit(pod: Pod, running: Iterable[Pod], reservation: Reservation, max_pods: int) -> Rejection | None:
    """Return the kubelet's rejection for the first resource that does not suffice, or None.

    Args:
        pod: the pod to be admitted.
        running: the pods admitted before it, without it.
        reservation: of the node.
        max_pods: how many pods the node runs at most.
    """
    others = list(running)
    return check_amounts(pod_requests(pod), total_requests(others), len(others), reservation, max_pods)


def total_requests(pods: Iterable[Pod]) -> dict[str, int]:
    """Return what pods that run together ask of the node."""
    total: dict[str, int] = {}
    for pod in pods:
        _add(total, pod_requests(pod))
    return total


def check_amounts(
    wanted: Mapping[str, int],
    used: Mapping[str, int],
    running: int,
    reservation: Reservation,
    max_pods: int,
    devices: Mapping[str, int] = NO_DEVICES,
) -> Rejection | None:
    """Make the same check with sums that are known, for callers that ask about many pods one after another.

    Args:
        wanted: what the pod requests (:func:`pod_requests`).
        used: what the pods admitted before it request together (:func:`total_requests`).
        running: how many pods these are.
        reservation: of the node.
        max_pods: how many pods the node runs at most.
        devices: how many devices the node has of the resources that the pod requests. The device manager has given the
            pod its own before, so that they are short only while pods count that have released theirs.
    """
    if running + 1 > max_pods:
        return _out_of("pods", 1, running, max_pods)
    # Sizes of huge pages that a node does not list are no extended resources, which a kubelet leaves out.
    pages = dict.fromkeys((resource for resource in wanted if resource.startswith("hugepages-")), 0)
    capacity = {**pages, **allocatable(reservation), **devices}
    for resource in sorted(capacity, key=lambda resource: (resource != "cpu", resource != "memory", resource)):
        amount = wanted.get(resource, 0)
        if amount > 0 and amount > capacity[resource] - used.get(resource, 0):
            return _out_of(resource, amount, used.get(resource, 0), capacity[resource])
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}",
        Shortage(resource, requested, used, capacity),
    )
