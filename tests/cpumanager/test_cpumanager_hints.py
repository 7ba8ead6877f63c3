"""Hints equal the plain loop over all sets of nodes, listed or described (cpu-manager.md sections 3 and 9)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpumanager.machines import fixture, mask, subsets_of, topologies, true_counts
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level, static_policy

from mooring.engine.core.bits import NO_CPUS, CPUMask, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, StatusSizes
from mooring.engine.core.topology import CPUPlace, Topology, build_topology
from mooring.engine.cpumanager.hints import MOST_LISTED, container_hints, generate_hints
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints

PlainHints = list[tuple[tuple[int, ...], bool]]
"""(node ids, preferred), by size and then lexicographic."""


def plain_hints(topology: Topology, available: set[int], reusable: set[int], need: int, *, align: bool) -> PlainHints:
    places = topology.places
    nodes = sorted({place.numa for place in places.values()})
    smallest = len(nodes)
    found: list[tuple[int, ...]] = []
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            inside = {cpu for cpu, place in places.items() if place.numa in chosen}
            if len(inside) >= need and size < smallest:
                smallest = size
            if reusable - inside:
                continue
            if len(reusable) + len(available & inside) >= need:
                found.append(chosen)
    return [(one, len(one) == smallest or (align and aligned(topology, one, smallest))) for one in found]


def aligned(topology: Topology, chosen: tuple[int, ...], smallest: int) -> bool:
    per_socket = max(topology.num_numa_nodes // topology.num_sockets, 1)
    touched = {place.socket for place in topology.places.values() if place.numa in chosen}
    return len(touched) == -(-smallest // per_socket)


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


def test_align_by_socket_without_sockets_is_reported_as_the_crash_it_is() -> None:
    topology = replace(fixture("1S8"), num_sockets=0)
    with pytest.raises(KubeletCrashError, match="divides by zero"):
        generate_hints(topology, CPUMask(1), NO_CPUS, 1, align_by_socket=True)


def test_a_set_of_another_size_makes_everything_impossible() -> None:
    facts: list[Any] = []
    state = CPUState("static", mask("0-1,3,5-11"), {"u": {"c": mask("2,4")}})
    pod = guaranteed("u", container("c", "1"))
    policy = static_policy("2S12", reserved="0")
    found = container_hints(policy, state, Reusable(), pod, pod.containers[0], facts.append)
    assert (found, [fact.mismatch for fact in facts]) == ({"cpu": IMPOSSIBLE}, [True])


OFF, ON = PodLevelGates(), PodLevelGates(managers=True)
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def count(pod: Pod, gates: PodLevelGates = OFF) -> int:
    return exclusive_cpus(pod, pod.containers[0], gates)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("1", 1),
        ("2000m", 2),
        ("2.0", 2),
        ("1500m", 0),
        ("999m", 0),
        ("1001m", 0),
        ("0", 0),
        ("", 0),
        # Amounts below one milli: both whole CPUs and millis are rounded up before they are compared.
        ("0.0001", 0),
        ("1.9999", 2),
        ("1999.1m", 2),
        ("2.0001", 0),
        ("1k", 1000),
        # The kubelet compares 64-bit numbers: both sides wrap around alike, and a count may be negative.
        ("10000000000000000", 10**16),
        ("9223372036854775808", -(2**63)),
    ],
)
def test_whole_numbers_of_cpus_are_exclusive(cpu: str, expected: int) -> None:
    assert count(guaranteed("u", container("c", cpu))) == expected


@pytest.mark.parametrize(("memory", "expected"), [("1Gi", 2), ("1024Mi", 2), ("2Gi", 0), ("0", 0), ("", 0)])
def test_in_a_pod_with_its_own_resources_limits_must_equal_requests(memory: str, expected: int) -> None:
    requests, limits = amounts("2", "1Gi" if memory[:1] in ("1", "2") else memory), amounts("2000m", memory)
    pod = pod_level("u", "4", Container("c", requests=requests, limits=limits))
    assert (count(pod, ON), count(pod, OFF)) == (expected, 2)


@pytest.mark.parametrize("kind", [SIDECAR, APP])
def test_a_pod_counts_only_containers_whose_specification_requests_cpu(kind: ContainerKind) -> None:
    """Up to v1.34 a status decides the number, but not whether the container counts (v1.33, podGuaranteedCPUs)."""
    gates = PodLevelGates(unknown_to_managers=True, statuses=StatusSizes.APPS_AND_SIDECARS)
    silent = replace(container("b", kind=kind), allocated=amounts("3"))
    pod = pod_level("u", "4", container("a", "1"), silent)
    assert (exclusive_cpus(pod, silent, gates), exclusive_cpus_of_pod(pod, gates)) == (3, 1)


@given(st.lists(st.tuples(st.sampled_from([INIT, SIDECAR]), st.integers(0, 4)), max_size=4), st.integers(0, 9))
def test_the_peak_is_that_of_the_story_of_the_pod(init: list[tuple[ContainerKind, int]], apps: int) -> None:
    """Play the pod: sidecars stay, init containers come and go, apps run with all sidecars."""
    made = [container(f"i{index}", str(cpus), kind=kind) for index, (kind, cpus) in enumerate(init)]
    running = peak = 0
    for kind, cpus in init:
        if kind is SIDECAR:
            running += cpus
        peak = max(peak, running + (cpus if kind is INIT else 0))
    pod = guaranteed("u", *made, container("a", str(apps)))
    assert exclusive_cpus_of_pod(pod, OFF) == max(peak, running + apps)
