"""The web application and its process: routes, assets, sign-in, which person sees what, where it listens, how it stops.

Every request and answer: no other origins, no other hosts, nothing that could write. A page on loopback is reachable
from every page that a browser shows, by a name of the attacker that leads to 127.0.0.1: so the host that the browser
names must be loopback, too. Requests that another site's page makes are refused by what browsers say about them (Fetch
Metadata, Origin).

A node is read again only when one of its files has changed, and now and then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mooring.engine.core.errors import InputError, MooringError
from mooring.inputs.decoding.files import FileMark, file_mark
from mooring.monitoring.serve.access import ClusterGuard, Guard, OpenGuard, Viewer
from mooring.monitoring.serve.node_routes import NODE_ROUTES, NodeRoutes, Recording, moment_of, read_body
from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.service import http
from mooring.service.apiserver import Cluster, ClusterError, cluster_of, configuration_of
from mooring.service.daemon import Heartbeat, stop_signals
from mooring.service.options import Address
from mooring.views.html import part_text, script_text, style_text

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without any, browsers send the sign-in form with the origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class SecuredApplication:
    """An application behind these checks."""

    def __init__(self, inner: http.Application, *, loopback: bool) -> None:
        """Put the checks before an application.

        Args:
            inner: answers.
            loopback: whether only hosts of loopback are served.
        """
        self._inner, self._loopback = inner, loopback

    async def __call__(self, scope: http.ASGIMessage, receive: http.Receive, send: http.Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def with_headers(message: http.ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = refusal(scope["method"], Headers(scope=scope), loopback=self._loopback)
        inner = PlainTextResponse(f"{problem}\n", HTTPStatus.FORBIDDEN) if problem else self._inner
        await inner(scope, receive, with_headers)


def refusal(method: str, headers: Mapping[str, str], *, loopback: bool) -> str:
    """Return why a request is refused; empty when it is not.

    >>> refusal("GET", {"host": "localhost:8080"}, loopback=True)
    ''
    >>> refusal("GET", {"host": "attacker.example"}, loopback=True)
    'this page is served for localhost only'
    """
    host = headers.get("host", "")
    if loopback and (urlsplit(f"//{host}").hostname or "") not in _LOOPBACK:
        return "this page is served for localhost only"
    site = headers.get("sec-fetch-site", "none")
    navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if site in ("cross-site", "same-site") and not (navigates and headers.get("sec-fetch-dest") == "document"):
        return "requests of other sites are refused"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "requests of other origins are refused"
    return ""


COOKIE: Final = "mooring-token"
SCRIPTS: Final = ("theme.js", "tables.js", "serve.js")
_LARGEST_TOKEN: Final = 16_384
_ANSWERS: Final = 3.0
"""Seconds within which a thread is free."""
_LONGEST_PAUSE: Final = 300.0
"""Seconds without a heartbeat after which the reader has stopped."""
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


Assets = Mapping[str, tuple[str, str]]
"""Styles and script with their kinds, in this order, by names that change with their content."""


def assets() -> Assets:
    """Return the assets of all pages."""
    found = ("css", style_text()), ("javascript", script_text(SCRIPTS))
    return {f"{sha256(text.encode()).hexdigest()[:16]}.{kind}": (text, f"text/{kind}") for kind, text in found}


Answer = Callable[[Request, Viewer], Awaitable[Response]]


class Entrance:
    """Admits people whom the guard knows."""

    def __init__(self, guard: Guard, namespaces: Callable[[Request], Collection[str]], asked: Assets) -> None:
        """Admit no person yet.

        Args:
            guard: decides.
            namespaces: those of the pods that the answer to a request shows.
            asked: styles of the sign-in page.
        """
        self._guard, self._namespaces, self._assets = guard, namespaces, asked

    def behind(self, answer: Answer, up: str = "") -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers admitted people, and offers others to sign in.

        Args:
            answer: of the endpoint.
            up: way from its address to the root of the site.
        """

        async def endpoint(request: Request) -> Response:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            token = given.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")
            try:
                viewer = await self._guard.viewer(token, ())
                if viewer is not None and viewer.namespaces is not None:
                    # Only now: to know the namespaces of an earlier moment, it is read from disk and planned.
                    viewer = await self._guard.viewer(token, await run_in_threadpool(self._namespaces, request))
            except ClusterError as error:
                return PlainTextResponse(f"the API server does not answer: {error}\n", HTTPStatus.BAD_GATEWAY)
            if viewer is None:
                return self._sign_in(up)
            return await answer(request, viewer)

        return endpoint

    async def signed_in(self, request: Request) -> Response:
        """Take a token, and keep it in the browser where the API server knows it."""
        body = await read_body(request, _LARGEST_TOKEN)
        if body is None:
            return PlainTextResponse("too large\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        token = body.decode("ascii", "replace").removeprefix("token=").strip()
        try:
            viewer = await self._guard.viewer(token, ())
        except ClusterError as error:
            return PlainTextResponse(f"the API server does not answer: {error}\n", HTTPStatus.BAD_GATEWAY)
        if viewer is None:
            return self._sign_in("", wrong=True)
        found = RedirectResponse("./", HTTPStatus.SEE_OTHER)
        secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        found.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return found

    def _sign_in(self, up: str, *, wrong: bool = False) -> Response:
        styles, script = (f"{up}assets/{name}" for name in self._assets)
        text = part_text("serve-sign-in.html", title="Sign in", styles=styles, script=script, wrong=wrong, up=up)
        return HTMLResponse(text, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})


def application(
    routes: list[Route], entrance: Entrance, found: Assets, heartbeat: Heartbeat, *, loopback: bool
) -> SecuredApplication:
    """Return the application.

    Args:
        routes: of the pages.
        entrance: takes tokens.
        found: styles and script.
        heartbeat: of the thread that reads what is shown.
        loopback: whether only hosts of loopback are served.
    """

    async def healthy(_request: Request) -> Response:
        try:
            async with asyncio.timeout(_ANSWERS):
                await run_in_threadpool(int)
        except TimeoutError:
            return PlainTextResponse("no thread is free for a page\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if heartbeat.age() > _LONGEST_PAUSE:
            return PlainTextResponse("what is shown is no longer read\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ok\n")

    async def asset(text: str, kind: str, _request: Request) -> Response:
        return Response(text, media_type=kind, headers=_FOR_EVER)

    own = [
        *(Route(f"/assets/{name}", partial(asset, *one)) for name, one in found.items()),
        Route("/sign-in", entrance.signed_in, methods=["POST"]),
        Route("/healthz", healthy),
    ]
    plain = Starlette(routes=[*own, *routes])
    packed = GZipMiddleware(plain, compresslevel=1)

    async def inner(scope: http.ASGIMessage, receive: http.Receive, send: http.Send) -> None:
        # A stream of changes goes out at once, packed or not: older middleware keeps it back.
        await (plain if scope["path"].endswith("/events") else packed)(scope, receive, send)

    return SecuredApplication(inner, loopback=loopback)


LIMITS: Final = http.ConnectionLimits(first=5.0, body=10.0, busy=3600.0, idle=75.0, connections=1024, head=32 * 1024)
"""A stream of changes is cut after an hour; the browser opens it again."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where the pages are served, and to whom."""

    listen: Address
    kubeconfig: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether only this computer reaches it."""
        if self.listen.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.listen.host).is_loopback
        except ValueError:
            return False


def connection(kubeconfig: str) -> Callable[[], Cluster]:
    """Return what connects to the API server; credentials are read each time, because they may be renewed.

    Raises:
        InputError: there is no access to one.
    """
    cluster_of(configuration_of(kubeconfig or None)).close()  # mistakes in the credentials are reported at once

    def connect() -> Cluster:
        try:
            return cluster_of(configuration_of(kubeconfig or None))
        except InputError as error:
            raise ClusterError(str(error)) from None

    return connect


def guard_of(options: ServeOptions) -> Guard:
    """Return the guard: open on loopback, else the API server's reviews.

    Raises:
        InputError: the page is exposed, and there is no API server to ask.
    """
    return OpenGuard() if options.is_loopback else ClusterGuard(connection(options.kubeconfig))


def node_application(recording: Recording, guard: Guard, *, loopback: bool) -> http.Application:
    """Return the page of one node as an application."""
    found = assets()
    styles, script = found
    node = NodeRoutes(recording, "", (f"assets/{styles}", f"assets/{script}"))

    entrance = Entrance(guard, lambda request: recording.at(moment_of(request)).namespaces, found)
    routes = [
        Route(f"/{path}", entrance.behind(partial(answer, node)), methods=[method])
        for path, answer, method in NODE_ROUTES
    ]
    return application(routes, entrance, found, recording.heartbeat, loopback=loopback)


@contextmanager
def repeated(act: Callable[[], object], period: float, heartbeat: Heartbeat) -> Iterator[None]:
    """Act periodically, in a thread of its own, until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(period):
            heartbeat.beat()
            act()

    thread = threading.Thread(target=run, name="mooring-pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(period + 5.0)


AGAIN: Final = 30.0
"""Seconds after which a node is read again although no file has changed: its pods can have."""


class WatchedNode:
    """Returns the newest snapshot of a node when it is called; used by one thread."""

    def __init__(
        self, read: Callable[[], tuple[NodeSnapshot, Sequence[Path]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read nothing yet.

        Args:
            read: reads the node, and names the files that show when it has changed.
            clock: seconds that only go forward.
        """
        self._read, self._clock = read, clock
        self._files: Sequence[Path] = ()
        self._marks: tuple[FileMark | None, ...] = ()
        self._until = 0.0
        self._known: NodeSnapshot | None = None

    def __call__(self) -> NodeSnapshot:
        """Return the node.

        Raises:
            InputError: it cannot be read.
        """
        marks = tuple(map(file_mark, self._files))
        if self._known is None or marks != self._marks or self._clock() >= self._until:
            # Marks are older than what is read, so that a change meanwhile is read the next time.
            self._known, found = self._read()
            self._marks = marks if found == self._files else ()
            self._files, self._until = found, self._clock() + AGAIN
        return self._known


def looking(recording: Recording, source: Callable[[], NodeSnapshot], period: float) -> AbstractContextManager[None]:
    """Read a node periodically, from a thread of its own, until the end of the block."""

    def look() -> None:
        try:
            recording.take(source())
        except MooringError as error:
            recording.fail(str(error))

    return repeated(look, period, recording.heartbeat)


def run_application(app: http.Application, options: ServeOptions, started: Callable[[str], object]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app: the pages.
        options: where.
        started: takes lines about what is served.

    Raises:
        InputError: address or certificate cannot be used.
    """
    tls = None
    if options.certificate:
        tls = http.tls_context(http.TLSFiles(options.certificate, options.key, source="--certificate"), started)
    listener = http.listener_at(options.listen, "choose another address with --listen")
    with stop_signals() as stop, closing(http.HTTPServer(listener, app, LIMITS, tls=tls)) as server:
        host, port = server.address[:2]
        shown = f"[{host}]" if ":" in host else host
        if tls is None and not options.is_loopback:
            started("tokens are not encrypted: give --certificate, or let an ingress end TLS")
        started(f"serving {'https' if tls else 'http'}://{shown}:{port}/")
        stop.wait()
