"""The nodes of a cluster whose pages are open: recorded from when a page is opened first; usable from any thread.

A node of the cluster as its page shows it: what it published, asked as a plan is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from cachetools import LRUCache

from mooring.answers.base.plan import Question
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.monitoring.serve.cluster.known import UNPUBLISHED, UNUSABLE, KnownCluster, NodeNow
from mooring.monitoring.serve.node_html import Addresses
from mooring.monitoring.serve.node_plan import snapshot_of
from mooring.monitoring.serve.node_routes import NodeRoutes
from mooring.monitoring.serve.recording import Recording
from mooring.monitoring.serve.snapshot import ANY, NodeNotice, NodeSnapshot
from mooring.views.view import NodeView


def snapshot_of_node(node: NodeNow) -> NodeSnapshot:
    """Return a node of the cluster; an empty picture where nothing is known of it."""
    name = node.node.name
    if node.kind is None or node.state is None or isinstance(node.kubelet, str):
        words = str(node.kubelet)
        notice = NodeNotice(f"{name} {words}", warning=True) if words == UNPUBLISHED else _quoted(words)
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
    return NodeSnapshot(
        found.view,
        found.pods,
        found.pending,
        (*found.notices, *notices, *_shadow_notices(node)),
        found.plan,
        found.question,
    )


def unknown_node(name: str, notice: NodeNotice) -> NodeSnapshot:
    """Return an empty picture, with a notice that says why."""
    return NodeSnapshot(NodeView(name, "", notice.brief or notice.text, (), (), (), (), (), ()), notices=(notice,))


def unusable(error: Exception) -> NodeNotice:
    """Return what is said of a node whose state led to an error."""
    return _quoted(f"{type(error).__name__}: {error}")


def _quoted(words: str) -> NodeNotice:
    """Return a notice with the words of the engine about the state, which can name any pod."""
    return NodeNotice(words, True, ANY, UNUSABLE)


def _shadow_notices(node: NodeNow) -> Iterator[NodeNotice]:
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
    routes: NodeRoutes
    shown: NodeNow | None
    """What the newest snapshot is made of; None after the node has left."""


@dataclass(slots=True)
class OpenNodes:
    """Pages of nodes."""

    cluster: KnownCluster
    assets: tuple[str, str]
    _open: LRUCache[str, _OpenNode] = field(default_factory=lambda: LRUCache(MOST_OPEN))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Around ``_open``: reading it changes its order."""

    def of(self, name: str) -> NodeRoutes | None:
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
        made = _OpenNode(NodeRoutes(recording, Addresses(up="../../"), (styles, script)), now)
        with self._lock:  # another client can have opened it meanwhile
            return self._open.setdefault(name, made).routes

    def refresh(self) -> None:
        """Bring the pages up to date; those of nodes that have not changed cost nothing. Called by one thread."""
        with self._lock:
            pages = list(self._open.items())
        for name, page in pages:
            self.cluster.faults.guarded(name, partial(self._refresh, name, page), partial(_failed, page))

    def _refresh(self, name: str, page: _OpenNode) -> None:
        now = self.cluster.node(name)
        if now is page.shown:
            return
        page.shown = now
        if now is None:
            page.routes.recording.fail("the node has left the cluster")
        else:
            page.routes.recording.take(snapshot_of_node(now))


def _failed(page: _OpenNode, error: Exception) -> None:
    page.routes.recording.fail(f"{unusable(error).brief} ({type(error).__name__})")
