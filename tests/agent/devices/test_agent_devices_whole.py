"""The whole agent beside a kubelet whose PodResources API is a real gRPC server: CPUs beside devices, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.devices.made_up_podresources import ClaimDevice, PodResources
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.pods.fault_injector import SLICES, Fault, FaultInjector, pod_object
from tests.agent.whole_agent import NODE, Node, pod, rest, start, until, whole

from mooring.agent.agent import Agent
from mooring.agent.device_access import SliceWatch
from mooring.agent.nri.types import Event, RemoteError
from mooring.engine.core.machine import Finding, PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.service.apiserver import cluster_of

KUBELET = """\
topologyManagerPolicy: POLICY
---
kind: MooringConfiguration
extensions: [device-alignment]
deviceAlignment: {default: DEFAULT}
fixedDefects: [pod-restart]
"""
GPU, DRIVER = "nvidia.com/gpu", "gpu.example.com"
GPU0, GPU1 = Device("gpu0", (0,)), Device("gpu1", (1,))


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[PodResources]:
    made = PodResources(tmp_path / "kubelet.sock", {GPU: (GPU0, GPU1)})
    made.start()
    yield made
    made.stop()


def begun(
    node: Node, kubelet: PodResources, policy: str = "best-effort", default: str = "follow"
) -> tuple[Agent, RuntimeSide]:
    node.kubelet = KUBELET.replace("POLICY", policy).replace("DEFAULT", default)
    return node.connected(f"kubeletPodResourcesSocket: {kubelet.path}")


def look(agent: Agent) -> None:
    """Let the agent look again at once."""
    assert agent.devices is not None
    assert agent.devices.reconciler is not None
    agent.devices.reconciler.look()


def shown(node: Node, name: str) -> dict[str, Any]:
    """Return what the status says of a pod's container."""
    [found] = [one for each in node.status["pods"] if each["name"] == name for one in each["containers"]]
    return dict(found)


def test_cpus_are_beside_a_plugins_device_and_others_where_they_always_were(node: Node, kubelet: PodResources) -> None:
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}, "plain": {"plain": {}}}
    _, runtime = begun(node, kubelet)
    assert node.cpus(start(node, runtime, "far", 2)) == "4-5"
    assert node.cpus(start(node, runtime, "plain", 2)) == "1-2"


def test_the_kubelet_is_connected_before_the_first_container_is_created(node: Node, kubelet: PodResources) -> None:
    begun(node, kubelet)
    assert kubelet.asked == ["ListPodResourcesRequest", "AllocatableResourcesRequest"]


def test_what_a_driver_gave_counts_by_name_and_has_no_node_without_an_api_server(
    node: Node, kubelet: PodResources
) -> None:
    kubelet.claims = {"far": {"far": (ClaimDevice("gpu", DRIVER, "edge-7", "g1"),)}}
    _, runtime = begun(node, kubelet)
    assert node.cpus(start(node, runtime, "far", 2)) == "1-2"
    assert shown(node, "far")["devices"] == [{"resource": DRIVER, "id": "edge-7/g1", "numaNodes": [], "healthy": True}]


def test_a_kubelet_that_hangs_is_done_without_and_its_devices_are_known_at_the_start(
    node: Node, kubelet: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.device_lookup.LONGEST", 0.1)
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}}
    agent, runtime = begun(node, kubelet)
    kubelet.goes.clear()
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("far"))
    assert runtime.create(pod("far"), whole("far", 2)).adjust.linux.resources.cpu.cpus == "1-2"
    state = agent.snapshot.state
    assert state is not None
    assert set(state.without_devices) == {"uid-far"}
    monkeypatch.setattr("mooring.agent.device_lookup.LONGEST", 20.0)
    kubelet.goes.set()
    running = node.running(whole("far", 2), "1-2", -1)
    runtime.state_change(Event.POST_CREATE_CONTAINER, pod("far"), running)
    runtime.state_change(Event.START_CONTAINER, pod("far"), running)
    assert node.cpus(running) == "4-5"
    assert shown(node, "far")["alignment"] == "aligned"


def test_devices_that_are_known_only_when_the_program_runs_move_nothing_and_are_shown(
    node: Node, kubelet: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.device_lookup.LONGEST", 0.1)
    agent, runtime = begun(node, kubelet)
    running = start(node, runtime, "far", 2)
    assert shown(node, "far")["alignment"] == "unknown"
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}}
    look(agent)
    rest(node)
    assert node.cpus(running) == "1-2"
    assert shown(node, "far")["alignment"] == "elsewhere"
    text = agent.metrics.text()
    assert 'mooring_agent_reports_total{kind="devices-elsewhere"} 1.0' in text
    assert 'mooring_agent_reports_total{kind="devices-unknown"} 1.0' in text


def test_a_new_agent_asks_again_and_places_the_next_pod_beside_its_device(node: Node, kubelet: PodResources) -> None:
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}, "next": {"next": {GPU: (GPU1,)}}}
    _, runtime = begun(node, kubelet)
    running = start(node, runtime, "far", 2)
    node.agents.pop().close()
    runtime.close()
    node.agent(f"kubeletPodResourcesSocket: {kubelet.path}")
    runtime = node.listening.next()
    runtime.synchronize([pod("far")], [running])
    assert shown(node, "far")["devices"] == [{"resource": GPU, "id": "gpu1", "numaNodes": [1], "healthy": True}]
    assert node.cpus(start(node, runtime, "next", 2)) == "6-7"


def test_an_unhealthy_device_in_use_and_a_kubelet_that_forgets_move_nothing(node: Node, kubelet: PodResources) -> None:
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}}
    agent, runtime = begun(node, kubelet)
    running = start(node, runtime, "far", 2)
    kubelet.plugins = {GPU: (GPU0,)}
    look(agent)
    assert shown(node, "far")["devices"][0]["healthy"] is False
    kubelet.plugins, kubelet.pods = {}, {}
    look(agent)
    kubelet.stop()
    look(agent)
    assert (node.cpus(running), shown(node, "far")["alignment"]) == ("4-5", "aligned")
    assert 'mooring_agent_reports_total{kind="devices-changed"} 1.0' in agent.metrics.text()


def test_another_alignment_is_taken_up_by_a_reload(node: Node, kubelet: PodResources) -> None:
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}}
    agent, runtime = begun(node, kubelet)
    node.kubelet = KUBELET.replace("POLICY", "best-effort").replace("DEFAULT", "ignore")
    node.beginning(f"kubeletPodResourcesSocket: {kubelet.path}")
    agent.reload()
    agent.reconcile()
    assert node.status["configuration"]["generation"] == 2
    assert node.cpus(start(node, runtime, "far", 2)) == "1-2"


def test_the_metrics_count_what_is_aligned_by_resource(node: Node, kubelet: PodResources) -> None:
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}, "plain": {"plain": {}}}
    agent, runtime = begun(node, kubelet)
    start(node, runtime, "far", 2)
    start(node, runtime, "plain", 2)
    text = agent.metrics.text()
    assert 'mooring_agent_aligned_containers{policy="best-effort",resource="cpu"} 2.0' in text
    assert f'mooring_agent_aligned_containers{{policy="best-effort",resource="{GPU}"}} 1.0' in text
    assert 'mooring_agent_aligned_containers{policy="best-effort",resource="all"} 1.0' in text
    assert "mooring_agent_device_containers 1.0" in text


# The slices of this node, followed at an API server that comes and goes, and pods whose devices are drivers'.


GPU_DRIVER = "gpu.example.com"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("service.following", "agent.pods.writer"):
        monkeypatch.setattr(f"mooring.{module}.pause_before", lambda _tries, _node: 0.01)


@pytest.fixture
def cluster() -> Iterator[FaultInjector]:
    with FaultInjector(node=NODE) as one:
        yield one


@pytest.fixture
def shop_kubelet(tmp_path: Path) -> Iterator[PodResources]:
    made = PodResources(tmp_path / "kubelet.sock", namespace="shop")
    made.start()
    yield made
    made.stop()


def slice_object(name: str, generation: int = 1, **nodes: object) -> dict[str, Any]:
    """Return a slice of the driver with one device for each keyword, with its attributes or its NUMA node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": GPU_DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": device, "attributes": attributes(value)} for device, value in nodes.items()],
        },
    }


def attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {"resource.kubernetes.io/numaNode": {"int": value}}


def watch(cluster: FaultInjector, findings: list[Finding], pci: tuple[PCIDevice, ...] = ()) -> SliceWatch:
    made = SliceWatch(lambda: cluster_of(cluster.config()), NODE, pci, dict, findings.append)
    made.start()
    return made


def test_devices_are_where_the_slices_say_from_the_first_list_on_and_after_every_change(cluster: FaultInjector) -> None:
    seen = watch(cluster, [])
    cluster.put(slice_object("one", g0=0, g1=1))
    until(lambda: seen.device(GPU_DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (1,)), "seen")
    cluster.put(slice_object("one", 2, g0=0, g1=0))
    until(lambda: seen.device(GPU_DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (0,)), "changed")
    assert seen.device(GPU_DRIVER, f"{NODE}/g7") is None
    assert seen.device("net.example.com", "any/thing") == Device("any/thing")
    seen.stop()
    assert cluster.asked(f"list{SLICES}")[0].query["fieldSelector"] == f"spec.nodeName={NODE}"


def test_a_device_is_found_on_the_pci_bus_of_the_machine(cluster: FaultInjector) -> None:
    bus = (PCIDevice("0000:3b:00.0", "030200", "10de", "20b0", 1),)
    cluster.put(slice_object("one", g0={"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}}))
    seen = watch(cluster, [], bus)
    until(lambda: seen.device(GPU_DRIVER, f"{NODE}/g0") == Device(f"{NODE}/g0", (1,)), "seen")
    assert seen.address(GPU_DRIVER, f"{NODE}/g0") == "0000:3b:00.0"
    assert seen.address(GPU_DRIVER, f"{NODE}/g1") == ""
    seen.stop()


def test_an_outage_keeps_what_is_known_and_is_reported_with_its_end(cluster: FaultInjector) -> None:
    cluster.put(slice_object("one", g1=1))
    findings: list[Finding] = []
    seen = watch(cluster, findings)
    until(lambda: seen.device(GPU_DRIVER, f"{NODE}/g1") is not None, "seen")
    cluster.fail(f"watch{SLICES}", Fault(500), Fault(500))
    cluster.end_watches()
    until(lambda: len(findings) == 2, "both failures are reported")
    assert seen.device(GPU_DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (1,))
    cluster.put(slice_object("two", g2=0))
    until(lambda: any("are current again" in one.message for one in findings), "back")
    assert seen.device(GPU_DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (1,))
    assert findings[0].message.startswith(f"slices of node {NODE} may be stale (attempt 1): ")
    seen.stop()


def test_a_slice_that_cannot_be_read_is_reported_and_the_others_count(cluster: FaultInjector) -> None:
    broken = slice_object("broken")
    cluster.put({**broken, "spec": {**broken["spec"], "devices": "none"}})
    cluster.put(slice_object("one", g1=1))
    findings: list[Finding] = []
    seen = watch(cluster, findings)
    until(lambda: seen.device(GPU_DRIVER, f"{NODE}/g1") is not None, "seen")
    seen.stop()
    assert findings[0].message.startswith("a slice cannot be read: ")


# The whole agent.


def claiming(name: str, claim: str) -> dict[str, Any]:
    """Return a pod whose container has a claim."""
    made = pod_object(name)
    [container] = made["spec"]["containers"]
    own = {**container, "name": name, "resources": {**container["resources"], "claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimName": claim}]
    return {**made, "spec": {**made["spec"], "containers": [own], "resourceClaims": claims}}


def agent_in(cluster: FaultInjector, node: Node, shop_kubelet: PodResources, policy: str = "single-numa-node") -> Agent:
    node.kubelet = KUBELET.replace("POLICY", policy).replace("DEFAULT", "follow")
    config = cluster.kubeconfig(node.folder / "kubeconfig")
    return node.agent(f"kubeconfig: {config}\nkubeletPodResourcesSocket: {shop_kubelet.path}")


def test_cpus_are_beside_the_device_of_a_claim_and_pods_that_share_it_are_all_there(
    cluster: FaultInjector, node: Node, shop_kubelet: PodResources
) -> None:
    cluster.put(slice_object("one", g0=0, g1=1))
    for name in ("first", "second", "third"):
        cluster.put(claiming(name, "shared"))
        shop_kubelet.claims[name] = {name: (ClaimDevice("shared", GPU_DRIVER, NODE, "g1"),)}
    agent_in(cluster, node, shop_kubelet)
    runtime = node.listening.next()
    runtime.synchronize()
    given = []
    for name in ("first", "second"):
        place = replace(pod(name), namespace="shop")
        given.append(runtime.create(place, whole(name, 2)).adjust.linux.resources.cpu.cpus)
    assert given == ["4-5", "6-7"]
    with pytest.raises(
        RemoteError, match=r"TopologyAffinityError.*MOOR-136; third: gpu\.example\.com edge-7/g1 is near"
    ):
        runtime.create(replace(pod("third"), namespace="shop"), whole("third", 2))
    until(lambda: bool(cluster.asked("POST /apis/events.k8s.io/v1/namespaces/shop/events")), "an event is written")
    [event] = cluster.asked("POST /apis/events.k8s.io/v1/namespaces/shop/events")
    assert event.body["reason"] == "TopologyAffinityError"
    assert "is near NUMA node 1" in event.body["note"]


def test_a_pod_without_devices_asks_nobody(cluster: FaultInjector, node: Node, shop_kubelet: PodResources) -> None:
    cluster.put(pod_object("plain"))
    agent_in(cluster, node, shop_kubelet)
    runtime = node.listening.next()
    runtime.synchronize()
    asked = len(shop_kubelet.asked)
    reply = runtime.create(replace(pod("plain"), namespace="shop"), replace(whole("plain", 2), name="app"))
    assert reply.adjust.linux.resources.cpu.cpus == "1-2"
    assert len(shop_kubelet.asked) == asked


def test_slices_that_change_move_no_running_pod(cluster: FaultInjector, node: Node, shop_kubelet: PodResources) -> None:
    cluster.put(slice_object("one", g0=0, g1=1))
    cluster.put(claiming("first", "own"))
    shop_kubelet.claims["first"] = {"first": (ClaimDevice("own", GPU_DRIVER, NODE, "g1"),)}
    agent = agent_in(cluster, node, shop_kubelet)
    runtime = node.listening.next()
    runtime.synchronize()
    place = replace(pod("first"), namespace="shop")
    running = node.running(whole("first", 2), runtime.create(place, whole("first", 2)).adjust.linux.resources.cpu.cpus)
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        runtime.state_change(event, place, running)
    cluster.put(slice_object("one", 2, g0=0, g1=0))

    def is_reported() -> bool:
        look(agent)
        return 'kind="devices-changed"} 1.0' in agent.metrics.text()

    until(is_reported, "the change is reported")
    assert node.cpus(running) == "4-5"
    [shown] = [one for each in node.status["pods"] for one in each["containers"]]
    assert shown["alignment"] == "elsewhere"
