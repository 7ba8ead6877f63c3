"""HTTP of every daemon: a listener with a thread of its own, bounded in connections, in bytes and in time.

Health, metrics and status are pages: a GET, a document, and the connection is closed. The scheduler extender and the
live pages bring applications. All are served by :mod:`mooring.service.connections`, which is imported when the first
client connects: until then a listener costs a thread that waits.

No client can keep others out, however many connect and however slow they are: every connection has a time for each
part of a request, and where there are too many, the one that has waited longest for its request is cut.

What an HTTP server of a daemon serves and within which limits, for the listener and for its connections.

Apart from both, because connections need asyncio and h11, which a listener imports when the first client connects.

Metrics of a program are one page, which shows what was counted and what is seen at that moment.

TLS of a server: files that are replaced while it runs, as cert-manager and the chart's job do.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from threading import Thread
from typing import TYPE_CHECKING, Any

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.files import FileMark, file_mark
from mooring.lazy import lazily
from mooring.service import daemon
from mooring.service.options import Address

if TYPE_CHECKING:
    from ssl import SSLContext

    from prometheus_client import Counter, Histogram
    from prometheus_client.metrics_core import Metric

with lazily():
    import ssl

    import prometheus_client

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
HANDSHAKES = 32
"""Connections whose TLS handshake is under way."""


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


class ProgramMetrics:
    """Counters and times of one program, and the page on which they stand; usable from any thread."""

    def __init__(self, prefix: str) -> None:
        """Begin without any.

        Args:
            prefix: of every name.
        """
        # Times of creation double the number of lines and tell nothing here: all are that of the start.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
        self._prefix, self._registry = prefix, prometheus_client.CollectorRegistry()

    def counter(self, name: str, says: str, *labels: str) -> Counter:
        """Return a new counter."""
        return prometheus_client.Counter(f"{self._prefix}_{name}", says, labels, registry=self._registry)

    def seconds_of(self, name: str, says: str, label: str, buckets: Sequence[float]) -> Histogram:
        """Return a new histogram of seconds."""
        name = f"{self._prefix}_{name}"
        return prometheus_client.Histogram(name, says, [label], buckets=buckets, registry=self._registry)

    def seen(self) -> Iterable[Metric]:
        """Return what is not counted but seen."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted, and then what is seen."""
        yield from self._registry.collect()
        yield from self.seen()

    def numbers(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return prometheus_client.generate_latest(self)

    def page(self) -> Page:
        """Return the page ``/metrics``."""
        return Page(self.numbers(), PROMETHEUS)


ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]
Application = Callable[[ASGIMessage, Receive, Send], Awaitable[None]]
"""An ASGI application."""

Pages = Mapping[str, Callable[[], Page]]
"""Path -> how its document is made. The thread of the server calls it and answers no other client meanwhile, so that
it must not wait for anything."""


_Stamp = tuple[FileMark | None, ...]
"""Of each file."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """Where the files are, and how a refusal names them."""

    certificate: str
    key: str
    client_ca: str = ""
    """Its certificates are what clients must have; empty: they need none."""
    source: str = ""
    field: str = ""


def tls_context(tls: TLSFiles, report: Callable[[str], object]) -> ssl.SSLContext:
    """Return a context whose handshakes use the files as they are at that moment.

    Files that cannot be used leave the ones before in use.

    Args:
        tls: names of the files.
        report: receives what is the matter.

    Raises:
        InputError: the files cannot be used at the start.
    """
    used, present = _read(tls)

    def follow(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal used, present
        if _stamp(tls) != used:
            try:
                used, present = _read(tls)
            except InputError as error:
                used = _stamp(tls)  # reported once
                report(f"{error}; the certificate before stays in use")
        connection.context = present

    # OpenSSL calls it in every handshake, with or without a server name in the client's hello.
    context = present
    context.sni_callback = follow
    return context


def _stamp(tls: TLSFiles) -> _Stamp:
    return tuple(file_mark(name) for name in (tls.certificate, tls.key, tls.client_ca) if name)


def _read(tls: TLSFiles) -> tuple[_Stamp, ssl.SSLContext]:
    stamp = _stamp(tls)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key or None)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        problem = f"cannot be used: {error.strerror or error}"
        remedy = "check certificate, key and CA, which are PEM"
        raise InputError(problem, source=tls.source, field=tls.field, remedy=remedy) from None
    return stamp, context


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
            daemon.remove(self._path)

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
    return HTTPServer(daemon.listening(path), pages, _of_pages(), path=path)


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
