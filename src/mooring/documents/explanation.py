"""``mooring explain -o json``: the decision about a pod and its facts, what can be explained, the page of a code."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from mooring.documents.changes import ProposalPart
from mooring.documents.parts import API_VERSION, APIVersion, Code, DocumentPart, KubeletRelease, one_of

FactMembers: TypeAlias = Annotated[
    dict[str, Any],
    Meta(description="What the engine found or chose, in its order.", extra_json_schema={"$ref": "#/$defs/Fact"}),
]
"""A fact of the engine; :mod:`mooring.documents.facts` derives the members from its type."""


class RemarkPart(DocumentPart):
    """Something about an admitted pod that is not as it could be."""

    code: Code
    message: str
    remedy: Annotated[str, Meta(description="General advice, which was not tried.")]


class StoryLinePart(DocumentPart):
    """A line of the story, and those below it."""

    text: str
    mark: Annotated[str, one_of("", "yes", "no"), Meta(description="no: here the pod was refused; yes: a decision.")]
    detail: Annotated[bool, Meta(description="Shown with -v only.")]
    below: Annotated[list[StoryLinePart], Meta(description="The lines under it.")]


class ClaimPart(DocumentPart):
    """A claim of dynamic resource allocation."""

    uid: str
    namespace: str
    name: str
    cpus: Annotated[str, Meta(description="All its CPUs as a list.")]


class StoryClaimsPart(DocumentPart):
    """Claims of dynamic resource allocation that hold CPUs of the node and have to do with the pod."""

    own: Annotated[list[ClaimPart], Meta(description="The pod's own.")]
    in_the_way: Annotated[
        list[ClaimPart],
        Meta(description="Without these a refused pod would be admitted, and without fewer of them it would not."),
    ]


class ExplanationDocument(DocumentPart, kw_only=True):
    """What mooring explain POD -o json prints: the decision about one pod and the facts behind it."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Explanation"] = "Explanation"
    kubelet: KubeletRelease
    machine: str
    uid: str
    namespace: str
    name: str
    container: Annotated[str, Meta(description="The container that was asked about; empty for the whole pod.")]
    verdict: Annotated[str, one_of("admitted", "rejected", "endless", "crash", "not asked", "not started")]
    running: Annotated[bool, Meta(description="Whether the pod ran already and was admitted again.")]
    code: Annotated[Code, Meta(description="The code of the cause.")]
    why: Annotated[str, Meta(description="The cause in one sentence.")]
    remedy: Annotated[
        str, Meta(description="General advice, which was not tried; of a kubelet that would not start, what was.")
    ]
    reason: Annotated[str, Meta(description="The kubelet's; of a kubelet that would not start the stage.")]
    message: Annotated[str, Meta(description="The kubelet's; of a kubelet that would not start its message.")]
    proposals: Annotated[list[ProposalPart], Meta(description="The nearest changes that would admit the pod.")]
    remarks: Annotated[list[RemarkPart], Meta(description="Findings besides the cause.")]
    story: list[StoryLinePart]
    claims: StoryClaimsPart
    facts: Annotated[
        list[FactMembers],
        Meta(
            description="What the engine reported, in order; pod is a uid, an empty container the pod as a whole, "
            "null no mask."
        ),
    ]


class ExplainablePodPart(DocumentPart):
    """A pod that can be explained."""

    uid: str
    namespace: str
    name: str
    admitted: bool
    code: Code
    why: str


class ExplanationListDocument(DocumentPart, kw_only=True):
    """What mooring explain -o json prints without a name when every pod runs."""

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
    text: Annotated[str, Meta(description="The page in Markdown.")]
