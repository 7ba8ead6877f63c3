"""``mooring upgrade -o json``: what another release of the kubelet does with a node, or with several."""

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


class UpgradedPodPart(DocumentPart, kw_only=True):
    """What becomes of a pod."""

    uid: str
    namespace: str
    name: str
    running: Annotated[bool, Meta(description="Whether it runs before; otherwise it is admitted after the restart.")]
    outcome: Annotated[str, one_of("kept", "moved", "admitted", "rejected", "not asked")]
    changed: Annotated[bool, Meta(description="Whether the old kubelet, started again, would decide otherwise.")]
    admitted: bool
    reason: Annotated[str, Meta(description="The kubelet's; empty for admitted pods.")]
    message: Annotated[str, Meta(description="The kubelet's; empty for admitted pods.")]
    why: Annotated[str, Meta(description="One sentence for people; empty for admitted pods.")]
    code: Code
    before: Annotated[
        dict[str, PlacementPart],
        Meta(description="Container -> its CPUs and memory before the upgrade; empty where it had no place."),
    ]
    pod_before: Annotated[PlacementPart, Meta(description="The partition of the pod as a whole.")]
    after: Annotated[
        dict[str, PlacementPart],
        Meta(description="Container -> its CPUs and memory afterwards; empty if not admitted."),
    ]
    pod_after: Annotated[PlacementPart, Meta(description="The partition of the pod as a whole.")]


class SettingChangePart(DocumentPart):
    """A setting that the new release takes otherwise."""

    name: Annotated[str, Meta(description="Such as featureGates.MemoryManager or failCgroupV1.")]
    effect: Annotated[str, one_of("refused", "ignored", "takes effect", "default", "group")]
    before: str
    after: str


class StateFileFormatsPart(DocumentPart):
    """The formats of a state file."""

    file: str
    written_before: str
    read_after: Annotated[list[str], Meta(description="What the new release reads, in order.")]
    written_after: str
    read_before: Annotated[list[str], Meta(description="What the old release reads after a rollback, in order.")]


class ExamplePodPart(DocumentPart):
    """A pod of an example."""

    uid: str
    namespace: str
    name: str
    before: Annotated[str, Meta(description="What is decided with the rule or gate as in the old release.")]
    after: Annotated[str, Meta(description="The same as in the new release.")]


class UpgradeCausePart(DocumentPart, kw_only=True):
    """A rule or gate by which the releases decide differently about this node."""

    kind: Annotated[str, one_of("rule", "gate")]
    name: str
    before: Annotated[str, Meta(description="What the old release does.")]
    after: Annotated[str, Meta(description="What the new release does.")]
    releases: Annotated[str, Meta(description="The releases that follow the rule; empty for a gate.")]
    source: str
    situation: Annotated[str, one_of("restart", "recreated")]
    machine: str
    pods: Annotated[list[ExamplePodPart], Meta(description="Few pods of the node that show it, in order.")]
    start_before: Annotated[str, Meta(description="Why the kubelet does not start in the example; empty if it does.")]
    start_after: Annotated[str, Meta(description="The same with the rule or gate as in the new release.")]


class UpgradeAdvicePart(DocumentPart):
    """Something to do before the upgrade; it was tried."""

    kind: Annotated[
        str,
        one_of("remove flags", "remove gates", "set gates", "remove field", "remove option", "recreate pods", "drain"),
    ]
    names: Annotated[
        list[str], Meta(description="Flags with their files, gates, a field, an option, or pods as NAMESPACE/NAME.")
    ]
    text: Annotated[str, Meta(description="One or two sentences.")]
    kept: Annotated[Count, Meta(description="Running pods that then keep what they have.")]
    moved: Annotated[Count, Meta(description="Running pods that then get other CPUs or memory.")]
    rejected: Count


class HopPart(DocumentPart, kw_only=True):
    """One step of an upgrade that goes through every minor release."""

    from_: KubeletRelease = field(name="from")
    to: KubeletRelease
    start_error: Annotated[str | None, Meta(description="Null when the kubelet starts.")]
    rejected: list[PodPart]
    moved: list[PodPart]


class RollbackPart(DocumentPart):
    """The old kubelet on the files of the new one."""

    start_error: Annotated[str | None, Meta(description="Null when the old kubelet starts on these files.")]
    pods: Annotated[list[UpgradedPodPart], Meta(description="The pods that run on the new kubelet.")]


class UpgradeDocument(DocumentPart, kw_only=True):
    """What mooring upgrade -o json prints: what another release of the kubelet does with a node."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Upgrade"] = "Upgrade"
    node: Annotated[str, Meta(description="The node's name; empty where it is not known.")]
    machine: str
    from_: KubeletRelease = field(name="from")
    to: KubeletRelease
    changed: Annotated[
        bool, Meta(description="Whether anything is decided differently: the start, a pod, or a pod created anew.")
    ]
    safe: Annotated[
        bool, Meta(description="Whether it starts and every running pod keeps what a restart of the old one leaves it.")
    ]
    start_error: Annotated[str | None, Meta(description="Why the new kubelet does not start; null when it does.")]
    start_error_stage: Annotated[str, Meta(description="Empty when it starts.")]
    start_error_code: Code
    remedy: Annotated[str, Meta(description="What to do about it in general; advice has what was tried here.")]
    start_error_before: Annotated[str | None, Meta(description="Why the old kubelet does not start; null if it does.")]
    pods: Annotated[list[UpgradedPodPart], Meta(description="Running pods in order, then those that are admitted.")]
    shared_pool: Annotated[CPUList, Meta(description="After the restart; empty when the kubelet does not start.")]
    cpu_manager_state: Annotated[str, Meta(description="Text of the state file after the restart.")]
    memory_manager_state: Annotated[str, Meta(description="Text of the state file after the restart.")]
    settings: list[SettingChangePart]
    state_files: list[StateFileFormatsPart]
    causes: list[UpgradeCausePart]
    recreated: Annotated[
        list[UpgradedPodPart],
        Meta(description="Pods that the releases decide differently about when all are created on the empty node."),
    ]
    advice: list[UpgradeAdvicePart]
    hops: Annotated[list[HopPart], Meta(description="Empty when the upgrade is one step.")]
    rollback: Annotated[RollbackPart | None, Meta(description="Null when the new kubelet does not start.")]
    findings: list[FindingPart]


class UpgradedNodePart(DocumentPart, kw_only=True):
    """One node of several."""

    node: str
    from_: KubeletRelease = field(name="from")
    to: KubeletRelease
    safe: bool
    changed: bool
    start_error: str | None
    kept: Annotated[Count, Meta(description="Running pods that keep what they have.")]
    moved: Count
    rejected: list[PodPart]
    causes: Annotated[list[str], Meta(description="Names of rules and gates.")]


class UpgradeListDocument(DocumentPart, kw_only=True):
    """What mooring upgrade -o json prints for several nodes."""

    api_version: APIVersion = API_VERSION
    kind: Literal["UpgradeList"] = "UpgradeList"
    nodes: list[UpgradedNodePart]
    findings: list[FindingPart]
