"""A thread that follows a collection of objects: it lists, watches, and starts again when it must.

Listing and watching a collection of objects: requests, and what their answers say.

Source: Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from zlib import crc32

import httpx2
import msgspec

from mooring.documents.plan import learn
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report
from mooring.service.apiserver import ANSWER_TIME, Cluster, ClusterError, asked, check_response, cluster_errors, cut

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


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the field's name on the wire
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
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
                found = msgspec.json.decode(asked(self.http, "GET", self.path, params=query).content, type=_List)
            yield found.items or []
            self.version = found.metadata.resourceVersion
            if not found.metadata.continue_:
                return
            query = {**query, "continue": found.metadata.continue_}


def objects_at(http: httpx2.Client, path: str, query: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the objects of a collection.

    Args:
        http: with base URL and credentials.
        path: of the collection.
        query: which of its objects.

    Raises:
        ClusterError: a request failed.
    """
    return [mapping_of(item) for page in Pages(http, path, query or {}) for item in page]


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
    try:
        return msgspec.json.decode(item, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(f"the API server's object cannot be read: {error}") from None


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


@dataclass(slots=True)
class OutageReport:
    """Reports that the API server is lost, at the beginning and now and then, and that it is there again."""

    report: Report
    subject: str
    lost: str
    restored: str
    _is_reported: bool = False

    def failed(self, error: ClusterError, times: int) -> None:
        """Hear of an outage, and how often one after another."""
        if times <= 2 or times % 20 == 0:
            self._is_reported = True
            self.report(Finding("warning", self.subject, f"{self.lost} (attempt {times}): {error}"))

    def answered(self) -> None:
        """Hear that there is none."""
        if self._is_reported:
            self._is_reported = False
            self.report(Finding("info", self.subject, self.restored))


@dataclass(frozen=True, slots=True)
class ObjectListener:
    """Brings objects of one kind to what keeps them."""

    put: Callable[[Any], Any]
    """Takes an object as it was read, and returns its name."""
    drop: Callable[[Any], object]
    report: Callable[[ClusterError], object]
    """Receives each outage once."""
    keep: Callable[[list[Any]], object] = lambda _names: None
    """Forgets all objects but those of these names."""
    put_listed: Callable[[Any], Any] | None = None
    """The same as ``put`` for an object of a list, where that makes a difference."""
    every: bool = False
    """Whether each failure of an outage is reported."""
    read: Callable[[msgspec.Raw], Any] = mapping_of

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all objects."""
        put = self.put_listed or self.put
        self.keep([put(self.read(item)) for page in pages for item in page])

    def changed(self, item: msgspec.Raw) -> None:
        """Take an object."""
        self.put(self.read(item))

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget an object."""
        self.drop(self.read(item))

    def failed(self, error: ClusterError, times: int) -> None:
        """Report an outage."""
        if times == 1 or self.every:
            self.report(error)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    code: int = 0
    message: str = ""
    reason: str = ""


learn(_List, _Event, _Object)


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
