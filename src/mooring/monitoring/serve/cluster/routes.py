"""The routes of a cluster: its page, what waits and why, what fits where, and the page of each node."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from cachetools import LRUCache
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mooring.engine.core.errors import InputError
from mooring.monitoring.serve.access import Guard, Viewer
from mooring.monitoring.serve.app import Answer, Entrance, application, assets
from mooring.monitoring.serve.cluster.html import (
    Fitting,
    FittingSearch,
    TileSheet,
    cluster_page,
    fittings_html,
    fittings_in_text,
)
from mooring.monitoring.serve.cluster.known import KnownCluster
from mooring.monitoring.serve.cluster.open_nodes import OpenNodes
from mooring.monitoring.serve.node_html import problem_html
from mooring.monitoring.serve.node_routes import LARGEST_MANIFEST, NodeRoutes, read_body, stream
from mooring.service.daemon import Heartbeat
from mooring.service.http import Application

TICK: Final = 0.5
"""Seconds between two announcements of changes."""
_KEPT: Final = 16


@dataclass(slots=True)
class ClusterRoutes:
    """Answers about a cluster."""

    cluster: KnownCluster
    name: str
    assets: tuple[str, str]
    nodes: OpenNodes
    heartbeat: Heartbeat = field(default_factory=lambda: Heartbeat(time.monotonic))
    _sheet: TileSheet = field(default_factory=TileSheet)
    _made: LRUCache[tuple[int, str, frozenset[str] | None], str] = field(default_factory=lambda: LRUCache(_KEPT))
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def page(self, _request: Request, viewer: Viewer) -> Response:
        """Return the page."""
        return HTMLResponse(cluster_page(await self._body("", viewer), self.name, self.assets))

    async def body(self, request: Request, viewer: Viewer) -> Response:
        """Return the part of the page that changes, for nodes with some labels."""
        try:
            return HTMLResponse(await self._body(request.query_params.get("labels", "")[:500], viewer))
        except InputError as error:
            return HTMLResponse(problem_html(str(error)), HTTPStatus.BAD_REQUEST)

    async def pending(self, request: Request, viewer: Viewer) -> Response:
        """Say why a pod waits."""
        pod = self.cluster.pod(request.query_params.get("uid", ""))
        if pod is None or pod.node or not viewer.may_list(pod.pod.namespace):
            return HTMLResponse(problem_html("this pod does not wait"), HTTPStatus.NOT_FOUND)

        def ask() -> Fitting:
            return FittingSearch(self.cluster.faults).fitting(pod.pod, self.cluster.all(), pod.fields)

        async with self._asking:
            found = await run_in_threadpool(ask)
        return HTMLResponse(fittings_html([found]))

    async def fit(self, request: Request, _viewer: Viewer) -> Response:
        """Say which nodes would take the pods of a manifest."""
        manifest = await read_body(request, LARGEST_MANIFEST)
        if manifest is None:
            return HTMLResponse(problem_html("the manifest is too large"), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            async with self._asking:
                found = await run_in_threadpool(fittings_in_text, manifest, self.cluster)
        except InputError as error:
            return HTMLResponse(problem_html(str(error)), HTTPStatus.BAD_REQUEST)
        return HTMLResponse(fittings_html(found))

    async def events(self, _request: Request, _viewer: Viewer) -> Response:
        """Return the stream of changes."""
        return stream(self.cluster.feed, lambda: {"at": time.time()})

    def of_node(self, answer: Callable[[NodeRoutes, Request, Viewer], Awaitable[Response]]) -> Answer:
        """Return an endpoint about the node that its address names."""

        async def endpoint(request: Request, viewer: Viewer) -> Response:
            node = await run_in_threadpool(self.nodes.of, request.path_params["name"])
            if node is None:
                return HTMLResponse(problem_html("there is no such node"), HTTPStatus.NOT_FOUND)
            return await answer(node, request, viewer)

        return endpoint

    async def _body(self, labels: str, viewer: Viewer) -> str:
        key = self.cluster.feed.version, labels, viewer.namespaces
        async with self._making:
            if key not in self._made:
                self._made[key] = await run_in_threadpool(self._sheet.body, self.cluster, labels, viewer)
            return self._made[key]


@contextmanager
def ticking(routes: ClusterRoutes) -> Iterator[None]:
    """Announce changes from a thread of its own until the end of the block."""
    stop = threading.Event()

    def refresh() -> None:
        routes.cluster.tick()
        routes.nodes.refresh()

    def run() -> None:
        while not stop.wait(TICK):
            routes.heartbeat.beat()
            routes.cluster.faults.guarded("pages", refresh, lambda _error: None)

    thread = threading.Thread(target=run, name="mooring-cluster", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cluster_application(
    cluster: KnownCluster, name: str, guard: Guard, *, loopback: bool
) -> tuple[Application, ClusterRoutes]:
    """Return the pages of a cluster as an application, and what keeps them up to date."""
    found = assets()
    styles, script = found.names
    names = f"assets/{styles}", f"assets/{script}"
    routes = ClusterRoutes(cluster, name, names, OpenNodes(cluster, names))
    entrance = Entrance(guard, lambda _request: cluster.namespaces, found)

    async def node_events(node: NodeRoutes, _request: Request, _viewer: Viewer) -> Response:
        return node.events()

    async def node_page(node: NodeRoutes, _request: Request, viewer: Viewer) -> Response:
        return await node.page(viewer)

    def of_node(path: str, answer: Callable[[NodeRoutes, Request, Viewer], Awaitable[Response]], method: str) -> Route:
        endpoint = entrance.behind(routes.of_node(answer), "../../")
        return Route(f"/nodes/{{name}}/{path}", endpoint, methods=[method])

    made = [
        Route("/", entrance.behind(routes.page)),
        Route("/body", entrance.behind(routes.body)),
        Route("/pod", entrance.behind(routes.pending)),
        Route("/whatif", entrance.behind(routes.fit), methods=["POST"]),
        Route("/events", entrance.behind(routes.events)),
        of_node("", node_page, "GET"),
        of_node("body", NodeRoutes.body, "GET"),
        of_node("pod", NodeRoutes.pod, "GET"),
        of_node("whatif", NodeRoutes.whatif, "POST"),
        of_node("events", node_events, "GET"),
    ]
    return application(made, entrance, found, routes.heartbeat, loopback=loopback), routes
