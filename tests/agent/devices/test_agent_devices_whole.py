"""The whole agent beside a kubelet whose PodResources API is a real gRPC server: CPUs beside devices, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.devices.made_up_podresources import ClaimDevice, PodResources
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node, pod, rest, start, whole

from mooring.agent.agent import Agent
from mooring.agent.nri.types import Event, RemoteError
from mooring.engine.devicemanager.state import Device

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
    agent = node.agent(f"kubeletPodResourcesSocket: {kubelet.path}")
    runtime = node.listening.next()
    runtime.synchronize()
    return agent, runtime


def look(agent: Agent) -> None:
    """Let the agent look again at once."""
    assert agent.devices is not None
    assert agent.devices.reconciler is not None
    agent.devices.reconciler.look()


def shown(node: Node, name: str) -> dict[str, Any]:
    """Return what the status says of a pod's container."""
    [found] = [one for each in node.status["pods"] if each["name"] == name for one in each["containers"]]
    return dict(found)


def test_cpus_are_beside_the_device_of_a_plugin_and_others_where_they_always_were(
    node: Node, kubelet: PodResources
) -> None:
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}, "plain": {"plain": {}}}
    _, runtime = begun(node, kubelet)
    assert node.cpus(start(node, runtime, "far", 2)) == "4-5"
    assert node.cpus(start(node, runtime, "plain", 2)) == "1-2"


def test_the_kubelet_is_connected_before_the_first_container_is_created(node: Node, kubelet: PodResources) -> None:
    begun(node, kubelet)
    assert kubelet.asked == ["ListPodResourcesRequest", "AllocatableResourcesRequest"]


def test_a_pod_whose_cpus_are_taken_beside_its_device_is_refused_where_the_policy_is_strict(
    node: Node, kubelet: PodResources
) -> None:
    kubelet.pods = {"big": {"big": {}}, "far": {"far": {GPU: (GPU0,)}}}
    _, runtime = begun(node, kubelet, "single-numa-node")
    start(node, runtime, "big", 3)
    with pytest.raises(RemoteError) as refused:
        runtime.create(pod("far"), whole("far", 2))
    assert "TopologyAffinityError" in str(refused.value)
    assert f"far: {GPU} gpu0 is near NUMA node 0" in str(refused.value)
    [held] = node.status["held"]
    assert (held["name"], held["reason"]) == ("far", "TopologyAffinityError")


def test_what_a_driver_gave_takes_part_by_name_and_has_no_node_without_an_api_server(
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
    reply = runtime.create(pod("far"), whole("far", 2))
    assert reply.adjust.linux.resources.cpu.cpus == "1-2"
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


def test_devices_that_require_alignment_are_waited_for(
    node: Node, kubelet: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.device_lookup.LONGEST", 0.1)
    _, runtime = begun(node, kubelet, default="require")
    with pytest.raises(RemoteError, match="DevicesUnknown"):
        runtime.create(pod("far"), whole("far", 2))
    assert node.status["held"] == []
    kubelet.pods = {"far": {"far": {GPU: (GPU1,)}}}
    assert node.cpus(start(node, runtime, "far", 2)) == "4-5"


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


def test_a_device_that_turns_unhealthy_in_use_and_a_kubelet_that_forgets_move_nothing(
    node: Node, kubelet: PodResources
) -> None:
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
