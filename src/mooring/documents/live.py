"""``mooring fleet fit``, ``drain`` and ``upgrade`` with ``-o json``: what a live cluster would do."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mooring.documents.parts import API_VERSION, APIVersion, Code, Count, DocumentPart

_NODE_COUNTS = Meta(description="Node -> replicas.")
_ASSUMED = Meta(description="What was assumed or not read.")


class CausePart(DocumentPart):
    """Nodes that do not take a pod for one reason."""

    text: str
    code: Code
    nodes: list[str]


class MovePart(DocumentPart, rename={"source": "from", "target": "to"}):
    """One move of a running pod."""

    pod: str
    uid: str
    source: Annotated[str, Meta(description="The node that the pod leaves.")]
    target: Annotated[str, Meta(description="The node that takes it.")]
    cordon: Annotated[list[str], Meta(description="Nodes that must take no pods meanwhile.")]


class MovePlanPart(DocumentPart):
    """Moves that make room."""

    moves: list[MovePart]
    is_exact: Annotated[bool, Meta(description="Whether no plan has fewer moves or makes room for more.")]
    at_least: Annotated[Count, Meta(description="No shorter sequence of moves makes room for all.")]


class FleetFitDocument(DocumentPart, kw_only=True):
    """What mooring fleet fit -o json prints: how many replicas fit, where, and what to move for the rest."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetFit"] = "FleetFit"
    cluster: str
    of: Annotated[str, Meta(description="What the replicas belong to.")]
    replicas: Annotated[Count, Meta(description="That are wanted.")]
    fits_now: Count
    now: Annotated[dict[str, int], _NODE_COUNTS]
    causes: Annotated[list[CausePart], Meta(description="Why no node takes one more; empty where all fit.")]
    fits_after: Annotated[Count, Meta(description="After the moves.")]
    after: Annotated[dict[str, int], _NODE_COUNTS]
    plan: MovePlanPart
    fixed: Annotated[dict[str, int], Meta(description="Why running pods are not moved -> how many.")]
    assumed: Annotated[list[str], _ASSUMED]
