"""Whole decisions: CPU and memory, huge pages, devices, any number of NUMA nodes, state files on tmpfs and disk.

The inputs are those of the kubelet's own figures (docs/explanation/performance.md, tables 2, 5 and 6).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import GIB, config, machine, pod

from mooring.checkpoint.store import StateFolder
from mooring.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.core.machineinfo import Core, HugePages, MachineInfo, Node
from mooring.core.pod import Container, Pod
from mooring.core.quantity import Quantity
from mooring.devicemanager.state import Device, DeviceState
from mooring.node import Node as KubeletNode
from mooring.planner.simulation import Kubelet, StateTexts, start_kubelet


def whole(policy: str, total: int, **options: str) -> KubeletConfig:
    """Return the configuration with static CPU and memory policies, the eviction threshold reserved on node 0."""
    return replace(
        config(policy, total),
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
        eviction_hard={"memory.available": "100Mi"},
        topology_manager_policy_options={"max-allowable-numa-nodes": "64", **options},
    )


def started(info: MachineInfo, kubelet: KubeletConfig, share: float) -> Kubelet:
    start = start_kubelet(info, kubelet, MooringConfig(), StateTexts())
    assert start.kubelet is not None
    running = start.kubelet
    for number in range(int(info.num_cores * share) // 4):
        running, decision = running.admit(pod(f"filler-{number}"))
        assert decision.admitted
    return running


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
def test_cpu_and_memory_decision(benchmark: BenchmarkFixture, policy: str, nodes: int, share: float) -> None:
    node: KubeletNode = started(machine(nodes), whole(policy, nodes * 32), share).node
    _, decision = benchmark(node.admit, pod("asked"))
    assert decision.admitted


@pytest.fixture(params=["tmpfs", "disk"])
def folder(request: pytest.FixtureRequest) -> Iterator[StateFolder]:
    shared = Path("/dev/shm")  # noqa: S108 - a tmpfs is what is measured
    if request.param == "tmpfs" and not shared.is_dir():
        pytest.skip("no tmpfs at /dev/shm")
    place = shared if request.param == "tmpfs" else Path.cwd()
    with tempfile.TemporaryDirectory(dir=place, prefix=".bench-") as path:
        yield StateFolder(Path(path))


def admit_and_write(kubelet: Kubelet, asked: Pod, folder: StateFolder) -> Kubelet:
    after, decision = kubelet.admit(asked)
    assert decision.admitted
    assert after.files.cpu is not None
    assert after.files.memory is not None
    folder.write_both(after.files.cpu, after.files.memory)
    return after


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_decision_with_both_state_files(
    benchmark: BenchmarkFixture, nodes: int, share: float, folder: StateFolder
) -> None:
    kubelet = started(machine(nodes), whole("best-effort", nodes * 32), share)
    benchmark(admit_and_write, kubelet, pod("asked"), folder)


def rich_machine() -> MachineInfo:
    """Return 8 nodes with two sizes of huge pages."""
    info = machine(8)
    pages = (HugePages(2048, 1024), HugePages(1048576, 8))
    return replace(info, topology=tuple(replace(node, hugepages=pages) for node in info.topology))


def test_decision_with_two_hugepage_sizes_and_two_device_resources_on_8_nodes(benchmark: BenchmarkFixture) -> None:
    kubelet = started(rich_machine(), whole("best-effort", 256), 0.5)
    devices = {
        f"vendor.example/{kind}": tuple(Device(f"{kind}-{number}", (number % 8,)) for number in range(16))
        for kind in ("gpu", "nic")
    }
    node = kubelet.with_devices(DeviceState(devices)).node
    limits = {
        "cpu": "4",
        "memory": "4Gi",
        "hugepages-2Mi": "64Mi",
        "hugepages-1Gi": "2Gi",
        "vendor.example/gpu": "1",
        "vendor.example/nic": "1",
    }
    amounts = {name: Quantity.parse(text) for name, text in limits.items()}
    asked = replace(pod("asked"), containers=(Container("main", requests=amounts, limits=amounts),))
    _, decision = benchmark(node.admit, asked)
    assert decision.admitted


def gpu_tray() -> MachineInfo:
    """Return 34 nodes: two with CPUs, 32 of memory only."""

    def cores(node: int) -> tuple[Core, ...]:
        return (
            tuple(Core(core, (core, core + 32), node) for core in range(node * 16, node * 16 + 16)) if node < 2 else ()
        )

    def distances(node: int) -> tuple[int, ...]:
        return tuple(10 if node == other else 20 if other < 2 else 40 for other in range(34))

    nodes = tuple(Node(node, 64 * GIB, cores=cores(node), distances=distances(node)) for node in range(34))
    return MachineInfo(64, 2, 34 * 64 * GIB, nodes)


WIDE = {"16": machine(16), "34": gpu_tray(), "64": machine(64)}


@pytest.mark.parametrize("closest", [False, True], ids=["numbers", "prefer-closest"])
@pytest.mark.parametrize("memory", ["4Gi", "300Gi"])
@pytest.mark.parametrize("shape", WIDE)
@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_decision_on_many_nodes(
    benchmark: BenchmarkFixture, policy: str, shape: str, memory: str, closest: bool
) -> None:
    info = WIDE[shape]
    options = {"prefer-closest-numa-nodes": "true"} if closest else {}
    node = started(info, whole(policy, info.num_cores, **options), 0.0).node
    _, decision = benchmark(node.admit, pod("asked", memory=memory))
    assert decision.admitted is (policy == "best-effort" or memory == "4Gi")


def test_a_thousand_pods_admitted_and_removed_on_8_nodes(benchmark: BenchmarkFixture, folder: StateFolder) -> None:
    kubelet = started(machine(8), whole("best-effort", 256), 0.5)

    def churn() -> None:
        running = kubelet
        for number in range(1000):
            running, decision = running.admit(pod(f"churn-{number}"))
            assert decision.admitted
            write(running, folder)
            running, _ = running.remove(f"churn-{number}")
            write(running, folder)

    benchmark(churn)


def write(kubelet: Kubelet, folder: StateFolder) -> None:
    folder.write_both(kubelet.files.cpu or "", kubelet.files.memory or "")
