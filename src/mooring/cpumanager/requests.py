"""How many exclusive CPUs a container or a pod asks for.

Source: kubelet v1.37.1, cpumanager policy_static.go (guaranteedCPUs, podGuaranteedCPUs); spec: cpu-manager.md section
3.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.pod import Container, ContainerKind, Pod, QoS, ResourceList


@dataclass(frozen=True, slots=True)
class PodLevelGates:
    """The two gates that decide how pods with pod-level resources are treated."""

    resources: bool = True
    """PodLevelResources: the field is honoured at all."""
    managers: bool = False
    """PodLevelResourceManagers: the managers give such pods CPUs and memory of their own (KEP-5526)."""

    def leaves_out(self, pod: Pod) -> bool:
        """Tell whether the managers keep their hands off the pod: a pod-level pod without both gates."""
        return not (self.resources and self.managers) and pod.is_pod_level

    def manages(self, pod: Pod) -> bool:
        """Tell whether the pod takes the path of KEP-5526."""
        return self.managers and pod.is_pod_level


def guaranteed_equivalent(container: Container) -> bool:
    """Tell whether cpu and memory requests are non-zero and equal to the limits."""
    return all(_equal_and_set(container.requests, container.limits, resource) for resource in ("cpu", "memory"))


def _equal_and_set(requests: ResourceList, limits: ResourceList, resource: str) -> bool:
    request, limit = requests.get(resource), limits.get(resource)
    return request is not None and limit is not None and request.nano == limit.nano != 0


def whole_cpus(resources: ResourceList) -> int:
    """Return the cpu amount when it is a whole number of CPUs, else 0."""
    cpu = resources.get("cpu")
    if cpu is None:
        return 0
    return cpu.units if cpu.units * 1000 == cpu.milli else 0


def exclusive_cpus(pod: Pod, container: Container, gates: PodLevelGates) -> int:
    """Return how many exclusive CPUs the container gets; 0 means that it runs in the shared pool."""
    if pod.qos is not QoS.GUARANTEED:
        return 0
    if gates.manages(pod) and not guaranteed_equivalent(container):
        return 0
    return whole_cpus(container.requests)


def exclusive_cpus_of_pod(pod: Pod, gates: PodLevelGates) -> int:
    """Return how many exclusive CPUs the whole pod needs at once, for pod scope.

    Regular init containers run one after another beside the sidecars started before them; apps run beside all sidecars.
    """
    if gates.manages(pod) and pod.resources is not None:
        return whole_cpus(pod.resources.requests) if pod.qos is QoS.GUARANTEED else 0
    sidecars = init_peak = apps = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container, gates)
        if container.kind is ContainerKind.SIDECAR:
            sidecars += count
        elif container.kind is ContainerKind.INIT:
            if "cpu" in container.requests:
                init_peak = max(init_peak, sidecars + count)
        else:
            apps += count
    return max(init_peak, apps + sidecars)
