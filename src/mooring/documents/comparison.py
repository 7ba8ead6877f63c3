"""``mooring compare -o json``: variants of a configuration, best first."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.documents.parts import (
    API_VERSION,
    APIVersion,
    Code,
    Count,
    DocumentPart,
    FindingPart,
    HeldDeviceTable,
    KubeletRelease,
    PlacementPart,
    PodPart,
    one_of,
)


class VariantSettingsPart(DocumentPart):
    """The settings of a variant, with the kubelet's defaults filled in."""

    cpu_manager_policy: str
    cpu_manager_policy_options: dict[str, str]
    memory_manager_policy: str
    topology_manager_policy: str
    topology_manager_scope: str
    topology_manager_policy_options: dict[str, str]
    feature_gates: dict[str, bool]


class VariantChangePart(DocumentPart):
    """A field in which a variant departs from the configuration as given."""

    field: str
    before: str
    after: str


class AlignedContainersPart(DocumentPart):
    """How many containers lie on the fewest of each."""

    numa: Count
    socket: Count
    l3: Count
    core: Count
    memory: Annotated[Count, Meta(description="Of memoryContainers: memory and CPUs together on the fewest nodes.")]
    devices: Annotated[Count, Meta(description="Of deviceContainers: devices, memory and CPUs together.")]


class StrandedCPUsPart(DocumentPart):
    """CPUs that no container can use for itself, by cause."""

    total: Count
    init: Count
    siblings: Count
    fragments: Count


class VariantPart(DocumentPart):
    """One variant and what it does with the pods."""

    group: Annotated[Count, Meta(description="Variants with the same outcome have the same number.")]
    name: str
    machine: str
    as_given: Annotated[bool, Meta(description="Whether it is the configuration as given.")]
    settings: VariantSettingsPart
    changes: list[VariantChangePart]
    starts: bool
    start_error_stage: str
    start_error: str
    start_error_code: Code
    admitted: Count
    rejected: Annotated[
        dict[str, Count], Meta(description="The kubelet's reason, or crash, endless or not asked, -> pods.")
    ]
    lost: Annotated[Count, Meta(description="Running pods that the kubelet refused when it started.")]
    exclusive_containers: Annotated[Count, Meta(description="Containers of admitted pods that have exclusive CPUs.")]
    memory_containers: Annotated[Count, Meta(description="Containers of admitted pods whose memory is bound.")]
    device_containers: Annotated[Count, Meta(description="Containers of admitted pods with devices near NUMA nodes.")]
    aligned: AlignedContainersPart
    alignment_promise: Annotated[
        str,
        one_of("nothing", "attempt", "socket", "guarantee"),
        Meta(description="Of the topology manager policy; without a guarantee aligned containers are luck."),
    ]
    spread: Annotated[float, Meta(description="NUMA nodes of a container with exclusive CPUs, on average.")]
    stranded: StrandedCPUsPart = field(name="strandedCPUs")
    memory_nodes_beyond_need: Annotated[
        Count, Meta(description="NUMA nodes that memory is bound to beyond those that its amount needs, added up.")
    ]


class LeftOutPart(DocumentPart):
    """Variants with which the kubelet would not start."""

    count: Count
    start_error_stage: str
    start_error: str
    start_error_code: Code


class ComparisonDocument(DocumentPart, kw_only=True):
    """What mooring compare -o json prints: variants, best first."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Comparison"] = "Comparison"
    kubelet: KubeletRelease
    by: Annotated[str, Meta(description="The measure by which variants are ordered.")]
    pods: Count
    steps: Count
    variants: list[VariantPart]
    left_out: list[LeftOutPart]
    never_admitted: Annotated[list[str], Meta(description="Pods that no variant admits.")]
    findings: list[FindingPart]


class ReleaseDecisionPart(DocumentPart):
    """What the kubelet of one release decides about a pod."""

    kubelet: KubeletRelease
    admitted: bool
    reason: str
    message: str
    code: Code
    containers: dict[str, PlacementPart]
    pod: PlacementPart
    devices: HeldDeviceTable


class ReleasePodPart(DocumentPart):
    """A pod under every release."""

    uid: str
    namespace: str
    name: str
    same: Annotated[bool, Meta(description="Whether all releases decide the same.")]
    decisions: Annotated[list[ReleaseDecisionPart], Meta(description="One a release that asks about the pod.")]


class SeparatingRulePart(DocumentPart):
    """A rule by which two releases decide differently about this node."""

    rule: str
    releases: Annotated[str, Meta(description="The releases that follow the rule.")]
    says: str
    instead: Annotated[str, Meta(description="What later releases do.")]
    source: str
    pods: Annotated[list[PodPart], Meta(description="The pods that the rule alone changes.")]


class ReleaseDifferencePart(DocumentPart):
    """What separates two releases that follow one another."""

    older: KubeletRelease
    newer: KubeletRelease
    pods: Annotated[list[PodPart], Meta(description="About which they decide differently.")]
    rules: list[SeparatingRulePart]
    unexplained: Annotated[
        list[PodPart], Meta(description="Those that no rule alone changes: gates, option stages and file formats do.")
    ]


class ReleaseComparisonDocument(DocumentPart, kw_only=True):
    """What mooring compare --kubelet-version A,B -o json prints: one node under several releases."""

    api_version: APIVersion = API_VERSION
    kind: Literal["ReleaseComparison"] = "ReleaseComparison"
    kubelets: Annotated[list[str], Meta(description="The releases, the oldest first.")]
    start_errors: Annotated[dict[str, str], Meta(description="Release -> message of a kubelet that would not start.")]
    pods: list[ReleasePodPart]
    differences: list[ReleaseDifferencePart]
    findings: list[FindingPart]
