"""Placements of the kubelet's own tests (spec: vectors.md sections 1 to 4)."""

from __future__ import annotations

import pytest
from tests.cpumanager.machines import FIXTURES, fixture, mask, text
from tests.cpumanager.pods import container, guaranteed, static_policy

from mooring.engine.core.decision import Endless
from mooring.engine.cpumanager.options import TakeError, TakeRules
from mooring.engine.cpumanager.policy import AllocationError
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import Allocated, allocate
from mooring.engine.cpumanager.take import take

# fixture: declared cpus, cores, sockets, nodes, uncores; CPUs per core on average; whether NUMA nodes come first.
DECLARED = {
    "1S8": (8, 4, 1, 0, 0, 2, True),
    "2S12": (12, 6, 2, 0, 1, 2, True),
    "2S8": (8, 8, 2, 0, 0, 1, True),
    "3S18": (18, 9, 3, 0, 0, 2, True),
    "2S4N80": (80, 40, 2, 4, 0, 2, False),
    "2S4N80b": (80, 40, 2, 4, 0, 2, False),
    "2S8N256": (256, 128, 2, 8, 0, 2, False),
    "U1": (16, 16, 1, 0, 4, 1, True),
    "U2": (16, 16, 2, 0, 4, 1, True),
    "UM": (16, 16, 1, 0, 4, 1, True),
    "US": (16, 8, 1, 0, 2, 2, True),
    "S384": (384, 192, 2, 2, 24, 2, True),
    "S128": (128, 64, 1, 1, 16, 2, True),
    "N128": (128, 64, 1, 1, 16, 2, True),
    "N64": (64, 64, 2, 2, 8, 1, True),
    "N32": (32, 32, 1, 1, 4, 1, True),
    "S256": (256, 128, 1, 1, 16, 2, True),
    "M192": (192, 192, 2, 4, 24, 1, False),
    "SNC240": (240, 120, 2, 4, 2, 2, False),
    "PE24": (24, 16, 1, 1, 1, 1, True),
    "L128": (128, 128, 1, 1, 16, 1, True),
    "L64": (64, 64, 1, 1, 1, 1, True),
}


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_declare_what_the_kubelets_do(name: str) -> None:
    topology = fixture(name)
    assert DECLARED[name] == (
        topology.num_cpus,
        topology.num_cores,
        topology.num_sockets,
        topology.num_numa_nodes,
        topology.num_uncores,
        topology.cpus_per_core,
        topology.numa_first,
    )


@pytest.mark.parametrize(
    ("name", "level", "element", "cpus"),
    [
        ("2S12", "numa", 1, "1,3,5,7,9,11"),
        ("3S18", "sockets", 1, "0-5"),
        ("3S18", "cores", 4, "4-5"),
        ("2S4N80", "numa", 2, "20-29,60-69"),
        ("2S4N80", "sockets", 1, "20-39,60-79"),
        ("2S4N80b", "numa", 1, "1,5,9,13,17,21,25,29,33,37,41,45,49,53,57,61,65,69,73,77"),
        ("2S8N256", "numa", 7, "112-127,240-255"),
        ("2S8N256", "sockets", 0, "0-63,128-191"),
        ("US", "uncores", 1, "4-7,12-15"),
        ("UM", "numa", 1, "8-15"),
        ("S384", "numa", 0, "0-95,192-287"),
        ("S384", "uncores", 23, "184-191,376-383"),
        ("M192", "cores", 1, "1,97"),
        ("M192", "numa", 3, "144-191"),
        ("SNC240", "numa", 3, "90-119,210-239"),
        ("SNC240", "uncores", 1, "60-119,180-239"),
        ("PE24", "cores", 7, "7"),
        ("PE24", "cores", 8, "8,16"),
        ("PE24", "cores", 15, "15,23"),
    ],
)
def test_fixtures_are_laid_out_as_the_kubelets_are(name: str, level: str, element: int, cpus: str) -> None:
    assert text(getattr(fixture(name), level)[element]) == cpus


SPREAD = TakeRules(spread=True)
UNCORE = TakeRules(uncore=True)
ALL = "2,4,6,8,10"

PACKED = [
    ("1S8", "0-7", 1, TakeRules(), "0"),
    ("1S8", "0-7", 2, TakeRules(), "0,4"),
    ("1S8", "0-7", 8, TakeRules(), "0-7"),
    ("1S8", "1,3,5-7", 1, TakeRules(), "6"),
    ("1S8", "0-3,6", 2, TakeRules(), "2,6"),
    ("2S12", "0-11", 6, TakeRules(), f"0,{ALL}"),
    ("2S12", "0-11", 8, TakeRules(), "0-2,4,6-8,10"),
    ("2S12", "1-5,7-11", 1, TakeRules(), "2"),
    ("2S4N80", "0-79", 20, TakeRules(), "0-9,40-49"),
    ("2S4N80", "0-79", 40, TakeRules(), "0-19,40-59"),
    ("2S4N80", "0-79", 60, TakeRules(), "0-29,40-69"),
    ("2S4N80", "0-79", 64, TakeRules(), "0-31,40-71"),
    ("2S4N80", "10-39,50-79", 20, TakeRules(), "10-19,50-59"),
    ("2S4N80", "1-39,41-79", 60, TakeRules(), "10-39,50-79"),
    ("U1", "1-15", 10, UNCORE, "1-2,4-11"),
    ("2S12", "1-5,7-11", 1, UNCORE, "1"),
    ("U2", "0-15", 4, UNCORE, "0-3"),
    ("U2", "2-15", 6, UNCORE, "2-7"),
    ("U2", "8-15", 4, UNCORE, "8-11"),
    ("UM", "3-8,12", 2, UNCORE, "4-5"),
    ("US", "2-7,10-15", 6, UNCORE, "4-6,12-14"),
    ("US", "1-7,9-15", 10, UNCORE, "1,4-7,9,12-15"),
    ("1S8", "0-7", 3, SPREAD, "0-2"),
    ("2S12", "0-11", 2, SPREAD, "0,2"),
    ("2S12", "0-11", 3, SPREAD, "0,2,4"),
    ("2S12", "0-11", 6, SPREAD, f"0,{ALL}"),
    ("2S12", "0-11", 8, SPREAD, "0-4,6,8,10"),
    ("2S4N80", "0-79", 8, SPREAD, "0-7"),
]


@pytest.mark.parametrize(("name", "available", "need", "rules", "expected"), PACKED)
def test_packed_spread_and_uncore_placements(
    name: str, available: str, need: int, rules: TakeRules, expected: str
) -> None:
    assert text(take(fixture(name), mask(available), need, rules)) == expected


def test_more_than_there_is_is_refused() -> None:
    message = "not enough cpus available to satisfy request: requested=5, available=4"
    assert take(fixture("1S8"), mask("0,2,4,6"), 5, TakeRules()) == TakeError(message)


@pytest.mark.skip(reason="vectors.md does not give the table of CPU ids of the fixture 4S288")
def test_spread_on_four_threads_a_core() -> None:
    raise AssertionError


ONE = TakeRules(distribute=True)
TWO = TakeRules(distribute=True, whole_cores=True)
ALIGNED = TakeRules(distribute=True, align_by_socket=True)
LARGE = "0,128,30,31,158,159,43-47,171-175,62,63,190,191,75-79,203-207,94,96,222,223,101-111,229-239,126,127,254,255"
QUARTERS = "0-8,10-18,20-39,40-48,50-58,60-79"

DISTRIBUTED = [
    ("2S12", "0-11", 8, ONE, "0-3,6-9"),
    ("2S12", "1-5,7-11", 1, ONE, "1"),
    ("2S12", "1-5,7-11", 1, TWO, "2"),
    ("2S4N80", "0-79", 64, ONE, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
    ("2S4N80", "0-79", 48, ONE, "0-7,10-17,20-27,40-47,50-57,60-67"),
    ("2S4N80", "1-29,32-39,41-69,72-79", 48, ONE, "1-8,10-17,20-27,41-48,50-57,60-67"),
    ("2S4N80", "2-29,31-39,42-69,71-79", 48, ONE, "10-17,20-27,31-38,50-57,60-67,71-78"),
    (
        "2S4N80",
        "0-2,10-12,20-22,30-32,40,41,50,51,60,61,70,71",
        16,
        ONE,
        "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71",
    ),
    ("2S4N80", "0-79", 26, ONE, "0-6,10-16,40-45,50-55"),
    ("2S4N80", "0-79", 26, TWO, "0-6,10-15,40-46,50-55"),
    ("2S4N80", "0-79", 62, ONE, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"),
    ("2S4N80", "0-79", 62, TWO, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
    ("2S4N80", QUARTERS, 62, ONE, "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77"),
    ("2S4N80", QUARTERS, 62, TWO, "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77"),
    (
        "2S4N80",
        "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
        34,
        ONE,
        "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74",
    ),
    ("2S8N256", LARGE, 28, ONE, "43-47,75-79,96,101-105,171-174,203-206,229-232"),
    ("2S4N80b", "1-15", 6, ALIGNED, "1,3,5,7,9,11"),
    ("2S4N80b", "1-9,12,13,16,17", 6, ALIGNED, "1,3,5,7,9,13"),
    ("2S4N80b", "1-9,12,13,16,17", 6, ONE, "1,4-5,8-9,12"),
    ("2S4N80b", "1-5,8,9,12,13", 6, ALIGNED, "1,4-5,8-9,12"),
]


@pytest.mark.parametrize(("name", "available", "need", "rules", "expected"), DISTRIBUTED)
def test_distributed_placements(name: str, available: str, need: int, rules: TakeRules, expected: str) -> None:
    assert text(take(fixture(name), mask(available), need, rules)) == expected


@pytest.mark.parametrize(
    ("name", "available", "need", "expected"),
    [
        (name, available, need, expected)
        for name, available, need, rules, expected in PACKED
        if rules == TakeRules()
        and (name, available, need) not in {("2S12", "1-5,7-11", 1), ("2S12", "0-11", 8), ("2S4N80", "0-79", 64)}
    ],
)
def test_small_requests_are_distributed_as_they_are_packed(name: str, available: str, need: int, expected: str) -> None:
    assert text(take(fixture(name), mask(available), need, ONE)) == expected


def test_saved_combo_does_not_touch_the_published_large_placement() -> None:
    fixed = TakeRules(distribute=True, fixed_defects=frozenset({"saved-combo"}))
    assert take(fixture("2S8N256"), mask(LARGE), 28, fixed) == take(fixture("2S8N256"), mask(LARGE), 28, ONE)


def test_the_published_endless_loop_is_reported_and_its_fix_places_whole_cores() -> None:
    available = mask("0-4,10-14,20-24,30-34")
    assert take(fixture("2S4N80"), available, 14, TWO) == Endless("group-loop")
    fixed = TakeRules(distribute=True, whole_cores=True, fixed_defects=frozenset({"group-loop"}))
    assert text(take(fixture("2S4N80"), available, 14, fixed)) == "0-3,10-13,20-23,30-31"


# Admission: fixture, rules, reserved, shared pool, request, CPUs.

STRICT_UNCORE = TakeRules(uncore=True, whole_cores=True)

ADMITTED = [
    ("S128", UNCORE, "0,1,64,65", "0-127", 3, "2-3,66"),
    ("S128", UNCORE, "0,1,64", "0-127", 3, "2,65-66"),
    ("S128", UNCORE, "0,1,64", "0-127", 4, "4-5,68-69"),
    ("S128", UNCORE, "0,1,64", "0-127", 11, "2,4-7,65-66,68-71"),
    ("SNC240", STRICT_UNCORE, "0,1,120,121", "0-239", 6, "2-4,122-124"),
    ("SNC240", UNCORE, "0,1,120", "0-127", 5, "2-3,121-123"),
    ("SNC240", UNCORE, "0,1,120", "0-127", 4, "2-3,122-123"),
    ("PE24", STRICT_UNCORE, "0,1", "0-3,8-23", 6, "2-3,8-9,16-17"),
]


@pytest.mark.parametrize(("name", "rules", "reserved", "default", "need", "expected"), ADMITTED)
def test_admitted_placements(
    name: str, rules: TakeRules, reserved: str, default: str, need: int, expected: str
) -> None:
    pod = guaranteed("u", container("c", str(need)))
    state = CPUState("static", mask(default), {})
    answer = allocate(
        static_policy(name, rules=rules, reserved=reserved), state, Reusable(), pod, pod.containers[0], None
    )
    assert isinstance(answer, Allocated)
    assert text(answer.state.assignments["u"]["c"]) == expected
    assert answer.state.default == mask(default) & ~mask(expected)


def test_an_existing_set_wins_over_the_check_of_whole_cores() -> None:
    pod = guaranteed("u", container("c", "6"))
    held = {"u": {"c": mask("2-4,8-10")}}
    state = CPUState("static", mask("0,1,5,6,7,11"), held)
    policy = static_policy("2S12", rules=TakeRules(whole_cores=True), reserved="0,1,6,7")
    answer = allocate(policy, state, Reusable(), pod, pod.containers[0], None)
    assert isinstance(answer, Allocated)
    assert answer.state is state


def test_whole_cores_beside_reserved_cpus_do_not_count() -> None:
    pod = guaranteed("u", container("c", "10"))
    policy = static_policy("2S12", rules=TakeRules(whole_cores=True), reserved="0,1,6,7")
    answer = allocate(policy, CPUState("static", mask("0-11"), {}), Reusable(), pod, pod.containers[0], None)
    assert answer == AllocationError(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 8, requested CPUs = 10, "
        "CPUs per core = 2",
        "SMTAlignmentError",
    )
