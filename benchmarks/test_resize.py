"""One resize of a pinned container on a full node: 256 CPUs, 8 NUMA nodes, 100 pods, CPU and memory managed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import machine, pod, whole

from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, MooringConfig
from mooring.engine.core.pod import Pod
from mooring.engine.node import Node
from mooring.engine.node.resizing import resize

GATES = {
    "CPUManagerPolicyAlphaOptions": True,
    "InPlacePodVerticalScalingExclusiveCPUs": True,
    "InPlacePodVerticalScalingExclusiveMemory": True,
}
EXTENDED = MooringConfig(extensions=frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY}))
OPTIONS = ["", "full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache", "align-by-socket"]


def full_node(option: str) -> Node:
    """Return a node with 100 pods of two CPUs; one of them has grown to eight."""
    options = {"scale-delay-time": "5s", **({option: "true"} if option else {})}
    config = replace(whole("best-effort", 256), feature_gates=GATES, cpu_manager_policy_options=options)
    node = Node.fresh(machine(8), config, EXTENDED)
    for number in range(100):
        node, decision = node.admit(pod(f"pod-{number}", 2, "2Gi"))
        assert decision.admitted
    node, answer = resize(node, pod("pod-50", 8, "2Gi"))
    assert answer.accepted
    return node


ASKED = {
    "grow": pod("pod-20", 8, "2Gi"),
    "shrink-with-delay": pod("pod-50", 4, "2Gi"),
    "grow-cpus-and-memory": pod("pod-20", 8, "3Gi"),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option or "no-option")
def test_one_resize_among_a_hundred_pods(benchmark: BenchmarkFixture, option: str, asked: Pod) -> None:
    _, answer = benchmark(resize, full_node(option), asked)
    assert answer.accepted
