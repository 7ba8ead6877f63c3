"""From the machine description to the CPU topology (topology.md sections 2, 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import CPUMask, NUMAMask, mask_of, members
from mooring.engine.core.machineinfo import Cache, Core, MachineInfo, NUMANode
from mooring.engine.core.topology import CPUPlace, Topology, TopologyError, build_topology, discover_topology


def info(*nodes: Sequence[Core], num_cores: int | None = None, num_sockets: int = 1) -> MachineInfo:
    topology = tuple(NUMANode(index, 2**30, cores=tuple(cores)) for index, cores in enumerate(nodes))
    threads = {thread for cores in nodes for core in cores for thread in core.thread_ids}
    return MachineInfo(len(threads) if num_cores is None else num_cores, num_sockets, 2**30, topology)


def cache(number: int) -> Cache:
    return Cache(number, 2**20, "Unified", 3)


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (info(num_cores=0), "could not detect number of cpus"),
        (info([Core(0, (), 0)], num_cores=1), "no cpus provided"),
        (info([Core(0, (0, 0), 0)]), "cpus provided are not unique"),
    ],
)
def test_machines_that_the_kubelet_cannot_use(machine: MachineInfo, text: str) -> None:
    with pytest.raises(TopologyError) as error:
        discover_topology(machine)
    assert str(error.value) == text


def test_a_core_is_called_after_its_smallest_thread() -> None:
    topology = discover_topology(info([Core(7, (10, 2), 0)]))
    assert topology.places == {2: CPUPlace(0, 0, 2, 0), 10: CPUPlace(0, 0, 2, 0)}


def test_the_first_uncore_cache_counts_and_the_socket_where_there_is_none() -> None:
    cores = [Core(0, (0,), 5, uncore_caches=(cache(9), cache(1))), Core(1, (1,), 5), Core(2, (2,), 6)]
    topology = discover_topology(info(cores, num_sockets=2))
    assert [place.uncore for place in topology.places.values()] == [9, 5, 6]
    assert topology.num_uncores == 3


def test_uncore_and_socket_ids_share_one_number_space() -> None:
    topology = discover_topology(info([Core(0, (0,), 3), Core(1, (1,), 8, uncore_caches=(cache(3),))], num_sockets=2))
    assert topology.uncores == {3: 0b11}


def test_a_thread_in_two_places_keeps_the_last_one() -> None:
    topology = discover_topology(info([Core(0, (0, 1), 0)], [Core(1, (1,), 1)], num_sockets=2))
    assert topology.places[1] == CPUPlace(1, 1, 1, 1)
    assert (topology.numa, topology.num_cores) == ({0: 0b1, 1: 0b10}, 2)


def test_declared_cpus_count_and_not_those_seen() -> None:
    topology = discover_topology(info([Core(0, (0,), 0), Core(1, (1,), 0)], num_cores=8, num_sockets=2))
    assert (topology.num_cpus, topology.all_cpus) == (8, 0b11)
    assert (topology.cpus_per_core, topology.cpus_per_socket, topology.cpus_per_uncore) == (4, 4, 8)


def test_nodes_without_cpus_are_not_counted() -> None:
    topology = discover_topology(info([Core(0, (0,), 0)], []))
    assert (topology.num_numa_nodes, topology.numa) == (1, {0: 1})


@pytest.mark.parametrize(("sockets", "nodes", "first"), [(1, 1, True), (2, 1, True), (1, 2, False), (2, 2, True)])
def test_nodes_come_first_unless_they_are_more_than_sockets(sockets: int, nodes: int, first: bool) -> None:
    places = {0: CPUPlace(0, 0, 0, 0)}
    topology = build_topology(places, num_cpus=1, num_cores=1, num_sockets=sockets, num_numa_nodes=nodes, num_uncores=1)
    assert topology.numa_first is first


def test_nothing_declared_divides_to_zero() -> None:
    places = {0: CPUPlace(0, 0, 0, 0)}
    topology = build_topology(places, num_cpus=1, num_cores=0, num_sockets=0, num_numa_nodes=0, num_uncores=0)
    assert (topology.cpus_per_core, topology.cpus_per_socket, topology.cpus_per_uncore) == (0, 0, 0)


places_of_cpus = st.dictionaries(
    st.integers(0, 20),
    st.builds(CPUPlace, st.integers(0, 3), st.integers(0, 2), st.integers(0, 9), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


def of(places: dict[int, CPUPlace]) -> Topology:
    return build_topology(places, num_cpus=1, num_cores=1, num_sockets=1, num_numa_nodes=1, num_uncores=1)


@given(places_of_cpus, st.integers(0, (1 << 21) - 1), st.integers(0, 15))
def test_queries_equal_plain_loops(places: dict[int, CPUPlace], cpus: int, nodes: int) -> None:
    topology = of(places)
    assert topology.all_cpus == mask_of(places)
    cores = {places[cpu].core for cpu in members(cpus) if cpu in places}
    assert topology.core_siblings(CPUMask(cpus)) == mask_of(cpu for cpu in places if places[cpu].core in cores)
    assert topology.cpus_in_numa(NUMAMask(nodes)) == mask_of(cpu for cpu in places if nodes >> places[cpu].numa & 1)
    assert topology.sockets_touched(CPUMask(cpus)) == len(
        {places[cpu].socket for cpu in members(cpus) if cpu in places}
    )


@given(places_of_cpus)
def test_elements_lie_in_order_under_every_parent_that_they_touch(places: dict[int, CPUPlace]) -> None:
    topology = of(places)
    assert [*topology.numa] == sorted({place.numa for place in places.values()})
    for node, children in topology.cores_of_node.items():
        inside = {place.core for place in places.values() if place.numa == node}
        assert [core for core, _ in children] == sorted(inside)
        assert all(mask == topology.cores[core] for core, mask in children)
    for socket, nodes in topology.nodes_of_socket.items():
        assert [node for node, _ in nodes] == sorted(
            {place.numa for place in places.values() if place.socket == socket}
        )


def test_a_node_minus_one_is_in_no_mask() -> None:
    assert of({0: CPUPlace(-1, 0, 0, 0), 1: CPUPlace(0, 0, 1, 0)}).cpus_in_numa(NUMAMask(0b11)) == 0b10
