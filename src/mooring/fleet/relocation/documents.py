"""``mooring fleet drain -o json`` and ``mooring fleet upgrade -o json``: the answers as documents."""

from __future__ import annotations

from mooring.documents.cluster.live import FleetDrainDocument, FleetUpgradeDocument, NodeUpgradePart, RelocatedPart
from mooring.fleet.relocation.drain import DrainAnswer
from mooring.fleet.relocation.fit_document import cause_part
from mooring.fleet.relocation.replacement import Relocated
from mooring.fleet.relocation.upgrade import ClusterUpgrade


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
