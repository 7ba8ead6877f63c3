"""What a change costs, and so which of two is nearer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mooring.core.pod import Pod, QoS
from mooring.cpumanager.requests import exclusive_cpus_of_pod
from mooring.memorymanager.machine import is_memory
from mooring.memorymanager.requests import pod_requests as memory_requests
from mooring.node.resources import pod_requests
from mooring.node.settings import Settings


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """The cost of a change; the first figure that differs decides (docs/explanation/nearest-change.md).

    >>> Cost(cpus=32000) < Cost(restarts=1) < Cost(touched=1)
    True
    """

    touched: int = 0
    """Pods admitted before the asked one that are removed, moved, or get something else than they had."""
    restarts: int = 0
    """1 when the kubelet has to restart with another configuration."""
    state_files: int = 0
    """State files that have to be deleted for that."""
    devices: int = 0
    """Devices given up, and devices that have to be added."""
    cpus: int = 0
    """CPUs given up, in thousandths: asked for no more, or no longer exclusive."""
    bytes: int = 0
    """Bytes of memory and huge pages given up."""


NOTHING = Cost()


def of_amounts(given_up: Mapping[str, int], touched: int = 0) -> Cost:
    """Return the cost of giving up amounts.

    Args:
        given_up: resource -> amount: cpu in thousandths, everything else in whole units; below 0 counts as 0.
        touched: pods touched.
    """
    cpus = size = devices = 0
    for resource, amount in given_up.items():
        if resource == "cpu":
            cpus += max(0, amount)
        elif is_memory(resource) or resource == "ephemeral-storage":
            size += max(0, amount)
        else:
            devices += max(0, amount)
    return Cost(touched=touched, devices=devices, cpus=cpus, bytes=size)


def of_removed(pods: Iterable[Pod]) -> Cost:
    """Return the cost of pods that end: each is touched, and what they requested is given up."""
    total: dict[str, int] = {}
    count = 0
    for pod in pods:
        count += 1
        for resource, amount in pod_requests(pod).items():
            total[resource] = total.get(resource, 0) + amount
    return of_amounts(total, count)


def owed(settings: Settings, pod: Pod) -> dict[str, int]:
    """Return what the managers would give a pod for itself: exclusive CPUs in thousandths, and memory by type."""
    amounts: dict[str, int] = {}
    if pod.qos is not QoS.GUARANTEED or settings.pod_level.leaves_out(pod):
        return amounts
    if settings.cpu is not None:
        amounts["cpu"] = 1000 * exclusive_cpus_of_pod(pod, settings.pod_level)
    if settings.memory is not None:
        memory = memory_requests(pod, settings.pod_level)
        amounts.update({} if isinstance(memory, str) else memory)
    return amounts


def of_settings(before: Settings, after: Settings, pods: Iterable[Pod]) -> Cost:
    """Return what pods lose because the managers give them less for themselves under other settings."""
    lost: dict[str, int] = {}
    for pod in pods:
        then, now = owed(before, pod), owed(after, pod)
        for resource, amount in then.items():
            lost[resource] = lost.get(resource, 0) + max(0, amount - now.get(resource, 0))
    return of_amounts(lost)
