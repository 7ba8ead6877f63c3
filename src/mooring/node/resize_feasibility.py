"""What can never be resized in place on this node, whatever room there is.

Source: kubelet v1.37.1, pkg/kubelet/allocation; KEP-1287, and KEP-5554 for exclusive CPUs; spec: resize.md sections 2
and 4. Not modelled: swap and the sizes of memory-backed volumes, which no input of Mooring tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.pod import Container, Pod, QoS
from mooring.cpumanager.resize import check_feasible as check_cpus
from mooring.cpumanager.state import CPUState
from mooring.memorymanager.resize import check_feasible as check_memory
from mooring.node.settings import Settings

EXCLUSIVE_CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
EXCLUSIVE_MEMORY = "InPlacePodVerticalScalingExclusiveMemory"
POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
STATIC_CPUS = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
STATIC_MEMORY = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Why a resize is refused for good."""

    message: str
    detail: str
    """The kubelet's ``reason_detail``, or the type of the error where KEP-5554 has one."""


def check_feasible(settings: Settings, cpu: CPUState, before: Pod, after: Pod) -> Infeasible | None:
    """Return why a pod can never be resized so; None when nothing speaks against it.

    The checks of the policies look at the requests of the containers only: they do not ask whether a container has
    CPUs or memory of its own, and a change of pod-level resources alone passes them.

    Args:
        settings: of the node.
        cpu: the CPU manager's state.
        before: the pod with the resources that it has.
        after: the pod with those that it asks for.
    """
    gates, guaranteed = settings.gates, before.qos is QoS.GUARANTEED
    if before.resources != after.resources and not gates[POD_LEVEL]:
        return Infeasible(f"{POD_LEVEL} is disabled", "plr_feature_gate_off")
    if guaranteed and settings.cpu is not None and not gates[EXCLUSIVE_CPUS] and _changes(before, after, "cpu"):
        return Infeasible(STATIC_CPUS, "guaranteed_pod_cpu_manager_static_policy")
    if guaranteed and settings.memory is not None and not gates[EXCLUSIVE_MEMORY] and _changes(before, after, "memory"):
        return Infeasible(STATIC_MEMORY, "guaranteed_pod_memory_manager_static_policy")
    return _extended(settings, cpu, before, after)


def _extended(settings: Settings, cpu: CPUState, before: Pod, after: Pod) -> Infeasible | None:
    """Apply the checks of the extension exclusive-resize, container by container."""
    for container in after.containers:
        if settings.cpu is not None and settings.cpu.resizes:
            cpus = check_cpus(settings.cpu, cpu, before, after, container)
            if cpus is not None:
                return Infeasible(cpus.message, cpus.reason)
        if settings.memory is not None and settings.memory.resizes:
            memory = check_memory(settings.memory, before, after, container)
            if memory is not None:
                return Infeasible(memory.message, memory.reason)
    return None


def _changes(before: Pod, after: Pod, resource: str) -> bool:
    old = {container.name: container for container in before.containers}
    return any(_amount(container, resource) != _amount(old[container.name], resource) for container in after.containers)


def _amount(container: Container, resource: str) -> int:
    quantity = container.requests.get(resource)
    return quantity.nano if quantity is not None else 0
