"""The pages and parts of a cluster as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mooring.monitoring.serve.access import EVERYTHING, Viewer
from mooring.monitoring.serve.cluster.fitting import Fitting
from mooring.monitoring.serve.cluster.known import ClusterPod, KnownCluster, NodeNow
from mooring.monitoring.serve.cluster.tiles import ClusterSums, NodeTile, sums, tile, with_labels
from mooring.published.situation import UNJUDGED, NodeFaults
from mooring.views.html.document import page_text, part_text

MOST_WAITING: Final = 200
"""Waiting pods that are listed."""
MOST_NAMED: Final = 30
"""Nodes that are named of those that share an answer."""
FEW: Final = 150
"""Nodes up to which each tile has its name."""


@dataclass(slots=True)
class TileSheet:
    """The tiles of a cluster; that of a node that has not changed is drawn once. Used by one thread at a time."""

    links: bool = True
    """Whether a tile opens the page of its node."""
    _known: dict[str, tuple[NodeNow, NodeTile, dict[bool, str]]] = field(default_factory=dict)

    def body(self, cluster: KnownCluster, labels: str, viewer: Viewer) -> str:
        """Return the part of the page that changes.

        Raises:
            InputError: the labels are no selector.
        """
        everything = cluster.all()
        if len(self._known) > len(everything):
            names = {node.node.name for node in everything}
            self._known = {name: one for name, one in self._known.items() if name in names}
        nodes = with_labels(everything, labels)
        tiles = [self._tile(node, cluster.faults)[0] for node in nodes]
        many = len(nodes) > FEW
        drawn = "".join(self._drawn(node, cluster.faults, many=many) for node in nodes)
        waiting = [one for one in cluster.waiting() if viewer.may_list(one.pod.namespace)]
        return self._body(sums(nodes, tiles), drawn, waiting, labels, many=many)

    def _tile(self, node: NodeNow, faults: NodeFaults) -> tuple[NodeTile, dict[bool, str]]:
        found = self._known.get(node.node.name)
        if found is None or found[0] is not node:
            made = faults.guarded(
                node.node.name, lambda: tile(node), lambda _error: tile(replace(node, kubelet=UNJUDGED))
            )
            found = self._known[node.node.name] = node, made, {}
        return found[1:]

    def _drawn(self, node: NodeNow, faults: NodeFaults, *, many: bool) -> str:
        one, drawn = self._tile(node, faults)
        if many not in drawn:
            drawn[many] = part_text("cluster-tile.html", one=one, many=many, links=self.links)
        return drawn[many]

    def _body(self, found: ClusterSums, tiles: str, waiting: Sequence[ClusterPod], labels: str, *, many: bool) -> str:
        return part_text(
            "cluster-body.html",
            found=found,
            tiles=tiles,
            many=many,
            labels=labels,
            waiting=waiting[:MOST_WAITING],
            more=max(0, len(waiting) - MOST_WAITING),
            links=self.links,
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
    content = TileSheet(links=False).body(cluster, "", EVERYTHING)
    return page_text("serve-export.html", title=name, content=content, patterns="")
