"""API servers of tests: one that answers as a function says, and one that lists objects and tells no changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.agent.pods.fault_injector import kubeconfig


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes]], folder: Path) -> Iterator[Path]:
    """Serve the status and body that a function returns for a request and its body; gives a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self, self.rfile.read(int(self.headers["Content-Length"] or 0)))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kubeconfig(folder / "kubeconfig", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def listing(objects: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> Iterator[Path]:
    """Serve objects by the name of their collection; gives a kubeconfig. A field selector names one object."""

    def answer(request: BaseHTTPRequestHandler, _body: bytes) -> tuple[int, bytes]:
        asked = urlsplit(request.path)
        query = parse_qs(asked.query)
        items = list(objects.get(asked.path.rpartition("/")[2], ()))
        field, _, value = query.get("fieldSelector", [""])[0].partition("=")
        if field == "metadata.name":
            items = [one for one in items if one["metadata"]["name"] == value]
        found = {"metadata": {"resourceVersion": "1"}, "items": items}
        return 200, b"" if "watch" in query else json.dumps(found).encode()

    with answering(answer, folder) as file:
        yield file
