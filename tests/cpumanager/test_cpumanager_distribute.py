"""Distribution across NUMA nodes equals the plain form with Go's growing lists."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.cpumanager.machines import nested_topologies, subsets_of, text, topologies, true_counts
from tests.cpumanager.plain_distribution import NeverReturnsError, plain_distribute
from tests.cpumanager.plain_taking import TakingError

from mooring.engine.core.bits import CPUMask, mask_of, members
from mooring.engine.core.decision import AllocationError, Endless
from mooring.engine.core.topology import CPUPlace, Topology, build_topology
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.take import take_distributed

DEFECTS = ["saved-combo", "group-loop", "claim-loop", "average-sizes"]
RULES = st.builds(
    TakeRules,
    distribute=st.just(True),
    spread=st.booleans(),
    whole_cores=st.booleans(),
    align_by_socket=st.booleans(),
    fixed_defects=st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(DEFECTS))),
)


def expected(topology: Topology, available: int, need: int, rules: TakeRules) -> object:
    try:
        taken = plain_distribute(
            topology,
            set(members(available)),
            need,
            group=topology.num_cpus // topology.num_cores if rules.whole_cores else 1,
            spread=rules.spread,
            align=rules.align_by_socket,
            fixed=rules.fixed_defects,
        )
    except TakingError as error:
        return AllocationError(str(error))
    except NeverReturnsError as error:
        return Endless(str(error))
    return mask_of(taken)


def without_saved_combo(rules: TakeRules) -> TakeRules:
    return replace(rules, fixed_defects=rules.fixed_defects | {"saved-combo"})


def wide_case(seed: int) -> tuple[Topology, int, int, TakeRules]:
    """Return a machine of five to nine nodes on two uneven sockets, available CPUs, a request, and rules."""
    random = Random(seed)  # noqa: S311 - for examples
    nodes, threads, per_node = random.randint(5, 9), random.choice([1, 2]), random.randint(1, 4)
    first_socket = random.randint(1, nodes)
    cores = nodes * per_node
    topology = machine([threads * per_node] * nodes, first_socket, threads)
    style = random.randrange(3)
    less = [random.randint(0, 2), random.randint(0, 2)]
    available = 0
    for node, cpus in topology.numa.items():
        own = list(members(cpus))
        if style == 0:
            random.shuffle(own)
        else:
            own.sort(key=lambda cpu: (cpu % cores, cpu))
        count = random.randint(0, len(own)) if style < 2 else max(0, len(own) - less[node >= first_socket])
        available |= mask_of(own[:count])
    rules = TakeRules(
        distribute=True,
        spread=random.random() < 0.2,
        whole_cores=random.random() < 0.5,
        align_by_socket=random.random() < 0.3,
    )
    group = threads if rules.whole_cores else 1
    return topology, available, group * random.randint(1, max(1, available.bit_count() // group)), rules


def machine(sizes: list[int], first_socket: int, threads: int = 1) -> Topology:
    """Return nodes of the given numbers of CPUs, the first few on socket 0; threads of a core are far apart."""
    cores = sum(sizes) // threads
    places: dict[int, CPUPlace] = {}
    core = 0
    for node, size in enumerate(sizes):
        for _ in range(size // threads):
            for thread in range(threads):
                places[core + thread * cores] = CPUPlace(node, int(node >= first_socket), core, 0)
            core += 1
    return build_topology(dict(sorted(places.items())), **true_counts(places))


def first_cpus(topology: Topology, counts: list[int]) -> CPUMask:
    """Return the first CPUs of each node."""
    return CPUMask(
        mask_of(
            cpu
            for cpus, count in zip(topology.numa.values(), counts, strict=True)
            for cpu in list(members(cpus))[:count]
        )
    )


@settings(max_examples=300)
@given(st.data(), topologies(most_nodes=5), RULES)
def test_distribution_equals_the_plain_form(data: st.DataObject, topology: Topology, rules: TakeRules) -> None:
    available = data.draw(subsets_of(topology.all_cpus))
    # The specification does not say what becomes of a node that is listed under two sockets.
    assume(topology.numa_first or all(len(sockets) == 1 for sockets in topology.sockets_of_node.values()))
    need = data.draw(st.integers(-1, available.bit_count() + 1))
    taken = take_distributed(topology, available, need, rules)
    event(type(taken).__name__)
    assert text(taken) == text(expected(topology, available, need, rules))


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_distribution_over_many_nodes_equals_the_plain_form(start: int) -> None:
    seen: set[str] = set()
    for seed in range(start, start + 100):
        topology, available, need, rules = wide_case(seed)
        for fixed in (frozenset[str](), frozenset({"saved-combo", "group-loop"})):
            chosen = replace(rules, fixed_defects=fixed)
            taken = take_distributed(topology, CPUMask(available), need, chosen)
            assert (seed, text(taken)) == (seed, text(expected(topology, available, need, chosen)))
        seen.add("fixed" if taken != take_distributed(topology, CPUMask(available), need, rules) else "same")
    assert seen == {"fixed", "same"}


def long_case(seed: int) -> tuple[Topology, int, int]:
    """Return ten to twelve nodes of which most have three free CPUs and a few four, and a request for most of them."""
    random = Random(seed)  # noqa: S311 - for examples
    nodes = random.randint(10, 12)
    topology = machine([4] * nodes, nodes // 2)
    counts = [random.choice([3, 3, 3, 3, 4]) for _ in range(nodes)]
    return topology, first_cpus(topology, counts), sum(counts) - random.randint(0, 5)


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_distribution_over_ten_and_more_nodes_equals_the_plain_form(start: int) -> None:
    """Remembered subsets of ten and more nodes, which share storage in lists of sixteen places."""
    changed = 0
    for seed in range(start, start + 10):
        topology, available, need = long_case(seed)
        taken = take_distributed(topology, CPUMask(available), need, ONE_BY_ONE)
        assert (seed, text(taken)) == (seed, text(expected(topology, available, need, ONE_BY_ONE)))
        changed += taken != take_distributed(topology, CPUMask(available), need, without_saved_combo(ONE_BY_ONE))
    assert changed > 1


@settings(max_examples=150)
@given(st.data(), nested_topologies(most_cpus=24), RULES)
def test_with_all_defects_fixed_the_wanted_cpus_are_taken_from_those_available(
    data: st.DataObject, topology: Topology, rules: TakeRules
) -> None:
    fixed = replace(rules, fixed_defects=frozenset(DEFECTS))
    available = data.draw(subsets_of(topology.all_cpus))
    need = data.draw(st.integers(1, max(1, available.bit_count())))
    taken = take_distributed(topology, available, need, fixed)
    if need > available.bit_count():
        assert isinstance(taken, AllocationError)
        return
    assert isinstance(taken, int)
    assert (taken & ~available, taken.bit_count()) == (0, need)


# Rules that few machines show (spec: README.md section 5, "not separated").

ONE_BY_ONE = TakeRules(distribute=True)


def counts_taken(topology: Topology, available: int, need: int, rules: TakeRules) -> list[int] | object:
    taken = take_distributed(topology, CPUMask(available), need, rules)
    assert text(taken) == text(expected(topology, available, need, rules))
    return [(cpus & taken).bit_count() for cpus in topology.numa.values()] if isinstance(taken, int) else taken


def test_one_subset_is_still_visited_after_a_perfect_balance() -> None:
    """Four nodes with five CPUs give four each, and every node keeps one: perfect. The visit that sees this first
    writes its own last node over the fourth, which has only one CPU to give: nobody takes the rest."""
    topology = machine([5] * 24, 4)
    available = first_cpus(topology, [5] * 4 + [1] * 20)
    assert counts_taken(topology, available, 16, ONE_BY_ONE) == Endless("claim-loop")
    fixed = replace(ONE_BY_ONE, fixed_defects=frozenset({"saved-combo"}))
    assert counts_taken(topology, available, 16, fixed) == [4] * 4 + [0] * 20


def test_a_claim_that_loops_is_reported_and_fixed_it_is_the_error_of_1_36() -> None:
    topology = machine([5] * 9, 4)
    available = first_cpus(topology, [5] * 4 + [4] * 5)
    assert counts_taken(topology, available, 20, ONE_BY_ONE) == Endless("claim-loop")
    fixed = replace(ONE_BY_ONE, fixed_defects=frozenset({"claim-loop"}))
    message = "accounting error, not enough CPUs allocated, remaining: 4"
    assert counts_taken(topology, available, 20, fixed) == AllocationError(message)


def test_the_remainder_set_changes_as_the_combo_does() -> None:
    """Every node gives five, nodes 5, 0, 1, 2 the rest of five; remembered without a copy they become 5, 0, 1, 4."""
    topology = machine([8] * 6, 5)
    available = first_cpus(topology, [6] * 5 + [8])
    assert counts_taken(topology, available, 35, ONE_BY_ONE) == [6, 6, 5, 5, 6, 7]
    fixed = replace(ONE_BY_ONE, fixed_defects=frozenset({"saved-combo"}))
    assert counts_taken(topology, available, 35, fixed) == [6, 6, 6, 5, 5, 7]
