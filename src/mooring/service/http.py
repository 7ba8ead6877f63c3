"""HTTP of every daemon: a listener with a thread of its own, bounded in connections, in bytes and in time.

Health, metrics and status are pages: a GET, a document, and the connection is closed. The scheduler extender and the
live pages bring applications. All are served by :mod:`mooring.service.connections`, which is imported when the first
client connects: until then a listener costs a thread that waits.

No client can keep others out, however many connect and however slow they are: every connection has a time for each
part of a request, and where there are too many, the one that has waited longest for its request is cut.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from mooring.engine.core.errors import InputError
from mooring.service import sockets
from mooring.service.options import Address
from mooring.service.pages import Application, ConnectionLimits, Pages

if TYPE_CHECKING:
    from ssl import SSLContext

SECONDS = 5.0
"""Time for reading the head of a request for a page."""
_PARTS = 3
"""A page is made and sent within that many times :data:`SECONDS`."""


class HTTPServer:
    """Serves a listener from threads of its own until it is closed."""

    def __init__(
        self,
        listener: socket.socket,
        served: Pages | Application,
        limits: ConnectionLimits,
        *,
        tls: SSLContext | None = None,
        path: str = "",
    ) -> None:
        """Begin to serve.

        Args:
            listener: listens already; it is closed at the end.
            served: pages, or an application.
            limits: of connections.
            tls: for HTTPS.
            path: of the Unix socket, removed at the end.
        """
        self._listener, self._served, self._limits, self._tls, self._path = listener, served, limits, tls, path
        self.address: Any = listener.getsockname()
        """Where it listens: host and port, or a path."""
        self._closing, self._close = socket.socketpair()
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and remove the socket's name."""
        with suppress(OSError):
            self._close.send(b"x")
        self._thread.join(SECONDS + self._limits.grace)
        for one in (self._listener, self._closing, self._close):
            one.close()
        if self._path:
            sockets.remove(self._path)

    def _run(self) -> None:
        ready, _, _ = select.select([self._listener, self._closing], [], [])
        if self._closing in ready:
            return
        # Late: it takes megabytes, and time that an agent does not have before it is registered.
        from mooring.service.connections import serve  # noqa: PLC0415 - as said above

        serve(self._listener, self._served, self._limits, self._tls, self._closing)


def serve_unix(path: str, pages: Pages) -> HTTPServer:
    """Serve pages on a Unix socket.

    Raises:
        InputError: there can be no such socket.
    """
    return HTTPServer(sockets.listening(path), pages, _of_pages(), path=path)


def serve_tcp(address: Address, pages: Pages) -> HTTPServer:
    """Serve pages on a TCP address; port 0 takes any that is free.

    Raises:
        InputError: the address is not available.
    """
    return HTTPServer(listener_at(address, "choose another metricsAddress, or leave it empty"), pages, _of_pages())


def listener_at(address: Address, remedy: str, *, field: str = "") -> socket.socket:
    """Return a socket that listens on a TCP address.

    Args:
        address: where; port 0 takes any that is free.
        remedy: for an address that is not available.
        field: of a document that names it.

    Raises:
        InputError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family)
    except (OSError, OverflowError) as error:
        words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        # The library adds the address, which is named already.
        words = words.partition(" (while")[0]
        problem = f"cannot be listened on: {words.lower()}"
        raise InputError(problem, source=str(address), field=field, remedy=remedy) from None
    # Connections inherit it. Without it the second part of an answer waits 40 ms for the client's acknowledgement of
    # the first; asyncio sets it only on sockets that were created with the protocol's number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _of_pages() -> ConnectionLimits:
    return ConnectionLimits(first=SECONDS, body=SECONDS, busy=SECONDS * _PARTS, idle=SECONDS)
