"""Writing objects to the API server: server-side apply, in the name of ``mooring``.

Source: Kubernetes API concepts, "Server-Side Apply". JSON is YAML, and so a valid apply patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx2
import msgspec

from mooring.publisher import node_topology, objects
from mooring.publisher.objects import FACTS, STATE, encoded
from mooring.service.cluster.apiserver import ClusterError, check_response, cluster_errors

MANAGER: Final = "mooring"
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_JSON: Final = {"Content-Type": "application/json"}
_PATHS: Final[Mapping[str, str]] = {
    FACTS: f"apis/{objects.API_VERSION}/{objects.PLURALS[FACTS]}",
    STATE: f"apis/{objects.API_VERSION}/{objects.PLURALS[STATE]}",
    node_topology.KIND: f"apis/{node_topology.API_VERSION}/{node_topology.PLURAL}",
}


def apply(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object as the document says, whoever set its fields before.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    path = f"{path_of(document)}/{document['metadata']['name']}"
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
            check_response(http.post(path_of(document), params={"fieldManager": MANAGER}, content=data, headers=_JSON))
    except ClusterError as error:
        if error.code != httpx2.codes.CONFLICT:
            raise


def node_uid(http: httpx2.Client, name: str) -> str:
    """Return the uid of a Node object; empty when there is none, or it may not be read.

    Raises:
        ClusterError: the server cannot tell at the moment.
    """
    try:
        with cluster_errors():
            response = http.get(f"api/v1/nodes/{name}")
            check_response(response)
            found = msgspec.json.decode(response.content)
    except ClusterError as error:
        if error.code in (httpx2.codes.FORBIDDEN, httpx2.codes.NOT_FOUND):
            return ""
        raise
    metadata = found.get("metadata") if isinstance(found, dict) else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def path_of(document: Mapping[str, Any]) -> str:
    """Return where objects of a kind are."""
    return _PATHS[document["kind"]]
