"""Hints equal the plain loop over all sets of nodes, listed or described."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpumanager.machines import fixture, mask, subsets_of, topologies, true_counts
from tests.cpumanager.plain_hints import PlainHints, plain_hints
from tests.cpumanager.pods import container, guaranteed, static_policy

from mooring.engine.core.bits import NO_CPUS, CPUMask, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.topology import CPUPlace, Topology, build_topology
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.hints import MOST_LISTED, container_hints, generate_hints
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints


def listed(topology: Topology, available: int, reusable: int, need: int, *, align: bool = False) -> PlainHints:
    """Return the hints in the kubelet's order, from a list or from a description."""
    hints = generate_hints(topology, CPUMask(available), CPUMask(reusable), need, align_by_socket=align)
    as_list = hints if isinstance(hints, Hints) else hints.hints()
    return [(hint.numa or (), hint.preferred) for hint in as_list]


def expected(topology: Topology, available: int, reusable: int, need: int, *, align: bool = False) -> PlainHints:
    return plain_hints(topology, set(members(available)), set(members(reusable)), need, align=align)


@settings(max_examples=200)
@given(st.data(), topologies(most_nodes=6), st.booleans())
def test_hints_equal_the_plain_loop(data: st.DataObject, topology: Topology, align: bool) -> None:
    available = data.draw(subsets_of(topology.all_cpus))
    reusable = data.draw(st.one_of(st.just(0), subsets_of(topology.all_cpus)))
    need = data.draw(st.integers(1, len(topology.places) + 2))
    align = align and topology.num_sockets > 0
    assert listed(topology, available, reusable, need, align=align) == expected(
        topology, available, reusable, need, align=align
    )


@settings(max_examples=25)
@given(st.data(), st.integers(MOST_LISTED + 1, MOST_LISTED + 2), st.booleans())
def test_described_hints_equal_the_plain_loop(data: st.DataObject, nodes: int, align: bool) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=nodes, max_size=nodes))
    split = data.draw(st.integers(1, nodes))
    numbers = [node for node, size in enumerate(sizes) for _ in range(size)]
    places = {cpu: CPUPlace(node, int(node >= split), cpu, 0) for cpu, node in enumerate(numbers)}
    topology = build_topology(places, **true_counts(places))
    available = data.draw(subsets_of(topology.all_cpus))
    reusable = data.draw(st.sampled_from([0, 0, 1, 0b101]))
    need = data.draw(st.integers(1, len(places)))
    assert not isinstance(generate_hints(topology, topology.all_cpus, NO_CPUS, 1, align_by_socket=False), Hints)
    assert listed(topology, available, reusable, need, align=align) == expected(
        topology, available, reusable, need, align=align
    )


@pytest.mark.parametrize("nodes", [MOST_LISTED, MOST_LISTED + 1])
def test_more_than_there_is_is_impossible_listed_or_described(nodes: int) -> None:
    places = {cpu: CPUPlace(cpu, 0, cpu, 0) for cpu in range(nodes)}
    topology = build_topology(places, **true_counts(places))
    assert generate_hints(topology, topology.all_cpus, NO_CPUS, nodes, align_by_socket=False) != IMPOSSIBLE
    assert generate_hints(topology, topology.all_cpus, NO_CPUS, nodes + 1, align_by_socket=False) == IMPOSSIBLE


# Rules one by one, on two nodes of six CPUs: even ones and odd ones.

EVEN, ODD = mask("0,2,4,6,8,10"), mask("1,3,5,7,9,11")
ALL = EVEN | ODD
NOTHING = Reusable()


def test_align_by_socket_without_sockets_is_reported_as_the_crash_it_is() -> None:
    topology = replace(fixture("1S8"), num_sockets=0)
    with pytest.raises(KubeletCrashError, match="divides by zero"):
        generate_hints(topology, CPUMask(1), NO_CPUS, 1, align_by_socket=True)


# What is asked.


def asked(state: CPUState, reusable: Reusable = NOTHING, need: int = 2) -> tuple[Hints | None, CPUHintsAsked | None]:
    facts: list[object] = []
    policy = static_policy("2S12", reserved="0")
    pod = guaranteed("u", container("c", str(need)))
    hints = container_hints(policy, state, reusable, pod, pod.containers[0], facts.append)
    fact = facts[0] if facts else None
    assert fact is None or isinstance(fact, CPUHintsAsked)
    found = None if hints is None else hints["cpu"]
    assert found is None or isinstance(found, Hints)
    return found, fact


def test_a_new_container_may_take_shared_cpus_and_those_of_its_init_containers() -> None:
    _, fact = asked(CPUState("static", ALL, {}), Reusable("u", CPUMask(0b100)))
    assert fact == CPUHintsAsked("u", "c", 2, ALL & ~1, CPUMask(0b100), mismatch=False)
    _, fact = asked(CPUState("static", ALL, {}), Reusable("other", CPUMask(0b100)))
    assert fact == CPUHintsAsked("u", "c", 2, ALL & ~1, NO_CPUS, mismatch=False)


def test_a_set_of_another_size_makes_everything_impossible() -> None:
    hints, fact = asked(CPUState("static", ALL & ~0b10100, {"u": {"c": CPUMask(0b10100)}}), need=3)
    assert hints == IMPOSSIBLE
    assert fact is not None
    assert fact.mismatch
