"""``mooring resize -o json``: what would happen if a pod were resized in place."""

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
    KubeletRelease,
    NodeList,
    QoSName,
    one_of,
)


class ResizedPlacePart(DocumentPart):
    """Exclusive CPUs and NUMA nodes of the memory."""

    cpus: CPUList
    mems: NodeList


class PendingReleasePart(DocumentPart):
    """A release that waits for its delay."""

    cpus: Annotated[CPUList, Meta(description="What it has when the delay is over.")]
    delay_milliseconds: Count


class LargestAmountsPart(DocumentPart):
    """The largest amounts that a container can have now; null for what was not asked about."""

    cpus: int | None
    memory_bytes: int | None
    milli_cpus: Annotated[
        int | None,
        Meta(description="Thousandths of a CPU in place of cpus: of a container with a fraction in a Guaranteed pod."),
    ] = field(name="milliCPUs")


class ResizedContainerPart(DocumentPart):
    """A container of the pod."""

    name: str
    has: Annotated[dict[str, str], Meta(description="Requests of cpu and memory before.")]
    asks: Annotated[dict[str, str], Meta(description="The request; empty for a container that is not resized.")]
    before: Annotated[
        ResizedPlacePart | None,
        Meta(description="Exclusive CPUs and NUMA nodes of the memory before; null when the pod does not run."),
    ]
    after: Annotated[
        ResizedPlacePart | None,
        Meta(description="The same afterwards; CPUs that are released later are still included."),
    ]
    baseline: Annotated[CPUList, Meta(description="The baseline: what it got at admission; it never has less.")]
    pending: Annotated[PendingReleasePart | None, Meta(description="A release that waits for its delay.")]
    largest: Annotated[
        LargestAmountsPart | None,
        Meta(description="The largest amounts that it can have now; null for what was not asked about."),
    ]


class ResizeDocument(DocumentPart, kw_only=True):
    """What mooring resize -o json prints: what would happen if a pod were resized in place."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Resize"] = "Resize"
    kubelet: KubeletRelease
    machine: str
    start_error: Annotated[str, Meta(description="The kubelet's message when it would not start.")]
    uid: str
    namespace: str
    name: str
    qos: QoSName
    runs: Annotated[bool, Meta(description="Whether the pod runs on the node.")]
    not_running: Annotated[str, Meta(description="Why it does not.")]
    accepted: Annotated[bool, Meta(description="Whether it gets what is requested, or has it already.")]
    condition: Annotated[str, one_of("", "PodResizePending", "PodResizeInProgress")]
    reason: Annotated[str, one_of("", "Deferred", "Infeasible")]
    message: Annotated[str, Meta(description="The kubelet's words.")]
    refused_by: Annotated[str, Meta(description="The reason of the check that refused it, such as OutOfcpu.")]
    code: Code
    why: Annotated[str, Meta(description="One sentence in plain words.")]
    remedy: Annotated[str, Meta(description="What can be done.")]
    events: Annotated[list[str], Meta(description="Names of the kubelet's events.")]
    containers: list[ResizedContainerPart]
    shared_pool: Annotated[CPUList, Meta(description="The shared pool afterwards.")]
    findings: list[FindingPart]
