"""What a container's CPUs and memory are shared with, and what that means for its CFS quota.

Source: kubelet v1.37.1, cm/cpumanager, cm/memorymanager and kuberuntime; KEP-5526; spec: pod-level.md section 5.
"""

from __future__ import annotations

from enum import Enum

from mooring.engine.core.pod import Container, Pod, guaranteed_equivalent
from mooring.engine.cpumanager.requests import whole_cpus
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import Settings


class Isolation(Enum):
    """Whom a container shares its CPUs or its memory with."""

    HOST = "host"
    """With all pods on the node."""
    POD = "pod"
    """With the other containers of its pod."""
    CONTAINER = "container"
    """With no pod."""


def cpu_isolation(settings: Settings, providers: Providers, pod: Pod, container: Container) -> Isolation:
    """Return the isolation of a container's CPUs."""
    return isolation_with(settings, pod, container, providers.cpu.assignments.get(pod.uid, {}).get(container.name, 0))


def isolation_with(settings: Settings, pod: Pod, container: Container, held: int) -> Isolation:
    """Return the isolation of a container that is assigned these CPUs, given as a mask."""
    if not held:
        return Isolation.HOST
    exclusive = guaranteed_equivalent(container) and whole_cpus(container.limits) > 0
    return Isolation.POD if settings.pod_level.manages(pod) and not exclusive else Isolation.CONTAINER


def memory_isolation(settings: Settings, providers: Providers, pod: Pod, container: Container) -> Isolation:
    """Return the isolation of a container's memory."""
    if not providers.memory.assignments.get(pod.uid, {}).get(container.name):
        return Isolation.HOST
    if settings.pod_level.manages(pod) and not guaranteed_equivalent(container):
        return Isolation.POD
    return Isolation.CONTAINER


def container_runs_without_quota(settings: Settings, providers: Providers, pod: Pod, container: Container) -> bool:
    """Tell whether the CFS quota is lifted: the container has CPUs of its own, and a quota would only throttle it."""
    if settings.pod_level.managers:
        return cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER
    return bool(providers.cpu.assignments.get(pod.uid, {}).get(container.name))


def pod_runs_without_quota(settings: Settings, providers: Providers, pod: Pod) -> bool:
    """Tell whether the quota of the pod's cgroup and sandbox is lifted.

    With KEP-5526 a pod-level pod keeps it as soon as one of its containers shares.
    """
    if settings.pod_level.manages(pod):
        return bool(pod.containers) and all(
            cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER for container in pod.containers
        )
    held = providers.cpu.assignments.get(pod.uid, {})
    return any(held.get(container.name) for container in pod.containers)
