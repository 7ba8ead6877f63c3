"""CPU hints, admission and distribution (docs/explanation/performance.md, tables 2 to 4)."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import config, filled, machine, pod

from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.config import MooringConfig
from mooring.engine.cpumanager.hints import generate_hints
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.take import take
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node import Node

SHAPES = [(2, 32), (4, 32), (8, 32), (8, 128)]


def node_of(nodes: int, cpus: int, policy: str, share: float) -> Node:
    total = nodes * cpus
    return filled(Node.fresh(machine(nodes, cpus), config(policy, total)), share)


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
def test_cpu_hints_256_cpus_8_nodes(benchmark: BenchmarkFixture, share: float) -> None:
    node = node_of(8, 32, "best-effort", share)
    policy = node.settings.cpu
    assert policy is not None
    available = node.cpu.default & ~policy.reserved
    hints = benchmark(generate_hints, policy.topology, available, 0, 4, align_by_socket=False)
    assert len(hints) == (192 if share else 255)


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize(("nodes", "cpus"), SHAPES)
@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
def test_admission_decision(benchmark: BenchmarkFixture, policy: str, nodes: int, cpus: int, share: float) -> None:
    node = node_of(nodes, cpus, policy, share)
    asked = pod("asked")
    _, decision = benchmark(node.admit, asked)
    assert decision.admitted


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize(("nodes", "cpus"), SHAPES)
def test_admission_with_text_of_the_state_file(
    benchmark: BenchmarkFixture, nodes: int, cpus: int, share: float
) -> None:
    kubelet = start_kubelet(machine(nodes, cpus), config("best-effort", nodes * cpus), MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    for number in range(int(nodes * cpus * share) // 4):
        kubelet, _ = kubelet.admit(pod(f"filler-{number}"))
    after, decision = benchmark(kubelet.admit, pod("asked"))
    assert decision.admitted
    assert after.files.cpu != kubelet.files.cpu


def test_text_of_the_state_file_alone_256_cpus_60_pods(benchmark: BenchmarkFixture) -> None:
    node = node_of(8, 32, "best-effort", 0.94)
    assert benchmark(cpu_state_text, node.cpu, pod_level=False, baselines=False)


DISTRIBUTED = [
    *[(8, False, count) for count in (28, 100, 131, 200, 240)],
    *[(8, True, count) for count in (28, 100, 132, 200, 240)],
    *[(12, False, count) for count in (131, 200, 301)],
    *[(16, False, count) for count in (131, 200, 301)],
]


@pytest.mark.parametrize(("nodes", "whole", "count"), DISTRIBUTED)
def test_distribute(benchmark: BenchmarkFixture, nodes: int, whole: bool, count: int) -> None:
    node = Node.fresh(machine(nodes), config("none", nodes * 32))
    policy = node.settings.cpu
    assert policy is not None
    available = node.cpu.default & ~policy.reserved
    taken = benchmark(take, policy.topology, available, count, TakeRules(distribute=True, whole_cores=whole))
    assert isinstance(taken, int)
    assert taken.bit_count() == count
