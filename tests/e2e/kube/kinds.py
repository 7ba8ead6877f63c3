"""Eight kinds of nodes: shipped machines with policies, scopes and options that differ, huge pages and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machineinfo import HugePages, MachineInfo
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node.resources import allocatable
from mooring.inputs.machines.loader import load_machine

DEVICE = "example.com/nic"
HUGE_PAGE_KIB = 2048
_GIB = 2**30


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


def kubelet_of(kind: Kind) -> Kubelet:
    """Return an empty node of a kind."""
    info = _machine(kind)
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
    start = start_kubelet(info, config, MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet), (kind, start.refusal)
    places = [node.node_id for node in info.topology if node.cores]
    devices = tuple(Device(f"nic-{place}-{one}", (place,)) for place in places for one in range(kind.devices))
    return start.with_devices(DeviceState({DEVICE: devices} if devices else {}))


def _machine(kind: Kind) -> MachineInfo:
    info = load_machine(kind.machine).info
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


def node_object(name: str, kubelet: Kubelet) -> dict[str, Any]:
    """Return the Node that the kubelet would register."""
    amounts = {
        resource: f"{amount}m" if resource == "cpu" else str(amount)
        for resource, amount in allocatable(kubelet.settings.reservation).items()
    }
    devices = {resource: str(len(found)) for resource, found in kubelet.node.providers.devices.devices.items()}
    capacity = {**amounts, **devices, "pods": str(kubelet.settings.config.max_pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": capacity, "allocatable": capacity},
    }
