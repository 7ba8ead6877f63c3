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

    kind: Annotated[str, one_of("amount", "field", "option", "gate", "stateFile", "removal", "move", "turn", "device")]
    text: Annotated[str, Meta(description="One sentence.")]
    option: Annotated[str, Meta(description="The option of mooring whatif that makes the change.")]
    value: Annotated[str, Meta(description="The value of that option.")]


class CostPart(DocumentPart):
    """What it costs, the weightiest first."""

    pods_touched: Count
    restarts: Count
    state_files: Count
    devices: Count
    milli_cpus: Count = field(name="milliCPUs")
    bytes: Count


class ProposalPart(DocumentPart):
    """Changes that admit a pod, verified, and where it would be."""

    text: str
    cost: CostPart
    changes: list[ChangePart]
    containers: dict[str, PlacementPart]
    pod: PlacementPart


class OutcomePlacePart(DocumentPart):
    """Where a container or pod is, with its devices."""

    cpus: CPUList
    mems: Annotated[str, Meta(description="NUMA nodes of the memory, with commas; empty for any.")]
    devices: list[str]


class OutcomePart(DocumentPart):
    """What becomes of a pod."""

    state: Annotated[str, one_of("admitted", "rejected", "left", "endless", "crash", "unasked", "absent")]
    reason: str
    code: Code
    why: str
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
    differences: list[DifferencePart]
    before: PlanDocument
    after: PlanDocument


class NearestChangesDocument(DocumentPart, kw_only=True):
    """What mooring whatif -o json prints without changes: the nearest ones that admit a pod."""

    api_version: APIVersion = API_VERSION
    kind: Literal["NearestChanges"] = "NearestChanges"
    kubelet: KubeletRelease
    machine: str
    start_error: str
    pod: Annotated[PodPart | None, Meta(description="The pod; null when every pod is admitted without a change.")]
    admitted: bool
    reason: str
    code: Code
    why: str
    proposals: list[ProposalPart]
    findings: list[FindingPart]
