"""Clients that take their time: every connection is cut that does not get on, however it dawdles.

The server under the extender waits for ever for the head of a request, and for a client that does not read its answer.
Here a connection has time until its first request is there, while a request is under way, and until the next one; when
that is over, it ends at once. Bodies have a time of their own, and are answered when it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_STATE: Final = "mooring.connection"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a connection has."""

    first: float
    """Until the head of the first request has come."""
    busy: float
    """For its body and its answer, until that is handed to the system."""
    idle: float
    """Until the head of the next one has come. Clients close idle connections earlier, so that they never send a
    request into one that is being closed: kube-scheduler after 90 seconds."""


class TimedConnection(asyncio.Protocol):
    """Passes everything on to the server's own protocol, and cuts the connection when its time is over."""

    def __init__(self, patience: Patience, app_state: dict[str, Any], **others: Any) -> None:
        """Make the protocol of one connection.

        Args:
            patience: how long it may take.
            app_state: what the application finds in the state of each request.
            others: for the server's own protocol.
        """
        self._patience = patience
        self._inner = H11Protocol(app_state={**app_state, _STATE: self}, **others)
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None

    def began(self) -> None:
        """Take it that the head of a request has come."""
        self._allow(self._patience.busy)

    def answered(self) -> None:
        """Take it that a request is answered."""
        self._allow(self._patience.idle)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(type(transport))
        self._transport = transport
        self._inner.connection_made(transport)
        self._allow(self._patience.first)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._end is not None:
            self._end.cancel()
        self._transport = None
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._inner.data_received(data)

    def eof_received(self) -> None:
        """Pass the end of the client's bytes on."""
        self._inner.eof_received()

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
            self._end = asyncio.get_running_loop().call_later(seconds, self._transport.abort)


def timed(patience: Patience) -> Callable[..., asyncio.Protocol]:
    """Return what makes the protocol of a connection, as the server calls it."""
    return lambda **given: TimedConnection(patience, **given)


def telling(app: ASGIApp) -> ASGIApp:
    """Return an application that tells its connections how far they have come."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        connection: TimedConnection = scope["state"][_STATE]
        connection.began()
        try:
            await app(scope, receive, send)
        finally:
            connection.answered()

    return told
