"""``mooring explain -o json`` and ``whatif -o json``: decisions and their facts, pages of codes, changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Code,
    Count,
    CPUList,
    DocumentPart,
    FindingPart,
    KubeletRelease,
    PlacementPart,
    PlanDocument,
    PodPart,
    one_of,
    told,
)


class ChangePart(DocumentPart):
    """One change of a question."""

    kind: Annotated[
        str, one_of("amount", "field", "option", "gate", "stateFile", "removal", "move", "turn", "device", "devices")
    ]
    text: Annotated[str, told("One sentence.")]
    option: Annotated[str, told("The option of mooring whatif that makes the change.")]
    value: Annotated[str, told("The value of that option.")]


class CostPart(DocumentPart):
    """What it costs, the weightiest first."""

    guarantees: Annotated[Count, told("What the configuration would guarantee no longer.")]
    pods_touched: Annotated[Count, told("Earlier pods that are removed, moved or get other resources.")]
    restarts: Annotated[Count, told("1 if the kubelet restarts.")]
    state_files: Annotated[Count, told("State files to delete.")]
    devices_added: Annotated[Count, told("Devices to add to the node.")]
    devices: Annotated[Count, told("Devices that are given up.")]
    milli_cpus: Annotated[Count, told("Thousandths of a CPU that are given up.")] = field(name="milliCPUs")
    bytes: Annotated[Count, told("Memory that is given up.")]


class AlignmentLostPart(DocumentPart):
    """Elements on which containers would lie beyond their need, added up."""

    numa_nodes: Count
    sockets: Count
    l3_caches: Count
    device_nodes: Annotated[Count, told("NUMA nodes of containers with devices, the devices' included.")]


class ExtentPart(DocumentPart):
    """On how many elements of a level a container lies."""

    level: Annotated[str, one_of("numa", "socket", "l3", "devices")]
    held: Count
    needed: Annotated[Count, told("How many hold the same on the empty machine.")]

    @property
    def beyond(self) -> int:
        """How many more than needed."""
        return max(0, self.held - self.needed)

    @property
    def is_aligned(self) -> bool:
        """Tell whether it lies on no more than needed; on several NUMA nodes nothing is aligned, needed or not."""
        return not self.beyond and not (self.level in ("numa", "devices") and self.held > 1)


class ProposalPart(DocumentPart, dict=True):
    """Changes that admit a pod, verified, and where it would be."""

    # No members of the document: what is given up in words, the same as a sentence, and the words after ``mooring``
    # that show the outcome.
    given_up = tuple[str, ...]()
    price = ""
    command = tuple[str, ...]()
    text: str
    cost: CostPart
    guarantees_given_up: Annotated[list[str], told("In words, the weightiest first.")]
    alignment_lost: AlignmentLostPart
    changes: list[ChangePart]
    containers: Annotated[dict[str, PlacementPart], told("The CPUs and memory of its containers.")]
    pod: Annotated[PlacementPart, told("The CPUs and memory of the pod as a whole.")]


class OutcomePlacePart(DocumentPart):
    """Where a container or pod is, with its devices."""

    cpus: CPUList
    mems: Annotated[str, told("NUMA nodes of the memory, with commas; empty for any.")]
    devices: list[str]
    alignment: Annotated[list[ExtentPart], told("Empty for the shared pool, and for a pod as a whole.")]


class OutcomePart(DocumentPart):
    """What becomes of a pod."""

    state: Annotated[
        str,
        one_of("admitted", "rejected", "left", "endless", "crash", "unasked", "absent"),
        told("left: admitted and then ended; absent: not in that plan."),
    ]
    reason: str
    code: Annotated[Code, told("Empty if the pod was not asked.")]
    why: Annotated[str, told("Only of a pod that is not admitted.")]
    containers: dict[str, OutcomePlacePart]
    pod: OutcomePlacePart | None


class DifferencePart(DocumentPart):
    """A pod of which other things become with the changes."""

    uid: str
    namespace: str
    name: str
    before: OutcomePart
    after: OutcomePart


class WhatIfDocument(DocumentPart, kw_only=True, dict=True):
    """What mooring whatif -o json prints with changes: where every pod is before and after."""

    # No members of the document: the changes as one sentence; the kubelet's policies before and after, empty where it
    # would not start; all pods, also those that are as before; those that are not admitted after, in their order.
    title = ""
    policies = ("", "")
    pods = tuple[DifferencePart, ...]()
    refused = tuple[DifferencePart, ...]()
    api_version: APIVersion = API_VERSION
    kind: Literal["WhatIf"] = "WhatIf"
    kubelet: KubeletRelease
    machine: str
    changes: list[ChangePart]
    differences: Annotated[list[DifferencePart], told("The pods that differ, those of before first.")]
    before: PlanDocument
    after: Annotated[PlanDocument, told("A pod that ended has left; a pod that returned has its uid with _again.")]


class NearestChangesDocument(DocumentPart, kw_only=True, dict=True):
    """What mooring whatif -o json prints without changes: the nearest ones that admit a pod."""

    # No members of the document: whether the pod is to have exclusive CPUs and has none; the words after ``mooring``
    # that search them for a pod that could have some; general advice; whether nothing needs to change or a change is
    # known.
    exclusive = False
    exclusive_command = tuple[str, ...]()
    advice = ""
    is_yes = False
    api_version: APIVersion = API_VERSION
    kind: Literal["NearestChanges"] = "NearestChanges"
    kubelet: KubeletRelease
    machine: str
    start_error: Annotated[str, told("The kubelet's message if it would not start without a change; else empty.")]
    pod: Annotated[PodPart | None, told("The pod; null when every pod is admitted without a change.")]
    admitted: Annotated[bool, told("Whether the pod is admitted without a change, as in the next three.")]
    reason: str
    code: Code
    why: str
    proposals: Annotated[list[ProposalPart], told("The nearest first.")]
    findings: list[FindingPart]
    remedy: Annotated[str, told("What to do where the kubelet would not start; else empty.")] = ""


FactMembers: TypeAlias = Annotated[
    dict[str, Any],
    Meta(description="What the engine found or chose, in its order.", extra_json_schema={"$ref": "#/$defs/Fact"}),
]
"""A fact of the engine; :mod:`mooring.documents.facts` derives the members from its type."""


class RemarkPart(DocumentPart):
    """Something about an admitted pod that is not as it could be."""

    code: Code
    message: str
    remedy: Annotated[str, told("General advice, which was not tried.")]


class StoryLinePart(DocumentPart):
    """A line of the story, and those below it."""

    text: str
    mark: Annotated[str, one_of("", "yes", "no"), told("no: here the pod was refused; yes: a decision.")]
    detail: Annotated[bool, told("Shown with -v only.")]
    below: Annotated[list[StoryLinePart], told("The lines under it.")]


class ClaimPart(DocumentPart):
    """A claim of dynamic resource allocation."""

    uid: str
    namespace: str
    name: str
    cpus: Annotated[str, told("All its CPUs as a list.")]


class StoryClaimsPart(DocumentPart):
    """Claims of dynamic resource allocation that hold CPUs of the node and have to do with the pod."""

    own: Annotated[list[ClaimPart], told("The pod's own.")]
    in_the_way: Annotated[
        list[ClaimPart], told("Without these a refused pod would be admitted, and without fewer of them it would not.")
    ]


class ExplanationDocument(DocumentPart, kw_only=True, dict=True):
    """What mooring explain POD -o json prints: the decision about one pod and the facts behind it."""

    circumstances = ""
    """By what rules it was decided, in one line. No member of the document."""
    api_version: APIVersion = API_VERSION
    kind: Literal["Explanation"] = "Explanation"
    kubelet: KubeletRelease
    machine: str
    uid: str
    namespace: str
    name: str
    container: Annotated[str, told("The container that was asked about; empty for the whole pod.")]
    verdict: Annotated[str, one_of("admitted", "rejected", "endless", "crash", "not asked", "not started")]
    running: Annotated[bool, told("Whether the pod ran already and was admitted again.")]
    code: Annotated[Code, told("The code of the cause.")]
    why: Annotated[str, told("The cause in one sentence.")]
    remedy: Annotated[str, told("General advice, which was not tried; of a kubelet that would not start, what was.")]
    reason: Annotated[str, told("The kubelet's; of a kubelet that would not start the stage.")]
    message: Annotated[str, told("The kubelet's; of a kubelet that would not start its message.")]
    proposals: Annotated[list[ProposalPart], told("The nearest changes that would admit the pod.")]
    remarks: Annotated[list[RemarkPart], told("Findings besides the cause.")]
    story: list[StoryLinePart]
    claims: StoryClaimsPart
    facts: Annotated[
        list[FactMembers],
        told("What the engine reported, in order; pod is a uid, an empty container the pod as a whole, null no mask."),
    ]


class ExplainablePodPart(DocumentPart):
    """A pod that can be explained."""

    uid: str
    namespace: str
    name: str
    admitted: bool
    code: Code
    why: str


class ExplanationListDocument(DocumentPart, kw_only=True, dict=True):
    """What mooring explain -o json prints without a name when every pod runs."""

    archive = ""
    """The node archive that it is about, and when it was captured. No member of the document."""
    api_version: APIVersion = API_VERSION
    kind: Literal["ExplanationList"] = "ExplanationList"
    kubelet: KubeletRelease
    machine: str
    pods: list[ExplainablePodPart]


class CodePageDocument(DocumentPart, kw_only=True):
    """What mooring explain CODE -o json prints."""

    api_version: APIVersion = API_VERSION
    kind: Literal["CodePage"] = "CodePage"
    code: Code
    title: str
    text: Annotated[str, told("The page in Markdown.")]
