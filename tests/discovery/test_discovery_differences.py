"""Every way in which the kubelet's view can depart from the hardware is told, and nothing where they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.discovery import tool_outputs
from tests.values import not_none

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Hardware, HardwareNode, Machine
from mooring.engine.core.machineinfo import Cache, Core, CPUKind, MachineInfo, NUMANode
from mooring.inputs.machines.compact import compact_findings, parse_compact
from mooring.inputs.machines.loader import machine_in

Views = tuple[MachineInfo, Hardware]


def views(text: str) -> Views:
    machine = parse_compact(text)
    return machine.info, not_none(machine.hardware)


def messages(info: MachineInfo, hardware: Hardware) -> list[str]:
    return [finding.message for finding in compact_findings(Machine("m", info, hardware))]


@pytest.mark.parametrize(
    "text", ["cores=4", "cores=4 threads=2", "cores=8 l3=2 siblings=adjacent threads=2", "numa=2 cores=8 l3=4"]
)
def test_nothing_is_reported_about_a_machine_that_the_kubelet_sees_rightly(text: str) -> None:
    assert messages(*views(text)) == []


def changed(thing: Any, changes: Mapping[str, Any]) -> Any:
    """Return a thing with other members; of a function what it makes of the thing."""
    return replace(thing, **{name: new(thing) if callable(new) else new for name, new in changes.items()})


def of_info(**changes: object) -> Callable[[Views], Views]:
    return lambda both: (changed(both[0], changes), both[1])


def of_hardware(**changes: object) -> Callable[[Views], Views]:
    return lambda both: (both[0], changed(both[1], changes))


def of_nodes(**changes: object) -> Callable[[Views], Views]:
    return of_info(topology=lambda info: tuple(changed(node, changes) for node in info.topology))


def of_cores(**changes: object) -> Callable[[Views], Views]:
    return of_nodes(cores=lambda node: tuple(changed(core, changes) for core in node.cores))


def of_cpus(**changes: object) -> Callable[[Views], Views]:
    return of_hardware(cpus=lambda hardware: tuple(changed(cpu, changes) for cpu in hardware.cpus))


def merged_pairs(node: NUMANode) -> tuple[Core, ...]:
    pairs = zip(node.cores[::2], node.cores[1::2], strict=True)
    return tuple(replace(one, thread_ids=one.thread_ids + other.thread_ids) for one, other in pairs)


def threads_apart(node: NUMANode) -> tuple[Core, ...]:
    return tuple(replace(core, thread_ids=(cpu,)) for core in node.cores for cpu in core.thread_ids)


def swapped(info: MachineInfo) -> tuple[NUMANode, ...]:
    first, second = info.topology
    return replace(first, cores=second.cores), replace(second, cores=first.cores)


def made_up(hardware: Hardware) -> tuple[HardwareNode, ...]:
    return (replace(hardware.nodes[0], sysfs_cpulist=None),)


BASE = "sockets=2 numa=2 cores=8 threads=2"
L3_0 = Cache(0, 1, "Unified", 3)

MACHINES_SEEN = [
    ("numa=11 cores=11", "The kubelet lists the NUMA nodes in text order: 0, 1, 10, 2, 3, 4, 5, 6, ..."),
    (
        "numa=2 cores=2 cpuless=2",
        "The topology, memory and device managers count NUMA nodes 2-3, where no CPUs are; the CPU manager does not.",
    ),
    ("numa=2 cores=4", "The kubelet treats CPUs 0-1 and 2-3, which have no L3 in common, as one uncore cache, 0."),
    (
        "numa=2 cores=4 l3=1",
        "One L3 serves all CPUs of NUMA nodes 0-1, yet the kubelet treats it as an uncore cache of the cores.",
    ),
    (
        "numa=2 cores=4 l3=1",
        "The kubelet's uncore cache 0 is on NUMA nodes 0-1: CPUs aligned by uncore cache can be in different nodes.",
    ),
    (
        "cores=2 threads=2 efficiency-cores=4",
        "The kubelet does not see the L2 of CPUs 4-7: it keeps one only where exactly the threads of one core",
    ),
]
"""Machines of which the kubelet sees something else, and how that is told."""

CASES: dict[str, Callable[[Views], Views]] = {
    "The kubelet does not see CPUs 0,8, which the kernel has online.": of_nodes(
        cores=lambda node: node.cores[node.node_id == 0 :]
    ),
    "The kubelet counts CPUs 0,8 once for each place that lists them, and keeps the last place.": of_nodes(
        cores=lambda node: (*node.cores, Core(0, (0, 8), 0))
    ),
    "The kubelet counts 24 CPUs where 16 are online; its averages for cores and sockets and": of_info(num_cores=24),
    "The kubelet gives CPU 15 to containers, although the kernel has them offline.": of_hardware(
        online=CPUSet.parse("0-14"), offline=CPUSet.of(15)
    ),
    "The kubelet lists CPUs 14-15, which the machine does not have.": of_hardware(online=CPUSet.parse("0-13")),
    "The kubelet assigns CPUs 8-15, although the cpuset in force does not allow them.": of_hardware(
        allowed=CPUSet.parse("0-7")
    ),
    "The kubelet treats CPUs 4-5 like any other, although the kernel keeps them out of scheduling (isolcpus).": (
        of_hardware(isolated=CPUSet.parse("4-5"))
    ),
    "The kubelet uses NUMA node 1, although the cpuset in force does not allow it.": of_hardware(nodes_disallowed=(1,)),
    "The kubelet treats 2 cores as one, its core 0, because their core and package ids are equal: those with CPUs": (
        of_nodes(cores=merged_pairs)
    ),
    "The kubelet treats one core as 2, so its threads are not kept together: core 0 for those with CPUs": of_nodes(
        cores=threads_apart
    ),
    "The kubelet treats 2 packages as one socket, -1: those with CPUs 0-3,8-11 and 4-7,12-15.": of_cores(socket_id=-1),
    "The kernel does not know the packages: the kubelet has socket id -1.": of_cores(socket_id=-1),
    "The kubelet treats one package as 4 sockets: those with CPUs 0,8 and 1,9 and 2,10 and 3,11 (and 1 more case).": (
        of_cores(socket_id=lambda core: core.thread_ids[0])
    ),
    "num_sockets is 1, the machine has 2;": of_info(num_sockets=1),
    "The kubelet has no memory on NUMA node 1; CPUs there work on the memory of other nodes.": of_nodes(
        memory=lambda node: 0 if node.node_id else node.memory
    ),
    "The kubelet sees another amount of memory than there is on NUMA nodes 0-1.": of_nodes(
        memory=lambda node: node.memory + 1
    ),
    "The kubelet has NUMA nodes 0,3, the machine has NUMA nodes 0-1.": of_nodes(node_id=lambda node: node.node_id * 3),
    "The kernel has no NUMA nodes, so the kubelet treats each package as one (NUMA nodes 0-1), without memory and": (
        of_hardware(nodes=made_up)
    ),
    "No affinity mask of the kubelet can hold a negative NUMA node id (-1).": of_nodes(
        node_id=lambda node: node.node_id - 1
    ),
    "The kubelet has CPUs 0-15 in other NUMA nodes than the kernel's own lists of the nodes.": of_info(
        topology=swapped
    ),
    "The kernel reports no distances of NUMA nodes 0-1; with prefer-closest-numa-nodes the kubelet refuses to start.": (
        of_nodes(distances=None)
    ),
    "The distance rows of NUMA nodes 0-1 have 1 entries; the kubelet has 2 nodes, the machine 2.": of_nodes(
        distances=(10,)
    ),
    "The node ids 0,3 have gaps, but a distance row has one entry for each node in ascending id:": of_nodes(
        node_id=lambda node: node.node_id * 3
    ),
    "The kubelet sees no cache at all, usually because the kernel has no cache/index*/id file;": of_nodes(
        caches=(), cores=lambda node: tuple(replace(core, caches=(), uncore_caches=()) for core in node.cores)
    ),
    "The kubelet does not see the L3 of CPUs 4-7,12-15.": of_nodes(
        caches=lambda node: () if node.node_id else node.caches
    ),
    "The kubelet assigns CPUs 0-3,8-11, without any L3, to the uncore cache with the id of their socket.": of_cpus(
        l3=lambda cpu: cpu.l3 or None
    ),
    "The kernel's cache ids are wrong on NUMA nodes 0-1: node 0 lists 2 L3 caches where 1 exists.": of_nodes(
        caches=(L3_0, replace(L3_0, id=1))
    ),
    "The kubelet treats the L3 as an uncore cache of CPUs 0,8, and as a cache of the node elsewhere.": of_cores(
        uncore_caches=lambda core: (L3_0,) if core.core_id == 0 and not core.socket_id else ()
    ),
    "The kubelet treats 2 kinds of cores as equal (CPUs, slowest first: 8-15; 0-7).": of_hardware(
        kinds=(CPUKind(0, CPUSet.parse("8-15")), CPUKind(1, CPUSet.parse("0-7")))
    ),
    "The kubelet does not know the 8 dies of the packages.": of_cpus(die=lambda cpu: cpu.core),
    "The kubelet does not know that the cores form 8 clusters.": of_cpus(cluster=lambda cpu: cpu.core),
    "The kubelet sees no topology at all; its managers fail with 'could not detect number of cpus'.": of_info(
        topology=(), num_cores=0
    ),
    "The kubelet sees no topology at all; it counts 16 CPUs and can place none of them.": of_info(topology=()),
}
"""How it is told -> what is changed of either view of the base."""


def is_told(message: str, both: Views) -> bool:
    return any(line.startswith(message) for line in messages(*both))


@pytest.mark.parametrize(("text", "message"), MACHINES_SEEN)
def test_a_departure_of_a_machine_is_reported_in_plain_words(text: str, message: str) -> None:
    assert is_told(message, views(text)), messages(*views(text))


@pytest.mark.parametrize("message", CASES)
def test_a_departure_is_reported_in_plain_words(message: str) -> None:
    both = views(BASE)
    after = CASES[message](both)
    assert is_told(message, after), messages(*after)
    assert not is_told(message, both)


def test_what_no_manager_reads_is_told_of_a_machine_that_was_measured() -> None:
    measured = machine_in(tool_outputs.lstopo(parse_compact(BASE)).encode(), "measured")
    message = "num_physical_cores is 4, the machine has 8; no manager reads it."
    assert message in [finding.message for finding in measured.findings]
    assert not is_told(message, views(BASE))


def test_an_l3_that_the_kubelet_divides_is_reported() -> None:
    divided = of_cores(uncore_caches=lambda core: (replace(L3_0, id=core.core_id),))
    message = "The kubelet divides CPUs 0 and 1, which share one L3, among 2 uncore caches (and 1 more case)."
    assert is_told(message, divided(views("cores=4 l3=2")))
    assert not is_told(message, views("cores=4 l3=2"))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_two_machines_can_be_compared(data: st.DataObject) -> None:
    texts = st.sampled_from(
        [BASE, "cores=1", "numa=12 cores=12", "cores=2 threads=2 efficiency-cores=4", "numa=2 cores=4 cpuless=2"]
    )
    info, _ = views(data.draw(texts))
    _, hardware = views(data.draw(texts))
    for finding in compact_findings(Machine("m", info, hardware)):
        assert finding.severity in {"warning", "info"}
        assert finding.subject
        assert "\n" not in finding.message
