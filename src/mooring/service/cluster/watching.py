"""Listing and watching a collection of objects: requests, and what their answers say.

Source: Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

import httpx2
import msgspec

from mooring.service.cluster.apiserver import ANSWER_TIME, check_response, cluster_errors

PODS: Final = "api/v1/pods"
CACHED: Final = {"resourceVersion": "0"}
"""For a list whose age does not matter: the server's cache answers, which is much cheaper for it."""
PAGE: Final = 500
"""Objects of one answer to a list."""
WATCH_TIME: Final = 240
"""Seconds after which the server is to end a watch."""
SILENCE: Final = 300.0
"""Seconds without a word after which a connection is taken for dead; bookmarks come about every minute."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


class _ListMetadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the field's name on the wire
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


@dataclass(slots=True)
class Pages:
    """The objects of a collection, one page after another; they are requested as they are taken.

    Objects are handed over as they came, undecoded: a reader decodes what it needs of a hundred thousand.
    Iterating raises a :class:`ClusterError` when a request fails.
    """

    http: httpx2.Client
    """With base URL and credentials."""
    path: str
    """Of the collection."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Which of its objects, and how old the answer may be."""
    version: str = ""
    """The resource version from which to watch; known at the end."""

    def __iter__(self) -> Iterator[list[msgspec.Raw]]:
        query = {**self.query, "limit": str(PAGE)}
        while True:
            with cluster_errors():
                response = self.http.get(self.path, params=query)
                check_response(response)
                found = msgspec.json.decode(response.content, type=_List)
            yield found.items or []
            self.version = found.metadata.resourceVersion
            if not found.metadata.continue_:
                return
            query = {**query, "continue": found.metadata.continue_}


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


def pods_of(node: str) -> dict[str, str]:
    """Return the query for the pods of one node.

    >>> pods_of("node-1")
    {'fieldSelector': 'spec.nodeName=node-1'}
    """
    return {"fieldSelector": f"spec.nodeName={node}"}


def pause_before(attempt: int, node: str) -> float:
    """Return the seconds to wait after the given number of failures.

    Doubles from half a second to half a minute; nodes differ a little, so that a returning API server does not meet
    all of them at once.

    >>> [round(pause_before(attempt, "node-1"), 1) for attempt in (1, 2, 3, 20)]
    [0.4, 0.8, 1.6, 23.7]
    """
    spread = 0.75 + 0.5 * crc32(node.encode()) / 2**32
    return spread * min(_FIRST_PAUSE * (1 << min(attempt - 1, 16)), _LONGEST_PAUSE)


def mapping_of(item: msgspec.Raw) -> dict[str, Any]:
    """Return an object's fields.

    Raises:
        ClusterError: it is no object.
    """
    with cluster_errors():
        return msgspec.json.decode(item, type=dict[str, Any])
