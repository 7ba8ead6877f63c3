"""The pages of a cluster: tiles, what waits and why, what fits where, and its nodes."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any
from urllib.parse import quote

import pytest
from tests.plans import started_kubelet
from tests.serve.clusters import CONFIG, HOSTILE, MACHINE, Site, known, pod, served, state
from tests.values import not_none

from mooring.engine.core.config import CPU_HOTPLUG, MooringConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.events import Offline, Online, after_event
from mooring.inputs.machines.compact import parse_compact
from mooring.monitoring.serve.access import EVERYTHING, Guard, OpenGuard, Viewer
from mooring.monitoring.serve.cluster_html import TileSheet, exported_cluster, tile
from mooring.monitoring.serve.cluster_known import (
    KEPT_OFF,
    UNKNOWN,
    UNPUBLISHED,
    ClusterPod,
    FittingSearch,
    KnownCluster,
    NodeNow,
    fittings_in_text,
    snapshot_of_node,
)
from mooring.monitoring.serve.cluster_routes import (
    OpenNodes,
    cluster_application,
    node_of,
    pod_of,
    ticking,
)
from mooring.monitoring.serve.node_routes import NodeRoutes
from mooring.monitoring.serve.snapshot import NodeSnapshot, what_if
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.published.observation import EngineObserver
from mooring.published.possible_kubelets import NodeFaults
from mooring.published.shadow_document import ShadowCount, ShadowDifference, ShadowStatus
from mooring.views.view import CPUUse

MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {containers: [{name: app, resources: {limits: {cpu: 30, memory: 1Gi}}}]}
"""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = "{key: pool, operator: In, values: [gpu]}"
BAD = [("=a", 0), ("a!=b", 0)]
"""Selectors that are none, and how many nodes they show."""


class OneNamespace:
    """Lets people list the pods of the namespace that is their token."""

    async def viewer(self, token: str, namespaces: Collection[str]) -> Viewer | None:  # noqa: ARG002 - the protocol's
        return Viewer(frozenset({token})) if token else None


@contextmanager
def cluster_site(cluster: KnownCluster, guard: Guard | None = None) -> Iterator[Site]:
    app, _ = cluster_application(cluster, "Cluster", guard or OpenGuard(), loopback=guard is None)
    with served(app) as site:
        yield site


def node_named(cluster: KnownCluster, name: str) -> NodeNow:
    return not_none(cluster.node(name))


@pytest.fixture(scope="module")
def cluster() -> KnownCluster:
    return known()


@pytest.fixture(scope="module")
def site(cluster: KnownCluster) -> Iterator[Site]:
    with cluster_site(cluster) as found:
        yield found


def test_a_tile_has_the_free_cpus_of_the_nodes_state(cluster: KnownCluster) -> None:
    found = [tile(node) for node in cluster.all()]
    assert [one.free() for one in found] == [63, 55, 47, 39, 63, 0]
    assert found[2].refusals == ("TopologyAffinityError",)
    assert found[5].trouble == UNPUBLISHED


def test_free_cpus_on_two_numa_nodes_are_split_where_neither_is_whole(cluster: KnownCluster) -> None:
    half = known(1)
    half.put_state("node-0000", state("node-0000", [pod("one", 20), pod("two", 20)]))
    node = not_none(half.node("node-0000"))
    found = tile(node)
    assert (found.free(), found.split()) == (23, 11)
    assert "at most 12 of them on one NUMA node" in found.words("cpu")
    assert not any(tile(one).split() for one in cluster.all())


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("", 6),
        ("zone=a", 3),
        ("zone = b , pool=gpu", 1),
        ("zone", 6),
        ("rack", 0),
        ("zone==a", 3),
        ("=a", 0),
        ("a!=b", 0),
    ],
)
def test_labels_choose_nodes_and_a_selector_that_is_none_is_one_line(site: Site, selector: str, count: int) -> None:
    got = site.ask(f"/body?labels={quote(selector)}")
    assert got.text.count('class="node-tile') == count
    assert (got.status == 400) == ("KEY=VALUE" in got.text) == ((selector, count) in BAD)


def test_the_page_lists_nodes_and_waiting_pods(site: Site) -> None:
    page = site.ask("/").text
    assert len(re.findall(r'class="node-tile', page)) == 6
    assert "team-a/waits" in page
    assert "TopologyAffinityError" in page


def test_the_tile_of_a_node_that_has_changed_is_drawn_again_and_no_other() -> None:
    cluster, sheet = known(200), TileSheet()
    before = sheet.body(cluster, {}, EVERYTHING)
    cluster.put_state("node-0004", state("node-0004", [pod("late", 10)]))
    after = sheet.body(cluster, {}, EVERYTHING)
    changed = [one for one in after.splitlines() if one not in before.splitlines() and "data-node" in one]
    assert len(changed) == 1
    assert "node-0004: 53 of 63" in changed[0]
    cluster.keep("Node", ["node-0001"])
    cluster.keep("NodeState", ["node-0001"])
    assert sheet.body(cluster, {}, EVERYTHING).count("data-node") == 1
    assert "No node is like this" in sheet.body(cluster, {"labels": "rack=1"}, EVERYTHING)
    assert "The cluster has no nodes." in sheet.body(KnownCluster(), {}, EVERYTHING)


def test_a_waiting_pod_is_explained_by_cause(cluster: KnownCluster, site: Site) -> None:
    waits, picky = (
        one for one in sorted(cluster.waiting(), key=lambda one: -one.pod.containers[0].requests["cpu"].nano)
    )
    found = FittingSearch().fitting(waits.pod, cluster.all(), waits.fields)
    assert found.fits == ("node-0000", "node-0002", "node-0003", "node-0004")
    assert {(cause, nodes) for cause, _, nodes in found.causes} == {
        (KEPT_OFF, ("node-0001",)),
        (UNKNOWN, ("node-0005",)),
    }
    answered = site.ask(f"/pod?uid={picky.pod.uid}").text
    assert "0 nodes would take it" in answered
    assert KEPT_OFF in answered
    assert site.ask("/pod?uid=nobody").status == 404


def test_what_fits_is_what_the_nodes_engine_says(site: Site) -> None:
    assert "4 nodes would take it" in site.ask("/whatif", "POST", MANIFEST).text
    refused = site.ask("/whatif", "POST", MANIFEST.replace("30", "33")).text
    assert "0 nodes would take it" in refused
    assert "MOOR-10" in refused
    assert site.ask("/whatif", "POST", "nothing").status == 400
    got = site.ask("/whatif", "POST", MANIFEST.replace("spec: {", "spec: {nodeSelector: 1, "))
    assert (got.status, "spec.nodeSelector" in got.text) == (400, True)


@pytest.mark.parametrize(
    ("field", "fits"),
    [
        ("nodeSelector: {zone: no-such-zone}", 0),
        ("nodeSelector: {zone: a}", 3),
        ("tolerations: [{operator: Exists}]", 5),
        (f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: [{GPU}]}}]}}}}}}", 2),
    ],
)
def test_what_fits_heeds_what_the_pod_says_about_nodes(site: Site, field: str, fits: int) -> None:
    pod = MANIFEST.replace("spec: {", f"spec: {{{field}, ")
    assert f"{fits} nodes would take it" in site.ask("/whatif", "POST", pod).text
    spec = f"replicas: 2, selector: {{}}, template: {{metadata: {{}}, spec: {{{field}, containers: [{{name: app}}]}}}}"
    deployment = f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{{spec}}}}}"
    assert site.ask("/whatif", "POST", deployment).text.count(f"{fits} nodes would take it") == 2


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    cluster = known(2)
    cluster.put_node(node_of({"metadata": {"name": "node-0000"}, "spec": {"unschedulable": True}}))
    tolerating = MANIFEST.replace("spec: {", "spec: {tolerations: [{operator: Exists}], ")
    found = [fittings_in_text(text.encode(), cluster)[0].fits for text in (MANIFEST, tolerating)]
    assert found == [(), ("node-0000",)]


def test_equal_nodes_are_asked_once() -> None:
    search = FittingSearch()
    search.fitting(pod("new", 8), known(21).all())
    # Of 21 nodes one has published nothing and one keeps the pod off; 4 of the others differ.
    assert search._known.hits == 21 - 2 - 4  # noqa: SLF001 - how often the engine was asked is the law


def test_a_node_has_a_page_of_its_own_with_what_if(site: Site) -> None:
    page = site.ask("/nodes/node-0002/").text
    assert "All nodes" in page
    assert "team-a/p0-2" in page
    assert "Where" in page or "where would its pods go" in page
    uid = not_none(re.search(r'data-uid="([^"]+)"', page))
    assert "<svg" in site.ask(f"/nodes/node-0002/pod?uid={uid[1]}").text
    assert "default/new" in site.ask("/nodes/node-0002/whatif", "POST", MANIFEST).text
    assert site.ask("/nodes/nowhere/").status == 404
    assert UNPUBLISHED in site.ask("/nodes/node-0005/").text


def test_a_person_sees_waiting_pods_of_their_namespace_only(cluster: KnownCluster) -> None:
    with cluster_site(cluster, OneNamespace()) as site:
        assert site.ask("/").status == 401
        page = site.ask("/", Authorization="Bearer team-b").text
        assert "team-b/picky" in page
        assert "team-a" not in page
        node = site.ask("/nodes/node-0003/", Authorization="Bearer team-b").text
        assert "team-b/p1-3" in node
        assert "team-a" not in node
        other = next(one for one in cluster.waiting() if one.pod.namespace == "team-a")
        assert site.ask(f"/pod?uid={other.pod.uid}", Authorization="Bearer team-b").status == 404


def test_changes_are_announced_together(cluster: KnownCluster) -> None:
    before = cluster.feed.version
    for number in range(100):
        cluster.put_pod(ClusterPod(pod(f"n{number}", 1)))
    cluster.tick()
    cluster.tick()
    assert cluster.feed.version == before + 1
    for number in range(100):
        cluster.drop("Pod", pod(f"n{number}", 1).uid)


def test_what_is_gone_is_forgotten() -> None:
    cluster = known()
    cluster.keep("Node", ["node-0000"])
    cluster.keep("NodeState", ["node-0000"])
    cluster.keep("Pod", [])
    assert cluster.names == ["node-0000"]
    assert cluster.waiting() == []
    assert cluster.node("node-0001") is None


def test_objects_of_the_api_server_are_read() -> None:
    shown: dict[str, Any] = {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    node = node_of({"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": shown})
    assert (node.name, node.labels, node.closed, len(node.taints)) == ("n", {"a": "b"}, "cordoned", 1)
    metadata = {"name": "p", "namespace": "ns", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "short", "startTime": "2026-01-01T00:01:00Z"}
    spec = {"nodeName": "n", "containers": [{"name": "c"}], "nodeSelector": {"a": "b"}}
    found = pod_of({"metadata": metadata, "status": status, "spec": spec})
    assert (found.node, found.finished, found.refusal, found.message) == ("n", True, "OutOfcpu", "short")
    assert (found.since, found.fields.selector) == (1767225660.0, (("a", "b"),)), "since the kubelet refused it"
    assert pod_of({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}).since == 1767225600.0
    assert pod_of({"metadata": {**metadata, "creationTimestamp": "soon"}, "spec": spec}).since == 0


def test_the_export_is_one_file_without_script() -> None:
    cluster = known()
    cluster.put_pod(ClusterPod(pod(HOSTILE, 1)))
    text = exported_cluster(cluster, "Cluster")
    assert "<script" not in text
    assert "node-0003" in text
    assert EVERYTHING.may_list("any")


def test_what_shadows_counted_is_shown_by_release() -> None:
    cluster = known(2)
    assert "Agreement of kubelets and engine" not in TileSheet().body(cluster, {}, EVERYTHING)
    counts = (ShadowCount("agreed", "admitted", 41, release="v1.34.4"), ShadowCount("differs", "refused", 2))
    cluster.put_shadow("node-0001", ShadowStatus("2026-01-01T00:00:00Z", 41, 2, 0, "v1.37.1", counts=counts))
    shown = TileSheet().body(cluster, {}, EVERYTHING)
    assert re.search(r"v1\.34\.4</th><td>41</td><td>0</td>.*v1\.37\.1</th><td>0</td><td>2</td>", shown, re.DOTALL)
    assert "≠2" in shown
    assert "2 decisions of its kubelet differ" in shown
    snapshot = snapshot_of_node(node_named(cluster, "node-0001"))
    assert "agreed 41, differs 2, cannot tell 0" in snapshot.notices[-1].text
    cluster.keep("NodeShadow", [])
    assert "Agreement of kubelets and engine" not in TileSheet().body(cluster, {}, EVERYTHING)


def test_the_newest_difference_is_shown_to_people_who_may_list_its_pod() -> None:
    cluster = known(2)
    about = [ShadowDifference(name, "admitted", "cpus", "2-3", "uid-of-another-pod") for name in ("", "secret/db")]
    for one in about:
        shadow = ShadowStatus("2026-01-01T00:00:00Z", 0, 1, 0, "v1.37.1", differences=(one,))
        cluster.put_shadow("node-0000", shadow)
        snapshot = snapshot_of_node(node_named(cluster, "node-0000"))
        shown = snapshot.seen_by(lambda namespace: namespace != "secret").notices
        assert not any("uid-of-another-pod" in notice.text for notice in shown)
        assert ("secret/db" in snapshot.notices[-1].text) == bool(one.pod)


def test_offline_cpus_and_those_kept_for_pods_that_lost_them_are_free_nowhere() -> None:
    cluster, holds = KnownCluster(), pod("holds", 8)
    hotplug = MooringConfig(extensions=frozenset({CPU_HOTPLUG}))
    kubelet, _ = admit(started_kubelet(MACHINE.info, CONFIG, hotplug), holds)
    for event in (Offline(CPUSet.parse("1-2,16-31,33-34,48-63")), Online(CPUSet.parse("33-34"))):
        kubelet, _ = after_event(kubelet, event)
    assert CPUSet(kubelet.node.cpu.withheld) == CPUSet.parse("1-2,16-31,33-34,48-63")
    seen = EngineObserver("node").observe(kubelet)
    cluster.put_facts(seen.state.facts, seen.facts)
    cluster.put_state("node", seen.state)
    cluster.put_pod(ClusterPod(holds, "node"))
    node = node_named(cluster, "node")
    assert tile(node).free() == 64 - 1 - 8 - 36
    snapshot = snapshot_of_node(node)
    uses = {cpu.cpu: cpu.use for cpu in snapshot.view.cpus()}
    assert (uses[16], uses[33]) == (CPUUse.OFFLINE, CPUUse.SHARED)
    question = not_none(snapshot.question)
    for cpus in (18, 19, 20, 21, 28):
        manifest = MANIFEST.replace("30", str(cpus)).encode()
        admitted = admit(kubelet, pod("new", cpus))[1].admitted
        assert what_if(question, manifest)[1][0].verdict == ("admitted" if admitted else "rejected")
        assert [one.fits for one in fittings_in_text(manifest, cluster)] == [("node",) if admitted else ()]
        assert admitted == (cpus < 20)


def test_the_words_of_the_engine_about_a_state_are_for_people_who_may_list_all_pods() -> None:
    cluster = known(1)
    cluster.put_state("node-0000", "is about secret-team/ledger")
    snapshot = snapshot_of_node(node_named(cluster, "node-0000"))
    assert "secret-team" in snapshot.notices[0].text
    shown = snapshot.seen_by(lambda namespace: namespace == "team-a")
    assert "secret-team" not in repr(shown)
    assert shown.notices[0].text == "what the node published cannot be used"
    assert tile(node_named(cluster, "node-0000")).trouble == shown.notices[0].text


def test_memory_huge_pages_and_devices_are_counted_as_the_managers_and_the_sums_leave_them() -> None:
    machine = parse_compact("sockets=2 cores=32 threads=2 memory=64Gi hugepages-1Gi=8")
    config = replace(
        CONFIG,
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),),
        kube_reserved={"memory": "924Mi"},
    )
    cluster = KnownCluster()
    cluster.put_facts("facts", NodeFacts(machine.info, config, MooringConfig()))
    kubelet = started_kubelet(machine.info, config)
    devices = {"nvidia.com/gpu": tuple(Device(f"gpu-{number}", (number // 2,)) for number in range(4))}
    held = {"uid": {"main": {"nvidia.com/gpu": frozenset({"gpu-0", "gpu-2"})}}}
    there = (PodKey("team-a", "trainer", "uid"),)
    cluster.put_state("node", NodeState("node", "facts", kubelet.files, DeviceState(devices, held), there))
    found = tile(node_named(cluster, "node"))
    assert found.amounts["nvidia.com/gpu"] == (2, 4, 1, 2)
    assert found.amounts["hugepages-1Gi"][:2] == (8 << 30, 8 << 30)
    assert "2 of 4 nvidia.com/gpu free" in found.words("nvidia.com/gpu")
    assert "2/4" in TileSheet().body(cluster, {"resource": "nvidia.com/gpu"}, EVERYTHING)


@pytest.mark.parametrize(
    ("view", "names"),
    [
        ({"search": "0003"}, ["node-0003"]),
        ({"labels": "zone=b", "sort": "most free"}, ["node-0001", "node-0003", "node-0005"]),
        ({"labels": "zone=a", "sort": "least free"}, ["node-0002", "node-0000", "node-0004"]),
        ({"show": "TopologyAffinityError"}, ["node-0002"]),
        ({"show": "unknown"}, ["node-0005"]),
        ({"sort": "refused", "search": "000", "labels": "zone=a"}, ["node-0002", "node-0000", "node-0004"]),
        ({"group": "pool"}, ["node-0001", "node-0002", "node-0004", "node-0005", "node-0000", "node-0003"]),
        ({"resource": "example.com/offered-by-none", "search": "0001"}, ["node-0001"]),
    ],
    ids=str,
)
def test_nodes_are_searched_sorted_and_grouped(cluster: KnownCluster, view: dict[str, str], names: list[str]) -> None:
    assert re.findall(r'data-node="([^"]+)"', TileSheet().body(cluster, view, EVERYTHING)) == names


def test_groups_have_names_and_sums(cluster: KnownCluster) -> None:
    shown = TileSheet().body(cluster, {"group": "pool,zone"}, EVERYTHING)
    heads = re.findall(r"<h3>(.+?) <span[^>]*>(.+?)</span>", shown)
    assert heads[0] == ("pool cpu, zone a", "2 nodes, 110 of 126 free")
    assert len(heads) == 4


def test_a_pending_pod_has_its_requests_and_a_node_that_would_take_it_now() -> None:
    cluster, sheet = known(), TileSheet()

    def taker() -> str:
        found = not_none(
            re.search(r"team-a/waits.*?30 CPU 64 MiB</td><td>(.*?)</td>", sheet.body(cluster, {}, EVERYTHING))
        )
        return re.sub("<[^>]*>", "", found[1])

    assert taker() == "node-0000"
    for name in cluster.names:
        cluster.put_state(name, state(name, [pod("one", 20), pod("two", 20)]))
    assert taker() == "no node"
    cluster.put_state("node-0003", state("node-0003", []))
    assert taker() == "node-0003"


def test_a_refused_pod_has_its_age_and_message_and_is_asked_again(cluster: KnownCluster, site: Site) -> None:
    shown = site.ask("/").text
    uid = not_none(re.search(r'data-uid="([^"]+)" data-name="team-b/refused"', shown))
    assert '<time data-since="1700000000.0" datetime="2023-11-14T22:13:20Z">' in shown
    story = site.ask(f"/pod?uid={uid[1]}").text
    assert "Resources cannot be allocated with Topology locality" in story
    assert "nodes/node-0002/#pod=team-b/refused" in story
    assert "0 nodes would take it" in story
    assert "TopologyAffinityError" in site.ask("/nodes/node-0002/").text
    again = site.ask(f"/nodes/node-0002/pod?uid={uid[1]}").text
    assert "rejected" in again
    assert "Nearest change" in again
    assert node_named(cluster, "node-0002").refused


def test_a_code_has_its_page_and_an_unknown_one_a_line(site: Site) -> None:
    for path in ("/code", "/nodes/node-0000/code"):
        assert "What to do" in site.ask(f"{path}?code=MOOR-105").text
        assert site.ask(f"{path}?code=MOOR-000").status == 404


# The pages of nodes of a cluster that are open: kept up to date, whatever a node publishes.


SNAPSHOT = "mooring.monitoring.serve.cluster_known.snapshot_of_node"


def opened(nodes: OpenNodes, name: str) -> NodeRoutes:
    return not_none(nodes.of(name))


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
    assert any("team-a/late" in one.text for one in pages[1].recording.now.notices)


def test_a_node_that_cannot_be_shown_says_so_and_the_others_stay_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known(3)
    nodes = OpenNodes(cluster, ("styles", "script"))
    first, second = (opened(nodes, name) for name in ("node-0000", "node-0001"))
    before = first.recording.now
    monkeypatch.setattr(SNAPSHOT, lambda node: (odd if node.node.name == "node-0000" else snapshot_of_node)(node))
    for name in ("node-0000", "node-0001"):
        cluster.put_pod(bound(f"late-{name}", name))
    nodes.refresh()
    assert first.recording.trouble == "what the node published cannot be used (KeyError)"
    assert first.recording.now == before
    assert any("late-node-0001" in one.text for one in second.recording.now.notices)
    # Its page can be opened meanwhile.
    page = opened(OpenNodes(cluster, ("styles", "script")), "node-0000")
    assert "KeyError" in page.recording.now.notices[0].text
    assert "ledger" not in repr(page.recording.now.seen_by(lambda namespace: namespace == "team-a"))
    monkeypatch.undo()
    cluster.put_pod(bound("later", "node-0000"))
    nodes.refresh()
    assert first.recording.trouble == ""
    assert any("team-a/later" in one.text for one in first.recording.now.notices)
    assert first.recording.now.question is not None


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
    empty = NodeSnapshot(opened(nodes, "node-0059").recording.now.view)
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
def test_a_bad_node_is_said_once_and_the_page_shows_all_others(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
