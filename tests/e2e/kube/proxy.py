"""A way to the API server on which things go wrong at will: refusals, outages in the middle of a watch, silence."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
from tests.e2e.kubelet.apiserver import APIServer

from mooring.service.apiserver import cluster_of, configuration_of

_SKIPPED = ("connection", "content-length", "host", "transfer-encoding", "accept-encoding")


@dataclass(slots=True)
class Trouble:
    """What goes wrong from now on."""

    refuse: int = 0
    """Status of every answer; 0 lets requests through."""
    only_watches: bool = False
    lose_answers: bool = False
    """Whether a POST reaches the server and its answer does not come back."""
    answered: Counter[int] = field(default_factory=Counter)
    """How many answers had which status."""
    open: set[Any] = field(default_factory=set)
    """Connections of watches."""

    def cut(self) -> None:
        """End all watches in the middle."""
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(2)


@contextlib.contextmanager
def proxy(api: APIServer, port: int, folder: Path) -> Iterator[tuple[Path, Trouble]]:
    """Stand before an API server until the end of the block; yields a kubeconfig for the way through here."""
    trouble = Trouble()
    with cluster_of(configuration_of(str(api.kubeconfig))) as cluster:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, cluster.http, trouble))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = folder / f"proxy-{port}.json"
        kubeconfig.write_text(json.dumps(_kubeconfig(port)), encoding="utf-8")
        try:
            yield kubeconfig, trouble
        finally:
            trouble.cut()
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, http: httpx2.Client, trouble: Trouble, *connection: Any) -> None:
        self._http, self._trouble = http, trouble
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def do_PATCH(self) -> None:
        self._pass()

    def log_message(self, *_: Any) -> None:
        pass

    def _pass(self) -> None:
        self.close_connection = True
        watches = "watch=true" in self.path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._trouble.refuse and (watches or not self._trouble.only_watches):
            self._answer(self._trouble.refuse, b'{"kind":"Status","message":"trouble"}')
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _SKIPPED}
        headers["Accept-Encoding"] = "identity"
        try:
            with self._http.stream(self.command, self.path, content=body, headers=headers, timeout=300.0) as found:
                if watches:
                    self._stream(found)
                else:
                    content = found.read()
                    if not (self._trouble.lose_answers and self.command == "POST"):
                        self._answer(found.status_code, content)
        except (httpx2.HTTPError, OSError):
            return

    def _answer(self, status: int, content: bytes) -> None:
        self._trouble.answered[status] += 1
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, found: httpx2.Response) -> None:
        self._trouble.answered[found.status_code] += 1
        self.send_response(found.status_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        self._trouble.open.add(self.connection)
        try:
            for part in found.iter_raw():
                self.wfile.write(part)
                self.wfile.flush()
        finally:
            self._trouble.open.discard(self.connection)


def _kubeconfig(port: int) -> dict[str, Any]:
    name = "proxy"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": name, "user": {"token": "none"}}],
    }
