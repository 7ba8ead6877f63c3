"""One file about a cluster: what ``mooring collect --cluster`` packs, and the questions about live clusters read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import to_builtins

from mooring import __version__
from mooring.documents.cluster.live import ClusterArchiveDocument, ClusterArchivePart
from mooring.documents.parts import API_VERSION
from mooring.engine.core.errors import InputError
from mooring.fleet.live.objects import ClusterObjects, Content, cluster_objects
from mooring.fleet.live.reduction import reduced_configz, reduced_objects
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import as_mapping
from mooring.inputs.machines.archive import archive_bytes
from mooring.inputs.machines.tree import Tree

TOP: Final = "mooring-cluster"
"""The folder around everything."""
ABOUT: Final = "mooring-cluster.json"
CONFIGZ: Final = "configz"
"""The folder of kubelets' configurations, one file a node."""
_KIND: Final = "ClusterArchive"
_REMEDY: Final = "collect it again with mooring collect --cluster"


class ClusterArchive:
    """What goes into an archive."""

    def __init__(self, objects: ClusterObjects, captured: str) -> None:
        """Reduce objects to what decides.

        Args:
            objects: of the cluster.
            captured: date and time, as in ``2026-11-01T12:00:00Z``.

        Raises:
            InputError: an object is none of Kubernetes.
        """
        self._files: dict[str, bytes] = {}
        parts = []
        for kind, items in reduced_objects(objects).items():
            data = _json({"apiVersion": "v1", "kind": "List", "items": items})
            if items:
                self._files[f"{kind}.json"] = data
            parts.append(ClusterArchivePart(kind, len(items), len(data) if items else 0))
        configz = {f"{CONFIGZ}/{name}.json": _json(one) for name, one in reduced_configz(objects).items()}
        self._files |= configz
        parts.append(ClusterArchivePart(CONFIGZ, len(configz), sum(map(len, configz.values()))))
        self.about = ClusterArchiveDocument(
            mooring=__version__, captured=captured, parts=parts, unread=list(objects.unread)
        )

    def packed(self) -> bytes:
        """Return the archive; the same objects give the same bytes.

        Raises:
            InputError: it would be too large.
        """
        return archive_bytes(TOP, {**self._files, ABOUT: _json(to_builtins(self.about))})


def _json(content: object) -> bytes:
    return f"{json.dumps(content, indent=1)}\n".encode()


def objects_of_archive(tree: Tree) -> ClusterObjects:
    """Return the objects of an archive.

    Raises:
        InputError: it is none, or a file in it cannot be understood.
    """
    top = f"{TOP}/" if tree.is_dir(TOP) else ""
    about = _content(tree, f"{top}{ABOUT}")
    if about is None:
        raise InputError(f"is not an archive of a cluster: {ABOUT} is missing", source=tree.name, remedy=_REMEDY)
    if (about.get("kind"), about.get("apiVersion")) != (_KIND, API_VERSION):
        found = f"{about.get('kind')!s:.40} of {about.get('apiVersion')!s:.40}"
        raise InputError(f"{found} is not {_KIND} of {API_VERSION}", source=f"{tree.name}: {ABOUT}", remedy=_REMEDY)
    documents = [
        document
        for name in tree.names(top.rstrip("/"))
        if name.endswith(".json") and name != ABOUT
        for document in documents_in(tree.data(f"{top}{name}") or b"", f"{tree.name}: {name}")
    ]
    objects = cluster_objects(documents, tree.name)
    configz = {
        name.removesuffix(".json"): content
        for name in tree.names(f"{top}{CONFIGZ}")
        if (content := _content(tree, f"{top}{CONFIGZ}/{name}")) is not None
    }
    unread = about.get("unread")
    told = tuple(str(one) for one in unread) if isinstance(unread, list) else ()
    return ClusterObjects(tree.name, objects.found, configz, str(about.get("captured") or ""), told)


def _content(tree: Tree, path: str) -> Content | None:
    data = tree.data(path)
    if data is None:
        return None
    source = f"{tree.name}: {path}"
    try:
        [document, *_] = documents_in(data, source)
        content: Mapping[str, Any] = as_mapping(document.content)
    except InputError as error:
        raise error.at(source) from None
    return content
