"""Asking the managers of a node for hints about a pod that is admitted: devices, CPUs, memory.

Source: kubelet v1.37.1, topologymanager scope_*.go; spec: topology-manager.md sections 3 and 4. CPUs of containers that
a restart finds in the middle of a resize are asked for by the rules of the extension (spec: resize.md section 5.3).
"""

from __future__ import annotations

from mooring.core.observer import Observer
from mooring.core.pod import Container, Pod
from mooring.cpumanager import policy_hints as cpu_hints
from mooring.devicemanager import hints as device_hints
from mooring.extensions import cpu_resize
from mooring.extensions.scale_down import is_resized
from mooring.memorymanager import policy_hints as memory_hints
from mooring.node.providers import Providers
from mooring.node.settings import Settings
from mooring.topologymanager.entries import ResourceHints


def container_hints(
    settings: Settings, given: Providers, pod: Pod, container: Container, observer: Observer | None
) -> tuple[ResourceHints | None, ...]:
    """Return the hints of each manager for one container, in the order of the managers."""
    cpu, memory = settings.cpu, settings.memory
    devices = device_hints.container_hints(
        given.devices, given.reusable_devices, settings.numa_ids, pod, container, observer
    )
    cpus = blocks = None
    if cpu is not None and is_resized(cpu, given.cpu, pod, container):
        cpus = cpu_resize.container_hints(cpu, given.cpu, pod, container, observer)
    elif cpu is not None:
        cpus = cpu_hints.container_hints(cpu, given.cpu, given.reusable_cpus, pod, container, observer)
    if memory is not None:
        blocks = memory_hints.container_hints(memory, given.memory, given.reusable_memory, pod, container, observer)
    return devices, cpus, blocks


def pod_hints(
    settings: Settings, given: Providers, pod: Pod, observer: Observer | None
) -> tuple[ResourceHints | None, ...]:
    """Return the hints of each manager for a whole pod, in the order of the managers."""
    cpu, memory = settings.cpu, settings.memory
    devices = device_hints.pod_hints(given.devices, settings.numa_ids, pod, observer)
    cpus = blocks = None
    if cpu is not None and any(is_resized(cpu, given.cpu, pod, container) for container in pod.containers):
        cpus = cpu_resize.pod_hints(cpu, given.cpu, pod, observer)
    elif cpu is not None:
        cpus = cpu_hints.pod_hints(cpu, given.cpu, given.reusable_cpus, pod, observer)
    if memory is not None:
        blocks = memory_hints.pod_hints(memory, given.memory, given.reusable_memory, pod, observer)
    return devices, cpus, blocks
