"""Placement by release: vectors of what v1.38.0-beta.0 changes (spec: preview.md sections 1 to 6)."""

from __future__ import annotations

import pytest
from tests.cpumanager.machines import laid_out, mask, modulo, runs, same, text
from tests.releases.flipped import machines

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Endless
from mooring.engine.core.machine import Machine
from mooring.engine.core.topology import Topology, discover_topology
from mooring.engine.cpumanager.options import CPUOptions, TakeError
from mooring.engine.cpumanager.take import take
from mooring.engine.node.decision import score
from mooring.engine.releases.catalog import RELEASES

SPREAD, DISTRIBUTE, UNCORE = (
    "distribute-cpus-across-cores",
    "distribute-cpus-across-numa",
    "prefer-align-cpus-by-uncorecache",
)
FAR = laid_out(16, core=modulo(8), counts=(16, 8, 1, 1, 1))
NEAR = laid_out(16, core=runs(2), counts=(16, 8, 1, 1, 1))
HYBRID = laid_out(12, core=lambda cpu: cpu // 2 if cpu < 8 else cpu - 4, counts=(12, 8, 1, 1, 1))
UNEVEN_SOCKETS = laid_out(
    24,
    core=same,
    socket=lambda cpu: int(cpu >= 8),
    numa=lambda cpu: cpu // 4 if cpu < 8 else 2 + (cpu - 8) // 8,
    counts=(24, 24, 2, 4, 1),
)
UNEVEN_CACHES = laid_out(8, core=same, uncore=lambda cpu: int(cpu >= 2), counts=(8, 8, 1, 1, 2))
TWO_NODES = laid_out(16, core=same, socket=runs(8), numa=runs(8), counts=(16, 16, 2, 2, 2))
EIGHT_NODES = laid_out(32, core=same, socket=runs(16), numa=runs(4), counts=(32, 32, 2, 8, 8))


def taken(
    release: str, topology: Topology, available: str, need: int, option: str = "", width: int = 0, fixed: str = ""
) -> object:
    rules = CPUOptions(frozenset({option})).take_rules(frozenset({fixed}), RELEASES[release].rules)
    return text(take(topology, mask(available), need, rules, width=width))


@pytest.mark.parametrize(
    ("topology", "available", "need", "option", "width", "older", "newer"),
    [
        (FAR, "1-15", 2, SPREAD, 0, "1-2", "1,8"),
        (FAR, "0-15", 4, SPREAD, 0, "0-3", "0-3"),
        (NEAR, "0-15", 2, SPREAD, 0, "0-1", "0,2"),
        (NEAR, "1-15", 4, SPREAD, 0, "1-4", "1-2,4,6"),
        (NEAR, "2-15", 9, SPREAD, 0, "2-10", "2-6,8,10,12,14"),
        (HYBRID, "1-11", 2, "", 0, "0-1", "8-9"),
        (HYBRID, "1-11", 4, "", 0, "0-1,8-9", "8-11"),
        (UNEVEN_SOCKETS, "0-7,12-23", 16, "", 0, "8-23", "0-7,16-23"),
        (UNEVEN_CACHES, "0-7", 3, UNCORE, 0, "2-4", "0-2"),
        (UNEVEN_CACHES, "0-7", 5, UNCORE, 0, "0-4", "0-4"),
        (UNEVEN_CACHES, "0-7", 2, UNCORE, 0, "0-1", "0-1"),
        (TWO_NODES, "1-15", 4, DISTRIBUTE, 1, "8-11", "8-11"),
        (TWO_NODES, "1-15", 4, DISTRIBUTE, 2, "8-11", "1-2,8-9"),
        (TWO_NODES, "1-15", 4, DISTRIBUTE, 3, "8-11", "8-11"),
        (TWO_NODES, "1-15", 3, DISTRIBUTE, 2, "8-10", "1,8-9"),
        (TWO_NODES, "1-15", 1, DISTRIBUTE, 2, "8", "8"),
        (TWO_NODES, "1-7", 4, DISTRIBUTE, 2, "1-4", "1-4"),
        (EIGHT_NODES, "2-31", 16, DISTRIBUTE, 0, "4-15,28-31", "4-19"),
        (EIGHT_NODES, "0-31", 14, DISTRIBUTE, 0, "0-10,28-30", "0-10,12-14"),
    ],
)
def test_releases_choose_other_cpus(
    topology: Topology, available: str, need: int, option: str, width: int, older: str, newer: str
) -> None:
    assert taken("1.37", topology, available, need, option, width) == older
    assert taken("1.38", topology, available, need, option, width) == newer


def test_a_cache_that_two_nodes_share_is_counted_twice_up_to_1_37() -> None:
    topology = discover_topology(machines()["n38-cross-2s4n48"])
    available = text(CPUMask(topology.all_cpus & ~mask("2,14,33,45")))
    assert isinstance(available, str)
    assert taken("1.37", topology, available, 18, UNCORE) == "0,4-7,24,28-31"
    whole = taken("1.38", topology, available, 18, UNCORE)
    assert isinstance(whole, str)
    assert mask(whole).bit_count() == 18
    assert mask(str(taken("1.37", topology, available, 18, UNCORE, fixed="shared-uncore"))).bit_count() == 18


@pytest.mark.parametrize(
    ("release", "machine", "option", "warned"),
    [
        ("1.37", "n38-cross-2s4n48", UNCORE, True),
        ("1.38", "n38-cross-2s4n48", UNCORE, False),
        ("1.37", "square-4n32", UNCORE, False),
        ("1.37", "n38-cross-2s4n48", DISTRIBUTE, False),
    ],
)
def test_a_plan_and_the_doctor_warn_of_caches_that_are_counted_twice(
    release: str, machine: str, option: str, warned: bool
) -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={option: "true"},
        reserved_system_cpus="0",
    )
    asked = Question(Machine(machine, machines()[machine]), config, mooring=MooringConfig(release=RELEASES[release]))
    for findings in (make_plan(asked).findings, diagnose(asked).findings):
        found = [one.subject for one in findings if one.code == "MOOR-520"]
        assert found == (["each of the uncore caches 1, 4"] if warned else [])


def test_a_claim_that_makes_no_progress_never_ends_in_1_37_alone() -> None:
    """Rule claim-loop: reached through saved-combo only, which no recording does (spec: cpu-manager.md section 8.3)."""
    topology = laid_out(45, core=same, socket=lambda cpu: min(cpu // 10, 3), numa=runs(5), counts=(45, 45, 4, 9, 1))
    available = CPUMask(topology.all_cpus & ~sum(1 << 5 * node + 4 for node in range(4, 9)))
    error = TakeError("accounting error, not enough CPUs allocated, remaining: 5")
    expected = {"1.36": error, "1.37": Endless("claim-loop")}
    for release, answer in expected.items():
        rules = CPUOptions(frozenset({DISTRIBUTE})).take_rules(frozenset(), RELEASES[release].rules)
        assert take(topology, available, 20, rules) == answer
    even = CPUOptions(frozenset({DISTRIBUTE})).take_rules(frozenset(), RELEASES["1.38"].rules)
    assert take(topology, available, 20, even) == mask("0-19")


@pytest.mark.parametrize(("allocatable", "assigned", "expected"), [(1536, 1024, 66), (2, 1, 50), (8, 12, 150)])
def test_a_score_is_the_share_that_is_given_away(allocatable: int, assigned: int, expected: int) -> None:
    assert score(allocatable, assigned) == expected
