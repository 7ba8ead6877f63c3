"""Messages of the kubelet's gRPC APIs: PodResources, and claims of dynamic resource allocation."""

from __future__ import annotations

from typing import Final

from mooring.service.protobuf import Int64, Repeated, TypedMessage, UInt64, at

PODRESOURCES_PACKAGE: Final = "v1"
PODRESOURCES_SERVICE: Final = f"{PODRESOURCES_PACKAGE}.PodResourcesLister"


class ListPodResourcesRequestMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    """Has no field."""


class NUMANodeMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    ID: Int64 = at(1)


class TopologyInfoMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    nodes: Repeated[NUMANodeMessage] = at(1)


class ContainerDevicesMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    resource_name: str = at(1)
    device_ids: Repeated[str] = at(2)
    topology: TopologyInfoMessage = at(3)


class ContainerMemoryMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    memory_type: str = at(1)
    size: UInt64 = at(2)
    topology: TopologyInfoMessage = at(3)


class ClaimResourceMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    driver_name: str = at(2)
    pool_name: str = at(3)
    device_name: str = at(4)
    share_id: str = at(5)


class DynamicResourceMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    claim_name: str = at(2)
    claim_namespace: str = at(3)
    claim_resources: Repeated[ClaimResourceMessage] = at(4)


class ContainerResourcesMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    name: str = at(1)
    devices: Repeated[ContainerDevicesMessage] = at(2)
    cpu_ids: Repeated[Int64] = at(3)
    memory: Repeated[ContainerMemoryMessage] = at(4)
    dynamic_resources: Repeated[DynamicResourceMessage] = at(5)


class PodResourcesMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    name: str = at(1)
    namespace: str = at(2)
    containers: Repeated[ContainerResourcesMessage] = at(3)
    cpu_ids: Repeated[Int64] = at(4)
    memory: Repeated[ContainerMemoryMessage] = at(5)


class ListPodResourcesResponseMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    pod_resources: Repeated[PodResourcesMessage] = at(1)


class AllocatableResourcesRequestMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    """Has no field."""


class AllocatableResourcesResponseMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    devices: Repeated[ContainerDevicesMessage] = at(1)
    cpu_ids: Repeated[Int64] = at(2)
    memory: Repeated[ContainerMemoryMessage] = at(3)


class GetPodResourcesRequestMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    pod_name: str = at(1)
    pod_namespace: str = at(2)


class GetPodResourcesResponseMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    pod_resources: PodResourcesMessage = at(1)


CLAIMS_PACKAGE: Final = "mooring.claims.v1"
CLAIMS_SERVICE: Final = f"{CLAIMS_PACKAGE}.Claims"


class ShareMessage(TypedMessage, package=CLAIMS_PACKAGE):
    request: str = at(1)
    device: str = at(2)
    count: Int64 = at(3)
    within: str = at(4)
    wished: str = at(5)


class PrepareRequestMessage(TypedMessage, package=CLAIMS_PACKAGE):
    uid: str = at(1)
    namespace: str = at(2)
    name: str = at(3)
    shares: Repeated[ShareMessage] = at(4)
    pods: Repeated[str] = at(5)


class HeldShareMessage(TypedMessage, package=CLAIMS_PACKAGE):
    request: str = at(1)
    device: str = at(2)
    cpus: str = at(3)
    variable: str = at(4)


class PrepareResponseMessage(TypedMessage, package=CLAIMS_PACKAGE):
    shares: Repeated[HeldShareMessage] = at(1)
    reason: str = at(2)


class UnprepareRequestMessage(TypedMessage, package=CLAIMS_PACKAGE):
    uid: str = at(1)


class UnprepareResponseMessage(TypedMessage, package=CLAIMS_PACKAGE):
    reason: str = at(1)


class NodeRequestMessage(TypedMessage, package=CLAIMS_PACKAGE):
    """Has no field."""


class HeldClaimMessage(TypedMessage, package=CLAIMS_PACKAGE):
    uid: str = at(1)
    namespace: str = at(2)
    name: str = at(3)
    shares: Repeated[HeldShareMessage] = at(4)
    pods: Repeated[str] = at(5)


class NodeResponseMessage(TypedMessage, package=CLAIMS_PACKAGE):
    node: str = at(1)
    machine: bytes = at(2)
    static: bool = at(3)
    group_size: Int64 = at(4)
    whole_cores: bool = at(5)
    claimable: str = at(6)
    shared: str = at(7)
    claims: Repeated[HeldClaimMessage] = at(8)
    synchronized: bool = at(9)
    reserved: str = at(10)
