"""The PodResources view: what the kubelet's API would list, and who is isolated from whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import to_builtins

from mooring.documents.of_kubelet import pod_resources_document
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machineinfo import Core, HugePages, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Node
from mooring.engine.node.providers import (
    Isolation,
    container_runs_without_quota,
    cpu_isolation,
    memory_isolation,
    pod_runs_without_quota,
)

GIB = 2**30
INFO = MachineInfo(
    8,
    1,
    2 * GIB,
    (
        NUMANode(0, GIB, (HugePages(2048, 8),), tuple(Core(core, (core, core + 4), 0) for core in range(2))),
        NUMANode(1, GIB, (HugePages(2048, 8),), tuple(Core(core, (core, core + 4), 0) for core in range(2, 4))),
    ),
)
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    topology_manager_policy="best-effort",
    topology_manager_scope="pod",
    reserved_system_cpus="0",
    reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
)


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name.replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


def container(name: str, kind: ContainerKind = ContainerKind.APP, **texts: str) -> Container:
    wanted = amounts(**texts)
    return Container(name, kind, wanted, wanted)


def node(*, managers: bool = False) -> Node:
    gates = {"PodLevelResourceManagers": True} if managers else {}
    return Node.fresh(INFO, replace(CONFIG, feature_gates=gates), MooringConfig())


def wants(*containers: Container, **more: Any) -> Pod:
    return Pod("u", "p", containers=containers, qos=QoS.GUARANTEED, **more)


def admitted(start: Node, pod: Pod) -> Node:
    after, decision = start.admit(pod)
    assert decision.admitted, decision.message
    return after


def listed(after: Node) -> dict[str, Any]:
    pods = to_builtins(pod_resources_document(after))["List"]["pod_resources"]
    return {one["name"]: one for one in pods}


def test_exclusive_cpus_memory_and_devices_are_listed_and_init_containers_are_not() -> None:
    start = node().with_devices({"example/gpu": (Device("gpu-0", (1,)), Device("gpu-1"))})
    wanted = {**amounts(cpu="1", memory="64Mi", hugepages_2Mi="4Mi"), "example/gpu": Quantity.parse("2")}
    init = container("init", ContainerKind.INIT, cpu="1", memory="64Mi")
    side = container("side", ContainerKind.SIDECAR, cpu="1", memory="32Mi")
    main_one = Container("main", requests=wanted, limits=wanted)
    shown = listed(admitted(start, wants(init, side, main_one)))["p"]
    assert [one["name"] for one in shown["containers"]] == ["side", "main"]
    main = shown["containers"][1]
    assert len(main["cpu_ids"]) == 1
    assert {block["memory_type"]: block["size"] for block in main["memory"]} == {
        "memory": str(64 * 2**20),
        "hugepages-2Mi": str(4 * 2**20),
    }
    assert main["devices"] == [
        {"resource_name": "example/gpu", "device_ids": ["gpu-0"], "topology": {"nodes": [{"ID": "1"}]}},
        {"resource_name": "example/gpu", "device_ids": ["gpu-1"]},
    ]
    assert "cpu_ids" not in shown


def test_what_can_be_given_away_leaves_out_reserved_cpus_memory_and_sick_devices() -> None:
    start = node().with_devices({"example/gpu": (Device("gpu-0", (1,)), Device("gpu-1", healthy=False))})
    shown = to_builtins(pod_resources_document(start))["GetAllocatableResources"]
    assert shown["cpu_ids"] == ["1", "2", "3", "4", "5", "6", "7"]
    assert [device["device_ids"] for device in shown["devices"]] == [["gpu-0"]]
    sizes = {(block["memory_type"], block["topology"]["nodes"][0]["ID"]): block["size"] for block in shown["memory"]}
    assert sizes[("memory", "0")] == str(GIB - 100 * 2**20 - 16 * 2**20)
    assert sizes[("hugepages-2Mi", "1")] == str(16 * 2**20)


POD_LEVEL = wants(
    container("own", cpu="2", memory="64Mi"),
    Container("sharing"),
    resources=PodResources(amounts(cpu="3", memory="256Mi"), amounts(cpu="3", memory="256Mi")),
)


def test_a_sharing_container_of_a_pod_level_pod_is_isolated_as_its_pod_and_lists_nothing_of_its_own() -> None:
    after = admitted(node(managers=True), POD_LEVEL)
    own, sharing = POD_LEVEL.containers
    for one, level in ((own, Isolation.CONTAINER), (sharing, Isolation.POD)):
        assert cpu_isolation(after.settings, after.providers, POD_LEVEL, one) is level
        assert memory_isolation(after.settings, after.providers, POD_LEVEL, one) is level
    shown = listed(after)["p"]
    assert len(shown["cpu_ids"]) == 3
    assert [len(one["cpu_ids"]) for one in shown["containers"]] == [2, 0]
    assert shown["memory"][0]["size"] == str(256 * 2**20)
    assert not pod_runs_without_quota(after.settings, after.providers, POD_LEVEL)
    assert container_runs_without_quota(after.settings, after.providers, POD_LEVEL, own)
    assert not container_runs_without_quota(after.settings, after.providers, POD_LEVEL, sharing)


@pytest.mark.parametrize("managers", [False, True])
def test_a_plain_pod_loses_its_quota_with_its_first_exclusive_container(managers: bool) -> None:
    pod = wants(container("own", cpu="1", memory="64Mi"), container("half", cpu="500m", memory="64Mi"))
    after = admitted(node(managers=managers), pod)
    own, half = pod.containers
    assert pod_runs_without_quota(after.settings, after.providers, pod)
    assert container_runs_without_quota(after.settings, after.providers, pod, own)
    assert not container_runs_without_quota(after.settings, after.providers, pod, half)
    assert cpu_isolation(after.settings, after.providers, pod, half) is Isolation.HOST


def test_a_pod_without_anything_of_its_own_is_with_the_host() -> None:
    pod = Pod("u", "p", containers=(Container("c"),))
    after = admitted(node(), pod)
    assert cpu_isolation(after.settings, after.providers, pod, pod.containers[0]) is Isolation.HOST
    assert memory_isolation(after.settings, after.providers, pod, pod.containers[0]) is Isolation.HOST
    nothing: dict[str, list[Any]] = {"devices": [], "cpu_ids": [], "memory": [], "dynamic_resources": []}
    assert listed(after)["p"]["containers"] == [{"name": "c", **nothing}]
