"""``mooring fleet drain -o json`` and ``mooring fleet upgrade -o json``: the answers as documents.

``mooring fleet fit -o json`` and ``-o evictions``: the answer as a document, and its moves for others to carry out.

Source: Kubernetes API v1.37, policy/v1 Eviction: the object that is posted to ``pods/NAME/eviction``.
"""

from __future__ import annotations

import json
from typing import Any, Final

from mooring.fleet.documents import (
    CausePart,
    FleetDrainDocument,
    FleetFitDocument,
    FleetUpgradeDocument,
    MovePart,
    MovePlanPart,
    NodeUpgradePart,
    RelocatedPart,
)
from mooring.fleet.relocation.drain import ClusterUpgrade, DrainAnswer
from mooring.fleet.relocation.fit import FitAnswer
from mooring.fleet.relocation.moves import Relocated, SharedObstacle

FROM: Final = "mooring.dev/from"
TO: Final = "mooring.dev/to"
CORDON: Final = "mooring.dev/cordon"


def fit_document(answer: FitAnswer) -> FleetFitDocument:
    """Return the document."""
    return FleetFitDocument(
        cluster=answer.live.cluster.name,
        of=answer.question.name,
        replicas=answer.question.replicas,
        fits_now=answer.fits_now,
        now=dict(answer.now),
        causes=[cause_part(one) for one in answer.causes],
        fits_after=answer.fits_after,
        after=dict(answer.after),
        plan=MovePlanPart(
            [
                MovePart(
                    one.pod.name,
                    one.pod.uid,
                    answer.names[one.source],
                    answer.names[one.target],
                    list(answer.cordons[number]),
                )
                for number, one in enumerate(answer.plan.moves)
            ],
            answer.plan.is_exact,
            answer.plan.at_least,
        ),
        fixed={reason.value: count for reason, count in sorted(answer.fixed.items(), key=lambda one: one[0].value)},
        assumed=list(answer.live.cluster.findings),
    )


def cause_part(cause: SharedObstacle) -> CausePart:
    """Return a cause as part of a document."""
    return CausePart(cause.obstacle.text, cause.obstacle.code, list(cause.nodes))


def evictions_text(answer: FitAnswer) -> str:
    """Return the moves as a list of Eviction objects, in the order in which they are to be posted.

    The precondition on the uid keeps a pod of the same name that came later from being evicted.
    """
    items = [_eviction(answer, number) for number in range(len(answer.plan.moves))]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


def _eviction(answer: FitAnswer, number: int) -> dict[str, Any]:
    move = answer.plan.moves[number]
    namespace, _, name = move.pod.name.partition("/")
    annotations = {
        FROM: answer.names[move.source],
        TO: answer.names[move.target],
        CORDON: ",".join(answer.cordons[number]),
    }
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "deleteOptions": {"preconditions": {"uid": move.pod.uid}},
    }


def drain_document(answer: DrainAnswer) -> FleetDrainDocument:
    """Return the document of a drain."""
    return FleetDrainDocument(
        cluster=answer.live.cluster.name,
        nodes=list(answer.drained),
        pods=[_relocated(one) for one in answer.pods],
        assumed=list(answer.live.cluster.findings),
    )


def cluster_upgrade_document(answer: ClusterUpgrade) -> FleetUpgradeDocument:
    """Return the document of an upgrade."""
    return FleetUpgradeDocument(
        cluster=answer.live.cluster.name,
        nodes=[NodeUpgradePart(one.name, one.turn, one.drained, dict(one.refused)) for one in answer.nodes],
        pods=[_relocated(one) for one in answer.pods],
        assumed=list(answer.live.cluster.findings),
    )


def _relocated(one: Relocated) -> RelocatedPart:
    return RelocatedPart(
        one.pod.name,
        one.pod.uid,
        one.outcome.value,
        one.source,
        one.target,
        one.code,
        [cause_part(cause) for cause in one.causes],
        list(one.elsewhere),
    )
