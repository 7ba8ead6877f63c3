"""Small clusters and work for the tests of fleet."""

from __future__ import annotations

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.fleet.cluster import NodeCluster, PodArrival, PodDemand, asked_of
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.node_groups import NodeGroup
from mooring.inputs.pods.defaults import PodGates, qos_of

GPU = "example.com/gpu"
ALIGNED = KubeletConfig(
    cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0"
)
LOOSE = KubeletConfig(cpu_manager_policy="static", topology_manager_policy="best-effort", reserved_system_cpus="0")


def group(name: str, count: int, config: KubeletConfig = ALIGNED, gpus: int = 2) -> NodeGroup:
    """Return nodes with two NUMA nodes of four CPUs each, and GPUs on them in turn."""
    devices = {GPU: tuple(Device(f"gpu{index}", (index % 2,)) for index in range(gpus))} if gpus else {}
    return NodeGroup(name, count, parse_compact("sockets=2 cores=8 memory=16Gi"), config, devices=devices)


def cluster(*groups: NodeGroup) -> NodeCluster:
    """Return a cluster."""
    return NodeCluster("test", groups)


def pod(cpu: str, memory: str = "64Mi", gpus: int = 0, *, guaranteed: bool = True, priority: int = 0) -> Pod:
    """Return a pod of one container."""
    requests = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(memory)}
    if gpus:
        requests[GPU] = Quantity.parse(str(gpus))
    limits = requests if guaranteed else {name: amount for name, amount in requests.items() if name == GPU}
    containers = (Container("main", requests=requests, limits=limits),)
    return Pod("", "", containers=containers, qos=qos_of(containers, None, PodGates()), priority=priority)


def asked(cpu: str, memory: str = "64Mi", gpus: int = 0, *, guaranteed: bool = True, priority: int = 0) -> PodDemand:
    """Return what such a pod asks."""
    return asked_of(pod(cpu, memory, gpus, guaranteed=guaranteed, priority=priority))


def arrival(name: str, what: PodDemand, at: float = 0.0, runs: float | None = None, owner: str = "") -> PodArrival:
    """Return a pod that is created."""
    return PodArrival(f"default/{name}", what, at, runs, owner=owner)


SIX = asked("6")
"""More than one NUMA node has: the sums of a node take it, and single-numa-node does not."""
MOST_REMADE = 100
"""Pods that a controller makes anew for one that is refused each time."""
