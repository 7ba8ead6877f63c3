"""A fault injector: an HTTP server on the loopback that fails on request, the way an API server can.

It is no API server and proves nothing about one: it lists and watches pods, takes events, evictions and taints as far
as the agent needs it, and refuses, cuts and garbles what a test tells it to.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from lightkube import KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as ClusterEntry
from lightkube.config.models import User

PATIENCE = 60.0
SLICES = " slices"
COLLECTIONS = {"/api/v1/pods": "", "/apis/resource.k8s.io/v1/resourceslices": SLICES}
"""Path -> what comes after ``list`` and ``watch``."""


@dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    body: Any = None
    token: str = ""

    @property
    def what(self) -> str:
        if self.path in COLLECTIONS:
            return ("watch" if self.query.get("watch") else "list") + COLLECTIONS[self.path]
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Fault:
    """How one answer goes wrong: a status, or bytes in the place of a watch's events, or both."""

    status: int = 200
    retry_after: str = ""
    stream: bytes = b""
    cut: bool = False
    """End the connection in the middle of the body."""


@dataclass
class FaultInjector:
    """Starts with ``with``; all fields may be looked at while it runs."""

    node: str = "node-1"
    port: int = 0
    """0 takes a free one."""
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    slices: dict[str, dict[str, Any]] = field(default_factory=dict)
    taints: list[dict[str, Any]] = field(default_factory=list)
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    version: int = 100
    page: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    generation: int = 0
    bookmarks: int = 0
    is_away: bool = False
    tokens: frozenset[str] | None = None
    """The only ones that are accepted; None for any."""

    def __enter__(self) -> Self:
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), type("Handler", (_Handler,), {"injector": self}))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_away = True
        self.end_watches()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(PATIENCE)

    def config(self) -> SingleConfig:
        """Return the configuration of a client, with a token."""
        host, port = self.server.server_address[:2]
        # Without it a client loads all certificates of the system, which takes a hundred times the rest.
        entry = ClusterEntry(server=f"http://{host!s}:{port}", insecure=True)
        config = KubeConfig.from_one(cluster=entry, user=User(token="secret")).get()  # noqa: S106 - of nothing
        assert config is not None
        return config

    def kubeconfig(self, file: Path) -> Path:
        """Write the file that an operator would name, and return its path."""
        return kubeconfig(file, int(self.server.server_address[1]))

    def fail(self, what: str, *faults: Fault) -> None:
        """Let the next answers to ``list``, ``watch`` or ``METHOD /path`` go wrong."""
        self.faults.setdefault(what, deque()).extend(faults)

    def put(self, obj: dict[str, Any], kind: str = "") -> None:
        """Add or change a pod, or a slice."""
        known = self.slices if obj["kind"] == "ResourceSlice" else self.pods
        with self.changed:
            self.version += 1
            name = obj["metadata"]["name"]
            obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
            self.log.append({"type": kind or ("MODIFIED" if name in known else "ADDED"), "object": obj})
            known[name] = obj
            self.changed.notify_all()

    def delete(self, name: str) -> None:
        with self.changed:
            self.version += 1
            gone = self.pods.pop(name)
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            self.log.append({"type": "DELETED", "object": gone})
            self.changed.notify_all()

    def end_watches(self) -> None:
        """End all open watches in order."""
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def wait_for(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds that a request changes."""
        with self.changed:
            return self.changed.wait_for(holds, PATIENCE)

    def asked(self, what: str) -> list[Request]:
        with self.changed:
            return [request for request in self.requests if request.what == what]

    def fault(self, what: str) -> Fault | None:
        waiting = self.faults.get(what)
        return waiting.popleft() if waiting else None


def kubeconfig(file: Path, port: int) -> Path:
    """Write a kubeconfig for a server on a port of the loopback, which need not be there yet."""
    content = {
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def pod_object(name: str, cpu: str = "2", *, uid: str = "", **status: Any) -> dict[str, Any]:
    """Return a Guaranteed pod as an API server has it."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid or f"uid-{name}",
            "managedFields": [{"manager": "x" * 500}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 500},
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "i", "resources": resources}]},
        "status": {"phase": "Pending", "qosClass": "Guaranteed", **status},
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for the client's delayed acknowledgement of its head
    injector: FaultInjector
    generation: int
    """Of the watches when the request came."""

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PATCH = do_GET  # noqa: N815 - names that the base class looks for

    def log_message(self, *_args: object) -> None:
        """Say nothing."""

    def answer(self) -> None:
        if self.injector.is_away:
            # A connection outlives the listener, and a server that is away does not answer on it.
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), body, token)
        with self.injector.changed:
            accepted = self.injector.tokens is None or token in self.injector.tokens
            fault = self.injector.fault(request.what) if accepted else Fault(401)
            self.injector.requests.append(request)
            self.generation = self.injector.generation
            self.injector.changed.notify_all()
        if fault is not None and fault.status != 200:
            self.send(fault.status, {"kind": "Status", "code": fault.status, "message": "injected"}, fault)
        elif request.what.startswith("watch"):
            self.watch(request, fault)
        else:
            self.send(*reply(self.injector, request), fault)

    def send(self, status: int, content: Any, fault: Fault | None = None) -> None:
        data = json.dumps(content).encode() if fault is None or not fault.stream else fault.stream
        self.send_response(status)
        if fault is not None and fault.retry_after:
            self.send_header("Retry-After", fault.retry_after)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if fault is not None and fault.cut else data)
        if fault is not None and fault.cut:
            self.close_connection = True

    def watch(self, request: Request, fault: Fault | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if fault is None:
                self.events(int(request.query["resourceVersion"]), slices=request.what.endswith(SLICES))
            else:
                self.chunk(fault.stream)
            if fault is None or not fault.cut:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
        except OSError:
            self.close_connection = True

    def events(self, version: int, *, slices: bool) -> None:
        for _ in range(self.injector.bookmarks):
            mark = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
            self.chunk(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
        while True:
            found = self.after(version)
            for event in found:
                version = int(event["object"]["metadata"]["resourceVersion"])
                if slices is not (event["object"]["kind"] == "ResourceSlice"):
                    continue
                self.chunk(json.dumps(event).encode() + b"\n")
            if not found:
                return

    def after(self, version: int) -> list[dict[str, Any]]:
        """Wait for events; none when the watch is to end."""
        with self.injector.changed:
            self.injector.changed.wait_for(
                lambda: self.injector.generation != self.generation or newer(self.injector, version), PATIENCE
            )
            return newer(self.injector, version)

    def chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def newer(injector: FaultInjector, version: int) -> list[dict[str, Any]]:
    return [event for event in injector.log if int(event["object"]["metadata"]["resourceVersion"]) > version]


def reply(injector: FaultInjector, request: Request) -> tuple[int, Any]:
    with injector.changed:
        if request.what == f"list{SLICES}":
            items, version = list(injector.slices.values()), str(injector.version)
            return 200, {"kind": "ResourceSliceList", "metadata": {"resourceVersion": version}, "items": items}
        if request.what == "list":
            start = int(request.query.get("continue", "0"))
            end = start + injector.page if injector.page else len(injector.pods)
            metadata = {"resourceVersion": str(injector.version)}
            if end < len(injector.pods):
                metadata["continue"] = str(end)
            return 200, {"kind": "PodList", "metadata": metadata, "items": list(injector.pods.values())[start:end]}
        if request.path.removesuffix("/status") == f"/api/v1/nodes/{injector.node}":
            if request.method == "PATCH" and "spec" in request.body:
                injector.taints = request.body["spec"]["taints"]
            if request.method == "PATCH" and request.path.endswith("/status"):
                [condition] = request.body["status"]["conditions"]
                injector.conditions[condition["type"]] = condition
            return 200, {
                "kind": "Node",
                "metadata": {"name": injector.node, "resourceVersion": "7"},
                "spec": {"taints": injector.taints},
                "status": {"conditions": list(injector.conditions.values())},
            }
        if request.method == "GET":
            name = request.path.rpartition("/")[2]
            return (200, injector.pods[name]) if name in injector.pods else (404, {"kind": "Status", "code": 404})
        return 201, request.body
