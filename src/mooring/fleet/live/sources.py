"""Objects of a cluster from a file, from standard input, or from an archive of ``mooring collect --cluster``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mooring.decoding.documents import load_documents
from mooring.decoding.fields import Document
from mooring.fleet.live.objects import NODE, ClusterObjects, cluster_objects
from mooring.manifest.dynamic.objects import objects_of

ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")


def load_objects(path: str) -> ClusterObjects:
    """Read the objects of a cluster.

    Args:
        path: of kubectl's lists or of an archive; ``-`` is standard input.

    Raises:
        InputError: it cannot be read, or has no node.
    """
    return cluster_objects(load_documents(path), path)


def has_nodes(documents: Sequence[Document]) -> bool:
    """Tell whether documents hold Node objects, as kubectl prints them."""
    return any(True for document in documents for _ in objects_of(document.content, (NODE,)))
