"""``mooring plan -o podresources``: the kubelet's PodResources API v1, numbers of 64 bits as texts.

Source: k8s.io/kubelet/pkg/apis/podresources/v1, in the JSON form of protobuf.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mooring.documents.parts import API_VERSION, APIVersion, DocumentPart

NumberText: TypeAlias = Annotated[str, Meta(pattern="^[0-9]+$")]


class MessagePart(Struct, forbid_unknown_fields=True):
    """A message of the API, whose members are named as in its definition."""


class NodeIDMessage(MessagePart):
    """The number of a NUMA node."""

    number: NumberText = field(name="ID")


class TopologyMessage(MessagePart):
    """NUMA nodes."""

    nodes: list[NodeIDMessage]


class DevicesMessage(MessagePart, kw_only=True):
    """A device; its topology is absent where it is not known."""

    resource_name: str
    device_ids: list[str]
    topology: TopologyMessage | UnsetType = UNSET


class MemoryMessage(MessagePart):
    """Memory of one kind on some NUMA nodes."""

    memory_type: str
    size: Annotated[NumberText, Meta(description="Bytes.")]
    topology: TopologyMessage


class ContainerMessage(MessagePart):
    """What a container holds."""

    name: str
    devices: list[DevicesMessage]
    cpu_ids: Annotated[list[NumberText], Meta(description="Only exclusive CPUs.")]
    memory: Annotated[list[MemoryMessage], Meta(description="Only memory of the memory manager.")]
    dynamic_resources: Annotated[list[Any], Meta(max_length=0)]


class PodMessage(MessagePart, kw_only=True):
    """What a pod holds; the last two only with the feature gate PodLevelResourceManagers."""

    name: str
    namespace: str
    containers: Annotated[list[ContainerMessage], Meta(description="Apps and sidecars, never regular init containers.")]
    cpu_ids: (
        Annotated[
            list[NumberText],
            Meta(description="The pod's own partition, only with the feature gate PodLevelResourceManagers."),
        ]
        | UnsetType
    ) = UNSET
    memory: (
        Annotated[list[MemoryMessage], Meta(description="The pod's own partition, as for the CPUs.")] | UnsetType
    ) = UNSET


class ListMessage(MessagePart):
    """The answer to List."""

    pod_resources: Annotated[list[PodMessage], Meta(description="Active pods.")]


class AllocatableMessage(MessagePart):
    """The answer to GetAllocatableResources."""

    devices: list[DevicesMessage]
    cpu_ids: list[NumberText]
    memory: list[MemoryMessage]


class PodResourcesDocument(DocumentPart, kw_only=True):
    """What mooring plan -o podresources prints: the kubelet's PodResources API v1, numbers of 64 bits as texts."""

    api_version: APIVersion = API_VERSION
    kind: Literal["PodResources"] = "PodResources"
    list_answer: ListMessage = field(name="List")
    allocatable: Annotated[AllocatableMessage, Meta(description="What an empty node can allocate.")] = field(
        name="GetAllocatableResources"
    )
