"""The routes of a cluster: its page, what waits and why, what fits where, the page of each node; and its process.

Nodes and pods of the API server are brought to the page's cluster.

The nodes whose pages are open are recorded from when a page is opened first, usable from any thread: each as it
published itself, asked as a plan is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from cachetools import LRUCache
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mooring.engine.core.errors import InputError
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.scheduling_fields import CORDONED, NO_FIELDS, NodeObject, scheduling_fields, taint_of
from mooring.monitoring.serve import cluster_known, node_routes
from mooring.monitoring.serve.access import Guard, Viewer
from mooring.monitoring.serve.app import (
    Answer,
    Entrance,
    ServeOptions,
    application,
    assets,
    connection,
    guard_of,
    repeated,
    run_application,
)
from mooring.monitoring.serve.cluster_html import TileSheet, cluster_page, exported_cluster, fittings_html
from mooring.monitoring.serve.cluster_known import NODE, POD, ClusterPod, KnownCluster
from mooring.monitoring.serve.node_routes import Recording
from mooring.published.facts_document import facts_of
from mooring.published.naming import uid_of
from mooring.published.objects import FACTS, PATHS, SHADOW, STATE, object_name, state_of
from mooring.published.possible_kubelets import NodeFaults, unjudged
from mooring.published.shadow_document import shadow_of
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.daemon import Heartbeat
from mooring.service.following import PODS, Follower, ObjectListener
from mooring.service.http import Application

MOST_OPEN: Final = 32
"""Nodes whose pages are recorded; the one that was opened longest ago is forgotten."""


class OpenNodes:
    """Pages of nodes."""

    def __init__(self, cluster: cluster_known.KnownCluster, assets: tuple[str, str]) -> None:
        self.cluster, self._assets = cluster, assets
        self._open: LRUCache[str, node_routes.NodeRoutes] = LRUCache(MOST_OPEN)
        self._shown: dict[str, cluster_known.NodeNow | None] = {}
        """What the newest snapshot of a page is made of; None after the node has left."""
        self._lock = threading.Lock()
        """Around ``_open``: reading it changes its order."""

    def of(self, name: str) -> node_routes.NodeRoutes | None:
        """Return the page of a node; None where the cluster has none of this name."""
        with self._lock:
            found = self._open.get(name)
        if found is not None:
            return found
        now = self.cluster.node(name)
        if now is None:
            return None
        first = self.cluster.faults.guarded(
            name,
            lambda: cluster_known.snapshot_of_node(now),
            lambda error: cluster_known.unknown_node(name, cluster_known.quoted(f"{type(error).__name__}: {error}")),
        )
        recording = Recording(first)
        styles, script = (f"../../{one}" for one in self._assets)
        with self._lock:  # another client can have opened it meanwhile
            if name not in self._open:
                self._open[name] = node_routes.NodeRoutes(recording, "../../", (styles, script))
                self._shown[name] = now
            return self._open[name]

    def refresh(self) -> None:
        """Bring the pages up to date; those of nodes that have not changed cost nothing. Called by one thread."""
        with self._lock:
            pages = [(name, page.recording) for name, page in self._open.items()]
            self._shown = {name: self._shown[name] for name, _ in pages}
        for name, recording in pages:

            def failed(error: Exception, recording: Recording = recording) -> None:
                recording.fail(f"{cluster_known.UNUSABLE} ({type(error).__name__})")

            self.cluster.faults.guarded(name, partial(self._refresh, name, recording), failed)

    def _refresh(self, name: str, recording: Recording) -> None:
        now = self.cluster.node(name)
        if now is self._shown[name]:
            return
        self._shown[name] = now
        if now is None:
            recording.fail("the node has left the cluster")
        else:
            recording.take(cluster_known.snapshot_of_node(now))


TICK: Final = 0.5
"""Seconds between two announcements of changes."""
_KEPT: Final = 16
FIELDS: Final = ("search", "labels", "group", "sort", "resource", "show")
"""Of the page's form."""


class ClusterRoutes:
    """Answers about a cluster."""

    def __init__(self, cluster: cluster_known.KnownCluster, name: str, assets: tuple[str, str]) -> None:
        self.cluster, self._name, self._assets = cluster, name, assets
        self.nodes, self.heartbeat = OpenNodes(cluster, assets), Heartbeat(time.monotonic)
        self._sheet = TileSheet()
        self._made: LRUCache[tuple[object, ...], str] = LRUCache(_KEPT)
        self._making, self._asking = asyncio.Lock(), asyncio.Lock()

    async def page(self, request: Request, viewer: Viewer) -> Response:
        """Return the page."""
        content = await self.body(request, viewer)
        return HTMLResponse(cluster_page(bytes(content.body).decode(), self._name, self._assets), content.status_code)

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
            return node_routes.problem_page(str(error), HTTPStatus.BAD_REQUEST)

    async def pod(self, request: Request, viewer: Viewer) -> Response:
        """Say why a pod waits, or which nodes would take one that was refused."""
        pod = self.cluster.pod(request.query_params.get("uid", ""))
        if pod is None or (pod.node and not pod.refusal) or not viewer.may_list(pod.pod.namespace):
            return node_routes.problem_page("this pod does not wait", HTTPStatus.NOT_FOUND)

        def ask() -> cluster_known.Fitting:
            return cluster_known.FittingSearch(self.cluster.faults).fitting(pod.pod, self.cluster.all(), pod.fields)

        async with self._asking:
            found = await run_in_threadpool(ask)
        return HTMLResponse(fittings_html([found], pod))

    async def fit(self, request: Request, _viewer: Viewer) -> Response:
        """Say which nodes would take the pods of a manifest."""
        manifest = await node_routes.read_body(request, node_routes.LARGEST_MANIFEST)
        if manifest is None:
            return node_routes.problem_page("the manifest is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            async with self._asking:
                found = await run_in_threadpool(cluster_known.fittings_in_text, manifest, self.cluster)
        except InputError as error:
            return node_routes.problem_page(str(error), HTTPStatus.BAD_REQUEST)
        return HTMLResponse(fittings_html(found))

    async def events(self, _request: Request, _viewer: Viewer) -> Response:
        """Return the stream of changes."""
        return node_routes.stream(self.cluster.feed, lambda: {"at": time.time()})

    def of_node(self, answer: Callable[[node_routes.NodeRoutes, Request, Viewer], Awaitable[Response]]) -> Answer:
        """Return an endpoint about the node that its address names."""

        async def endpoint(request: Request, viewer: Viewer) -> Response:
            node = await run_in_threadpool(self.nodes.of, request.path_params["name"])
            if node is None:
                return node_routes.problem_page("there is no such node", HTTPStatus.NOT_FOUND)
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
    routes = ClusterRoutes(cluster, name, names)
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


_PATHS: Final[Mapping[str, str]] = {**PATHS, NODE: "api/v1/nodes", POD: PODS}
Content = Mapping[str, Any]


def followers(cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]) -> list[Follower]:
    """Return what follows the API server: facts first, because states are about them.

    The last is that of the counts of ``mooring shadow --publish``; a cluster need not have any.

    Args:
        cluster: receives facts, states, nodes, pods and counts.
        connect: opens a way to the API server.
        report: receives problems.
    """

    def read(content: Content, of: Callable[[object], Any]) -> Any:
        return cluster.faults.guarded(object_name(content), partial(_read, of, content), unjudged)

    def pod(content: Content) -> str:
        try:
            found = pod_of(content)
        except InputError as error:
            report(f"pod {object_name(content)}: {error}")
            return ""
        cluster.put_pod(found)
        return found.pod.uid

    def shadow(content: Content) -> None:
        try:
            cluster.put_shadow(*shadow_of(dict(content)))
        except InputError as error:
            report(str(error))

    def failed(error: ClusterError) -> None:
        if error.code != HTTPStatus.NOT_FOUND:  # a kind that the cluster does not serve is no outage
            report(str(error))

    def follower(kind: str, take: Callable[[Content], object]) -> Follower:
        def put(content: Content) -> str:
            taken = take(content)
            return str(taken) if kind == POD else object_name(content)

        def drop(content: Content) -> None:
            if kind != FACTS:
                cluster.drop(kind, uid_of(content) if kind == POD else object_name(content))

        keep = cluster.keep_facts if kind == FACTS else partial(cluster.keep, kind)
        return Follower(connect, _PATHS[kind], ObjectListener(put, drop, failed, keep), name="serve")

    found = [
        follower(FACTS, lambda one: cluster.put_facts(object_name(one), read(one, facts_of))),
        follower(STATE, lambda one: cluster.put_state(object_name(one), read(one, state_of))),
        follower(NODE, lambda one: cluster.put_node(node_of(one))),
        follower(POD, pod),
        follower(SHADOW, shadow),
    ]
    found[0].is_behind = cluster.misses_facts
    return found


def node_of(content: Content) -> NodeObject:
    """Return a Node; what is not as expected is left out."""
    spec, metadata = content.get("spec") or {}, content.get("metadata") or {}
    labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
    taints = tuple(taint_of(one) for one in spec.get("taints") or () if isinstance(one, dict))
    return NodeObject(object_name(content), labels, taints, CORDONED if spec.get("unschedulable") is True else "")


def pod_of(content: Content) -> ClusterPod:
    """Return a pod.

    Raises:
        InputError: it is none that an API server would store.
    """
    spec, status = content.get("spec") or {}, content.get("status") or {}
    node, phase = str(spec.get("nodeName") or ""), status.get("phase")
    refusal = str(status.get("reason") or "") if phase == "Failed" and not status.get("containerStatuses") else ""
    fields = NO_FIELDS if node and not refusal else scheduling_fields(spec)
    # The kubelet sets the start time of a pod that it refuses when it writes the refusal.
    written = (status.get("startTime") if refusal else None) or (content.get("metadata") or {}).get("creationTimestamp")
    try:
        since = datetime.fromisoformat(str(written)).timestamp()
    except ValueError:
        since = 0.0
    pod, message = pod_from_object(content, source="API server"), str(status.get("message") or "")
    return ClusterPod(pod, node, phase in FINISHED, refusal, fields, since, message)


def _read(of: Callable[[object], Any], content: Content) -> Any:
    try:
        return of(dict(content))
    except InputError as error:
        return str(error)


LISTING: Final = 60.0
"""Seconds within which everything must have been listed for an export."""
NAME: Final = "Cluster"


@contextmanager
def following(
    cluster: KnownCluster, connect: Callable[[], Cluster], report: Callable[[str], object]
) -> Iterator[Callable[[float], bool]]:
    """Follow the API server until the end of the block; gives what waits until everything is listed."""
    everything = followers(cluster, connect, report)
    for one in everything:
        one.start()
    try:
        yield lambda seconds: all(one.has_listed.wait(seconds) for one in everything[:-1])
    finally:
        for one in everything:
            one.stop()


def serve_cluster(options: ServeOptions, say: Callable[[str], object]) -> None:
    """Serve the pages of a cluster until SIGTERM or SIGINT.

    Raises:
        InputError: they cannot be served.
    """
    cluster = KnownCluster(NodeFaults(lambda about, problem: say(f"{about}: {problem}")))
    connect = connection(options.kubeconfig)
    app, routes = cluster_application(cluster, NAME, guard_of(options), loopback=options.is_loopback)
    with following(cluster, connect, say), ticking(routes):
        run_application(app, options, say)


def export_cluster(kubeconfig: str) -> str:
    """Return a cluster as one file.

    Raises:
        InputError: the API server does not answer.
    """
    cluster, problems = KnownCluster(), list[str]()
    with following(cluster, connection(kubeconfig), problems.append) as listed:
        if not listed(LISTING):
            problem = f"did not list all objects within {LISTING:.0f} s: {'; '.join(problems[:1])}"
            raise InputError(problem, source="API server", remedy="check rights and connection")
    return exported_cluster(cluster, NAME)
