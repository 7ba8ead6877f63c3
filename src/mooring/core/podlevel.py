"""Pods with pod-level resources: which gates decide about them, and which of their containers may be exclusive.

Source: kubelet v1.37.1 and KEP-5526; spec: pod-level.md sections 1 and 2, README.md section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.pod import Container, Pod, ResourceList


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
