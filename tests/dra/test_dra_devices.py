from __future__ import annotations

from typing import Any

import pytest
from tests.node.nodes import machine

from mooring.cluster.dra.devices import (
    CAPACITY,
    Grouping,
    device_cpus,
    devices_of,
    is_same,
    near_nodes,
    newest_generation,
    offered,
    slices,
)
from mooring.cluster.dra.objects import ClaimableCPUs
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.topology import discover_topology
from mooring.engine.extensions.owners import HeldClaim, HeldShare
from mooring.inputs.machines.loader import load_machine

# Two NUMA nodes with four cores each; CPU n and n + 8 are siblings.
SMALL = discover_topology(machine())
NUMA0, NUMA1 = 0x0F0F, 0xF0F0
_NUMA_NODE = "resource.kubernetes.io/numaNode"


def amounts(room: ClaimableCPUs) -> dict[str, str]:
    return {one["name"]: one["capacity"][CAPACITY]["value"] for one in offered(devices_of(SMALL, Grouping.NUMA), room)}


def test_groups_are_named_by_their_numbers_and_have_all_their_cpus() -> None:
    assert {one.name: one.cpus for one in devices_of(SMALL, Grouping.NUMA)} == {"numa0": NUMA0, "numa1": NUMA1}
    assert [one.name for one in devices_of(SMALL, Grouping.CPU)] == [f"cpu{cpu}" for cpu in range(16)]


@pytest.mark.parametrize("grouping", Grouping, ids=lambda grouping: grouping.value)
@pytest.mark.parametrize("name", ["epyc-7763-2s-nps4", "i7-1370p"])
def test_a_device_is_found_by_its_name_whatever_the_driver_publishes(name: str, grouping: Grouping) -> None:
    topology = discover_topology(load_machine(name).info)
    covered = 0
    for one in devices_of(topology, grouping):
        assert device_cpus(topology, one.name) == one.cpus
        assert not one.cpus & covered
        covered |= one.cpus
    assert covered == topology.all_cpus


@pytest.mark.parametrize("name", ["numa2", "numa", "numa00", "gpu0", "cpu-1", "l3-", "numa٣"])
def test_what_is_no_device_has_no_cpus(name: str) -> None:
    assert device_cpus(SMALL, name) == 0


def test_attributes_have_the_names_of_the_ecosystem() -> None:
    numa = devices_of(SMALL, Grouping.NUMA)[1].attributes
    assert numa == {
        "dra.cpu/smtEnabled": True,
        "dra.cpu/numCPUs": 8,
        "dra.cpu/numaNodeID": 1,
        "resource.kubernetes.io/numaNode": 1,
        "dra.cpu/socketID": 1,
    }
    cpu = devices_of(SMALL, Grouping.CPU)[12].attributes
    assert (cpu["dra.cpu/cpuID"], cpu["dra.cpu/coreID"], cpu["dra.cpu/numaNodeID"]) == (12, 4, 1)
    assert "dra.cpu/cacheL3ID" in devices_of(SMALL, Grouping.L3)[0].attributes


def test_a_group_across_numa_nodes_has_no_numa_node() -> None:
    topology = discover_topology(machine(sockets=1))
    [socket] = devices_of(topology, Grouping.SOCKET)
    assert "dra.cpu/numaNodeID" not in socket.attributes
    assert socket.attributes["dra.cpu/socketID"] == 0


def test_a_list_of_numa_nodes_begins_with_the_own_and_has_the_nearest_of_its_socket() -> None:
    machine_info = load_machine("kunpeng-920-2s").info
    assert near_nodes(machine_info) == {0: (0, 1), 1: (1, 0), 2: (2, 3), 3: (3, 2)}
    assert near_nodes(load_machine("xeon-8480-2s").info) == {0: (0,), 1: (1,)}
    topology = discover_topology(machine_info)
    groups = devices_of(topology, Grouping.NUMA, near_nodes=near_nodes(machine_info))
    rows = offered(groups, ClaimableCPUs(topology.all_cpus, last=False))
    assert [row["attributes"][_NUMA_NODE] for row in rows] == [
        {"ints": list(two)} for two in ((0, 1), (1, 0), (2, 3), (3, 2))
    ]
    sockets = devices_of(topology, Grouping.SOCKET, near_nodes=near_nodes(machine_info))
    assert [one.attributes[_NUMA_NODE] for one in sockets] == [(0, 1), (2, 3)]


def test_a_numa_node_without_cpus_is_near_to_every_socket() -> None:
    info = load_machine("xeonmax-9460-2s-snc4-flat").info
    nearest = near_nodes(info)
    assert nearest[0] == (0, 1, 2, 3)
    assert nearest[8] == (8, 0)


def test_kinds_of_cores_are_told_where_a_group_has_one_kind() -> None:
    hybrid = load_machine("i7-1370p")
    topology = discover_topology(hybrid.info)
    kinds = {one.attributes.get("dra.cpu/coreType") for one in devices_of(topology, Grouping.CPU, hybrid.hardware)}
    assert kinds == {"p-core", "e-core"}
    [whole] = devices_of(topology, Grouping.SOCKET, hybrid.hardware)
    assert "dra.cpu/coreType" not in whole.attributes
    plain = load_machine("epyc-7763-2s-nps4")
    one = devices_of(discover_topology(plain.info), Grouping.NUMA, plain.hardware)[0]
    assert one.attributes["dra.cpu/coreType"] == "standard"


def test_pcie_roots_are_a_list() -> None:
    roots = {"pci0000:00": NUMA0, "pci0000:40": NUMA1, "pci0000:50": NUMA1}
    [row] = offered(devices_of(SMALL, Grouping.NUMA, None, roots)[1:], ClaimableCPUs(NUMA1, last=False))
    assert row["attributes"]["resource.kubernetes.io/pcieRoot"] == {"strings": ["pci0000:40", "pci0000:50"]}


def test_every_capacity_has_a_default() -> None:
    rows = offered(devices_of(SMALL, Grouping.NUMA), ClaimableCPUs(NUMA0 | NUMA1, last=False))
    for row in rows:
        assert row["allowMultipleAllocations"] is True
        assert row["capacity"][CAPACITY]["requestPolicy"] == {"default": "1", "validRange": {"min": "1", "step": "1"}}


def test_capacity_is_what_claims_have_and_what_they_could_get() -> None:
    held = HeldClaim("u", "s", "c", (HeldShare("r", "numa1", CPUMask(0xF0)), HeldShare("r", "socket0", CPUMask(0x3))))
    # A pod has CPUs 12 to 15; two CPUs of NUMA node 0 are held by a claim of another grouping.
    room = ClaimableCPUs(0x0F0C, last=False, claims=(held,))
    assert amounts(room) == {"numa0": "6", "numa1": "4"}


def test_a_group_with_nothing_to_give_is_left_out() -> None:
    assert amounts(ClaimableCPUs(0x0F00, last=False)) == {"numa0": "4"}


def test_the_last_cpu_of_the_pool_is_not_offered() -> None:
    room = ClaimableCPUs(0x0F0E | NUMA1, last=True)
    assert amounts(room) == {"numa0": "7", "numa1": "7"}


def test_whole_cores_are_offered_in_their_size() -> None:
    room = ClaimableCPUs(0x0F0E | NUMA1, last=False, group_size=2, whole_cores=True)
    first, second = offered(devices_of(SMALL, Grouping.NUMA), room)
    assert (first["capacity"][CAPACITY]["value"], second["capacity"][CAPACITY]["value"]) == ("6", "8")
    assert first["capacity"][CAPACITY]["requestPolicy"]["validRange"] == {"min": "2", "step": "2"}


def test_single_cpus_are_offered_while_they_are_free_or_claimed() -> None:
    held = HeldClaim("u", "s", "c", (HeldShare("r", "cpu3", CPUMask(0b1000)),))
    rows = offered(devices_of(SMALL, Grouping.CPU), ClaimableCPUs(0b10, last=False, claims=(held,)), whole=True)
    assert [one["name"] for one in rows] == ["cpu1", "cpu3"]
    assert all("capacity" not in one and "allowMultipleAllocations" not in one for one in rows)


def test_a_device_is_given_whole_while_all_of_its_cpus_are_one_claims_or_free() -> None:
    room = ClaimableCPUs(0xF0F0, last=True, group_size=2, whole_cores=True)
    whole = offered(devices_of(SMALL, Grouping.L3), room, whole=True, node_allocatable=True)
    assert [one["name"] for one in whole] == ["l3-1"]
    assert whole[0]["nodeAllocatableResources"] == {"cpu": {"mapping": {"deviceMultiplier": "8"}}}
    assert {"capacity", "allowMultipleAllocations"}.isdisjoint(whole[0])
    held = HeldClaim("u", "s", "c", (HeldShare("r", "l3-0", CPUMask(0x0F0F)), HeldShare("r", "l3-1", CPUMask(0x10))))
    room = ClaimableCPUs(0xF0E0, last=False, claims=(held,))
    # A claim has a part of l3-1, from when it was given by capacity.
    assert [one["name"] for one in offered(devices_of(SMALL, Grouping.L3), room, whole=True)] == ["l3-0"]
    cores = offered(devices_of(SMALL, Grouping.CORE), ClaimableCPUs(0x0E0F, last=False), whole=Grouping.CORE.is_whole)
    assert [one["name"] for one in cores] == ["core1", "core2", "core3"]
    assert cores[0]["attributes"].items() >= {"dra.cpu/coreID": {"int": 1}, "dra.cpu/numCPUs": {"int": 2}}.items()


def test_a_capacity_counts_against_the_nodes_allocatable_cpus_where_that_is_wanted() -> None:
    rows = offered(devices_of(SMALL, Grouping.MACHINE), ClaimableCPUs(0xFF, last=False), node_allocatable=True)
    assert [(one["name"], one["nodeAllocatableResources"]) for one in rows] == [
        ("machine0", {"cpu": {"mapping": {"capacityKey": CAPACITY, "capacityMultiplier": "1"}}})
    ]


def test_a_slice_has_at_most_128_devices_and_all_have_one_generation() -> None:
    topology = discover_topology(load_machine("epyc-7763-2s-nps4").info)
    devices = devices_of(topology, Grouping.CPU)
    rows = offered(devices, ClaimableCPUs(topology.all_cpus, last=False), whole=True)
    made = slices("cpu.example", "n", rows, 7, "node-uid")
    assert [len(one["spec"]["devices"]) for one in made] == [128, 128]
    assert {one["spec"]["pool"]["resourceSliceCount"] for one in made} == {2}
    assert newest_generation(made) == 7
    assert newest_generation([]) == 0
    assert made[0]["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    [empty] = slices("cpu.example", "n", [], 1)
    assert empty["spec"]["devices"] == []


def test_slices_are_the_same_whatever_their_generation() -> None:
    rows: list[dict[str, Any]] = [{"name": "numa0"}]
    assert is_same(slices("d", "n", rows, 1), slices("d", "n", rows, 2))
    assert not is_same(slices("d", "n", rows, 1), slices("d", "n", [], 1))
    assert not is_same([], slices("d", "n", rows, 1))
    first, second = slices("d", "n", [{"name": f"cpu{cpu}"} for cpu in range(129)], 1)
    second["spec"]["pool"]["generation"] = 2
    assert not is_same([first, second], [first, second])
