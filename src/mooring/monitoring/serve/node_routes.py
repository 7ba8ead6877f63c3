"""One node over time, as HTML, and its routes: page, part that changes, explanations, what-if, stream of changes.

Clients of the page learn that something has changed by a version that grows with every change.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

import msgspec
from cachetools import LRUCache
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from mooring.answers.base.report import report_of
from mooring.engine.core.errors import InputError
from mooring.explanations.codes import page
from mooring.monitoring.serve.access import Viewer
from mooring.monitoring.serve.snapshot import NodeSnapshot, PodStory, story_of, what_if
from mooring.service.daemon import Heartbeat
from mooring.views.html import html_text, page_text, part_text
from mooring.views.svg.decision import decision_svg
from mooring.views.svg.elements import PATTERNS, style_sheet
from mooring.views.svg.picture import svg_text
from mooring.views.view import NodeView, OwnerView
from mooring.views.wording import MARKS


class Feed:
    """One source of changes, many clients; changes come from any thread, clients wait in the server's loop."""

    def __init__(self) -> None:
        """Begin at version 0."""
        self.version = 0
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def changed(self) -> None:
        """Take it that something has changed."""
        with self._lock:
            self.version += 1
            waiting, self._waiting = self._waiting, {}
        for event, loop in waiting.items():
            # The loop is closed when the server stops.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    async def after(self, version: int, seconds: float) -> int:
        """Wait until there is a version after a known one, and return it; the known one when the time is over."""
        event = asyncio.Event()
        with self._lock:
            if self.version > version:
                return self.version
            self._waiting[event] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return version
        finally:
            with self._lock:
                self._waiting.pop(event, None)
        return self.version


MOST_CELLS: Final = 150_000
"""CPUs of all recorded snapshots together: about 40 MB."""
MOST_SNAPSHOTS: Final = 1000


class Recording:
    """Takes snapshots of one node; usable from any thread."""

    def __init__(self, first: NodeSnapshot, clock: Callable[[], float] = time.time) -> None:
        """Begin with a snapshot of the node now; the clock gives Unix time."""
        self.feed = Feed()
        self._clock, self._lock = clock, threading.Lock()
        self.heartbeat = Heartbeat(time.monotonic)
        """Of what reads the node."""
        self.trouble = ""
        """Why the node cannot be read at the moment."""
        cpus = max(1, sum(1 for _ in first.view.cpus()))
        self._past: deque[NodeSnapshot] = deque(maxlen=max(20, min(MOST_SNAPSHOTS, MOST_CELLS // cpus)))
        self.now = replace(first.dated((), clock()), number=1)
        """The newest snapshot."""

    def take(self, snapshot: NodeSnapshot) -> bool:
        """Take a snapshot; one that shows the same as the newest is not recorded, but asked from now on."""
        with self._lock:
            before = self.now
            snapshot = snapshot.dated(before.pods, self._clock())
            troubled, self.trouble = bool(self.trouble), ""
            if snapshot == before:
                self.now = replace(snapshot, number=before.number, at=before.at)
                if not troubled:
                    return False
            else:
                self._past.append(before.bare())
                self.now = replace(snapshot, number=before.number + 1)
        self.feed.changed()
        return True

    def fail(self, problem: str) -> None:
        """Take it that the node cannot be read; its last snapshot stays."""
        if problem != self.trouble:
            self.trouble = problem
            self.feed.changed()

    def span(self) -> tuple[int, NodeSnapshot]:
        """Return the number of the oldest moment and the newest moment, as they are at one time."""
        with self._lock:
            return self._past[0].number if self._past else self.now.number, self.now

    def in_memory(self) -> list[NodeSnapshot]:
        """Return the moments that are in memory, the newest last."""
        with self._lock:
            return [*self._past, self.now]

    def at(self, number: int) -> NodeSnapshot:
        """Return the moment of a number; the oldest one for one that is forgotten, the newest for 0."""
        found = self.in_memory()
        if not number:
            return found[-1]
        return next((one for one in found if one.number >= number), found[-1])


_FORMS: Final = {"wide": 1100, "narrow": 366}
"""Arrangements of the map and their pixels; the page shows the one that suits its width."""


def drawn(picture: str) -> str:
    """Return a picture without the styles that the page has."""
    return picture.replace(style_sheet(), "").replace(PATTERNS, "")


def body_html(shown: NodeSnapshot, *, current: bool, trouble: str = "", form: str = "") -> str:
    """Return the part of the page that changes, with the map in one form; without one, in all."""
    owners: dict[str, list[OwnerView]] = {pod.uid: [] for pod in shown.pods}
    others = [owner for owner in shown.view.owners if owner.uid not in owners]
    for owner in shown.view.owners:
        owners.get(owner.uid, []).append(owner)
    return part_text(
        "node-body.html",
        shown=shown,
        maps={
            name: drawn(svg_text(shown.view, width, bare=True)) for name, width in _FORMS.items() if form in ("", name)
        },
        owners=owners,
        others=others,
        refused=sorted((pod for pod in shown.pods if not pod.admitted), key=lambda pod: -pod.since),
        marks=MARKS,
        current=current,
        trouble=trouble,
        at=shown.at,
    )


def node_page(seen: NodeSnapshot, content: str, first: int, up: str, assets: tuple[str, str]) -> str:
    """Return the page of a node.

    Args:
        seen: the newest snapshot.
        content: its body.
        first: number of the oldest one.
        up: address of the page of the cluster; empty where there is none.
        assets: addresses of styles and script.
    """
    view = seen.view
    styles, script = assets
    return part_text(
        "serve-node.html",
        title=view.name or "Node",
        styles=styles,
        script=script,
        patterns=PATTERNS,
        content=content,
        number=seen.number,
        first=first,
        can_ask=seen.question is not None,
        up=up,
    )


def stories_html(stories: Sequence[PodStory], view: NodeView | None = None, *, named: bool = True) -> str:
    """Return explanations of pods, with the picture of the node where there is one."""
    picture = "" if view is None else drawn(svg_text(view, 0))
    return part_text(
        "pod-story.html",
        stories=stories,
        named=named,
        drawn=lambda decision: drawn(decision_svg(decision, 0)),
        picture=picture,
    )


def problem_page(problem: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return one line about what cannot be answered."""
    return HTMLResponse(part_text("problem.html", problem=problem), status)


def exported(snapshot: NodeSnapshot) -> str:
    """Return a node as one file: the report of its plan, or what an agent says where no plan is known."""
    if snapshot.plan is not None:
        return html_text(report_of(snapshot.plan))
    content = body_html(snapshot, current=True)
    return page_text("serve-export.html", title=snapshot.view.name or "Node", content=content, patterns=PATTERNS)


LARGEST_MANIFEST: Final = 262_144
"""Bytes."""
BEAT: Final = 15.0
"""Seconds between two signs of life in a stream without changes, which keep proxies from cutting it."""
_KEPT: Final = 64
"""Parts of pages that are kept made."""


@dataclass(slots=True)
class NodeRoutes:
    """Answers about one node."""

    recording: Recording
    up: str
    """Address of the page of the cluster; empty where there is none."""
    assets: tuple[str, str]
    _made: LRUCache[tuple[object, ...], str] = field(default_factory=lambda: LRUCache(_KEPT))
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of many clients that ask for a new part at once, the first makes it."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One what-if at a time: the engine takes a whole core."""

    async def page(self, _request: Request, viewer: Viewer) -> Response:
        """Return the page."""
        first, now = self.recording.span()
        content = await self._body(now, viewer, current=True)
        return HTMLResponse(node_page(now, content, first, self.up, self.assets))

    async def body(self, request: Request, viewer: Viewer) -> Response:
        """Return the part of the page that changes, as it is or was."""
        number = moment_of(request)
        form = asked if (asked := request.query_params.get("form", "")) in _FORMS else ""
        return HTMLResponse(await self._body(self.recording.at(number), viewer, current=not number, form=form))

    async def pod(self, request: Request, viewer: Viewer) -> Response:
        """Explain a pod that is on the node now, or was at a moment."""
        seen = self.recording.at(moment_of(request))
        snapshot = seen.seen_by(viewer.may_list)
        uid = request.query_params.get("uid", "")
        pod = next((one for one in snapshot.pods if one.uid == uid), None)
        if pod is None:
            return problem_page("this pod is not on the node then", HTTPStatus.NOT_FOUND)
        plan, question = snapshot.plan, snapshot.question
        if plan is None or question is None:
            lines = "; ".join(pod.holds) or pod.why or "It has nothing of its own."
            return problem_page(f"{pod.namespace}/{pod.name}: {pod.verdict}. {lines}")
        async with self._asking:
            story = await run_in_threadpool(story_of, plan, question, uid, pod.asked)
        if story is not None and snapshot is not seen:
            # The decision's picture and the nearest change would name pods of other namespaces.
            story = story.without_names()
        return HTMLResponse(stories_html([story] if story is not None else [], named=False))

    async def whatif(self, request: Request, viewer: Viewer) -> Response:
        """Ask the node about the pods of a manifest."""
        body = await read_body(request, LARGEST_MANIFEST)
        if body is None:
            return problem_page("the manifest is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        snapshot = self.recording.now
        if snapshot.question is None:
            return problem_page("the node's files are not known here", HTTPStatus.CONFLICT)
        try:
            async with self._asking:
                view, stories = await run_in_threadpool(what_if, snapshot.question, body)
        except InputError as error:
            return problem_page(str(error), HTTPStatus.BAD_REQUEST)
        if snapshot.seen_by(viewer.may_list) is not snapshot:
            # The picture and the nearest changes would name pods of other namespaces.
            return HTMLResponse(stories_html([one.without_names() for one in stories]))
        return HTMLResponse(stories_html(stories, view))

    async def events(self, _request: Request, _viewer: Viewer) -> Response:
        """Return the stream of changes."""

        def news() -> dict[str, float]:
            first, now = self.recording.span()  # between two readings a thread may record more
            return {"number": now.number, "first": first, "at": now.at}

        return stream(self.recording.feed, news)

    async def _body(self, seen: NodeSnapshot, viewer: Viewer, *, current: bool, form: str = "") -> str:
        trouble = self.recording.trouble if current else ""
        key = (seen.number, current, trouble, viewer.namespaces, form)
        async with self._making:
            if key not in self._made:
                shown = seen.seen_by(viewer.may_list)
                self._made[key] = await run_in_threadpool(body_html, shown, current=current, trouble=trouble, form=form)
            return self._made[key]


async def code_answer(_routes: object, request: Request, _viewer: Viewer) -> Response:
    """Return the page about the code that a request names."""
    try:
        return HTMLResponse(part_text("code.html", page=page(request.query_params.get("code", "")[:20])))
    except InputError as error:
        return problem_page(str(error), HTTPStatus.NOT_FOUND)


NODE_ROUTES: Final = (
    ("", NodeRoutes.page, "GET"),
    ("body", NodeRoutes.body, "GET"),
    ("pod", NodeRoutes.pod, "GET"),
    ("code", code_answer, "GET"),
    ("whatif", NodeRoutes.whatif, "POST"),
    ("events", NodeRoutes.events, "GET"),
)
"""Address of each part of a node's page, below that of the page."""


def moment_of(request: Request) -> int:
    """Return the number of the moment that a request asks for; 0 for now."""
    number = request.query_params.get("number", "")
    return int(number[:18]) if number.isascii() and number.isdecimal() else 0


async def read_body(request: Request, most: int) -> bytes | None:
    """Return the body of a request; None where it has more than so many bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            return None
    return body


def stream(feed: Feed, news: Callable[[], dict[str, float]]) -> Response:
    """Return server-sent events: what is new, at once and after each change."""

    async def events() -> AsyncIterator[bytes]:
        version = -1
        while True:
            newest = await feed.after(version, BEAT)
            if newest == version:
                yield b": still here\n\n"
                continue
            version = newest
            yield b"event: changed\ndata: " + msgspec.json.encode({"version": version, **news()}) + b"\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
