"""All legal sets of options for 100 pods on 128 CPUs (docs/explanation/performance.md)."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import config, machine, pod

from mooring.answers.base.trace import Trace
from mooring.answers.compare.answer import Comparison, compare
from mooring.answers.compare.variant import ALL_OPTIONS, Variant, changes_between, option_sets
from mooring.engine.core.machine import Machine
from mooring.engine.kubelet.events import Admit

SIZES = (1, 2, 1, 1, 4, 2)
"""CPUs of the pods in turn: more than the node has, so that some of every shape are refused."""


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_option_sets_of_100_pods_on_128_cpus(benchmark: BenchmarkFixture, jobs: int) -> None:
    node, base = Machine("8 nodes", machine(8, 16)), config("none", 128)
    trace = Trace(tuple(Admit(pod(f"pod-{number}", SIZES[number % 6], "1Gi")) for number in range(100)))
    given = Variant("base", node, base)
    made = ((one, changes_between(base, one)) for one in option_sets(base, ALL_OPTIONS, 8))
    variants = [given, *(Variant("base", node, one, changes=changes) for one, changes in made if changes)]

    def run() -> Comparison:
        return compare(trace, variants, jobs=jobs)

    found = benchmark(run)
    assert len(found.variants) == 392
