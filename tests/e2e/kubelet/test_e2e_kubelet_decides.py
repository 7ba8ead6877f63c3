"""A real kubelet on machines that it takes for real decides as ``mooring plan`` says: ``make e2e-kubelet``."""

from __future__ import annotations

import pytest
from tests.e2e.kubelet.cases import cases
from tests.e2e.kubelet.decided import Decided

pytestmark = pytest.mark.parametrize("decided", cases(), ids=lambda case: case.name, indirect=True)


def test_the_runtime_is_told_the_cpus_and_memory_nodes_of_the_plan(decided: Decided) -> None:
    assert decided.placements == decided.plan.placements


def test_the_same_pods_are_refused_with_the_words_of_the_plan(decided: Decided) -> None:
    assert decided.refused == frozenset(decided.plan.refused)
    assert decided.refused
    for reason, message in decided.plan.refused.values():
        assert f'reason="{reason}"' in decided.log
        assert message in decided.log


def test_the_state_files_are_those_of_the_plan(decided: Decided) -> None:
    assert decided.cpu_state == decided.plan.cpu_state
    assert decided.memory_state == decided.plan.memory_state
