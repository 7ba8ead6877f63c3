"""How many exclusive CPUs a container or a pod requests.

Source: kubelet v1.37.1, cpumanager policy_static.go (guaranteedCPUs, podGuaranteedCPUs); spec: cpu-manager.md section
3.
"""

from __future__ import annotations

from mooring.engine.core.gotext import int64
from mooring.engine.core.pod import (
    Container,
    ContainerKind,
    Pod,
    PodLevelGates,
    QoS,
    ResourceList,
    guaranteed_equivalent,
)


def whole_cpus(resources: ResourceList) -> int:
    """Return the cpu amount when it is a whole number of CPUs, else 0.

    The kubelet compares 64-bit numbers, so that far too large amounts count as whole, and some as negative.
    """
    cpu = resources.get("cpu")
    if cpu is None:
        return 0
    units, milli = cpu.units, cpu.milli
    return units if units * 1000 == milli or int64(units * 1000) == milli else 0


def exclusive_cpus(pod: Pod, container: Container, gates: PodLevelGates) -> int:
    """Return how many exclusive CPUs the container gets; 0 means that it runs in the shared pool."""
    if pod.qos is not QoS.GUARANTEED:
        return 0
    if gates.manages(pod) and not guaranteed_equivalent(container):
        return 0
    return whole_cpus(gates.requests_of(container))


def exclusive_cpus_of_pod(pod: Pod, gates: PodLevelGates) -> int:
    """Return how many exclusive CPUs the whole pod needs at once, for pod scope.

    Regular init containers run one after another beside the sidecars started before them; apps run beside all sidecars.
    """
    if gates.manages(pod) and pod.resources is not None:
        return whole_cpus(pod.resources.requests) if pod.qos is QoS.GUARANTEED else 0
    sidecars = init_peak = apps = 0
    for container in pod.containers:
        # The specification is asked, also where a status decides the number.
        if "cpu" not in container.requests:
            continue
        count = exclusive_cpus(pod, container, gates)
        if container.kind is ContainerKind.SIDECAR:
            sidecars = int64(sidecars + count)
        elif container.kind is ContainerKind.INIT:
            init_peak = max(init_peak, int64(sidecars + count))
        else:
            apps = int64(apps + count)
    return max(init_peak, int64(apps + sidecars))
