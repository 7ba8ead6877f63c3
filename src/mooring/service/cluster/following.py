"""A thread that follows a collection of objects: it lists, watches, and starts again when it must."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx2
import msgspec

from mooring.service.cluster.apiserver import Cluster, ClusterError, cut
from mooring.service.cluster.watching import Pages, pause_before, watch_lines

QUIET_PAUSE: Final = 1.0
"""Seconds between a watch that brought nothing and the next."""


class Listener(Protocol):
    """Whoever takes what a follower brings; called by its thread."""

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all objects that there are. An error on the way leaves everything as it was known."""

    def changed(self, item: msgspec.Raw) -> None:
        """Take an object that is new or changed."""

    def deleted(self, item: msgspec.Raw) -> None:
        """Take an object as it was before it was deleted."""

    def failed(self, error: ClusterError, times: int) -> None:
        """Hear that the API server is not heard of at the moment, and how often one after another."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - as above


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    code: int = 0
    message: str = ""
    reason: str = ""


def _nothing() -> bool:
    """Do nothing."""
    return False


@dataclass(slots=True)
class Follower:
    """Follows one collection."""

    connect: Callable[[], Cluster]
    """Opens the way to the API server, again after every failure, so that renewed credentials are read."""
    path: str
    listener: Listener
    query: Mapping[str, str] = field(default_factory=dict)
    """Which objects."""
    first: Mapping[str, str] = field(default_factory=dict)
    """More of the query for a list, unless the server has found a version too old: then only its newest will do."""
    opened: Callable[[], object] = _nothing
    """Called when changes arrive from now on."""
    answered: Callable[[], object] = _nothing
    """Called when the server answers; a bookmark counts."""
    is_behind: Callable[[], bool] = _nothing
    """Asked at each bookmark, once a minute: whether the listener has to have everything listed again."""
    name: str = "mooring"
    """Of this program; nodes and replicas pause differently long."""
    wait: Callable[[float], object] | None = None
    """Waits before another try; without one it ends early when :meth:`stop` is called."""
    has_listed: threading.Event = field(default_factory=threading.Event)
    """Set when everything has been listed once."""
    defect: threading.Event = field(default_factory=threading.Event)
    """Set while the listener fails at what the server brings: nothing that comes after it is known."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _response: httpx2.Response | None = None
    _version: str = ""
    _newest: bool = False
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
                self.defect.set()
                self._failed(ClusterError(f"{type(error).__name__}: {error}"))

    def _round(self, http: httpx2.Client) -> None:
        """List if need be, then watch until the server ends it."""
        if not self._version:
            found = Pages(http, self.path, {**self.query, **({} if self._newest else self.first)})
            self.listener.listed(iter(found))
            self._version = found.version
            self._newest = False
            self.answered()
            self.has_listed.set()
            self.defect.clear()
        answered = False
        for line in watch_lines(http, self.path, self.query, self._version, self._opened):
            is_bookmark = self._take(line)
            self.answered()
            self.defect.clear()
            # Only a watch that brings something ends a row of failures: a server that finds the version of each of its
            # own lists too old is not to be asked without a pause.
            answered, self._failures = True, 0
            if is_bookmark and self.is_behind():
                self._version = ""
                break
        self._closed()
        if not answered:
            # Nothing for minutes is rare, because of the bookmarks. A server that ends every watch at once is not to be
            # asked without a pause.
            self._pause(QUIET_PAUSE)

    def _take(self, line: str) -> bool:
        """Take an event; tell whether it is a bookmark."""
        try:
            event = msgspec.json.decode(line, type=_Event)
            found = msgspec.json.decode(event.object, type=_Object)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the API server's event cannot be read: {error}") from None
        if event.type == "ERROR":
            raise ClusterError(f"the watch ended: {found.message or found.reason}", code=found.code)
        if event.type == "DELETED":
            self.listener.deleted(event.object)
        elif event.type in ("ADDED", "MODIFIED"):
            self.listener.changed(event.object)
        self._version = found.metadata.resourceVersion or self._version
        return event.type == "BOOKMARK"

    def _opened(self, response: httpx2.Response) -> None:
        with self._lock:
            self._response = response
            if self._stopping.is_set():
                cut(response)
                return
        self.opened()

    def _closed(self) -> None:
        with self._lock:
            self._response = None

    def _failed(self, error: ClusterError) -> None:
        self._closed()
        if self._stopping.is_set():
            return
        if error.is_expired:
            self._version, self._newest = "", True
        self._failures += 1
        if error.is_expired and self._failures == 1:
            return  # part of the game: the list is read again at once
        self.listener.failed(error, self._failures)
        self._pause(max(pause_before(self._failures, self.name), error.pause))

    def _pause(self, seconds: float) -> None:
        if not self._stopping.is_set():
            (self.wait or self._stopping.wait)(seconds)
