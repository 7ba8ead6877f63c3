"""``mooring fleet simulate -o json``: what a cluster does with its work.

``mooring fleet fit``, ``drain`` and ``upgrade`` with ``-o json``: what a live cluster would do.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import structs

from mooring.documents.plan import API_VERSION, APIVersion, Code, Count, DocumentPart, one_of, told

_Share = Annotated[float, told("Of all that the nodes offer.")]
_Seconds = Annotated[float, told("Seconds since the beginning.")]


class FatesPart(DocumentPart):
    """Pods by what became of them."""

    ran: Count
    runs: Annotated[Count, told("On their nodes at the end.")]
    waits: Annotated[Count, told("Without a node at the end.")]
    left: Annotated[Count, told("Deleted before a node took them.")]
    refused: Annotated[Count, told("Refused by the kubelet of their node.")]
    evicted: Annotated[Count, told("Evicted from their node: drained, removed, or preempted.")]
    held: Annotated[Count, told("On a node whose agent has no room for them, at the end.")]

    @property
    def created(self) -> int:
        """How many pods were created."""
        return sum(structs.astuple(self))

    @property
    def admitted(self) -> int:
        """How many pods a kubelet admitted."""
        return self.ran + self.runs + self.evicted


class WaitedPart(DocumentPart):
    """Seconds from creation to admission, of the pods that were admitted."""

    median: float
    percentile99: float
    most: float


class FleetGroupPart(DocumentPart):
    """One group of nodes."""

    name: str
    nodes: Count
    admitted: Count
    refused: Annotated[dict[str, int], told("Code of the cause -> pods.")]


class UsePart(DocumentPart):
    """One resource of the whole cluster."""

    resource: str
    offered: Annotated[int, told("cpu in millicores, all else in whole units.")]
    mean: Annotated[float, told("Share that pods request, over time.")]
    most: _Share
    stranded: Annotated[float, told("Share that is free and of no use to the work, over time.")]


class FleetSamplePart(DocumentPart):
    """The cluster at one moment."""

    at: _Seconds
    running: Count
    waiting: Count
    refused: Annotated[Count, told("Refusals since the beginning.")]
    used: dict[str, int]
    stranded: dict[str, int]


class RefusedPart(DocumentPart):
    """Pods that kubelets of one group refused for one cause."""

    group: str
    code: Code
    pods: Count


class FleetPeriodPart(DocumentPart):
    """The time between two samples."""

    begins: _Seconds
    ends: _Seconds
    admitted: Count
    refused: list[RefusedPart]
    waited: Annotated[WaitedPart, told("Of the pods that were admitted in it.")]


class FleetPodPart(DocumentPart):
    """One pod."""

    name: str
    fate: Annotated[str, one_of("ran", "runs", "waits", "left", "refused", "evicted", "held")]
    node: Annotated[str, told("Where it ran, or which node refused it; empty for none.")]
    code: Annotated[Code, told("Of the cause of a refusal; of a pod that waits, of the first cause in waits with one.")]
    created: _Seconds
    admitted: Annotated[float | None, told("Seconds since the beginning; null for never.")]
    ended: Annotated[float | None, told("Seconds since the beginning; null for never.")]


class WaitCausePart(DocumentPart):
    """What keeps nodes from taking a pod."""

    text: str
    code: Code
    nodes: Annotated[Count, told("That do not take it for this reason.")]


class FleetWaitPart(DocumentPart):
    """Equal pods for which there is no node at the end."""

    pods: list[str]
    causes: Annotated[list[WaitCausePart], told("Those that concern most nodes first.")]


class FleetDocument(DocumentPart, kw_only=True):
    """What mooring fleet simulate -o json prints: what a cluster does with its work."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Fleet"] = "Fleet"
    cluster: str
    work: str
    strategy: str
    seed: int
    nodes: Count
    pods: FatesPart
    waited: WaitedPart
    groups: list[FleetGroupPart]
    uses: list[UsePart]
    runaways: Annotated[dict[str, int], told("Pods that controllers made anew again and again.")]
    failed_jobs: Annotated[list[str], told("Jobs of which more pods failed than backoffLimit.")]
    preempted: Annotated[Count, told("Pods evicted for pods of higher priority.")]
    cut_short: Annotated[bool, told("Whether it was stopped before its end.")]
    problems: Annotated[list[str], told("Kubelets that did not start again, and resizes not taken.")]
    filtered: Annotated[dict[str, int], told("Cause -> how often the extender kept a pod off a node.")]
    samples: list[FleetSamplePart]
    records: Annotated[list[FleetPodPart], told("Every pod, in the order of creation.")]
    assumed: Annotated[list[str], told("What was assumed or not read.")]
    aligned: Annotated[
        dict[str, int], told("Number of NUMA nodes -> pods whose own CPUs, devices and memory lie on so many.")
    ]
    periods: Annotated[list[FleetPeriodPart], told("Between the samples; the first ends with the first.")]
    waits: Annotated[list[FleetWaitPart], told("Why pods wait at the end; of the hundred kinds of which most do.")]


class TrialPart(DocumentPart):
    """One simulation of several."""

    variant: Annotated[str, told("What was varied.")]
    seed: int
    nodes: Count
    pods: FatesPart
    waited: WaitedPart
    uses: list[UsePart]


class FleetComparisonDocument(DocumentPart, kw_only=True):
    """What mooring fleet compare and mooring fleet size -o json print: simulations that differ in one thing."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetComparison"] = "FleetComparison"
    work: str
    trials: list[TrialPart]
    best: Annotated[str, told("The variant that answers the question; empty where none does.")]


_NODE_COUNTS = told("Node -> replicas.")
_ASSUMED = told("What was assumed or not read.")


class CausePart(DocumentPart):
    """Nodes that do not take a pod for one reason."""

    text: str
    code: Code
    nodes: list[str]


class MovePart(DocumentPart, rename={"source": "from", "target": "to"}):
    """One move of a running pod."""

    pod: str
    uid: str
    source: Annotated[str, told("The node that the pod leaves.")]
    target: Annotated[str, told("The node that takes it.")]
    cordon: Annotated[list[str], told("Nodes that must take no pods meanwhile.")]


class MovePlanPart(DocumentPart):
    """Moves that make room."""

    moves: list[MovePart]
    is_exact: Annotated[bool, told("Whether no plan has fewer moves or makes room for more.")]
    at_least: Annotated[Count, told("No shorter sequence of moves makes room for all.")]


class FleetFitDocument(DocumentPart, kw_only=True):
    """What mooring fleet fit -o json prints: how many replicas fit, where, and what to move for the rest."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetFit"] = "FleetFit"
    cluster: str
    of: Annotated[str, told("What the replicas belong to.")]
    replicas: Annotated[Count, told("That are wanted.")]
    fits_now: Count
    now: Annotated[dict[str, int], _NODE_COUNTS]
    causes: Annotated[list[CausePart], told("Why no node takes one more; empty where all fit.")]
    fits_after: Annotated[Count, told("After the moves.")]
    after: Annotated[dict[str, int], _NODE_COUNTS]
    plan: MovePlanPart
    fixed: Annotated[
        dict[str, int],
        told(
            "Why running pods are not moved -> how many: static, daemonset, no-controller, disruption-budget, not-"
            "simulated, priority, not-selected, leaving."
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
        told(
            "moves: another node admits its replacement; waits: no node takes it; refused: the kubelet of the node "
            "that the scheduler chooses refuses it; lost: no controller makes it anew; held: a PodDisruptionBudget "
            "keeps it; stays: it belongs to its node."
        ),
    ]
    source: Annotated[str, told("The node that it leaves.")]
    target: Annotated[str, told("The node that takes or refuses its replacement; empty for none.")]
    code: Annotated[Code, told("Of the cause of a refusal.")]
    causes: Annotated[list[CausePart], told("Why no node takes it, of a pod that waits.")]
    elsewhere: Annotated[
        list[str], told("Nodes that would admit it, of a pod that is refused where the scheduler puts it.")
    ]


class FleetDrainDocument(DocumentPart, kw_only=True):
    """What mooring fleet drain -o json prints: what becomes of the pods of drained nodes."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetDrain"] = "FleetDrain"
    cluster: str
    nodes: Annotated[list[str], told("That are drained.")]
    pods: list[RelocatedPart]
    assumed: Annotated[list[str], _ASSUMED]


class NodeUpgradePart(DocumentPart):
    """One node of an upgrade."""

    name: str
    turn: Annotated[Count, told("From 1; nodes of one turn are upgraded together.")]
    drained: Annotated[str, told("Why it is drained first; empty where its pods run on.")]
    refused: Annotated[dict[str, str], told("Pod that is refused at the restart -> code of the cause.")]


class FleetUpgradeDocument(DocumentPart, kw_only=True):
    """What mooring fleet upgrade -o json prints: what becomes of the pods of a cluster, node by node."""

    api_version: APIVersion = API_VERSION
    kind: Literal["FleetUpgrade"] = "FleetUpgrade"
    cluster: str
    nodes: Annotated[list[NodeUpgradePart], told("In the order of the upgrade.")]
    pods: Annotated[list[RelocatedPart], told("That lost their node; a pod can move more than once.")]
    assumed: Annotated[list[str], _ASSUMED]
