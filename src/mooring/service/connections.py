"""Connections of HTTP clients, on uvicorn: each is cut that does not get on, and the oldest where there are too many.

The protocol of uvicorn waits for ever for the head of a request, and for a client that does not read its answer. Here a
connection has time until its first request is there, while a request is under way, and until the next one; when that is
over, it ends at once. Bodies have a time of their own, and are answered when it is over. The loop of uvicorn wakes up
ten times a second for a date in its answers; here it sleeps until a client needs something.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from ssl import SSLContext
from typing import Final

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mooring.service.pages import Application, ASGIMessage, ConnectionLimits, Page, Pages, Receive, Send

_STATE: Final = "mooring.connection"
_ACCEPTED: Final = 64
"""Connections that are taken from the system at once, before one that is over is closed."""
_QUEUED: Final = 1024
"""Connections that the system queues."""
_PAUSE: Final = 0.02
"""Seconds between two checks whether the last requests are answered."""

_log = logging.getLogger(__name__)


def serve(
    listener: socket.socket,
    served: Pages | Application,
    limits: ConnectionLimits,
    tls: SSLContext | None,
    closing: socket.socket,
) -> None:
    """Serve until something can be read from ``closing``."""
    # What clients send wrong is no event of a daemon.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    app = _application(served) if isinstance(served, Mapping) else served
    asyncio.run(_serve(listener, app, limits, tls, closing))


async def _serve(
    listener: socket.socket,
    app: Application,
    limits: ConnectionLimits,
    tls: SSLContext | None,
    closing: socket.socket,
) -> None:
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(closing, end.set)
    configuration = Config(
        _timed(app),
        http=H11Protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.head,
        timeout_keep_alive=int(limits.idle) + 1,  # the connection's own time ends first
    )
    configuration.load()
    group = _ConnectionGroup(limits)
    server = await loop.create_server(
        partial(_Connection, group, configuration, ServerState()), sock=listener, ssl=tls, backlog=_ACCEPTED
    )
    listener.listen(_QUEUED)
    await end.wait()
    loop.remove_reader(closing)
    # What was accepted begins first: asyncio does not close an accepted socket that finds its server closed.
    loop.remove_reader(listener)
    await _turns()
    server.close()
    until = loop.time() + limits.grace
    while group.busy and loop.time() < until:
        await asyncio.sleep(_PAUSE)
    await _turns()
    group.cut_all()
    await _turns()


async def _turns() -> None:
    """Let the loop begin what was accepted, and close what was cut: asyncio takes up to three turns for either."""
    for _ in range(3):
        await asyncio.sleep(0)


@dataclass(slots=True)
class _ConnectionGroup:
    """The connections of a server."""

    limits: ConnectionLimits
    waiting: dict[_Connection, None] = field(default_factory=dict)
    """For a request, since the longest time first."""
    busy: dict[_Connection, None] = field(default_factory=dict)
    """With a request, the first one first."""

    def add(self, made: _Connection) -> None:
        """Take a connection, and cut another one where there are too many."""
        self.waiting[made] = None
        if len(self.waiting) + len(self.busy) > self.limits.connections:
            next(iter(self.waiting if len(self.waiting) > 1 else self.busy)).cut()

    def discard(self, lost: _Connection) -> None:
        """Forget a connection."""
        self.waiting.pop(lost, None)
        self.busy.pop(lost, None)

    def cut_all(self) -> None:
        """End every connection."""
        for one in [*self.waiting, *self.busy]:
            one.cut()


class _Connection(asyncio.Protocol):
    """Passes everything on to the protocol of uvicorn, and ends the connection when its time is over."""

    def __init__(self, group: _ConnectionGroup, configuration: Config, state: ServerState) -> None:
        self._group = group
        self._inner = H11Protocol(configuration, state, {_STATE: self})
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None

    def cut(self) -> None:
        """End at once."""
        self._group.discard(self)
        if self._transport is not None:
            self._transport.abort()

    def began(self) -> None:
        """Take it that the head of a request has come."""
        self._group.discard(self)
        self._group.busy[self] = None
        self._allow(self._group.limits.busy)

    def answered(self) -> None:
        """Take it that a request is answered."""
        self._group.discard(self)
        if self._transport is not None:
            self._group.waiting[self] = None
        self._allow(self._group.limits.idle)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(type(transport))
        self._transport = transport
        self._inner.connection_made(transport)
        self._allow(self._group.limits.first)
        self._group.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._end is not None:
            self._end.cancel()
        self._transport = None
        self._group.discard(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._inner.data_received(data)

    def eof_received(self) -> bool:
        """Return whether the connection stays: a client that sends no more may wait for its answer."""
        self._inner.eof_received()
        return self in self._group.busy or self._inner.cycle is not None

    def pause_writing(self) -> None:
        """Pass on that the client does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client reads again."""
        self._inner.resume_writing()

    def _allow(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        if self._transport is not None:  # else it is lost, and an answer came too late
            self._end = asyncio.get_running_loop().call_later(seconds, self.cut)


def _timed(app: Application) -> Application:
    """Return an application that tells its connections how far they have come."""

    async def timed(scope: ASGIMessage, receive: Receive, send: Send) -> None:
        connection: _Connection = scope["state"][_STATE]
        connection.began()
        try:
            await app(scope, receive, send)
        finally:
            connection.answered()

    return timed


def _application(pages: Pages) -> Application:
    """Return an application that answers a GET with a page and ends the connection."""

    async def answer(scope: ASGIMessage, _receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            page = _made(pages, scope["path"])
        else:
            page = Page(b"only GET and HEAD\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        headers = {
            "content-type": page.content_type,
            "content-length": str(len(page.body)),
            "cache-control": "no-store",
            "connection": "close",
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": page.status, "headers": encoded})
        await send({"type": "http.response.body", "body": page.body})

    return answer


def _made(pages: Pages, path: str) -> Page:
    make = pages.get(path)
    if make is None:
        known = ", ".join(sorted(pages))
        return Page(f"there are {known}\n".encode(), status=HTTPStatus.NOT_FOUND)
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - a defect is an answer for the client and a line in the log
        _log.exception("internal error; a page was not made: %s", path)
        text = f"internal error: {type(error).__name__}\n"
        return Page(text.encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
