"""The filters of a scheduling cycle together."""

from __future__ import annotations

from mooring.fleet.scheduler.affinity import affinity_allows
from mooring.fleet.scheduler.arrays import NodeMask
from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.scheduler.spread import SpreadView
from mooring.fleet.scheduler.table import NodeTable


def feasible(table: NodeTable, asked: PodDemand) -> NodeMask:
    """Return the nodes that pass every filter.

    Args:
        table: of the cluster.
        asked: the pod.
    """
    return table.willing(asked) & table.fitting(asked) & friendly(table, asked)


def friendly(table: NodeTable, asked: PodDemand) -> NodeMask:
    """Return the nodes that the pods on all nodes let it run on: affinity, anti-affinity and spread constraints."""
    allowed = table.present
    if table.index.repelling or asked.relations.affinity or asked.relations.anti_affinity:
        allowed = allowed & affinity_allows(table.index, asked.relations, table.present)
    if any(one.is_required for one in asked.relations.spread):
        allowed = allowed & SpreadView(table, asked).allows()
    return allowed
