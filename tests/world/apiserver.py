"""An API server of a world: objects with versions, watches that lag behind, and calls with which much goes wrong."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import httpx2
from tests.world.connections import MemorySocket
from tests.world.files import Faults
from tests.world.threads import threads

PODS, NODES = "api/v1/pods", "api/v1/nodes"
LEASE = "apis/coordination.k8s.io/v1/leases"
RATES = {
    "refused": (0.01, 0.05),
    "request lost": (0.005, 0.03),
    "request late": (0.02, 0.1),
    "request twice": (0.02, 0.1),
    "server error": (0.01, 0.05),
    "answer is an error": (0.01, 0.05),
    "answer lost": (0.005, 0.03),
    "answer late": (0.02, 0.1),
    "list in pages": (0.2, 0.6),
    "watch stale": (0.02, 0.15),
    "watch silent": (0.002, 0.01),
    "watch cut": (0.01, 0.05),
    "watch ended": (0.01, 0.05),
    "watch expired": (0.005, 0.03),
    "event twice": (0.02, 0.2),
    "event late": (0.05, 0.3),
}
"""By kind of fault: what share of the calls or events may have it."""
LATEST = 1.5
"""Seconds after which a request that arrives at all has arrived; a Lease is held still for two."""
_BOOKMARKS = 60.0
_Found = TypeVar("_Found")


class Change(NamedTuple):
    version: int
    type: str
    object: dict[str, Any]


class Refusal(Exception):  # noqa: N818 - an answer
    """The server says no."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class APIServer:
    """What is stored, and what happened to it."""

    def __init__(self, faults: Faults, bound: Callable[[dict[str, Any], str], object]) -> None:
        self.faults, self._bound = faults, bound
        self.version = self.oldest = 1000
        self.objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.history: dict[str, list[Change]] = defaultdict(list)
        self.watches: list[Watch] = []
        self.away_until = 0.0
        self.lags: dict[str, float] = {}
        """Until when watches show nothing, by the name of a program, or by that and a path."""
        self.has_topologies = faults.numbers("server").random() < 0.5

    # What others do with objects.

    def put(self, path: str, content: dict[str, Any]) -> int:
        """Store an object; return its version."""
        name = content["metadata"]["name"]
        kind = "MODIFIED" if name in self.objects[path] else "ADDED"
        self.objects[path][name] = self._changed(kind, path, content)
        return self.version

    def delete(self, path: str, name: str) -> None:
        self._changed("DELETED", path, self.objects[path].pop(name))

    def cut(self) -> None:
        """End all watches."""
        for one in self.watches:
            one.end.shut()
        self.watches.clear()

    def compact(self) -> None:
        """Forget what happened: watches from before are told to list again."""
        self.oldest = self.version

    def _changed(self, kind: str, path: str, content: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        content = {**content, "metadata": {**content["metadata"], "resourceVersion": str(self.version)}}
        self.history[path].append(Change(self.version, kind, content))
        return content

    # Calls of programs.

    def call(self, work: Callable[[], _Found], seconds: float, *, writes: bool) -> _Found:
        """Do what a program asks, with what can go wrong before, with and after it.

        Raises:
            httpx2.TransportError: no answer.
            Refusal: the server says no.
        """
        world, faults = threads(), self.faults
        world.step()
        numbers = faults.numbers("calls")
        if faults.hit("refused"):
            raise httpx2.ConnectError("connection refused")
        if faults.hit("request lost"):
            world.sleep(seconds)
            raise httpx2.ReadTimeout("timed out")
        if faults.hit("request late"):
            world.sleep(numbers.choice([0.02, 0.3, LATEST]))
        if world.now < self.away_until or faults.hit("server error"):
            raise Refusal(numbers.choice([429, 500, 503]), "not now")
        found = work()
        if writes and faults.hit("request twice"):
            found = work()
        if writes and faults.hit("answer is an error"):
            raise Refusal(504, "not in time")
        if faults.hit("answer lost"):
            world.sleep(seconds)
            raise httpx2.ReadTimeout("timed out")
        if faults.hit("answer late"):
            late = numbers.choice([0.02, 0.5, 3.0, 8.0])
            world.sleep(min(late, seconds))
            if late > seconds:
                raise httpx2.ReadTimeout("timed out")
        world.step()
        return found

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Answer an HTTP request, or give the stream of a watch."""
        parts = request.url.path.strip("/").split("/")
        if "namespaces" in parts:
            place = parts.index("namespaces")
            del parts[place : place + 2]
        depth = 3 if parts[0] == "api" else 4
        path, names, query = "/".join(parts[:depth]), parts[depth:], request.url.params
        if request.method == "GET":
            if query.get("watch"):
                return self._watched(path, int(query["resourceVersion"]), float(query["timeoutSeconds"]))
            return httpx2.Response(200, json=self._named(path, names[0]) if names else self._listed(path, query))
        if path.endswith("noderesourcetopologies") and not self.has_topologies:
            raise Refusal(404, "the server could not find the requested resource")
        content = json.loads(request.content)
        if request.method == "PATCH":
            before = self.objects[path].get(names[0], {})
            after = {**before, **content, "metadata": {**before.get("metadata", {}), **content["metadata"]}}
            if names[-1] == "status":
                after["status"] = {**before.get("status", {}), **content["status"]}
            if after != before:
                self.put(path, after)
            return httpx2.Response(201, json=self.objects[path][names[0]])
        if names:
            self._bind(names[0], content)
        else:
            if content["metadata"]["name"] in self.objects[path]:
                raise Refusal(409, "already exists")
            self.put(path, content)
        return httpx2.Response(201, json={})

    def _named(self, path: str, name: str) -> dict[str, Any]:
        if name not in self.objects[path]:
            raise Refusal(404, f"{name} not found")
        return self.objects[path][name]

    def _listed(self, path: str, query: Any) -> dict[str, Any]:
        version, place, items = str(self.version), 0, [*self.objects[path].values()]
        if node := query.get("fieldSelector", "").rpartition("spec.nodeName=")[2]:
            items = [one for one in items if one["spec"].get("nodeName") == node]
        if token := query.get("continue", ""):
            # The rest as it was when the first page was read; what came since is in the watch.
            version, _, rest = token.partition("/")
            if int(version) < self.oldest:
                raise Refusal(410, "the provided continue parameter is too old")
            place, items = int(rest), self._at(path, int(version))
        metadata = {"resourceVersion": version}
        if not node and len(items) > place + 2 and (token or self.faults.hit("list in pages")):
            metadata["continue"] = f"{version}/{place + 2}"
            items = items[: place + 2]
        return {"metadata": metadata, "items": items[place:]}

    def _at(self, path: str, version: int) -> list[dict[str, Any]]:
        """Return all objects as they were."""
        found: dict[str, dict[str, Any]] = {}
        for change in self.history[path]:
            if change.version <= version:
                found[change.object["metadata"]["name"]] = change.object
                if change.type == "DELETED":
                    del found[change.object["metadata"]["name"]]
        return [*found.values()]

    def _watched(self, path: str, version: int, seconds: float) -> httpx2.Response:
        if version < self.oldest:
            raise Refusal(410, "too old resource version")
        watch = Watch(self, path, version, seconds)
        self.watches.append(watch)
        return httpx2.Response(200, stream=watch, extensions={"network_stream": watch})

    def _bind(self, name: str, content: dict[str, Any]) -> None:
        pod, node = self._named(PODS, name), content["target"]["name"]
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            raise Refusal(409, "already assigned, or being deleted")
        if pod["metadata"]["uid"] != content["metadata"]["uid"]:
            raise Refusal(409, "the uid is another pod's")
        self._bound(pod, node)
        self.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})


class Watch(httpx2.SyncByteStream):
    """The events of one collection, one behind the other, at times that are the watch's own."""

    def __init__(self, server: APIServer, path: str, version: int, seconds: float) -> None:
        self._server, self._path, self._until = server, path, threads().now + seconds
        self._place = bisect_right(server.history[path], version, key=lambda one: one.version)
        self.end = MemorySocket()
        """What the program can cut."""

    def get_extra_info(self, _name: str) -> object:
        return self.end

    def _rests(self, seconds: float) -> None:
        threads().wait(lambda: self.end.is_closed, seconds)

    def __iter__(self) -> Iterator[bytes]:
        world, faults, history = threads(), self._server.faults, self._server.history[self._path]
        numbers, bookmark = faults.numbers("watches"), world.now + _BOOKMARKS
        while True:
            world.wait(lambda: self.end.is_closed or len(history) > self._place, min(bookmark, self._until) - world.now)
            name, lags = self.end.program.name, self._server.lags
            self._rests(max(lags.get(name, 0.0) - world.now, lags.get(f"{name} {self._path}", 0.0) - world.now, 0.0))
            if faults.hit("watch stale"):
                self._rests(numbers.choice([0.3, 2.0, 15.0, 60.0]))
            if faults.hit("watch silent"):
                self._rests(300.0)
                raise httpx2.ReadTimeout("timed out")
            if self.end.is_closed or world.now >= self._until or faults.hit("watch ended"):
                return
            if faults.hit("watch expired"):
                yield _line("ERROR", {"code": 410, "message": "too old resource version"})
                return
            if len(history) == self._place:
                bookmark = world.now + _BOOKMARKS
                yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(self._server.version)}})
                continue
            if faults.hit("event late"):
                self._rests(numbers.choice([0.01, 0.1, 1.0]))
            line = _line(history[self._place].type, history[self._place].object)
            if faults.hit("watch cut"):
                yield line[: numbers.randrange(len(line))]
                raise httpx2.ReadError("connection reset by peer")
            self._place += 1
            yield line
            if faults.hit("event twice"):
                yield line


def _line(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


class Way(httpx2.BaseTransport):
    """The way of one program to the server."""

    def __init__(self, server: APIServer) -> None:
        self._server = server

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        seconds = float(request.extensions["timeout"]["read"])
        writes = request.method != "GET"
        try:
            return self._server.call(lambda: self._server.answer(request), min(seconds, 10.0), writes=writes)
        except Refusal as error:
            return httpx2.Response(error.code, text=str(error))


class LeaseWay:
    """The Lease as one replica reads and writes it."""

    def __init__(self, server: APIServer, refuse: Callable[[int, str], Exception]) -> None:
        self._server, self._refuse = server, refuse
        self.is_barred = False
        """Whether the server is out of reach for this replica."""

    def read(self) -> dict[str, Any]:
        return self._asked(lambda: self._server.objects[LEASE]["extender"], writes=False)

    def write(self, lease: dict[str, Any]) -> None:
        self._asked(lambda: self._put(lease), writes=True)

    def _put(self, lease: dict[str, Any]) -> dict[str, Any]:
        now = self._server.objects[LEASE]["extender"]
        if now["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise Refusal(409, "the object has been modified")
        self._server.put(LEASE, lease)
        return lease

    def _asked(self, work: Callable[[], dict[str, Any]], *, writes: bool) -> dict[str, Any]:
        try:
            if self.is_barred:
                raise httpx2.ConnectTimeout("no route to host")
            return self._server.call(work, 2.0, writes=writes)
        except Refusal as error:
            raise self._refuse(error.code, str(error)) from None
        except httpx2.TransportError as error:
            raise self._refuse(0, str(error)) from None
