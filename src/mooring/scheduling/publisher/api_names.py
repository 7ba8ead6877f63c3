"""The uids of this node's pods, as the API server has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mooring.manifest.pods import MIRROR
from mooring.scheduling.publisher.naming import Names
from mooring.service.cluster.apiserver import Cluster, ClusterError
from mooring.service.cluster.watching import CACHED, PODS, Pages, mapping_of, pods_of


class APINames:
    """Asks for them when they are needed; used by one thread."""

    def __init__(self, connect: Callable[[], Cluster], node: str) -> None:
        """Do not connect yet.

        Args:
            connect: opens the way to the API server.
            node: name of the node.
        """
        self._connect, self._node = connect, node
        self._cluster: Cluster | None = None

    def __call__(self, _pods: object = None) -> Names:
        """Return uid by namespace and name; nothing when the API server does not tell."""
        try:
            if self._cluster is None:
                self._cluster = self._connect()
            pages = Pages(self._cluster.http, PODS, {**pods_of(self._node), **CACHED})
            return names_of(mapping_of(item) for page in pages for item in page)
        except ClusterError:
            self.close()
            return {}

    def close(self) -> None:
        """Close the way to the API server."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def names_of(items: Iterable[dict[str, Any]]) -> Names:
    """Return uid by namespace and name; a static pod has the uid that its kubelet gave it, not its mirror's.

    >>> names_of([{"metadata": {"namespace": "a", "name": "b", "uid": "u"}}])
    {('a', 'b'): 'u'}
    """
    found = {}
    for item in items:
        metadata = item.get("metadata") or {}
        uid = (metadata.get("annotations") or {}).get(MIRROR) or metadata.get("uid")
        found[str(metadata.get("namespace", "")), str(metadata.get("name", ""))] = str(uid or "")
    return found
