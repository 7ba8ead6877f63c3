"""What an HTTP server of a daemon serves and within which limits, for the listener and for its connections.

Apart from both, because connections need asyncio and h11, which a listener imports when the first client connects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long connections may take, and how many there may be."""

    first: float
    """Seconds until the head of the first request has come."""
    body: float
    """Seconds for its body."""
    busy: float
    """Seconds for its answer, until that is handed to the system."""
    idle: float
    """Seconds until the head of the next one has come. Clients close idle connections earlier, so that they never send
    a request into one that is being closed: kube-scheduler after 90 seconds."""
    connections: int = 64
    """At once; one more cuts the one that has waited longest. Over TLS each has 256 KiB of memory."""
    head: int = 8 * 1024
    """Bytes of a request line with its headers."""
    grace: float = 0.0
    """Seconds for requests that are under way when the server is closed."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]
Application = Callable[[ASGIMessage, Receive, Send], Awaitable[None]]
"""An ASGI application."""

Pages = Mapping[str, Callable[[], Page]]
"""Path -> how its document is made. The thread of the server calls it and answers no other client meanwhile, so that
it must not wait for anything."""
