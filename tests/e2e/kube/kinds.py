"""Eight kinds of nodes: shipped machines with policies, scopes and options that differ, huge pages and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.machineinfo import HugePages, MachineInfo
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.node_groups import NodeGroup

DEVICE = "example.com/nic"
HUGE_PAGE_KIB = 2048


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine and how its kubelet is configured."""

    machine: str
    reserved: str
    topology: str = "none"
    scope: str = "container"
    memory: bool = False
    """Whether the memory manager has the policy Static."""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    topology_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    devices: int = 0
    """On each NUMA node with CPUs."""
    huge: int = 0
    """Pages on each NUMA node with CPUs."""


KINDS = (
    Kind("epyc-7763-2s-nps4", "0,128", "single-numa-node", memory=True, devices=2, huge=1024),
    Kind("epyc-7763-2s-nps1", "0,128", "restricted", "pod", options={"full-pcpus-only": "true"}, devices=4),
    Kind("xeon-6230-2s-snc2", "0,40", "single-numa-node", "pod", devices=3),
    Kind("xeon-8480-2s", "0,112", "best-effort", options={"distribute-cpus-across-numa": "true"}),
    Kind("kunpeng-920-2s", "0", "restricted", memory=True, topology_options={"prefer-closest-numa-nodes": "true"}),
    Kind("xeon-6338n-1s", "0,32", options={"strict-cpu-reservation": "true"}),
    Kind("grace-1s", "0", "single-numa-node", memory=True, huge=2048),
    Kind("i7-1370p", "0-1", "restricted", options={"full-pcpus-only": "true"}),
)


def group_of(name: str, kind: Kind, **more: Any) -> NodeGroup:
    """Return a node of a kind as a group of one."""
    machine = load_machine(kind.machine)
    info = _info(machine.info, kind)
    kept = {"memory": "1Gi"}
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=kind.options,
        memory_manager_policy="Static" if kind.memory else "None",
        reserved_memory=(ReservedMemory(info.topology[0].node_id, kept),) if kind.memory else (),
        topology_manager_policy=kind.topology,
        topology_manager_scope=kind.scope,
        topology_manager_policy_options=kind.topology_options,
        reserved_system_cpus=kind.reserved,
        kube_reserved=kept,
        eviction_hard={},
        max_pods=250,
    )
    places = [node.node_id for node in info.topology if node.cores]
    devices = tuple(Device(f"nic-{place}-{one}", (place,)) for place in places for one in range(kind.devices))
    offered = {DEVICE: devices} if devices else {}
    return NodeGroup(name, 1, replace(machine, info=info), config, devices=offered, **more)


def _info(info: MachineInfo, kind: Kind) -> MachineInfo:
    if not kind.huge:
        return info
    pages = (HugePages(HUGE_PAGE_KIB, kind.huge),)
    nodes = tuple(replace(node, hugepages=pages) if node.cores else node for node in info.topology)
    total = kind.huge * sum(1 for node in nodes if node.cores)
    return replace(info, topology=nodes, hugepages=(HugePages(HUGE_PAGE_KIB, total),))


def names(count: int) -> Iterator[tuple[str, Kind]]:
    """Yield the names of a number of nodes with their kinds, in turn."""
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        yield f"node-{number}-{kind.machine}", kind
