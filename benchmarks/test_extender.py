"""The scheduler extender: one pod over many nodes, and what it needs to know them.

The memory figure is that of ``python benchmarks/extender_memory.py``, the 99th percentiles those of
``python benchmarks/extender_latency.py``.
"""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from extender_cluster import cluster
from pytest_benchmark.fixture import BenchmarkFixture

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.wire import Arguments, decoded

NUMBERS = count(1)


def asked(nodes: int, cpus: int) -> bytes:
    amounts = {"cpu": str(cpus), "memory": f"{next(NUMBERS)}Mi"}
    pod = {
        "metadata": {"name": "asked", "namespace": "default", "uid": "asked"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"qosClass": "Guaranteed"},
    }
    return msgspec.json.encode({"Pod": pod, "NodeNames": [f"node-{number}" for number in range(nodes)]})


def filter_and_prioritize(answers: Answers, body: bytes) -> bytes:
    found = answers.filtered(decoded(body, Arguments))
    msgspec.json.encode(found)
    question = msgspec.json.decode(body)
    question["NodeNames"] = found.NodeNames
    return msgspec.json.encode(answers.prioritized(decoded(msgspec.json.encode(question), Arguments)))


@pytest.mark.parametrize("is_new", [True, False], ids=["new-shape", "known-shape"])
@pytest.mark.parametrize(
    ("nodes", "states"),
    [(100, 50), (1000, 50), (5000, 50), (10_000, 50)],
    ids=["100-of-50", "1000-of-50", "5000-of-50", "10000-of-50"],
)
def test_one_pod_over_many_nodes(benchmark: BenchmarkFixture, nodes: int, states: int, is_new: bool) -> None:
    answers = cluster(nodes, states)
    known = asked(nodes, 4)

    def setup() -> tuple[tuple[Answers, bytes], dict[str, object]]:
        return (answers, asked(nodes, 4) if is_new else known), {}

    scores = benchmark.pedantic(filter_and_prioritize, setup=setup, rounds=30)  # type: ignore[no-untyped-call]
    assert len(msgspec.json.decode(scores)) > nodes // 2
