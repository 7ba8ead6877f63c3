"""The routes of a cluster: its page, what waits and why, what fits where, and the page of each node.

The nodes whose pages are open are recorded from when a page is opened first, usable from any thread: each as it
published itself, asked as a plan is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Final

from cachetools import LRUCache
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mooring.answers.base.plan import Question
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.monitoring.serve import cluster_known, node_routes
from mooring.monitoring.serve.access import Guard, Viewer
from mooring.monitoring.serve.app import Answer, Entrance, application, assets, repeated
from mooring.monitoring.serve.cluster_html import TileSheet, cluster_page, fittings_html
from mooring.monitoring.serve.recording import Recording
from mooring.monitoring.serve.snapshot import ANY, NodeNotice, NodeSnapshot, ShownPod, snapshot_of
from mooring.service.daemon import Heartbeat
from mooring.service.http import Application
from mooring.views.view import NodeView


def snapshot_of_node(node: cluster_known.NodeNow) -> NodeSnapshot:
    """Return a node of the cluster; an empty picture where nothing is known of it."""
    name = node.node.name
    if node.kind is None or node.state is None or isinstance(node.kubelet, str):
        words = str(node.kubelet)
        notice = NodeNotice(f"{name} {words}", warning=True) if words == cluster_known.UNPUBLISHED else _quoted(words)
        return replace(unknown_node(name, notice), notices=(notice, *_shadow_notices(node)))
    facts, state = node.kind.facts, node.state
    named = {key.uid for key in state.pods} | set(state.devices.held)
    there = {one.pod.uid: one.pod for one in node.pods}
    running = tuple(there[key.uid] for key in state.pods if key.uid in there)
    question = Question(
        Machine(name, facts.machine),
        facts.config,
        facts.mooring,
        active=running,
        files=state.files,
        devices=state.devices.devices,
        held=state.devices.held,
        offline=CPUSet(node.kubelet.node.cpu.offline),
        displaced=node.kubelet.node.cpu.displaced,
    )
    found = snapshot_of(question)
    coming = [pod for uid, pod in there.items() if uid not in named]
    notices = [
        NodeNotice(f"{pod.namespace}/{pod.name} is bound and not yet in the node's state", namespace=pod.namespace)
        for pod in coming
    ]
    refused = (
        ShownPod(pod.namespace, pod.name, pod.uid, one.refusal, False, (), "", one.message, one.since, pod)
        for one in node.refused
        for pod in [one.pod]
    )
    return replace(
        found,
        pods=(*refused, *found.pods),
        notices=(*found.notices, *notices, *_shadow_notices(node)),
    )


def unknown_node(name: str, notice: NodeNotice) -> NodeSnapshot:
    """Return an empty picture, with a notice that says why."""
    return NodeSnapshot(NodeView(name, "", notice.brief or notice.text, (), (), (), (), (), ()), notices=(notice,))


def unusable(error: Exception) -> NodeNotice:
    """Return what is said of a node whose state led to an error."""
    return _quoted(f"{type(error).__name__}: {error}")


def _quoted(words: str) -> NodeNotice:
    """Return a notice with the words of the engine about the state, which can name any pod."""
    return NodeNotice(words, True, ANY, cluster_known.UNUSABLE)


def _shadow_notices(node: cluster_known.NodeNow) -> Iterator[NodeNotice]:
    """Yield what the shadow of the kubelet counted, and its newest difference."""
    found = node.shadow
    if found is None:
        return
    counts = f"agreed {found.agreed}, differs {found.differs}, cannot tell {found.unknown}"
    yield NodeNotice(f"Shadow of the kubelet since {found.since}: {counts}", warning=bool(found.differs))
    for one in found.differences[-1:]:
        # That of a restart is about all pods, and so is shown without its contents.
        what = f": the kubelet has {one.kubelet}, the engine {one.engine}" if one.pod else ""
        words = f"Newest difference: {one.pod or 'kubelet'} {one.event}: {one.cause}{what}"
        yield NodeNotice(words, warning=True, namespace=one.pod.partition("/")[0])


MOST_OPEN: Final = 32
"""Nodes whose pages are recorded; the one that was opened longest ago is forgotten."""


@dataclass(slots=True)
class _OpenNode:
    routes: node_routes.NodeRoutes
    shown: cluster_known.NodeNow | None
    """What the newest snapshot is made of; None after the node has left."""


@dataclass(slots=True)
class OpenNodes:
    """Pages of nodes."""

    cluster: cluster_known.KnownCluster
    assets: tuple[str, str]
    _open: LRUCache[str, _OpenNode] = field(default_factory=lambda: LRUCache(MOST_OPEN))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Around ``_open``: reading it changes its order."""

    def of(self, name: str) -> node_routes.NodeRoutes | None:
        """Return the page of a node; None where the cluster has none of this name."""
        with self._lock:
            found = self._open.get(name)
        if found is not None:
            return found.routes
        now = self.cluster.node(name)
        if now is None:
            return None
        first = self.cluster.faults.guarded(
            name, lambda: snapshot_of_node(now), lambda error: unknown_node(name, unusable(error))
        )
        recording = Recording(first)
        styles, script = (f"../../{one}" for one in self.assets)
        made = _OpenNode(node_routes.NodeRoutes(recording, "../../", (styles, script)), now)
        with self._lock:  # another client can have opened it meanwhile
            return self._open.setdefault(name, made).routes

    def refresh(self) -> None:
        """Bring the pages up to date; those of nodes that have not changed cost nothing. Called by one thread."""
        with self._lock:
            pages = list(self._open.items())
        for name, page in pages:

            def failed(error: Exception, page: _OpenNode = page) -> None:
                page.routes.recording.fail(f"{unusable(error).brief} ({type(error).__name__})")

            self.cluster.faults.guarded(name, partial(self._refresh, name, page), failed)

    def _refresh(self, name: str, page: _OpenNode) -> None:
        now = self.cluster.node(name)
        if now is page.shown:
            return
        page.shown = now
        if now is None:
            page.routes.recording.fail("the node has left the cluster")
        else:
            page.routes.recording.take(snapshot_of_node(now))


TICK: Final = 0.5
"""Seconds between two announcements of changes."""
_KEPT: Final = 16
FIELDS: Final = ("search", "labels", "group", "sort", "resource", "show")
"""Of the page's form."""


@dataclass(slots=True)
class ClusterRoutes:
    """Answers about a cluster."""

    cluster: cluster_known.KnownCluster
    name: str
    assets: tuple[str, str]
    nodes: OpenNodes
    heartbeat: Heartbeat = field(default_factory=lambda: Heartbeat(time.monotonic))
    _sheet: TileSheet = field(default_factory=TileSheet)
    _made: LRUCache[tuple[object, ...], str] = field(default_factory=lambda: LRUCache(_KEPT))
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def page(self, request: Request, viewer: Viewer) -> Response:
        """Return the page."""
        content = await self.body(request, viewer)
        return HTMLResponse(cluster_page(bytes(content.body).decode(), self.name, self.assets), content.status_code)

    async def body(self, request: Request, viewer: Viewer) -> Response:
        """Return the part of the page that changes, as the fields of the page's form ask for it."""
        asked = request.query_params
        view = {name: asked[name][:500] for name in FIELDS if asked.get(name)}
        key = self.cluster.feed.version, tuple(view.items()), viewer.namespaces
        try:
            async with self._making:
                if key not in self._made:
                    self._made[key] = await run_in_threadpool(self._sheet.body, self.cluster, view, viewer)
                return HTMLResponse(self._made[key])
        except InputError as error:
            return HTMLResponse(node_routes.problem_html(str(error)), HTTPStatus.BAD_REQUEST)

    async def pod(self, request: Request, viewer: Viewer) -> Response:
        """Say why a pod waits, or which nodes would take one that was refused."""
        pod = self.cluster.pod(request.query_params.get("uid", ""))
        if pod is None or (pod.node and not pod.refusal) or not viewer.may_list(pod.pod.namespace):
            return HTMLResponse(node_routes.problem_html("this pod does not wait"), HTTPStatus.NOT_FOUND)

        def ask() -> cluster_known.Fitting:
            return cluster_known.FittingSearch(self.cluster.faults).fitting(pod.pod, self.cluster.all(), pod.fields)

        async with self._asking:
            found = await run_in_threadpool(ask)
        return HTMLResponse(fittings_html([found], pod))

    async def fit(self, request: Request, _viewer: Viewer) -> Response:
        """Say which nodes would take the pods of a manifest."""
        manifest = await node_routes.read_body(request, node_routes.LARGEST_MANIFEST)
        if manifest is None:
            return HTMLResponse(
                node_routes.problem_html("the manifest is too large"), HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            )
        try:
            async with self._asking:
                found = await run_in_threadpool(cluster_known.fittings_in_text, manifest, self.cluster)
        except InputError as error:
            return HTMLResponse(node_routes.problem_html(str(error)), HTTPStatus.BAD_REQUEST)
        return HTMLResponse(fittings_html(found))

    async def events(self, _request: Request, _viewer: Viewer) -> Response:
        """Return the stream of changes."""
        return node_routes.stream(self.cluster.feed, lambda: {"at": time.time()})

    def of_node(self, answer: Callable[[node_routes.NodeRoutes, Request, Viewer], Awaitable[Response]]) -> Answer:
        """Return an endpoint about the node that its address names."""

        async def endpoint(request: Request, viewer: Viewer) -> Response:
            node = await run_in_threadpool(self.nodes.of, request.path_params["name"])
            if node is None:
                return HTMLResponse(node_routes.problem_html("there is no such node"), HTTPStatus.NOT_FOUND)
            return await answer(node, request, viewer)

        return endpoint


def ticking(routes: ClusterRoutes) -> AbstractContextManager[None]:
    """Announce changes from a thread of its own until the end of the block."""

    def refresh() -> None:
        routes.cluster.tick()
        routes.nodes.refresh()

    return repeated(
        lambda: routes.cluster.faults.guarded("pages", refresh, lambda _error: None), TICK, routes.heartbeat
    )


def cluster_application(
    cluster: cluster_known.KnownCluster, name: str, guard: Guard, *, loopback: bool
) -> tuple[Application, ClusterRoutes]:
    """Return the pages of a cluster as an application, and what keeps them up to date."""
    found = assets()
    styles, script = found
    names = f"assets/{styles}", f"assets/{script}"
    routes = ClusterRoutes(cluster, name, names, OpenNodes(cluster, names))
    entrance = Entrance(guard, lambda _request: cluster.namespaces, found)

    made = [
        Route("/", entrance.behind(routes.page)),
        Route("/body", entrance.behind(routes.body)),
        Route("/pod", entrance.behind(routes.pod)),
        Route("/code", entrance.behind(partial(node_routes.code_answer, routes))),
        Route("/whatif", entrance.behind(routes.fit), methods=["POST"]),
        Route("/events", entrance.behind(routes.events)),
    ]
    made += [
        Route(f"/nodes/{{name}}/{path}", entrance.behind(routes.of_node(answer), "../../"), methods=[method])
        for path, answer, method in node_routes.NODE_ROUTES
    ]
    return application(made, entrance, found, routes.heartbeat, loopback=loopback), routes
