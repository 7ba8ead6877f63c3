"""Whether a container has a claim to exclusive CPUs, and why or why not."""

from __future__ import annotations

from mooring.core.pod import Container, Pod, QoS, ResourceList
from mooring.core.podlevel import guaranteed_equivalent
from mooring.cpumanager.requests import exclusive_cpus, exclusive_cpus_of_pod
from mooring.explain.story import Claim
from mooring.node.settings import Settings
from mooring.topologymanager.merge import NONE


def claim_of(pod: Pod, container: str, settings: Settings) -> Claim:
    """Return the claim of a container, or of the whole pod for an empty name."""
    if not container:
        return _of_pod(pod, settings)
    one = next(found for found in pod.containers if found.name == container)
    need = exclusive_cpus(pod, one, settings.pod_level) if settings.cpu is not None else 0
    if need and not settings.pod_level.leaves_out(pod):
        if _from_the_node(pod, settings):
            return Claim(need, "the pod is Guaranteed and the request is a whole number")
        return Claim(need, "its requests equal its limits and the number is whole; they come from the CPUs of the pod")
    return Claim(0, _why_not(pod, one, settings))


def _from_the_node(pod: Pod, settings: Settings) -> bool:
    """Tell whether containers get their CPUs from the node and not from what the pod has (KEP-5526)."""
    return not (settings.pod_level.manages(pod) and settings.pod_scope and settings.topology_policy != NONE)


def _of_pod(pod: Pod, settings: Settings) -> Claim:
    need = exclusive_cpus_of_pod(pod, settings.pod_level) if settings.cpu is not None else 0
    if need and not settings.pod_level.leaves_out(pod):
        if settings.pod_level.manages(pod):
            return Claim(need, "the pod's own resources say so")
        return Claim(need, "the most that its containers need at once")
    if settings.cpu is not None and settings.pod_level.manages(pod) and pod.qos is QoS.GUARANTEED:
        return Claim(0, "the pod's own cpu is no whole number")
    return Claim(0, _why_no_container(pod, settings) or "no container asks for a whole number of CPUs")


def _why_not(pod: Pod, container: Container, settings: Settings) -> str:
    general = _why_no_container(pod, settings)
    if general:
        return general
    if "cpu" not in container.requests:
        return "it requests no CPU"
    if settings.pod_level.manages(pod) and not guaranteed_equivalent(container):
        return "its cpu and memory requests are not both set and equal to its limits"
    return f"{_cpu_text(container.requests)} is not a whole number of CPUs"


def _why_no_container(pod: Pod, settings: Settings) -> str:
    """Return what keeps every container of the pod from exclusive CPUs, or an empty text."""
    if settings.cpu is None:
        return "the CPU manager policy is none"
    if pod.qos is not QoS.GUARANTEED:
        return f"the QoS class of the pod is {pod.qos.value}"
    if settings.pod_level.leaves_out(pod):
        return "the pod has pod-level resources, and the gate PodLevelResourceManagers is off"
    return ""


def _cpu_text(resources: ResourceList) -> str:
    return str(resources["cpu"])
