"""``mooring whatif -o json``: changes that were asked about, and changes that were found."""

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
    PlacementPart,
    PodPart,
    one_of,
)
from mooring.documents.plan import PlanDocument


class ChangePart(DocumentPart):
    """One change of a question."""

    kind: Annotated[
        str, one_of("amount", "field", "option", "gate", "stateFile", "removal", "move", "turn", "device", "devices")
    ]
    text: Annotated[str, Meta(description="One sentence.")]
    option: Annotated[str, Meta(description="The option of mooring whatif that makes the change.")]
    value: Annotated[str, Meta(description="The value of that option.")]


class CostPart(DocumentPart):
    """What it costs, the weightiest first."""

    guarantees: Annotated[Count, Meta(description="What the configuration would guarantee no longer.")]
    pods_touched: Annotated[Count, Meta(description="Earlier pods that are removed, moved or get other resources.")]
    restarts: Annotated[Count, Meta(description="1 if the kubelet restarts.")]
    state_files: Annotated[Count, Meta(description="State files to delete.")]
    devices_added: Annotated[Count, Meta(description="Devices to add to the node.")]
    devices: Annotated[Count, Meta(description="Devices that are given up.")]
    milli_cpus: Annotated[Count, Meta(description="Thousandths of a CPU that are given up.")] = field(name="milliCPUs")
    bytes: Annotated[Count, Meta(description="Memory that is given up.")]


class AlignmentLostPart(DocumentPart):
    """Elements on which containers would lie beyond their need, added up."""

    numa_nodes: Count
    sockets: Count
    l3_caches: Count
    device_nodes: Annotated[Count, Meta(description="NUMA nodes of containers with devices, the devices' included.")]


class ExtentPart(DocumentPart):
    """On how many elements of a level a container lies."""

    level: Annotated[str, one_of("numa", "socket", "l3", "devices")]
    held: Count
    needed: Annotated[Count, Meta(description="How many hold the same on the empty machine.")]


class ProposalPart(DocumentPart):
    """Changes that admit a pod, verified, and where it would be."""

    text: str
    cost: CostPart
    guarantees_given_up: Annotated[list[str], Meta(description="In words, the weightiest first.")]
    alignment_lost: AlignmentLostPart
    changes: list[ChangePart]
    containers: Annotated[dict[str, PlacementPart], Meta(description="The CPUs and memory of its containers.")]
    pod: Annotated[PlacementPart, Meta(description="The CPUs and memory of the pod as a whole.")]


class OutcomePlacePart(DocumentPart):
    """Where a container or pod is, with its devices."""

    cpus: CPUList
    mems: Annotated[str, Meta(description="NUMA nodes of the memory, with commas; empty for any.")]
    devices: list[str]
    alignment: Annotated[list[ExtentPart], Meta(description="Empty for the shared pool, and for a pod as a whole.")]


class OutcomePart(DocumentPart):
    """What becomes of a pod."""

    state: Annotated[
        str,
        one_of("admitted", "rejected", "left", "endless", "crash", "unasked", "absent"),
        Meta(description="left: admitted and then ended; absent: not in that plan."),
    ]
    reason: str
    code: Annotated[Code, Meta(description="Empty if the pod was not asked.")]
    why: Annotated[str, Meta(description="Only of a pod that is not admitted.")]
    containers: dict[str, OutcomePlacePart]
    pod: OutcomePlacePart | None


class DifferencePart(DocumentPart):
    """A pod of which other things become with the changes."""

    uid: str
    namespace: str
    name: str
    before: OutcomePart
    after: OutcomePart


class WhatIfDocument(DocumentPart, kw_only=True):
    """What mooring whatif -o json prints with changes: where every pod is before and after."""

    api_version: APIVersion = API_VERSION
    kind: Literal["WhatIf"] = "WhatIf"
    kubelet: KubeletRelease
    machine: str
    changes: list[ChangePart]
    differences: Annotated[list[DifferencePart], Meta(description="The pods that differ, those of before first.")]
    before: PlanDocument
    after: Annotated[
        PlanDocument, Meta(description="A pod that ended has left; a pod that returned has its uid with _again.")
    ]


class NearestChangesDocument(DocumentPart, kw_only=True):
    """What mooring whatif -o json prints without changes: the nearest ones that admit a pod."""

    api_version: APIVersion = API_VERSION
    kind: Literal["NearestChanges"] = "NearestChanges"
    kubelet: KubeletRelease
    machine: str
    start_error: Annotated[
        str, Meta(description="The kubelet's message if it would not start without a change; else empty.")
    ]
    pod: Annotated[PodPart | None, Meta(description="The pod; null when every pod is admitted without a change.")]
    admitted: Annotated[bool, Meta(description="Whether the pod is admitted without a change, as in the next three.")]
    reason: str
    code: Code
    why: str
    proposals: Annotated[list[ProposalPart], Meta(description="The nearest first.")]
    findings: list[FindingPart]
