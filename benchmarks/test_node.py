"""Whole decisions: CPU and memory, huge pages, devices, any number of NUMA nodes, state files on tmpfs and disk.

The inputs are those of the kubelet's own figures (docs/explanation/performance.md, tables 2, 5 and 6).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import gpu_tray, machine, pod, rich_node, rich_pod, started, whole

from mooring.engine.checkpoint.store import StateFolder
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
def test_cpu_and_memory_decision(benchmark: BenchmarkFixture, policy: str, nodes: int, share: float) -> None:
    node: Node = started(machine(nodes), whole(policy, nodes * 32), share).node
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
    files = after.files
    assert decision.admitted
    assert files.cpu is not None
    assert files.memory is not None
    folder.write_both(files.cpu, files.memory)
    return after


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_decision_with_both_state_files(
    benchmark: BenchmarkFixture, nodes: int, share: float, folder: StateFolder
) -> None:
    kubelet = started(machine(nodes), whole("best-effort", nodes * 32), share)
    benchmark(admit_and_write, kubelet, pod("asked"), folder)


def test_decision_with_two_hugepage_sizes_and_two_device_resources_on_8_nodes(benchmark: BenchmarkFixture) -> None:
    node = rich_node()
    asked = rich_pod("asked")
    _, decision = benchmark(node.admit, asked)
    assert decision.admitted


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
    files = kubelet.files
    folder.write_both(files.cpu or "", files.memory or "")
