"""``mooring capacity -o json``: how many more pods of a shape fit, or the largest requests that do."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.documents.parts import (
    API_VERSION,
    APIVersion,
    Code,
    Count,
    CPUList,
    DocumentPart,
    FindingPart,
    HeldDeviceTable,
    KubeletRelease,
    Numbers,
    PlacementPart,
    QoSName,
    one_of,
)


class ShapePart(DocumentPart):
    """The pod that is counted."""

    namespace: str
    name: str
    qos: QoSName
    requests: Annotated[dict[str, int], Meta(description="cpu in millicores, all else in whole units.")]


class ReplicaPart(DocumentPart):
    """One pod that fits."""

    name: str
    cpus: CPUList
    cpu_nodes: Annotated[Numbers, Meta(description="NUMA nodes of its CPUs.")]
    memory_nodes: Annotated[Numbers, Meta(description="NUMA nodes of its memory.")]
    numa_nodes: Annotated[Numbers, Meta(description="All NUMA nodes that it is on.")]
    aligned: Annotated[
        bool | None, Meta(description="Whether it touches no more NUMA nodes than it would on an empty node.")
    ]
    containers: dict[str, PlacementPart]
    devices: HeldDeviceTable


class NextReplicaPart(DocumentPart):
    """The first pod that does not fit."""

    name: str
    reason: str
    message: str
    why: str
    code: Code
    endless: Annotated[str, Meta(description="The name of the defect when the kubelet would never return, else empty.")]
    crash: Annotated[str, Meta(description="Why the kubelet would crash, else empty.")]


class NodeSharePart(DocumentPart):
    """What one NUMA node has of a resource."""

    node: Count
    free: Annotated[int, Meta(description="What no container has for itself.")]
    largest: Annotated[int, Meta(description="The largest request that the kubelet would now put on this node alone.")]
    empty: Annotated[int, Meta(description="The largest request that an empty node takes alone.")]


class FragmentationPart(DocumentPart):
    """How much of a free resource one request can get."""

    resource: Annotated[str, Meta(description="In CPUs, bytes or devices, before the first replica.")]
    step: Annotated[int, Meta(description="Requests are multiples of this.")]
    free: Annotated[int, Meta(description="What is free on all NUMA nodes together.")]
    largest: Annotated[int, Meta(description="The largest request that the kubelet would now admit.")]
    largest_aligned: Annotated[int, Meta(description="The largest request that one NUMA node takes alone.")]
    gathered: Annotated[int, Meta(description="What one NUMA node would take if all that is free lay together.")]
    lost: Annotated[int, Meta(description="What the largest aligned request has lost to fragmentation.")]
    numa_nodes: list[NodeSharePart]


class EvictedPodPart(DocumentPart):
    """A pod that would have to go, and what it holds."""

    uid: str
    namespace: str
    name: str
    milli_cpu: int = field(name="milliCPU")
    bytes: int
    exclusive_cpus: Count = field(name="exclusiveCPUs")
    numa_nodes: Numbers


class EvictionPart(DocumentPart):
    """Pods whose removal reaches the goal together."""

    pods: list[EvictedPodPart]


class AdvicePart(DocumentPart):
    """Which pods to move so that one more fits, or fits on one NUMA node."""

    goal: Annotated[str, one_of("admitted", "aligned"), Meta(description="That one more is admitted, or aligned.")]
    replica: Annotated[Count, Meta(description="The number of that replica, from 1.")]
    evictions: list[EvictionPart]
    remark: Annotated[str, Meta(description="Why there are no evictions.")]


class CapacityDocument(DocumentPart, kw_only=True):
    """What mooring capacity -o json prints: how many more pods of a shape fit."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Capacity"] = "Capacity"
    kubelet: KubeletRelease
    machine: str
    start_error: Annotated[str, Meta(description="The kubelet's message if it would not start; else empty.")]
    shape: ShapePart
    count: Annotated[Count, Meta(description="How many more fit.")]
    at_least: Annotated[Count, Meta(description="How many had to fit.")]
    enough: Annotated[bool, Meta(description="Whether at least atLeast fit.")]
    limit: Count
    limited: Annotated[bool, Meta(description="Whether counting ended at the limit.")]
    replicas: list[ReplicaPart]
    next: Annotated[
        NextReplicaPart | None,
        Meta(
            description="The first replica that does not fit; null if counting ended at the limit, or none was tried."
        ),
    ]
    fragmentation: Annotated[list[FragmentationPart], Meta(description="One object a resource.")]
    advice: list[AdvicePart]
    findings: list[FindingPart]


class LargestRequestsDocument(DocumentPart, kw_only=True):
    """What mooring capacity -o json prints without a shape: the largest requests that the node still takes."""

    api_version: APIVersion = API_VERSION
    kind: Literal["LargestRequests"] = "LargestRequests"
    kubelet: KubeletRelease
    machine: str
    start_error: Annotated[str, Meta(description="The kubelet's message if it would not start; else empty.")]
    resources: Annotated[list[FragmentationPart], Meta(description="One object a resource.")]
    findings: list[FindingPart]
