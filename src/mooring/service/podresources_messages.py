"""The messages of the kubelet's PodResources API v1, as far as the agent fills or reads them.

Source for numbers, names and types: k8s.io/kubelet v0.37.1, pkg/apis/podresources/v1; spec: pod-level.md section 5.
"""

from __future__ import annotations

from typing import Final

from mooring.service.protobuf import Int64, Repeated, TypedMessage, UInt64, at

PACKAGE: Final = "v1"
SERVICE: Final = f"{PACKAGE}.PodResourcesLister"


class ListPodResourcesRequestMessage(TypedMessage, package=PACKAGE):
    """Has no field."""


class NUMANodeMessage(TypedMessage, package=PACKAGE):
    ID: Int64 = at(1)


class TopologyInfoMessage(TypedMessage, package=PACKAGE):
    nodes: Repeated[NUMANodeMessage] = at(1)


class ContainerDevicesMessage(TypedMessage, package=PACKAGE):
    resource_name: str = at(1)
    device_ids: Repeated[str] = at(2)
    topology: TopologyInfoMessage = at(3)


class ContainerMemoryMessage(TypedMessage, package=PACKAGE):
    memory_type: str = at(1)
    size: UInt64 = at(2)
    topology: TopologyInfoMessage = at(3)


class ClaimResourceMessage(TypedMessage, package=PACKAGE):
    driver_name: str = at(2)
    pool_name: str = at(3)
    device_name: str = at(4)
    share_id: str = at(5)


class DynamicResourceMessage(TypedMessage, package=PACKAGE):
    claim_name: str = at(2)
    claim_namespace: str = at(3)
    claim_resources: Repeated[ClaimResourceMessage] = at(4)


class ContainerResourcesMessage(TypedMessage, package=PACKAGE):
    name: str = at(1)
    devices: Repeated[ContainerDevicesMessage] = at(2)
    cpu_ids: Repeated[Int64] = at(3)
    memory: Repeated[ContainerMemoryMessage] = at(4)
    dynamic_resources: Repeated[DynamicResourceMessage] = at(5)


class PodResourcesMessage(TypedMessage, package=PACKAGE):
    name: str = at(1)
    namespace: str = at(2)
    containers: Repeated[ContainerResourcesMessage] = at(3)
    cpu_ids: Repeated[Int64] = at(4)
    memory: Repeated[ContainerMemoryMessage] = at(5)


class ListPodResourcesResponseMessage(TypedMessage, package=PACKAGE):
    pod_resources: Repeated[PodResourcesMessage] = at(1)


class AllocatableResourcesRequestMessage(TypedMessage, package=PACKAGE):
    """Has no field."""


class AllocatableResourcesResponseMessage(TypedMessage, package=PACKAGE):
    devices: Repeated[ContainerDevicesMessage] = at(1)
    cpu_ids: Repeated[Int64] = at(2)
    memory: Repeated[ContainerMemoryMessage] = at(3)


class GetPodResourcesRequestMessage(TypedMessage, package=PACKAGE):
    pod_name: str = at(1)
    pod_namespace: str = at(2)


class GetPodResourcesResponseMessage(TypedMessage, package=PACKAGE):
    pod_resources: PodResourcesMessage = at(1)
