"""Shipped machines have the figures of the processors whose names they bear."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.values import not_none

from mooring.engine.core.errors import InputError
from mooring.engine.core.topology import discover_topology
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.machines.loader import SHIPPED, load_machine, shipped_machine

MIB = 2**20
GIB = 2**30


COUNTS = yaml.safe_load((Path(__file__).parent / "shipped.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_the_real_machine(name: str) -> None:
    machine = shipped_machine(name)
    topology = discover_topology(machine.info)
    assert machine.name == name
    assert {part: getattr(topology, f"num_{part}") for part in COUNTS[name]} == COUNTS[name]
    assert len(not_none(machine.hardware).cpus) == COUNTS[name]["cpus"]


def test_every_name_is_covered_above_and_listed_in_order() -> None:
    assert list(SHIPPED) == sorted(SHIPPED)
    assert list(SHIPPED) == list(COUNTS)
    assert not any("\n" in one.description for one in SHIPPED.values())


def test_the_big_epyc_has_its_details() -> None:
    machine = shipped_machine("epyc-7763-2s-nps4")
    core = machine.info.topology[0].cores[0]
    assert core.thread_ids == (0, 128)
    assert core.uncore_caches[0].size == 32 * MIB
    assert machine.info.memory_capacity == 512 * GIB
    assert machine.info.topology[0].distances == (10, 12, 12, 12, 32, 32, 32, 32)
    assert machine.hardware is not None
    assert set(Counter(cpu.l3 for cpu in machine.hardware.cpus).values()) == {16}


def test_the_xeon_max_has_eight_nodes_without_cpus() -> None:
    nodes = sorted(shipped_machine("xeonmax-9460-2s-snc4-flat").info.topology, key=lambda node: node.node_id)
    assert [bool(node.cores) for node in nodes] == [True] * 8 + [False] * 8
    assert {node.memory for node in nodes[8:]} == {16 * GIB}


def test_the_laptop_is_hybrid() -> None:
    hardware = shipped_machine("i7-1370p").hardware
    assert hardware is not None
    assert [str(kind.cpus) for kind in hardware.kinds] == ["12-19", "0-11"]


def test_a_shipped_machine_brings_its_devices_and_pages_and_tells_what_is_assumed() -> None:
    machine = shipped_machine("epyc-telco-2s-nps4")
    [(resource, devices)] = offered_devices({}, machine).items()
    assert resource == "intel.com/intel_sriov_dpdk"
    assert [device.numa for device in devices] == [(1,)] * 8 + [(5,)] * 8
    assert (devices[0].id, devices[15].id) == ("intel_sriov_dpdk-0", "intel_sriov_dpdk-15")
    assert {pool.num_pages for node in machine.info.topology for pool in node.hugepages} == {32}
    assert machine.origin.unknown == ("memory", "huge pages", "devices")
    assert "hugepages-1Gi=256" in machine.origin.assumed


def test_every_machine_with_devices_names_its_source() -> None:
    with_devices = [name for name in SHIPPED if shipped_machine(name).published]
    assert len(with_devices) == 5
    assert all(SHIPPED[name].source.startswith("https://") for name in with_devices)


def test_amounts_behind_a_name_replace_its_own_and_are_assumed_no_more() -> None:
    machine = load_machine("hgx-8gpu memory=1Ti hugepages-1Gi=64 node1.nvidia.com/gpu=2")
    devices = offered_devices({}, machine)
    assert {name: len(found) for name, found in devices.items()} == {"nvidia.com/gpu": 6, "nvidia.com/hostdev": 8}
    assert [pool.num_pages for node in machine.info.topology for pool in node.hugepages] == [32, 32]
    assert machine.info.memory_capacity == 1024 * GIB
    assert machine.origin.assumed == machine.origin.unknown == ()


def test_the_gpu_memory_of_a_gb200_is_on_nodes_without_cpus() -> None:
    nodes = {node.node_id: node for node in shipped_machine("gb200-4gpu").info.topology}
    assert len(nodes) == 34
    assert [one for one in sorted(nodes) if nodes[one].memory] == [0, 1, 2, 10, 18, 26]
    distances = [nodes[one].distances or () for one in (2, 10, 18, 26)]
    assert [min(row[:2]) == row[0] for row in distances] == [True, True, False, False]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"^nosuch: is not a shipped machine; shipped are: epyc-7763-2s-nps1, "):
        shipped_machine("nosuch")
