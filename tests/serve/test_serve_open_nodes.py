"""The pages of nodes of a cluster that are open: kept up to date, whatever a node publishes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pkgutil import resolve_name

import pytest
from tests.serve.clusters import known, pod

from mooring.monitoring.serve.access import EVERYTHING, OpenGuard
from mooring.monitoring.serve.cluster_html import TileSheet
from mooring.monitoring.serve.cluster_known import ClusterPod, FittingSearch, NodeNow
from mooring.monitoring.serve.cluster_routes import OpenNodes, cluster_application, snapshot_of_node, ticking
from mooring.monitoring.serve.node_routes import NodeRoutes
from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.published.possible_kubelets import NodeFaults

SNAPSHOT = "mooring.monitoring.serve.cluster_routes.snapshot_of_node"


def opened(nodes: OpenNodes, name: str) -> NodeRoutes:
    found = nodes.of(name)
    assert found is not None
    return found


def bound(name: str, node: str) -> ClusterPod:
    return ClusterPod(pod(name, 1), node)


def odd(_node: NodeNow) -> NodeSnapshot:
    raise KeyError("secret-team/ledger")


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_only_nodes_that_have_changed_are_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def counted(node: NodeNow) -> NodeSnapshot:
        planned.append(node.node.name)
        return snapshot_of_node(node)

    cluster = known(4)
    nodes = OpenNodes(cluster, ("styles", "script"))
    pages = [opened(nodes, name) for name in cluster.names]
    monkeypatch.setattr(SNAPSHOT, counted)
    nodes.refresh()
    assert planned == []
    cluster.put_pod(ClusterPod(pod("waits-too", 1)))
    cluster.put_pod(bound("late", "node-0001"))
    nodes.refresh()
    nodes.refresh()
    assert planned == ["node-0001"]
    assert any("team-a/late" in one.text for one in pages[1].recording.now.snapshot.notices)


def test_a_node_that_cannot_be_shown_says_so_and_the_others_stay_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known(3)
    nodes = OpenNodes(cluster, ("styles", "script"))
    first, second = (opened(nodes, name) for name in ("node-0000", "node-0001"))
    before = first.recording.now.snapshot
    monkeypatch.setattr(SNAPSHOT, lambda node: (odd if node.node.name == "node-0000" else snapshot_of_node)(node))
    for name in ("node-0000", "node-0001"):
        cluster.put_pod(bound(f"late-{name}", name))
    nodes.refresh()
    assert first.recording.trouble == "what the node published cannot be used (KeyError)"
    assert first.recording.now.snapshot == before
    assert any("late-node-0001" in one.text for one in second.recording.now.snapshot.notices)
    monkeypatch.undo()
    cluster.put_pod(bound("later", "node-0000"))
    nodes.refresh()
    assert first.recording.trouble == ""
    assert any("team-a/later" in one.text for one in first.recording.now.snapshot.notices)


def test_a_page_can_be_opened_while_its_node_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known(2)
    nodes = OpenNodes(cluster, ("styles", "script"))
    monkeypatch.setattr(SNAPSHOT, odd)
    page = opened(nodes, "node-0000")
    assert "KeyError" in page.recording.now.snapshot.notices[0].text
    assert "ledger" not in repr(page.recording.now.snapshot.seen_by(lambda namespace: namespace == "team-a"))
    monkeypatch.undo()
    cluster.put_pod(bound("late", "node-0000"))
    nodes.refresh()
    assert page.recording.now.snapshot.question is not None


def test_the_page_of_the_cluster_goes_on_after_a_node_that_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known(2)
    _, routes = cluster_application(cluster, "Cluster", OpenGuard(), loopback=True)
    page = opened(routes.nodes, "node-0000")
    monkeypatch.setattr(SNAPSHOT, odd)
    monkeypatch.setattr("mooring.monitoring.serve.cluster_routes.TICK", 0.001)
    failed, ticked = threading.Event(), threading.Event()
    monkeypatch.setattr(page.recording, "fail", lambda _problem: failed.set())
    with ticking(routes):
        cluster.put_pod(bound("late", "node-0000"))
        assert failed.wait(60)
        monkeypatch.setattr(cluster, "tick", ticked.set)
        assert ticked.wait(60)


def test_pages_can_be_opened_while_others_are_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, stop = known(60), threading.Event()
    nodes = OpenNodes(cluster, ("styles", "script"))
    empty = NodeSnapshot(opened(nodes, "node-0059").recording.now.snapshot.view)
    monkeypatch.setattr(SNAPSHOT, lambda _node: empty)

    def clients() -> None:
        while not stop.is_set():
            for name in cluster.names:
                opened(nodes, name)

    thread = threading.Thread(target=clients)
    with quick_switches():
        thread.start()
        try:
            for _ in range(2000):
                nodes.refresh()
        finally:
            stop.set()
            thread.join()


def test_a_page_that_two_clients_open_at_once_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, both = OpenNodes(known(2), ("styles", "script")), threading.Barrier(2)

    def planned_by_both(node: NodeNow) -> NodeSnapshot:
        both.wait(60)
        return snapshot_of_node(node)

    monkeypatch.setattr(SNAPSHOT, planned_by_both)
    with ThreadPoolExecutor(2) as clients:
        first, second = clients.map(lambda _client: opened(nodes, "node-0000"), range(2))
    assert first is second


@pytest.mark.parametrize(
    "part",
    [
        "mooring.monitoring.serve.cluster_known.restored",
        "mooring.monitoring.serve.cluster_known.view_key",
        "mooring.monitoring.serve.cluster_html.tile",
        "mooring.monitoring.serve.cluster_known.predicted",
    ],
)
def test_a_node_that_cannot_be_judged_is_said_once_and_the_page_shows_all_others(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    cluster = known(5)
    cluster.faults = NodeFaults(lambda about, _problem: said.append(about))
    usual, calls = resolve_name(part), [0]

    def first_fails(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyError(2)
        return usual(*arguments)

    monkeypatch.setattr(part, first_fails)
    text = TileSheet().body(cluster, {}, EVERYTHING)
    found = FittingSearch(cluster.faults).fitting(pod("asked", 2), cluster.all())
    assert all(name in text for name in cluster.names)
    causes = {name for _, _, names in found.causes for name in names}
    assert {*found.fits, *causes} == set(cluster.names)
    assert found.fits
    assert said == ["node-0000"]
