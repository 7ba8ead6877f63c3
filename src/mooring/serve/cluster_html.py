"""The pages and parts of a cluster as HTML."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.render.html.document import page_text, part_text
from mooring.serve.access import Viewer
from mooring.serve.cluster_tiles import ClusterSums, NodeTile, sums, tile, with_labels
from mooring.serve.fitting import Fitting
from mooring.serve.known_cluster import ClusterPod, KnownCluster

MOST_WAITING = 200
"""Waiting pods that are listed."""
MOST_NAMED = 30
"""Nodes that are named of those that share an answer."""


def cluster_body(cluster: KnownCluster, labels: str, viewer: Viewer) -> str:
    """Return the part of the page that changes.

    Raises:
        InputError: the labels are no selector.
    """
    nodes = with_labels(cluster.all(), labels)
    tiles = [tile(node) for node in nodes]
    waiting = [one for one in cluster.waiting() if viewer.may_list(one.pod.namespace)]
    return _body(sums(nodes, tiles), tiles, waiting, links=True)


def _body(found: ClusterSums, tiles: Sequence[NodeTile], waiting: Sequence[ClusterPod], *, links: bool) -> str:
    return part_text(
        "cluster-body.html",
        sums=found,
        tiles=tiles,
        waiting=waiting[:MOST_WAITING],
        more=max(0, len(waiting) - MOST_WAITING),
        links=links,
    )


def cluster_page(content: str, name: str, assets: tuple[str, str]) -> str:
    """Return the page of a cluster.

    Args:
        content: its body.
        name: of the cluster.
        assets: addresses of styles and script.
    """
    styles, script = assets
    return part_text("serve-cluster.html", title=name, styles=styles, script=script, content=content)


def fittings_html(found: Sequence[Fitting]) -> str:
    """Return where pods fit."""
    return part_text("fitting.html", found=found, most=MOST_NAMED)


def exported_cluster(cluster: KnownCluster, name: str) -> str:
    """Return a cluster as one file."""
    nodes = cluster.all()
    tiles = [tile(node) for node in nodes]
    content = _body(sums(nodes, tiles), tiles, cluster.waiting(), links=False)
    return page_text("serve-export.html", title=name, content=content, patterns="")
