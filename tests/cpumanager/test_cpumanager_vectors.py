"""Placements of the kubelet's own tests (spec: vectors.md sections 1 to 4), and rules that few machines show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cpumanager.machines import fixture, laid_out, mask, text, true_counts

from mooring.engine.core.decision import Endless
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.topology import CPUPlace, Topology, build_topology
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


def test_every_free_uncore_is_offered_and_not_only_the_one_at_hand() -> None:
    assert taken(fixture("U1"), "1-15", 9) == "1,4-11"


def test_a_partly_used_uncore_serves_first_and_a_free_one_stays_whole() -> None:
    assert taken(fixture("U1"), "1-15", 3) == "1-3"
    assert taken(fixture("U1"), "2-15", 3) == "4-6"


def test_a_half_used_core_at_the_low_end_hides_the_room_of_an_uncore() -> None:
    """Uncore 0-3,8-11 without CPU 0: its first two cores have three CPUs, not four; the next uncore serves."""
    topology = fixture("US")
    assert taken(topology, "1-7,8-15", 4) == "4-5,12-13"
    assert taken(topology, "1-7,8-15", 4, FIXED) == "1-2,9-10"


def test_with_no_other_uncore_the_hidden_room_makes_the_container_cross_uncores() -> None:
    """Uncore 4-7,12-15 without CPU 4 has six CPUs on whole cores; nobody sees them, and core (3, 11) comes first."""
    topology = fixture("US")
    assert taken(topology, "3,5-7,11-15", 6) == "3,5-6,11,13-14"
    assert taken(topology, "3,5-7,11-15", 6, FIXED) == "5-7,13-15"


def test_an_odd_request_leaves_the_highest_thread() -> None:
    assert taken(fixture("US"), "0-15", 3) == "0-1,8"


def test_an_odd_request_leaves_nothing_where_cores_have_one_thread() -> None:
    assert taken(fixture("U1"), "0-15", 3) == "0-2"


def test_the_uncore_of_a_core_counts_and_not_the_whole_machine() -> None:
    topology = fixture("SNC240")
    assert taken(topology, "0-239", 120) == "0-59,120-179"


def test_a_machine_without_cores_crashes_the_uncore_step() -> None:
    topology = replace(fixture("U1"), cpus_per_core=0)
    with pytest.raises(KubeletCrashError, match="divides by zero"):
        take(topology, mask("0-3"), 1, replace(PLAIN, uncore=True))


# Averages of cores and sockets.


def hybrid() -> Topology:
    """Eight cores of two threads, eight of one: 24 CPUs, 16 cores, one CPU a core on average."""
    places = {cpu: CPUPlace(0, 0, cpu // 2 * 2 if cpu < 16 else cpu, 0) for cpu in range(24)}
    return build_topology(places, **true_counts(places))


def test_a_free_core_of_two_threads_is_not_free_where_the_average_is_one() -> None:
    """CPU 0 is in use: core (0, 1) has the average number of CPUs left and is claimed whole, the used one with it."""
    topology = hybrid()
    used = "1-23"
    assert taken(topology, used, 2, uncore=False) == "0-1"
    assert taken(topology, used, 2, FIXED, uncore=False) == "16-17"


def test_the_recorded_hybrid_story_gives_a_cpu_to_two_owners() -> None:
    """Reserved 0,1 and requests 6, 4, 7, 5: CPU 13 ends up with two owners (spec: README.md section 5)."""
    topology = fixture("PE24")
    available = mask("2-23")
    given = []
    for need in (6, 4, 7, 5):
        cpus = take(topology, available, need, PLAIN)
        assert isinstance(cpus, int)
        given.append(text(cpus))
        available &= ~cpus
    assert given == ["2-7", "8-9,16-17", "10-13,18-20", "13-15,21-22"]
    available = mask("2-23")
    for need in (6, 4, 7, 5):
        cpus = take(topology, available, need, FIXED)
        assert isinstance(cpus, int)
        assert cpus & ~available == 0
        available &= ~cpus
    assert available == 0


def test_sockets_are_free_by_average_too() -> None:
    """Sockets of six and two CPUs, four on average: none is ever entirely free by that measure."""
    topology = laid_out(
        8, core=lambda cpu: cpu, socket=lambda cpu: int(cpu >= 6), numa=lambda cpu: cpu // 2, counts=(8, 8, 2, 4, 1)
    )
    assert not topology.numa_first
    assert taken(topology, "2-7", 6, uncore=False) == "0-5"
    assert taken(topology, "2-7", 6, FIXED, uncore=False) == "2-7"


def test_a_declared_zero_of_nodes_lets_nodes_come_first() -> None:
    """NUMA nodes come first when sockets are at least as many as nodes, the undeclared ones counting as none."""
    equal = fixture("S384")
    assert equal.num_sockets == equal.num_numa_nodes
    assert equal.numa_first
    assert fixture("2S12").numa_first
    assert not fixture("2S4N80").numa_first


def test_equally_many_sockets_and_nodes_take_nodes_first() -> None:
    """Nodes 0-1 and 2-7, sockets 0-3 and 4-7: six CPUs are a node of two and a socket of four."""
    topology = laid_out(
        8, core=lambda cpu: cpu, socket=lambda cpu: cpu // 4, numa=lambda cpu: int(cpu >= 2), counts=(8, 8, 2, 2, 1)
    )
    assert taken(topology, "0-7", 6, uncore=False) == "0-1,4-7"
    assert taken(replace(topology, num_sockets=1), "0-7", 6, uncore=False) == "0-5"
