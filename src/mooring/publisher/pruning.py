"""Removing facts that no state names any more, as after a change of a configuration on all nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import msgspec

from mooring.publisher.objects import API_VERSION, FACTS, PLURALS, STATE
from mooring.service.cluster.apiserver import ClusterError, check_response, cluster_errors

YOUNGEST: Final = 3600.0
"""Seconds for which facts stay in any case: a publisher makes them just before the state that names them."""
_PAGE: Final = 200
_FACTS: Final = f"apis/{API_VERSION}/{PLURALS[FACTS]}"
_STATES: Final = f"apis/{API_VERSION}/{PLURALS[STATE]}"


def prune(http: httpx2.Client, now: float) -> list[str]:
    """Delete what nobody names, and return the names.

    Args:
        http: with base URL and credentials.
        now: seconds since 1970.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    facts = _listed(http, _FACTS)
    # Read afterwards: whatever names facts that were there before is seen.
    named = {(state.get("spec") or {}).get("facts") for state in _listed(http, _STATES)}
    gone = []
    for one in facts:
        metadata = one.get("metadata") or {}
        name = str(metadata.get("name", ""))
        if name in named or now - _made(metadata) < YOUNGEST:
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
            raise ClusterError("the API server's answer is no list")
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
