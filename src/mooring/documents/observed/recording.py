"""``mooring record -o json``: what was recorded of each node."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mooring.documents.parts import API_VERSION, APIVersion, Count, DocumentPart


class RecordedNodePart(DocumentPart):
    """A node, and how often the engine decided as its kubelet did."""

    node: str
    release: Annotated[str, Meta(description="Of its kubelet; empty while nothing was seen of it.")]
    since: Annotated[str, Meta(description="Time from which decisions are counted.")]
    folder: Annotated[str, Meta(description="Where its recordings lie.")]
    scenarios: Annotated[Count, Meta(description="Written since the start.")]
    left_out: Annotated[Count, Meta(description="Stretches of which no scenario can be made.")]
    agreed: Count
    differs: Count
    unknown: Count
    blind: Annotated[Count, Meta(description="Looks at which nothing could be seen.")]


class RecordingDocument(DocumentPart, kw_only=True):
    """What mooring record -o json prints: what was recorded of each node."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Recording"] = "Recording"
    nodes: list[RecordedNodePart]
