"""Placements of the kubelet's own tests (spec: vectors.md sections 1 to 4), and rules that few machines show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cpumanager.machines import fixture, laid_out, mask, text

from mooring.engine.core.decision import Endless
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.take import take

VECTORS = [
    json.loads(line)
    for line in Path(__file__).with_name("placement_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
TWO = TakeRules(distribute=True, whole_cores=True)


@pytest.mark.parametrize("vector", VECTORS, ids=repr)
def test_placements_are_those_of_the_kubelets_tests(vector: dict[str, Any]) -> None:
    rules = TakeRules.of(vector["options"], frozenset())
    cpus = take(fixture(vector["machine"]), mask(vector["available"]), vector["need"], rules)
    assert text(cpus) == vector["cpus"]


def test_the_published_endless_loop_is_reported_and_its_fix_places_whole_cores() -> None:
    available = mask("0-4,10-14,20-24,30-34")
    assert take(fixture("2S4N80"), available, 14, TWO) == Endless("group-loop")
    fixed = TakeRules(distribute=True, whole_cores=True, fixed_defects=frozenset({"group-loop"}))
    assert text(take(fixture("2S4N80"), available, 14, fixed)) == "0-3,10-13,20-23,30-31"


PLAIN = TakeRules()
FIXED = TakeRules(fixed_defects=frozenset({"average-sizes", "odd-uncore"}))


def taken(topology: Topology, available: str, need: int, rules: TakeRules = PLAIN, *, uncore: bool = True) -> object:
    return text(take(topology, mask(available), need, replace(rules, uncore=uncore)))


def test_the_average_uncore_decides_when_whole_ones_are_taken() -> None:
    """Uncores of two and six CPUs, four on average: three CPUs are taken from one uncore, no whole one of two."""
    topology = laid_out(8, core=lambda cpu: cpu, uncore=lambda cpu: int(cpu >= 2), counts=(8, 8, 1, 1, 2))
    assert taken(topology, "0-7", 3) == "2-4"
    assert taken(topology, "0-7", 4) == "0-3"


def test_with_no_other_uncore_the_hidden_room_makes_the_container_cross_uncores() -> None:
    """Uncore 4-7,12-15 without CPU 4 has six CPUs on whole cores; nobody sees them, and core (3, 11) comes first."""
    topology = fixture("US")
    assert taken(topology, "3,5-7,11-15", 6) == "3,5-6,11,13-14"
    assert taken(topology, "3,5-7,11-15", 6, FIXED) == "5-7,13-15"


def test_a_machine_without_cores_crashes_the_uncore_step() -> None:
    topology = replace(fixture("U1"), cpus_per_core=0)
    with pytest.raises(KubeletCrashError, match="divides by zero"):
        take(topology, mask("0-3"), 1, replace(PLAIN, uncore=True))


# Averages of cores and sockets.
