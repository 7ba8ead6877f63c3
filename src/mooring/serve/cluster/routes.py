"""The routes of a cluster: its page, what waits and why, what fits where, and the page of each node."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from cachetools import LRUCache
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mooring.core.errors import InputError
from mooring.manifest.defaults import PodGates
from mooring.serve.access import Guard, Viewer
from mooring.serve.app import Answer, Entrance, application, assets
from mooring.serve.cluster.fitting import FittingSearch
from mooring.serve.cluster.html import TileSheet, cluster_page, fittings_html
from mooring.serve.cluster.known import KnownCluster
from mooring.serve.cluster.published_node import snapshot_of_node
from mooring.serve.node_html import Addresses, problem_html
from mooring.serve.node_plan import pods_in_text
from mooring.serve.node_routes import LARGEST_MANIFEST, NodeRoutes, read_body, stream
from mooring.serve.recording import KeptMoments, Recording
from mooring.serve.shadowed import ShadowedMoments
from mooring.service.pages import Application

TICK: Final = 0.5
"""Seconds between two announcements of changes."""
MOST_OPEN: Final = 32
"""Nodes whose pages are recorded; the one that was opened longest ago is forgotten."""
_KEPT: Final = 16


@dataclass(slots=True)
class ClusterRoutes:
    """Answers about a cluster."""

    cluster: KnownCluster
    name: str
    assets: tuple[str, str]
    recordings: Path | None = None
    """Folder of ``mooring record``: one for each node."""
    _open: LRUCache[str, NodeRoutes] = field(default_factory=lambda: LRUCache(MOST_OPEN))
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
        async with self._asking:
            found = await run_in_threadpool(FittingSearch().fitting, pod.pod, self.cluster.all(), pod.fields)
        return HTMLResponse(fittings_html([found]))

    async def fit(self, request: Request, _viewer: Viewer) -> Response:
        """Say which nodes would take the pods of a manifest."""
        manifest = await read_body(request, LARGEST_MANIFEST)
        if manifest is None:
            return HTMLResponse(problem_html("the manifest is too large"), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

        def ask() -> str:
            search, nodes = FittingSearch(), self.cluster.all()
            return fittings_html([search.fitting(pod, nodes) for pod in pods_in_text(manifest, PodGates())])

        try:
            async with self._asking:
                return HTMLResponse(await run_in_threadpool(ask))
        except InputError as error:
            return HTMLResponse(problem_html(str(error)), HTTPStatus.BAD_REQUEST)

    async def events(self, _request: Request, _viewer: Viewer) -> Response:
        """Return the stream of changes."""
        return stream(self.cluster.feed, lambda: {"at": time.time()})

    def of_node(self, answer: Callable[[NodeRoutes, Request, Viewer], Awaitable[Response]]) -> Answer:
        """Return an endpoint about the node that its address names."""

        async def endpoint(request: Request, viewer: Viewer) -> Response:
            node = await run_in_threadpool(self._node, request.path_params["name"])
            if node is None:
                return HTMLResponse(problem_html("there is no such node"), HTTPStatus.NOT_FOUND)
            return await answer(node, request, viewer)

        return endpoint

    def _node(self, name: str) -> NodeRoutes | None:
        found = self._open.get(name)
        now = self.cluster.node(name)
        if found is None and now is not None:
            styles, script = (f"../../{one}" for one in self.assets)
            recording = Recording(snapshot_of_node(now), kept=kept_of_node(self.recordings, name))
            found = NodeRoutes(recording, Addresses(up="../../"), (styles, script))
            self._open[name] = found
        return found

    def refresh(self) -> None:
        """Bring the pages of open nodes up to date."""
        for name, node in list(self._open.items()):
            now = self.cluster.node(name)
            if now is None:
                node.recording.fail("the node has left the cluster")
            else:
                node.recording.take(snapshot_of_node(now))

    async def _body(self, labels: str, viewer: Viewer) -> str:
        key = self.cluster.feed.version, labels, viewer.namespaces
        async with self._making:
            if key not in self._made:
                self._made[key] = await run_in_threadpool(self._sheet.body, self.cluster, labels, viewer)
            return self._made[key]


def kept_of_node(recordings: Path | None, name: str) -> KeptMoments | None:
    """Return what was recorded of a node; None where nothing was, or where it cannot be read."""
    try:
        if recordings is None or recordings / name not in recordings.iterdir():  # no name leads out of it
            return None
        return ShadowedMoments(recordings / name)
    except (OSError, InputError):
        return None


@contextmanager
def ticking(routes: ClusterRoutes) -> Iterator[None]:
    """Announce changes from a thread of its own until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        version = -1
        while not stop.wait(TICK):
            routes.cluster.tick()
            if routes.cluster.feed.version != version:
                version = routes.cluster.feed.version
                routes.refresh()

    thread = threading.Thread(target=run, name="mooring-cluster", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cluster_application(
    cluster: KnownCluster, name: str, guard: Guard, *, loopback: bool, recordings: Path | None = None
) -> tuple[Application, ClusterRoutes]:
    """Return the pages of a cluster as an application, and what keeps them up to date."""
    found = assets()
    styles, script = found.names
    routes = ClusterRoutes(cluster, name, (f"assets/{styles}", f"assets/{script}"), recordings)
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
    return application(made, entrance, found, loopback=loopback), routes
