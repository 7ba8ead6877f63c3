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

from mooring.published import node_topology
from mooring.published.objects import API_VERSION, FACTS, NODE_LABEL, PLURALS, SHADOW, STATE, encoded
from mooring.service.cluster.apiserver import ClusterError, check_response, cluster_errors

MANAGER: Final = "mooring"
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_JSON: Final = {"Content-Type": "application/json"}
_PATHS: Final[Mapping[str, str]] = {
    **{kind: f"apis/{API_VERSION}/{PLURALS[kind]}" for kind in (FACTS, STATE, SHADOW)},
    node_topology.KIND: f"apis/{node_topology.API_VERSION}/{node_topology.PLURAL}",
}


def apply(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object as the document says, whatever set its fields before.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    path = f"{_path_of(document)}/{document['metadata']['name']}"
    query = {"fieldManager": MANAGER, "force": "true"}
    data = encoded(document)
    with cluster_errors():
        check_response(http.patch(path, params=query, content=data, headers=_APPLY))


def create_once(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object whose content follows from its name; one that is there already is the same.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    data = encoded(document)
    try:
        with cluster_errors():
            check_response(http.post(_path_of(document), params={"fieldManager": MANAGER}, content=data, headers=_JSON))
    except ClusterError as error:
        if error.code != httpx2.codes.CONFLICT:
            raise


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
    try:
        with cluster_errors():
            response = http.get(f"api/v1/nodes/{name}")
            check_response(response)
            return msgspec.json.decode(response.content)
    except ClusterError as error:
        if error.code in (httpx2.codes.FORBIDDEN, httpx2.codes.NOT_FOUND):
            return None
        raise


def _text_of(found: object, *path: str) -> str:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _path_of(document: Mapping[str, Any]) -> str:
    """Return where objects of a kind are."""
    return _PATHS[document["kind"]]


_YOUNGEST: Final = 3600.0
"""Seconds for which facts stay in any case: a publisher makes them just before the state that names them."""
_MOST_YOUNG: Final = 8
"""Facts of one node that stay for that reason: a publisher makes new ones when a configuration changes."""
_PAGE: Final = 200
_FACTS: Final = f"apis/{API_VERSION}/{PLURALS[FACTS]}"
_STATES: Final = f"apis/{API_VERSION}/{PLURALS[STATE]}"


def prune(http: httpx2.Client, now: float) -> list[str]:
    """Delete facts that no state names, and return their names.

    Args:
        http: with base URL and credentials.
        now: seconds since 1970.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    facts = _listed(http, _FACTS)
    # Read afterwards: whatever names facts that were there before is seen.
    named = {(state.get("spec") or {}).get("facts") for state in _listed(http, _STATES)}
    gone, young = [], Counter[str]()
    for metadata in sorted((one.get("metadata") or {} for one in facts), key=_made, reverse=True):
        name, node = str(metadata.get("name", "")), str((metadata.get("labels") or {}).get(NODE_LABEL, ""))
        if name in named:
            continue
        if now - _made(metadata) < _YOUNGEST and (not node or young[node] < _MOST_YOUNG):
            young[node] += 1
            continue
        if _delete(http, name, metadata):
            gone.append(name)
    return gone


def _delete(http: httpx2.Client, name: str, metadata: dict[str, Any]) -> bool:
    """Delete an object unless it is another by now; tell whether it was done."""
    conditions = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
    try:
        with cluster_errors():
            check_response(
                http.request(
                    "DELETE",
                    f"{_FACTS}/{name}",
                    content=msgspec.json.encode(body),
                    headers={"Content-Type": "application/json"},
                )
            )
    except ClusterError as error:
        if error.code in (httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT):
            return False
        raise
    return True


def _listed(http: httpx2.Client, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    query = {"limit": str(_PAGE)}
    while True:
        with cluster_errors():
            response = http.get(path, params=query)
            check_response(response)
            content = msgspec.json.decode(response.content)
        if not isinstance(content, dict):
            raise ClusterError("the API server's answer is not a list")
        items += content.get("items") or []
        token = (content.get("metadata") or {}).get("continue")
        if not token:
            return items
        query = {"limit": str(_PAGE), "continue": str(token)}


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
