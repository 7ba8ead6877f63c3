"""The nearest changes for a rejected pod on 256 CPUs, 8 NUMA nodes and 100 pods; the aim is below 2 seconds.

All families are searched where few changes help: a limit that is never reached is the longest search.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import config, machine, pod

from mooring.answers.base.changes.nearest import nearest_changes
from mooring.answers.base.plan import Question
from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.machine import Machine

PODS = 100


def question(policy: str, cpus: int, memory: str, place: int = PODS, share: str = "4Gi") -> Question:
    """Return 100 pods of 2 CPUs, and one more that asks for more than there is."""
    kubelet = replace(
        config(policy, 256),
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
        eviction_hard={"memory.available": "100Mi"},
    )
    pods = [pod(f"pod-{number}", 2, share) for number in range(PODS)]
    pods.insert(place, pod("asked", cpus, memory))
    return Question(Machine("eight nodes", machine(8)), kubelet, pods=tuple(pods))


CASES = {
    "wider-than-a-node": question("single-numa-node", 40, "8Gi"),
    "wider-than-a-node-with-50-after-it": question("single-numa-node", 40, "8Gi", 50),
    "more-cpus-than-are-free": question("best-effort", 120, "8Gi"),
    "more-memory-than-a-node": question("single-numa-node", 2, "100Gi"),
    "memory-full": question("restricted", 2, "50Gi", PODS, "5Gi"),
}


@pytest.mark.parametrize("limit", [3, 100], ids=["three", "all"])
@pytest.mark.parametrize("case", CASES)
def test_nearest_changes_among_100_pods_on_8_nodes(benchmark: BenchmarkFixture, case: str, limit: int) -> None:
    assert benchmark(nearest_changes, CASES[case], "asked", limit)
