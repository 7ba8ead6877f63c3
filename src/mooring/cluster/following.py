"""A thread that follows a collection of objects: it lists, watches, and begins anew when it must.

Objects are handed over as they came, undecoded: whoever reads them takes what it needs of a hundred thousand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx2
import msgspec

from mooring.cluster.apiserver import Cluster, ClusterError, check_response, cluster_errors, cut
from mooring.cluster.watching import pause_before, watch_lines

PAGE: Final = 500
"""Objects of one answer to a list."""
_QUIET_PAUSE: Final = 1.0
"""Seconds between a watch that brought nothing and the next."""


class Listener(Protocol):
    """Whoever takes what a follower brings; called by its thread."""

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all objects that there are. An error on the way leaves everything as it was known."""

    def changed(self, item: msgspec.Raw) -> None:
        """Take an object that is new or changed."""

    def deleted(self, item: msgspec.Raw) -> None:
        """Take an object as it was before it was deleted."""

    def failed(self, error: ClusterError) -> None:
        """Hear that the API server is not heard of at the moment."""


class _ListMetadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the field's name on the wire
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - as above


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    code: int = 0
    message: str = ""


@dataclass(slots=True)
class Follower:
    """Follows one collection."""

    connect: Callable[[], Cluster]
    """Opens the way to the API server, again after every failure, so that renewed credentials are read."""
    path: str
    listener: Listener
    query: Mapping[str, str] = field(default_factory=dict)
    name: str = "mooring"
    """Of this program; nodes and replicas pause differently long."""
    clock: Callable[[], float] = time.monotonic
    has_listed: threading.Event = field(default_factory=threading.Event)
    """Set when everything has been listed once."""
    last_heard: float = 0.0
    """When the server last said anything, by the clock."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _response: httpx2.Response | None = None
    _version: str = ""
    _failures: int = 0
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread = threading.Thread(target=self._run, name=f"follow-{self.path}", daemon=True)
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, in the middle of a watch too, and wait for it for a while."""
        self._stopping.set()
        with self._lock:
            if self._response is not None:
                cut(self._response)
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self.connect() as cluster:
                    while not self._stopping.is_set():
                        self._round(cluster.http)
            except ClusterError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - without this thread everything would be old from now on
                self._failed(ClusterError(f"{type(error).__name__}: {error}"))

    def _round(self, http: httpx2.Client) -> None:
        """List if need be, then watch until the server ends it."""
        if not self._version:
            found = _Pages(http, self.path, self.query)
            self.listener.listed(iter(found))
            self._version = found.version
            self._heard()
            self.has_listed.set()
        heard = False
        for line in watch_lines(http, self.path, self.query, self._version, self._opened):
            heard = True
            self._take(line)
            self._heard()
        self._closed()
        if not heard:
            # Nothing for minutes is rare, because of the bookmarks. A server that ends every watch at once is not to be
            # asked without a pause.
            self._stopping.wait(_QUIET_PAUSE)

    def _take(self, line: str) -> None:
        try:
            event = msgspec.json.decode(line, type=_Event)
            found = msgspec.json.decode(event.object, type=_Object)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the API server's event cannot be read: {error}") from None
        if event.type == "ERROR":
            raise ClusterError(f"the watch ended: {found.message}", code=found.code)
        if event.type == "DELETED":
            self.listener.deleted(event.object)
        elif event.type in ("ADDED", "MODIFIED"):
            self.listener.changed(event.object)
        self._version = found.metadata.resourceVersion or self._version

    def _heard(self) -> None:
        self._failures = 0
        self.last_heard = self.clock()

    def _opened(self, response: httpx2.Response) -> None:
        with self._lock:
            self._response = response
            if self._stopping.is_set():
                cut(response)
        self.last_heard = self.clock()

    def _closed(self) -> None:
        with self._lock:
            self._response = None

    def _failed(self, error: ClusterError) -> None:
        self._closed()
        if self._stopping.is_set():
            return
        if error.is_gone:
            self._version = ""
        self._failures += 1
        if error.is_gone and self._failures == 1:
            return  # part of the game: the list is read again at once
        self.listener.failed(error)
        self._stopping.wait(max(pause_before(self._failures, self.name), error.pause))


class _Pages:
    """The answers to a list, one page after another."""

    def __init__(self, http: httpx2.Client, path: str, query: Mapping[str, str]) -> None:
        self._http, self._path, self._query = http, path, query
        self.version = ""

    def __iter__(self) -> Iterator[list[msgspec.Raw]]:
        query = {**self._query, "limit": str(PAGE)}
        while True:
            with cluster_errors():
                response = self._http.get(self._path, params=query)
                check_response(response)
                found = msgspec.json.decode(response.content, type=_List)
            yield found.items or []
            self.version = found.metadata.resourceVersion
            if not found.metadata.continue_:
                return
            query = {**query, "continue": found.metadata.continue_}
