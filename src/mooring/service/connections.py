"""Connections of HTTP clients: accepted, encrypted, read by h11 and answered, each within a number and a time.

Before TLS a client is nobody: of those whose handshake is under way there are :data:`HANDSHAKES` at most, and one more
cuts the one that began first. After it a connection has time until the head of a request has come, for its body, for
the answer, and until the next request; when that is over, it ends at once. Where there are too many, the one that has
waited longest for a whole request is cut before any that is being answered.

asyncio keeps 256 KiB for a connection with TLS: the two numbers are a bound of the memory too.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import unquote

import h11

from mooring.service.http import HANDSHAKES, Application, ASGIMessage, ConnectionLimits, Page, Pages, Receive, Send

_QUEUED: Final = 1024
"""Connections that the system queues."""
_OTHER_FILES: Final = 128
"""Files of the process besides its clients."""
_HELD: Final = 64 * 1024
"""Bytes of a client that are kept before they are asked for; then nothing more is read."""
_PAUSE: Final = 0.02
"""Seconds between two checks whether the last requests are answered, and without files for new connections."""

_log = logging.getLogger(__name__)


def serve(
    listener: socket.socket,
    served: Pages | Application,
    limits: ConnectionLimits,
    tls: SSLContext | None,
    closing: socket.socket,
) -> None:
    """Serve until something can be read from ``closing``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + HANDSHAKES + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    app = _application(served) if isinstance(served, Mapping) else served
    asyncio.run(_serve(listener, _Clients(app, limits, tls, listener), closing))


async def _serve(listener: socket.socket, clients: _Clients, closing: socket.socket) -> None:
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    listener.setblocking(False)
    listener.listen(_QUEUED)
    loop.add_reader(closing, end.set)
    loop.add_reader(listener, clients.accept)
    await end.wait()
    loop.remove_reader(closing)
    loop.remove_reader(listener)
    await _turns()
    until = loop.time() + clients.limits.grace
    while clients.busy and loop.time() < until:
        await asyncio.sleep(_PAUSE)
    await _turns()
    for one in [*clients.waiting, *clients.busy]:
        one.cut()
    for task in clients.opening:
        task.cancel()
    await _turns()


async def _turns() -> None:
    """Let the loop begin what was accepted, and close what was cut: asyncio takes up to three turns for either."""
    for _ in range(3):
        await asyncio.sleep(0)


@dataclass(slots=True)
class _Clients:
    """The connections of a server, in each group since the longest time first."""

    app: Application
    limits: ConnectionLimits
    tls: SSLContext | None
    listener: socket.socket
    opening: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """In their handshake."""
    waiting: dict[_Connection, None] = field(default_factory=dict)
    """For a whole request."""
    busy: dict[_Connection, None] = field(default_factory=dict)
    """With a request that is answered."""

    def accept(self) -> None:
        """Take one connection from the system."""
        loop = asyncio.get_running_loop()
        try:
            made, _ = self.listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no file is left
            self.make_room()
            loop.remove_reader(self.listener)
            loop.call_later(_PAUSE, loop.add_reader, self.listener, self.accept)
            return
        made.setblocking(False)
        task = loop.create_task(self._open(made))
        self.opening[task] = None
        task.add_done_callback(lambda _: self.opening.pop(task, None))
        if len(self.opening) > HANDSHAKES:
            oldest = next(iter(self.opening))
            oldest.cancel()
            del self.opening[oldest]  # at once: the next client cuts another one

    async def _open(self, made: socket.socket) -> None:
        seconds = None if self.tls is None else self.limits.first
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Connection(self),
                made,
                ssl=self.tls,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except (OSError, asyncio.CancelledError):  # a client that goes or that is no client is no event of a daemon
            made.close()

    def make_room(self) -> None:
        """Cut the connection that has waited longest, if there is one that is not the newest."""
        for group in (self.waiting if len(self.waiting) > 1 else self.busy, self.waiting):
            if group:
                next(iter(group)).cut()
                return

    def put(self, one: _Connection, group: dict[_Connection, None], seconds: float) -> None:
        """Put a connection at the end of a group, for so many seconds."""
        self.discard(one)
        group[one] = None
        one.allow(seconds)

    def discard(self, lost: _Connection) -> None:
        """Forget a connection."""
        self.waiting.pop(lost, None)
        self.busy.pop(lost, None)


class _Connection(asyncio.Protocol):
    """One client."""

    _transport: asyncio.Transport

    def __init__(self, clients: _Clients) -> None:
        self._clients = clients
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=clients.limits.head)
        self._received, self._unsent = bytearray(), bytearray()
        self._ended = False  # the client sends no more
        self._lost, self._heard, self._sent = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._sent.set()
        self._end: asyncio.TimerHandle | None = None
        self._is_head = self._is_told = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(type(transport))
        self._transport = transport
        # A send waits until the system has everything: a client that does not read is noticed.
        transport.set_write_buffer_limits(1, 0)
        self._clients.put(self, self._clients.waiting, self._clients.limits.first)
        if len(self._clients.waiting) + len(self._clients.busy) > self._clients.limits.connections:
            self._clients.make_room()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def connection_lost(self, _exc: Exception | None) -> None:
        """End."""
        if self._end is not None:
            self._end.cancel()
        self._clients.discard(self)
        self._ended = True
        for event in (self._lost, self._heard, self._sent):
            event.set()

    def data_received(self, data: bytes) -> None:
        """Keep bytes until they are asked for."""
        self._received += data
        if len(self._received) > _HELD:
            self._transport.pause_reading()
        self._heard.set()

    def eof_received(self) -> bool:
        """Return whether the connection stays: a client that sends no more may wait for its answer, except over TLS."""
        self._ended = True
        self._heard.set()
        return self._clients.tls is None

    def pause_writing(self) -> None:
        """Take it that the client does not read."""
        self._sent.clear()

    def resume_writing(self) -> None:
        """Take it that the client reads again."""
        self._sent.set()

    def cut(self) -> None:
        """End at once."""
        self._clients.discard(self)
        self._transport.abort()

    def allow(self, seconds: float) -> None:
        """Cut it when so many seconds are over."""
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(seconds, self.cut)

    async def _run(self) -> None:
        try:
            while await self._exchanged():
                pass
        except h11.RemoteProtocolError as error:
            await self._refuse(HTTPStatus(error.error_status_hint), f"{error}\n")
        finally:
            self._transport.close()

    async def _exchanged(self) -> bool:
        """Answer one request, and return whether another one may follow."""
        request, limits = await self._event(), self._clients.limits
        if not isinstance(request, h11.Request):
            return False
        self._clients.put(self, self._clients.waiting, limits.body)
        self._is_head, self._is_told = request.method == b"HEAD", False
        framing = {name for name, _ in request.headers} & {b"content-length", b"transfer-encoding"}
        if len(framing) > 1:  # RFC 9112, section 6.1: somebody before or behind may count otherwise
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding do not go together")
        if not framing:
            await self._event()  # the end of the request, which is here already
        scope = self._scope(request)
        try:
            await self._clients.app(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - a defect is an answer for the client and a line in the log
            if not self._lost.is_set():
                _log.exception("internal error; a request was not answered: %.200s", scope["path"])
        if self._http.our_state is h11.SEND_RESPONSE:
            await self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error\n")
        if self._lost.is_set() or self._http.our_state is not h11.DONE:
            return False
        self._clients.put(self, self._clients.waiting, limits.idle)
        while self._http.their_state is h11.SEND_BODY:  # so that the client comes to its answer
            await self._event()
        if self._http.their_state is not h11.DONE:
            return False
        self._clients.put(self, self._clients.waiting, limits.idle)
        self._http.start_next_cycle()
        return True

    def _scope(self, request: h11.Request) -> ASGIMessage:
        path, _, query = request.target.partition(b"?")
        here, there = (self._transport.get_extra_info(name) for name in ("sockname", "peername"))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http" if self._clients.tls is None else "https",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "server": here[:2] if isinstance(here, tuple) else (here, None),
            "client": there[:2] if isinstance(there, tuple) else None,
        }

    async def _event(self) -> Any:
        """Return what comes next of the client."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if not self._received and not self._ended:
                self._heard.clear()
                await self._heard.wait()
            self._http.receive_data(bytes(self._received))
            self._received.clear()
            if not self._ended:
                self._transport.resume_reading()
        if isinstance(event, h11.EndOfMessage) and not self._lost.is_set():
            self._clients.put(self, self._clients.busy, self._clients.limits.busy)
        return event

    async def _receive(self) -> ASGIMessage:
        """Return the next part of the body, and afterwards wait until the client has gone."""
        if self._is_told:
            await self._lost.wait()
        elif self._http.their_state is not h11.SEND_BODY:
            self._is_told = True
            return {"type": "http.request", "body": b"", "more_body": False}
        else:
            if self._http.they_are_waiting_for_100_continue:
                self._write(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
            try:
                event = await self._event()
            except h11.RemoteProtocolError:  # it is no body, or it has ended early
                self._is_told = True
                return {"type": "http.disconnect"}
            self._is_told = isinstance(event, h11.EndOfMessage)
            body = b"" if self._is_told else bytes(event.data)
            return {"type": "http.request", "body": body, "more_body": not self._is_told}
        return {"type": "http.disconnect"}

    async def _send(self, message: ASGIMessage) -> None:
        """Send a part of the answer, and wait until the system has it."""
        if message["type"] == "http.response.start":
            status = HTTPStatus(message["status"])
            headers = list(message.get("headers", ()))
            # A body of known length is there already: both go in one call of the system, and wake the client once.
            follows = any(name == b"content-length" for name, _ in headers)
            self._write(
                h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()), follows=follows
            )
            return  # with what follows
        if body := b"" if self._is_head else message.get("body", b""):
            self._write(h11.Data(data=body), follows=not message.get("more_body", False))
        if not message.get("more_body", False):
            self._write(h11.EndOfMessage())
        await self._sent.wait()

    def _write(self, event: h11.Event, *, follows: bool = False) -> None:
        if self._lost.is_set():
            return
        self._unsent += self._http.send(event) or b""
        if self._unsent and not follows:
            whole, self._unsent = self._unsent, bytearray()
            self._transport.write(whole)

    async def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer with an error, after which the connection ends."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            page = Page(text.encode(), status=status)
            await self._send({"type": "http.response.start", "status": status, "headers": _headers(page)})
            await self._send({"type": "http.response.body", "body": page.body})


def _headers(page: Page) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer after which the connection ends."""
    headers = {
        "content-type": page.content_type,
        "content-length": str(len(page.body)),
        "cache-control": "no-store",
        "connection": "close",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _application(pages: Pages) -> Application:
    """Return an application that answers a GET with a page and ends the connection."""

    async def answer(scope: ASGIMessage, _receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            page = _made(pages, scope["path"])
        else:
            page = Page(b"only GET and HEAD\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        await send({"type": "http.response.start", "status": page.status, "headers": _headers(page)})
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
