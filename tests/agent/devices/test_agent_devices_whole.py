"""The whole agent beside a kubelet whose PodResources API is a real gRPC server: CPUs beside devices, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.devices.made_up_podresources import ClaimDevice, PodResources
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.pods.fault_injector import SLICES, Fault, FaultInjector, pod_object
from tests.agent.whole_agent import NODE, Node, counted, pod, rest, start, until, whole

from mooring.agent.agent import Agent
from mooring.agent.nri.types import Event, RemoteError
from mooring.agent.pods.api import SliceWatch
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
    """A kubelet with two GPUs, which holds nothing else by default but what ``far`` and ``next`` have."""
    far = {name: {name: {GPU: (GPU1,)}} for name in ("far", "next")}
    made = PodResources(tmp_path / "kubelet.sock", {GPU: (GPU0, GPU1)}, {**far, "plain": {"plain": {}}})
    made.start()
    yield made
    made.stop()


def begun(node: Node, kubelet: PodResources, policy: str = "best-effort", more: str = "") -> tuple[Agent, RuntimeSide]:
    node.kubelet = KUBELET.replace("POLICY", policy).replace("DEFAULT", "follow")
    return node.connected(f"kubeletPodResourcesSocket: {kubelet.path}{more}")


def look(agent: Agent) -> None:
    """Let the agent look again at once."""
    assert agent.devices is not None
    agent.devices.look()


def test_cpus_are_beside_a_plugins_device_and_others_where_they_always_were(node: Node, kubelet: PodResources) -> None:
    agent, runtime = begun(node, kubelet)
    # The kubelet is connected before the first container is created.
    assert kubelet.asked == ["ListPodResourcesRequest", "AllocatableResourcesRequest"]
    assert node.cpus(start(node, runtime, "far", 2)) == "4-5"
    assert node.cpus(start(node, runtime, "plain", 2)) == "1-2"
    for resource, count in (("cpu", 2), (GPU, 1), ("all", 1)):
        assert counted(agent, "aligned_containers", policy="best-effort", resource=resource) == count
    assert counted(agent, "device_containers") == 1


def test_what_a_driver_gave_counts_by_name_and_has_no_node_without_an_api_server(
    node: Node, kubelet: PodResources
) -> None:
    kubelet.pods = {}
    kubelet.claims = {"far": {"far": (ClaimDevice("gpu", DRIVER, "edge-7", "g1"),)}}
    _, runtime = begun(node, kubelet)
    assert node.cpus(start(node, runtime, "far", 2)) == "1-2"
    told = [{"resource": DRIVER, "id": "edge-7/g1", "numaNodes": [], "healthy": True}]
    assert node.container("far")["devices"] == told


def test_a_kubelet_that_hangs_is_done_without_and_its_devices_are_known_at_the_start(
    node: Node, kubelet: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.devices.LONGEST", 0.1)
    agent, runtime = begun(node, kubelet)
    kubelet.goes.clear()
    runtime.state_change(Event.RUN_POD_SANDBOX, pod("far"))
    assert runtime.create(pod("far"), whole("far", 2)).adjust.linux.resources.cpu.cpus == "1-2"
    assert set(agent.snapshot.state.without_devices) == {"uid-far"}
    monkeypatch.setattr("mooring.agent.devices.LONGEST", 20.0)
    kubelet.goes.set()
    running = node.running(whole("far", 2), "1-2", -1)
    runtime.state_change(Event.POST_CREATE_CONTAINER, pod("far"), running)
    runtime.state_change(Event.START_CONTAINER, pod("far"), running)
    assert (node.cpus(running), node.container("far")["alignment"]) == ("4-5", "aligned")


def test_devices_that_are_known_only_when_the_program_runs_move_nothing_and_are_shown(
    node: Node, kubelet: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.devices.LONGEST", 0.1)
    held, kubelet.pods = kubelet.pods, {}
    agent, runtime = begun(node, kubelet)
    running = start(node, runtime, "far", 2)
    assert node.container("far")["alignment"] == "unknown"
    kubelet.pods = held
    look(agent)
    rest(node)
    assert (node.cpus(running), node.container("far")["alignment"]) == ("1-2", "elsewhere")
    assert counted(agent, "reports_total", kind="devices-elsewhere") == 1
    assert counted(agent, "reports_total", kind="devices-unknown") == 1


def test_a_new_agent_asks_again_and_places_the_next_pod_beside_its_device(node: Node, kubelet: PodResources) -> None:
    _, runtime = begun(node, kubelet)
    running = start(node, runtime, "far", 2)
    runtime = node.restarted(runtime, f"kubeletPodResourcesSocket: {kubelet.path}")
    runtime.synchronize([pod("far")], [running])
    told = [{"resource": GPU, "id": "gpu1", "numaNodes": [1], "healthy": True}]
    assert node.container("far")["devices"] == told
    assert node.cpus(start(node, runtime, "next", 2)) == "6-7"


def test_an_unhealthy_device_in_use_and_a_kubelet_that_forgets_move_nothing(node: Node, kubelet: PodResources) -> None:
    agent, runtime = begun(node, kubelet)
    running = start(node, runtime, "far", 2)
    kubelet.plugins = {GPU: (GPU0,)}
    look(agent)
    assert node.container("far")["devices"][0]["healthy"] is False
    kubelet.plugins, kubelet.pods = {}, {}
    look(agent)
    kubelet.stop()
    look(agent)
    assert (node.cpus(running), node.container("far")["alignment"]) == ("4-5", "aligned")
    assert counted(agent, "reports_total", kind="devices-changed") == 1


def test_another_alignment_is_taken_up_by_a_reload(node: Node, kubelet: PodResources) -> None:
    agent, runtime = begun(node, kubelet)
    node.kubelet = node.kubelet.replace("follow", "ignore")
    node.beginning(f"kubeletPodResourcesSocket: {kubelet.path}")
    agent.reload()
    agent.reconcile()
    assert node.status["configuration"]["generation"] == 2
    assert node.cpus(start(node, runtime, "far", 2)) == "1-2"


# The slices of this node, followed at an API server that comes and goes, and pods whose devices are drivers'.


def slice_object(name: str, generation: int = 1, **nodes: Any) -> dict[str, Any]:
    """Return a slice of the driver with one device for each keyword, with its attributes or its NUMA node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": device, "attributes": attributes(value)} for device, value in nodes.items()],
        },
    }


def attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {"resource.kubernetes.io/numaNode": {"int": value}}


@contextmanager
def watching(
    cluster: FaultInjector, slices: dict[str, dict[str, Any]], pci: tuple[PCIDevice, ...] = ()
) -> Iterator[tuple[SliceWatch, list[Finding]]]:
    """Follow slices of the node until the first one is known; return what has been reported, too."""
    findings: list[Finding] = []
    seen = SliceWatch(lambda: cluster_of(cluster.config()), NODE, pci, dict, findings.append)
    for name, nodes in slices.items():
        cluster.put(slice_object(name, **nodes))
    seen.start()
    until(seen.offered, "seen")
    yield seen, findings
    seen.stop()


def test_devices_are_where_the_slices_say_from_the_first_list_on_and_after_every_change(cluster: FaultInjector) -> None:
    with watching(cluster, {"one": {"g0": 0, "g1": 1}}) as (seen, _):
        assert seen.device(DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (1,))
        cluster.put(slice_object("one", 2, g0=0, g1=0))
        until(lambda: seen.device(DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (0,)), "changed")
        assert seen.device(DRIVER, f"{NODE}/g7") is None
        assert seen.device("net.example.com", "any/thing") == Device("any/thing")
    assert cluster.asked(f"list{SLICES}")[0].query["fieldSelector"] == f"spec.nodeName={NODE}"


def test_a_device_is_found_on_the_pci_bus_of_the_machine(cluster: FaultInjector) -> None:
    bus = (PCIDevice("0000:3b:00.0", "030200", "10de", "20b0", 1),)
    on_bus = {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}}
    with watching(cluster, {"one": {"g0": on_bus}}, bus) as (seen, _):
        assert seen.device(DRIVER, f"{NODE}/g0") == Device(f"{NODE}/g0", (1,))
        assert seen.address(DRIVER, f"{NODE}/g0") == "0000:3b:00.0"
        assert seen.address(DRIVER, f"{NODE}/g1") == ""


def test_an_outage_keeps_what_is_known_and_is_reported_with_its_end(cluster: FaultInjector) -> None:
    with watching(cluster, {"one": {"g1": 1}}) as (seen, findings):
        cluster.fail(f"watch{SLICES}", Fault(500), Fault(500))
        cluster.end_watches()
        until(lambda: len(findings) == 2, "both failures are reported")
        assert seen.device(DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (1,))
        cluster.put(slice_object("two", g2=0))
        until(lambda: any("are current again" in one.message for one in findings), "back")
        assert seen.device(DRIVER, f"{NODE}/g1") == Device(f"{NODE}/g1", (1,))
        assert findings[0].message.startswith(f"slices of node {NODE} may be stale (attempt 1): ")


def test_a_slice_that_cannot_be_read_is_reported_and_the_others_count(cluster: FaultInjector) -> None:
    broken = slice_object("broken")
    cluster.put({**broken, "spec": {**broken["spec"], "devices": "none"}})
    with watching(cluster, {"one": {"g1": 1}}) as (_, findings):
        assert findings[0].message.startswith("a slice cannot be read: ")


# The whole agent.


def claiming(name: str, claim: str) -> dict[str, Any]:
    """Return a pod whose container has a claim."""
    made = pod_object(name)
    [container] = made["spec"]["containers"]
    own = {**container, "name": name, "resources": {**container["resources"], "claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimName": claim}]
    return {**made, "spec": {**made["spec"], "containers": [own], "resourceClaims": claims}}


def agent_in(cluster: FaultInjector, node: Node, kubelet: PodResources) -> tuple[Agent, RuntimeSide]:
    kubelet.namespace, kubelet.pods = "shop", {}
    config = cluster.kubeconfig(node.folder / "kubeconfig")
    return begun(node, kubelet, "single-numa-node", more=f"\nkubeconfig: {config}")


def test_cpus_are_beside_the_device_of_a_claim_and_pods_that_share_it_are_all_there(
    cluster: FaultInjector, node: Node, kubelet: PodResources
) -> None:
    cluster.put(slice_object("one", g0=0, g1=1))
    for name in ("first", "second", "third"):
        cluster.put(claiming(name, "shared"))
        kubelet.claims[name] = {name: (ClaimDevice("shared", DRIVER, NODE, "g1"),)}
    _, runtime = agent_in(cluster, node, kubelet)
    for name, cpus in (("first", "4-5"), ("second", "6-7")):
        reply = runtime.create(replace(pod(name), namespace="shop"), whole(name, 2))
        assert reply.adjust.linux.resources.cpu.cpus == cpus
    with pytest.raises(
        RemoteError, match=r"TopologyAffinityError.*MOOR-136; third: gpu\.example\.com edge-7/g1 is near"
    ):
        runtime.create(replace(pod("third"), namespace="shop"), whole("third", 2))
    events = "POST /apis/events.k8s.io/v1/namespaces/shop/events"
    until(lambda: bool(cluster.asked(events)), "an event is written")
    [event] = cluster.asked(events)
    assert event.body["reason"] == "TopologyAffinityError"
    assert "is near NUMA node 1" in event.body["note"]


def test_a_pod_without_devices_asks_nobody(cluster: FaultInjector, node: Node, kubelet: PodResources) -> None:
    cluster.put(pod_object("plain"))
    _, runtime = agent_in(cluster, node, kubelet)
    asked = len(kubelet.asked)
    reply = runtime.create(replace(pod("plain"), namespace="shop"), replace(whole("plain", 2), name="app"))
    assert reply.adjust.linux.resources.cpu.cpus == "1-2"
    assert len(kubelet.asked) == asked


def test_slices_that_change_move_no_running_pod(cluster: FaultInjector, node: Node, kubelet: PodResources) -> None:
    cluster.put(slice_object("one", g0=0, g1=1))
    cluster.put(claiming("first", "own"))
    kubelet.claims["first"] = {"first": (ClaimDevice("own", DRIVER, NODE, "g1"),)}
    agent, runtime = agent_in(cluster, node, kubelet)
    place = replace(pod("first"), namespace="shop")
    running = node.running(whole("first", 2), runtime.create(place, whole("first", 2)).adjust.linux.resources.cpu.cpus)
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        runtime.state_change(event, place, running)
    cluster.put(slice_object("one", 2, g0=0, g1=0))

    def is_reported() -> bool:
        look(agent)
        return counted(agent, "reports_total", kind="devices-changed") == 1

    until(is_reported, "the change is reported")
    assert (node.cpus(running), node.container("first")["alignment"]) == ("4-5", "elsewhere")
