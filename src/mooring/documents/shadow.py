"""``mooring shadow -o json``: how often the engine decided as a kubelet did."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mooring.documents.parts import API_VERSION, APIVersion, Count, DocumentPart


class ShadowCountPart(DocumentPart):
    """Decisions of one kind."""

    verdict: Annotated[str, Meta(description="agreed, differs or cannot tell.")]
    event: Annotated[str, Meta(description="What the kubelet did: admitted, refused, removed or restarted.")]
    cause: Annotated[str, Meta(description="What differs, or why it cannot be told; empty where the two agree.")]
    count: Count


class ShadowDecisionPart(DocumentPart):
    """A decision in which the two differ."""

    pod: Annotated[str, Meta(description="Namespace and name; empty for a restart.")]
    event: str
    cause: str
    kubelet: Annotated[str, Meta(description="What the kubelet has.")]
    engine: Annotated[str, Meta(description="What the engine has.")]


class WouldBePart(DocumentPart):
    """The same pods with another configuration."""

    refusals: Count
    refused: Annotated[list[str], Meta(description="Pods that only this configuration refuses, the newest last.")]
    admitted: Annotated[list[str], Meta(description="Pods that only this configuration admits, the newest last.")]


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
    blind: Annotated[Count, Meta(description="Looks at which nothing could be seen.")]
    refused: Annotated[Count, Meta(description="Pods that the kubelet refused.")]
    would_be: WouldBePart | None = None
