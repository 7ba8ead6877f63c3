"""A small HTTP server for a few documents: bounded in connections, in bytes and in time.

It serves a TCP address or a Unix socket. A request is one GET, the answer one document, and then the connection is
closed; nobody can keep a thread longer than :data:`SECONDS`.
"""

from __future__ import annotations

import io
import socket
import socketserver
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import BoundedSemaphore, Thread
from typing import Any

from mooring.core.errors import InputError
from mooring.service import sockets
from mooring.service.options import Address

SECONDS = 5.0
"""Time for reading a request, and again for writing its answer."""
LONGEST_REQUEST = 8 * 1024
"""Bytes of a request line with its headers."""
POLLING = 1.0
"""Seconds that closing takes at most, on a system where a socket that listens cannot be shut down."""
CONNECTIONS = 8
"""Connections at once; more are answered with 503."""

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nbusy\n"
_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]
"""Path -> how its document is made; called from the threads of the server."""


class Server:
    """Serves pages from threads of its own until it is closed."""

    def __init__(self, listener: socket.socket, pages: Pages, *, path: str = "") -> None:
        """Begin to serve.

        Args:
            listener: listens already.
            pages: what there is.
            path: of the Unix socket, removed at the end.
        """
        self._path = path
        self._listener = listener
        self._server = _Bounded(listener, pages)
        self.address: Any = listener.getsockname()
        """Where it listens: host and port, or a path."""
        self._thread = Thread(target=self._server.serve_forever, args=(POLLING,), name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and remove the socket's name."""
        # Wakes the thread up, so that an idle server need not look ten times a second whether it is to end.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._thread.join(SECONDS)
        self._server.server_close()
        if self._path:
            sockets.remove(self._path)


def serve_unix(path: str, pages: Pages) -> Server:
    """Serve pages on a Unix socket.

    Raises:
        InputError: there can be no such socket.
    """
    return Server(sockets.listening(path), pages, path=path)


def serve_tcp(address: Address, pages: Pages) -> Server:
    """Serve pages on a TCP address; port 0 takes any that is free.

    Raises:
        InputError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family)
    except (OSError, OverflowError) as error:
        words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        # The library adds the address, which is named already.
        words = words.partition(" (while")[0]
        remedy = "choose another metricsAddress, or leave it empty"
        raise InputError(f"cannot be listened on: {words.lower()}", source=str(address), remedy=remedy) from None
    return Server(listener, pages)


class _Bounded(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """A server on a socket that listens already, with a bounded number of threads."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, pages: Pages) -> None:
        super().__init__(listener.getsockname(), _Handler)
        self.pages = pages
        self._listener = listener
        self._free = BoundedSemaphore(CONNECTIONS)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with a connection."""
        return self._listener.fileno()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = self._listener.accept()
        connection.settimeout(SECONDS)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own where one is free."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        """End a connection: what was written still arrives."""
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
        self.close_request(request)

    def close_request(self, request: Any) -> None:
        """Close a connection."""
        request.close()

    def server_close(self) -> None:
        """Close the listening socket."""
        super().server_close()
        self._listener.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no event of the agent."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Bounded
    protocol_version = "HTTP/1.0"
    server_version = "mooring"
    sys_version = ""

    def setup(self) -> None:
        """Read the request's head as a whole, so that its time is bounded as a whole."""
        self.rfile = io.BytesIO(_head(self.request))
        self.wfile = io.BytesIO()
        self.connection = self.request

    def finish(self) -> None:
        """Send the answer in one go."""
        buffer = self.wfile
        if isinstance(buffer, io.BytesIO):
            with suppress(OSError):
                self.connection.sendall(buffer.getvalue())

    def do_GET(self) -> None:
        """Answer with a document."""
        path = self.path.partition("?")[0]
        make = self.server.pages.get(path)
        page = make() if make is not None else _missing(self.server.pages)
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(page.body)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for this name

    def address_string(self) -> str:
        """Return nothing: clients of a Unix socket have no address."""
        return ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's signature
        """Log nothing: probes come every few seconds."""


def _missing(pages: Pages) -> Page:
    known = ", ".join(sorted(pages))
    return Page(f"there are {known}\n".encode(), status=HTTPStatus.NOT_FOUND)


def _head(connection: socket.socket) -> bytes:
    """Read up to the end of the headers; less when the client takes too long or sends too much."""
    deadline = time.monotonic() + SECONDS
    data = b""
    with suppress(OSError):
        while _END_OF_HEAD not in data and len(data) < LONGEST_REQUEST:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            connection.settimeout(left)
            part = connection.recv(LONGEST_REQUEST - len(data))
            if not part:
                break
            data += part
    connection.settimeout(SECONDS)
    return data
