"""What a command costs from its start to its end, held to a limit.

CPU time is compared with that of a Python that does nothing, measured in the same run, because machines differ. On a
quiet machine where that Python takes 8 ms the limits are 60 ms and 250 ms.
"""

from __future__ import annotations

import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from startup import EXAMPLES, command

PLAN = ("plan", "-f", f"{EXAMPLES}/pods.yaml", "--machine", "epyc-7763-2s-nps4", "--config", f"{EXAMPLES}/kubelet.yaml")


@pytest.mark.parametrize(("words", "limit"), [(("--version",), 60 / 8), (PLAN, 250 / 8)], ids=["version", "plan"])
def test_a_command_starts_fast(benchmark: BenchmarkFixture, words: tuple[str, ...], limit: float) -> None:
    ours = [sys.executable, "-m", "mooring", *words]
    measured = [(command([sys.executable, "-c", "pass"])[0], command(ours)[0]) for _ in range(3)]
    benchmark(command, ours, 1)
    assert min(cpu for _, cpu in measured) / min(nothing for nothing, _ in measured) < limit
