"""``mooring fleet fit``, ``drain`` and ``upgrade`` with ``-o json``: what a live cluster would do."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.documents.parts import API_VERSION, APIVersion, Code, Count, DocumentPart, one_of

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
    fixed: Annotated[
        dict[str, int],
        Meta(
            description="Why running pods are not moved -> how many: static, daemonset, no-controller, "
            "disruption-budget, not-simulated, priority, not-selected, leaving."
        ),
    ]
    assumed: Annotated[list[str], _ASSUMED]


class RelocatedPart(DocumentPart, rename={"source": "from", "target": "to"}):
    """What becomes of a pod that loses its node."""

    pod: str
    uid: str
    outcome: Annotated[
        str,
        one_of("moves", "waits", "refused", "lost", "held", "stays"),
        Meta(
            description="moves: another node admits its replacement; waits: no node takes it; refused: the kubelet of "
            "the node that the scheduler chooses refuses it; lost: no controller makes it anew; held: a "
            "PodDisruptionBudget keeps it; stays: it belongs to its node."
        ),
    ]
    source: Annotated[str, Meta(description="The node that it leaves.")]
    target: Annotated[str, Meta(description="The node that takes or refuses its replacement; empty for none.")]
    code: Annotated[Code, Meta(description="Of the cause of a refusal.")]
    causes: Annotated[list[CausePart], Meta(description="Why no node takes it, of a pod that waits.")]
    elsewhere: Annotated[
        list[str], Meta(description="Nodes that would admit it, of a pod that is refused where the scheduler puts it.")
    ]


class FleetDrainDocument(DocumentPart, kw_only=True):
    """What mooring fleet drain -o json prints: what becomes of the pods of drained nodes."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetDrain"] = "FleetDrain"
    cluster: str
    nodes: Annotated[list[str], Meta(description="That are drained.")]
    pods: list[RelocatedPart]
    assumed: Annotated[list[str], _ASSUMED]


class NodeUpgradePart(DocumentPart):
    """One node of an upgrade."""

    name: str
    turn: Annotated[Count, Meta(description="From 1; nodes of one turn are upgraded together.")]
    drained: Annotated[str, Meta(description="Why it is drained first; empty where its pods run on.")]
    refused: Annotated[dict[str, str], Meta(description="Pod that is refused at the restart -> code of the cause.")]


class FleetUpgradeDocument(DocumentPart, kw_only=True):
    """What mooring fleet upgrade -o json prints: what becomes of the pods of a cluster, node by node."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetUpgrade"] = "FleetUpgrade"
    cluster: str
    nodes: Annotated[list[NodeUpgradePart], Meta(description="In the order of the upgrade.")]
    pods: Annotated[list[RelocatedPart], Meta(description="That lost their node; a pod can move more than once.")]
    assumed: Annotated[list[str], _ASSUMED]


class ClusterArchivePart(DocumentPart):
    """One kind of objects in an archive of a cluster."""

    name: Annotated[str, Meta(description="Kind of the objects; configz for configurations of kubelets.")]
    objects: Count = 0
    bytes: Count = 0


class ClusterArchiveDocument(DocumentPart, kw_only=True):
    """What mooring collect --cluster -o json prints, and what mooring-cluster.json in an archive holds."""

    api_version: APIVersion = API_VERSION
    kind: Literal["ClusterArchive"] = "ClusterArchive"
    mooring: Annotated[str, Meta(description="Version of Mooring that collected.")] = ""
    captured: Annotated[str, Meta(description="When it was collected, as in 2026-11-01T12:00:00Z.")] = ""
    parts: list[ClusterArchivePart] = field(default_factory=list)
    unread: Annotated[list[str], Meta(description="What could not be read, in words.")] = field(default_factory=list)
