"""The pages as a process: its source, where it listens, and how it stops."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mooring.engine.core.errors import InputError, MooringError
from mooring.monitoring.serve.access import ClusterGuard, Guard, OpenGuard, Viewer
from mooring.monitoring.serve.app import Entrance, application, assets
from mooring.monitoring.serve.node_html import Addresses
from mooring.monitoring.serve.node_routes import NodeRoutes, moment_of
from mooring.monitoring.serve.recording import Recording
from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.service.cluster.apiserver import Cluster, ClusterError, cluster_of, configuration_of
from mooring.service.daemon import stop_signals
from mooring.service.http import Application, ConnectionLimits, HTTPServer, TLSFiles, listener_at, tls_context
from mooring.service.options import Address

LIMITS: Final = ConnectionLimits(first=5.0, body=10.0, busy=3600.0, idle=75.0, connections=1024, head=32 * 1024)
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


def node_application(recording: Recording, guard: Guard, *, loopback: bool) -> Application:
    """Return the page of one node as an application."""
    found = assets()
    styles, script = found.names
    node = NodeRoutes(recording, Addresses(), (f"assets/{styles}", f"assets/{script}"))

    def namespaces(request: Request) -> Collection[str]:
        try:
            return recording.at(moment_of(request)).snapshot.namespaces
        except InputError:
            return ()

    async def page(_request: Request, viewer: Viewer) -> Response:
        return await node.page(viewer)

    async def events(_request: Request, _viewer: Viewer) -> Response:
        return node.events()

    entrance = Entrance(guard, namespaces, found)
    routes = [
        Route("/", entrance.behind(page)),
        Route("/body", entrance.behind(node.body)),
        Route("/pod", entrance.behind(node.pod)),
        Route("/whatif", entrance.behind(node.whatif), methods=["POST"]),
        Route("/events", entrance.behind(events)),
    ]
    return application(routes, entrance, found, recording.heartbeat, loopback=loopback)


@contextmanager
def looking(recording: Recording, source: Callable[[], NodeSnapshot], period: float) -> Iterator[None]:
    """Read a node periodically, from a thread of its own, until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(period):
            recording.heartbeat.beat()
            try:
                recording.take(source())
            except MooringError as error:
                recording.fail(str(error))

    thread = threading.Thread(target=run, name="mooring-node", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(period + 5.0)


def run_application(app: Application, options: ServeOptions, started: Callable[[str], object]) -> None:
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
        tls = tls_context(TLSFiles(options.certificate, options.key, source="--certificate"), started)
    listener = listener_at(options.listen, "choose another address with --listen")
    with stop_signals() as stop, closing(HTTPServer(listener, app, LIMITS, tls=tls)) as server:
        host, port = server.address[:2]
        shown = f"[{host}]" if ":" in host else host
        if tls is None and not options.is_loopback:
            started("tokens are not encrypted: give --certificate, or let an ingress end TLS")
        started(f"serving {'https' if tls else 'http'}://{shown}:{port}/")
        stop.wait()
