"""An API server that lists objects and tells no changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@contextmanager
def listing(objects: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> Iterator[Path]:
    """Serve objects by the name of their collection; gives a kubeconfig. A field selector names one object."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = parse_qs(asked.query)
            items = list(objects.get(asked.path.rpartition("/")[2], ()))
            field, _, value = query.get("fieldSelector", [""])[0].partition("=")
            if field == "metadata.name":
                items = [one for one in items if one["metadata"]["name"] == value]
            found = {"metadata": {"resourceVersion": "1"}, "items": items}
            body = b"" if "watch" in query else json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cluster = {"server": f"http://127.0.0.1:{server.server_port}", "insecure-skip-tls-verify": True}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": "t"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(content))
    try:
        yield folder / "kubeconfig"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
