"""Objects at the API server: server-side apply in the name of ``mooring``, and removing facts that no state names.

Source: Kubernetes API concepts, "Server-Side Apply". JSON is YAML, and so a valid apply patch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import msgspec

from mooring.published import observation
from mooring.published.objects import FACTS, GROUP, NODE_LABEL, PATHS, STATE, encoded
from mooring.service.apiserver import asked, cluster_errors
from mooring.service.following import objects_at

MANAGER: Final = "mooring"
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_JSON: Final = {"Content-Type": "application/json"}
_PATHS: Final[Mapping[str, str]] = {
    **PATHS,
    observation.KIND: f"apis/{observation.API_VERSION}/{observation.PLURAL}",
}


def apply(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object as the document says, whatever set its fields before.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    path = f"{_PATHS[document['kind']]}/{document['metadata']['name']}"
    query = {"fieldManager": MANAGER, "force": "true"}
    asked(http, "PATCH", path, params=query, content=encoded(document), headers=_APPLY)


def create_once(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object whose content follows from its name; one that is there already is the same.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    path, query = _PATHS[document["kind"]], {"fieldManager": MANAGER}
    asked(http, "POST", path, (httpx2.codes.CONFLICT,), params=query, content=encoded(document), headers=_JSON)


def node_uid(http: httpx2.Client, name: str) -> str:
    """Return the uid of a Node object; empty when there is none, or it may not be read.

    Raises:
        ClusterError: the server cannot tell at the moment.
    """
    return _text_of(_node(http, name), "metadata", "uid")


def node_kubelet_version(http: httpx2.Client, name: str) -> str:
    """Return the version that a node's kubelet reported when it registered; empty where it cannot be read.

    Source: Kubernetes API v1, Node, ``status.nodeInfo.kubeletVersion``.

    Raises:
        ClusterError: the server cannot tell at the moment.
    """
    return _text_of(_node(http, name), "status", "nodeInfo", "kubeletVersion")


def _node(http: httpx2.Client, name: str) -> object:
    """Return a Node object; None when there is none, or it may not be read."""
    response = asked(http, "GET", f"api/v1/nodes/{name}", (httpx2.codes.FORBIDDEN, httpx2.codes.NOT_FOUND))
    with cluster_errors():
        return msgspec.json.decode(response.content) if response.is_success else None


def _text_of(found: object, *path: str) -> str:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


_YOUNGEST: Final = 3600.0
"""Seconds for which facts stay in any case: a publisher makes them just before the state that names them."""
_MOST_YOUNG: Final = 8
"""Facts of one node that stay for that reason: a publisher makes new ones when a configuration changes."""


def prune(http: httpx2.Client, now: float) -> list[str]:
    """Delete facts that no state names, and return their names.

    Args:
        http: with base URL and credentials.
        now: seconds since 1970.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    facts = objects_at(http, _PATHS[FACTS])
    # Read afterwards: whatever names facts that were there before is seen.
    named = {(state.get("spec") or {}).get("facts") for state in objects_at(http, _PATHS[STATE])}
    gone, young = [], Counter[str]()
    for metadata in sorted((one.get("metadata") or {} for one in facts), key=_made, reverse=True):
        name, node = str(metadata.get("name", "")), str((metadata.get("labels") or {}).get(NODE_LABEL, ""))
        if name in named:
            continue
        if now - _made(metadata) < _YOUNGEST and (not node or young[node] < _MOST_YOUNG):
            young[node] += 1
            continue
        # Unless it is another by now
        conditions = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        passing = (httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT)
        if asked(http, "DELETE", f"{_PATHS[FACTS]}/{name}", passing, json=body).is_success:
            gone.append(name)
    return gone


def _made(metadata: dict[str, Any]) -> float:
    """Return when an object was made; infinitely late when that cannot be read."""
    try:
        return (
            datetime.strptime(str(metadata.get("creationTimestamp")), "%Y-%m-%dT%H:%M:%SZ")
            .replace(tzinfo=UTC)
            .timestamp()
        )
    except ValueError:
        return float("inf")


ANNOTATION: Final = f"{GROUP}/room"
"""Its value is the sequence of the state that has more room."""


def wake(http: httpx2.Client, node: str, sequence: int) -> None:
    """Write the annotation.

    Args:
        http: with base URL and credentials.
        node: name of the Node.
        sequence: of the state that has more room.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    content = {"metadata": {"annotations": {ANNOTATION: str(sequence)}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    asked(http, "PATCH", f"api/v1/nodes/{node}", params={"fieldManager": MANAGER}, json=content, headers=headers)
