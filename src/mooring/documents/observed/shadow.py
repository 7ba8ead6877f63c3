"""``mooring shadow -o json``: how often the engine decided as a kubelet did."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.documents.parts import API_VERSION, APIVersion, Count, DocumentPart


class ShadowCountPart(DocumentPart):
    """Decisions of one kind."""

    verdict: Annotated[str, Meta(description="agreed, differs or cannot tell.")]
    event: Annotated[str, Meta(description="What the kubelet did: admitted, refused, removed or restarted.")]
    cause: Annotated[str, Meta(description="What differs, or why there is no verdict; empty if the two agree.")]
    count: Count
    release: Annotated[str, Meta(description="The kubelet release by which the engine decided.")] = ""


class ShadowDecisionPart(DocumentPart):
    """A decision in which the two differ."""

    pod: Annotated[str, Meta(description="Namespace and name, the uid where they are anonymous; empty for a restart.")]
    event: str
    cause: str
    kubelet: Annotated[str, Meta(description="What the kubelet has.")]
    engine: Annotated[str, Meta(description="What the engine has.")]
    at: Annotated[str, Meta(description="When it was judged.")] = ""
    release: Annotated[str, Meta(description="The kubelet release by which the engine decided.")] = ""


class ShadowDayPart(DocumentPart):
    """Decisions of one day."""

    day: Annotated[str, Meta(description="Date, UTC.")]
    decisions: Count
    differs: Count
    refused: Annotated[Count, Meta(description="Pods that the kubelet refused.")]


class WouldBeDayPart(DocumentPart):
    """Refusals of one day, by the kubelet and with the other configuration."""

    day: Annotated[str, Meta(description="Date, UTC.")]
    refused: Annotated[Count, Meta(description="Pods that the kubelet refused.")]
    refusals: Annotated[Count, Meta(description="Pods that the other configuration would have refused.")]


class WouldBePart(DocumentPart):
    """The same pods with another configuration."""

    refusals: Count
    refused: Annotated[list[str], Meta(description="Pods that only this configuration refuses, the newest last.")]
    admitted: Annotated[list[str], Meta(description="Pods that only this configuration admits, the newest last.")]
    since: Annotated[str, Meta(description="When the comparison began.")] = ""
    days: Annotated[list[WouldBeDayPart], Meta(description="The newest last, at most 31.")] = field(
        default_factory=list
    )
    configuration: Annotated[str, Meta(description="Digest of this configuration.")] = ""


class ShadowDocument(DocumentPart, kw_only=True):
    """What mooring shadow -o json prints: how often the engine decided as a kubelet did."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Shadow"] = "Shadow"
    node: str
    release: str
    since: Annotated[str, Meta(description="Time of the first observation.")]
    agreed: Count
    differs: Count
    unknown: Count
    counts: list[ShadowCountPart]
    differences: Annotated[list[ShadowDecisionPart], Meta(description="The newest last, at most 100.")]
    blind: Annotated[Count, Meta(description="Observations that failed.")]
    refused: Annotated[Count, Meta(description="Pods that the kubelet refused.")]
    would_be: WouldBePart | None = None
    days: Annotated[list[ShadowDayPart], Meta(description="The newest last, at most 31.")] = field(default_factory=list)
    observed_at: Annotated[str, Meta(description="When this was written.")] = ""
    predicted: Annotated[Count, Meta(description="Pods whose outcome was predicted and is known.")] = 0
    came_true: Annotated[Count, Meta(description="Of those, the pods whose outcome was predicted correctly.")] = 0
