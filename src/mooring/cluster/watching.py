"""Listing and watching the pods of one node: requests, and what their answers say.

Source: Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import httpx2
import msgspec

from mooring.cluster.apiserver import ANSWER_TIME, ClusterError, check_response, cluster_errors

PODS: Final = "api/v1/pods"
WATCH_TIME: Final = 240
"""Seconds after which the server is to end a watch."""
SILENCE: Final = 300.0
"""Seconds without a word after which a connection is taken for dead; bookmarks come about every minute."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch."""

    kind: str
    """``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``."""
    content: dict[str, Any]
    version: str


def list_pods(http: httpx2.Client, node: str, *, newest: bool = False) -> tuple[list[dict[str, Any]], str]:
    """Return the pods of a node and the resource version from which to watch.

    Args:
        http: with base URL and credentials.
        node: name of the node.
        newest: ask for the newest state, where otherwise the server's cache is good enough and much cheaper for it.

    Raises:
        ClusterError: it failed.
    """
    query = {"fieldSelector": f"spec.nodeName={node}", **({} if newest else {"resourceVersion": "0"})}
    items: list[dict[str, Any]] = []
    with cluster_errors():
        while True:
            response = http.get(PODS, params=query)
            check_response(response)
            content = _mapping(msgspec.json.decode(response.content))
            metadata = _mapping(content.get("metadata"))
            items += [_mapping(item) for item in content.get("items") or []]
            token = metadata.get("continue")
            if not token:
                return items, str(metadata.get("resourceVersion", ""))
            query = {**query, "continue": str(token)}


def watch_pods(
    http: httpx2.Client, node: str, version: str, opened: Callable[[httpx2.Response], object]
) -> Generator[Change]:
    """Yield the changes after a resource version until the server ends the watch, which it does every few minutes.

    Args:
        http: with base URL and credentials.
        node: name of the node.
        version: the last one that was heard of.
        opened: receives the response, so that another thread can cut it.

    Raises:
        ClusterError: it failed; ``is_gone`` when the version is too old.
    """
    for line in watch_lines(http, PODS, {"fieldSelector": f"spec.nodeName={node}"}, version, opened):
        yield _change(line)


def watch_lines(
    http: httpx2.Client, path: str, query: Mapping[str, str], version: str, opened: Callable[[httpx2.Response], object]
) -> Generator[str]:
    """Yield the events of a watch as they come, each a JSON text, until the server ends it.

    Args:
        http: with base URL and credentials.
        path: of the collection.
        query: which of its objects.
        version: the last one that was heard of.
        opened: receives the response, so that another thread can cut it.

    Raises:
        ClusterError: it failed.
    """
    watching = {
        **query,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(WATCH_TIME),
    }
    with (
        cluster_errors(),
        http.stream("GET", path, params=watching, timeout=httpx2.Timeout(ANSWER_TIME, read=SILENCE)) as response,
    ):
        check_response(response)
        opened(response)
        for line in response.iter_lines():
            if line:
                yield line


def pause_before(attempt: int, node: str) -> float:
    """Return the seconds to wait after the given number of failures.

    Doubles from half a second to half a minute; nodes differ a little, so that a returning API server does not meet
    all of them at once.

    >>> [round(pause_before(attempt, "node-1"), 1) for attempt in (1, 2, 3, 20)]
    [0.4, 0.8, 1.6, 23.7]
    """
    spread = 0.75 + 0.5 * crc32(node.encode()) / 2**32
    return spread * min(_FIRST_PAUSE * (1 << min(attempt - 1, 16)), _LONGEST_PAUSE)


def _change(line: str) -> Change:
    event = _mapping(msgspec.json.decode(line))
    kind, content = str(event.get("type", "")), _mapping(event.get("object"))
    if kind == "ERROR":
        code = content.get("code")
        message = f"the watch ended: {content.get('message') or content.get('reason')}"
        raise ClusterError(message, code=code if isinstance(code, int) else 0)
    return Change(kind, content, str(_mapping(content.get("metadata")).get("resourceVersion", "")))


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ClusterError(f"the API server's answer is no object but {str(value)[:60]!r}")
    return value
