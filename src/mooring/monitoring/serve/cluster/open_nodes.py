"""The nodes of a cluster whose pages are open: recorded from when a page is opened first; usable from any thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cachetools import LRUCache

from mooring.monitoring.serve.cluster.known import KnownCluster, NodeNow
from mooring.monitoring.serve.cluster.published_node import snapshot_of_node, unknown_node, unusable
from mooring.monitoring.serve.node_html import Addresses
from mooring.monitoring.serve.node_routes import NodeRoutes
from mooring.monitoring.serve.recording import Recording

MOST_OPEN: Final = 32
"""Nodes whose pages are recorded; the one that was opened longest ago is forgotten."""


@dataclass(slots=True)
class _OpenNode:
    routes: NodeRoutes
    shown: NodeNow | None
    """What the newest snapshot is made of; None after the node has left."""


@dataclass(slots=True)
class OpenNodes:
    """Pages of nodes."""

    cluster: KnownCluster
    assets: tuple[str, str]
    _open: LRUCache[str, _OpenNode] = field(default_factory=lambda: LRUCache(MOST_OPEN))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Around ``_open``: reading it changes its order."""

    def of(self, name: str) -> NodeRoutes | None:
        """Return the page of a node; None where the cluster has none of this name."""
        with self._lock:
            found = self._open.get(name)
        if found is not None:
            return found.routes
        now = self.cluster.node(name)
        if now is None:
            return None
        first = self.cluster.faults.guarded(
            name, lambda: snapshot_of_node(now), lambda error: unknown_node(name, unusable(error))
        )
        recording = Recording(first)
        styles, script = (f"../../{one}" for one in self.assets)
        made = _OpenNode(NodeRoutes(recording, Addresses(up="../../"), (styles, script)), now)
        with self._lock:  # another client can have opened it meanwhile
            return self._open.setdefault(name, made).routes

    def refresh(self) -> None:
        """Bring the pages up to date; those of nodes that have not changed cost nothing. Called by one thread."""
        with self._lock:
            pages = list(self._open.items())
        for name, page in pages:
            self.cluster.faults.guarded(name, partial(self._refresh, name, page), partial(_failed, page))

    def _refresh(self, name: str, page: _OpenNode) -> None:
        now = self.cluster.node(name)
        if now is page.shown:
            return
        page.shown = now
        if now is None:
            page.routes.recording.fail("the node has left the cluster")
        else:
            page.routes.recording.take(snapshot_of_node(now))


def _failed(page: _OpenNode, error: Exception) -> None:
    page.routes.recording.fail(f"{unusable(error).brief} ({type(error).__name__})")
