"""Objects of a cluster from a file, from standard input, or from an archive of ``mooring collect --cluster``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mooring.fleet.live.archive import ABOUT, objects_of_archive
from mooring.fleet.live.objects import NODE, ClusterObjects, cluster_objects
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.decoding.fields import Document
from mooring.inputs.decoding.files import STANDARD_INPUT
from mooring.inputs.machines.files import open_tree
from mooring.inputs.pods.cluster_objects import objects_of

ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")


def load_objects(path: str) -> ClusterObjects:
    """Read the objects of a cluster.

    Args:
        path: of kubectl's lists, or of an archive or its unpacked folder; ``-`` is standard input.

    Raises:
        InputError: it cannot be read, or has no node.
    """
    if path.endswith(ARCHIVES) or (Path(path) / ABOUT).is_file():
        return objects_of_archive(open_tree(path))
    return cluster_objects(load_documents(path), STANDARD_INPUT if path == "-" else path)


def has_nodes(documents: Sequence[Document]) -> bool:
    """Tell whether documents hold Node objects, as kubectl prints them."""
    return any(True for document in documents for _ in objects_of(document.content, (NODE,)))
