"""The inputs of the kubelet's own figures: nodes and pods as docs/explanation/performance.md describes them."""

from __future__ import annotations

from dataclasses import replace

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machineinfo import Core, HugePages, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node import Node

GIB = 2**30


def machine(nodes: int, cpus_per_node: int = 32) -> MachineInfo:
    """Return N NUMA nodes on 2 sockets, two threads a core, siblings c and c + total/2, 64 GiB a node."""
    total = nodes * cpus_per_node
    cores_per_node = cpus_per_node // 2
    per_socket = max(nodes // 2, 1)

    def distance(one: int, other: int) -> int:
        if one == other:
            return 10
        return 12 if one // per_socket == other // per_socket else 32

    return MachineInfo(
        num_cores=total,
        num_sockets=2,
        memory_capacity=nodes * 64 * GIB,
        topology=tuple(
            NUMANode(
                node_id=node,
                memory=64 * GIB,
                cores=tuple(
                    Core(core, (core, core + total // 2), node // per_socket)
                    for core in range(node * cores_per_node, (node + 1) * cores_per_node)
                ),
                distances=tuple(distance(node, other) for other in range(nodes)),
            )
            for node in range(nodes)
        ),
    )


def config(policy: str, total: int, **options: str) -> KubeletConfig:
    """Return the configuration of the figures: static CPU policy, the first core reserved."""
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=options,
        topology_manager_policy=policy,
        topology_manager_policy_options={"max-allowable-numa-nodes": "64"},
        reserved_system_cpus=f"0,{total // 2}",
    )


def pod(uid: str, cpus: int = 4, memory: str = "4Gi") -> Pod:
    """Return a Guaranteed pod with one container."""
    amounts = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse(memory)}
    return Pod(uid, uid, containers=(Container("main", requests=amounts, limits=amounts),), qos=QoS.GUARANTEED)


def filled(node: Node, share: float) -> Node:
    """Admit pods of 4 CPUs until ``share`` of the node's CPUs is taken."""
    if node.settings.topology is None:
        raise ValueError("the machine has no CPUs")
    count = int(node.settings.topology.num_cpus * share) // 4
    for number in range(count):
        node, decision = node.admit(pod(f"filler-{number}"))
        if not decision.admitted:
            raise ValueError(decision.message)
    return node


def whole(policy: str, total: int, **options: str) -> KubeletConfig:
    """Return the configuration with static CPU and memory policies, the eviction threshold reserved on node 0."""
    return replace(
        config(policy, total),
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
        eviction_hard={"memory.available": "100Mi"},
        topology_manager_policy_options={"max-allowable-numa-nodes": "64", **options},
    )


def started(info: MachineInfo, kubelet: KubeletConfig, share: float) -> Kubelet:
    """Return a running kubelet, filled with pods of 4 CPUs until ``share`` of the CPUs is taken."""
    start = start_kubelet(info, kubelet, MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet)
    running = start
    for number in range(int(info.num_cores * share) // 4):
        running, decision = running.admit(pod(f"filler-{number}"))
        assert decision.admitted
    return running


def rich_machine() -> MachineInfo:
    """Return 8 nodes with two sizes of huge pages."""
    info = machine(8)
    pages = (HugePages(2048, 1024), HugePages(1048576, 8))
    return replace(info, topology=tuple(replace(node, hugepages=pages) for node in info.topology))


RICH_LIMITS = {
    "cpu": "4",
    "memory": "4Gi",
    "hugepages-2Mi": "64Mi",
    "hugepages-1Gi": "2Gi",
    "vendor.example/gpu": "1",
    "vendor.example/nic": "1",
}


def rich_node() -> Node:
    """Return the rich machine half full, with two kinds of devices, two of each on every node."""
    devices = {
        f"vendor.example/{kind}": tuple(Device(f"{kind}-{number}", (number % 8,)) for number in range(16))
        for kind in ("gpu", "nic")
    }
    return started(rich_machine(), whole("best-effort", 256), 0.5).with_devices(DeviceState(devices)).node


def rich_pod(uid: str) -> Pod:
    """Return a pod that asks for everything that the rich machine has."""
    amounts = {name: Quantity.parse(text) for name, text in RICH_LIMITS.items()}
    return replace(pod(uid), containers=(Container("main", requests=amounts, limits=amounts),))


def gpu_tray() -> MachineInfo:
    """Return 34 nodes: two with CPUs, 32 of memory only."""

    def cores(node: int) -> tuple[Core, ...]:
        return (
            tuple(Core(core, (core, core + 32), node) for core in range(node * 16, node * 16 + 16)) if node < 2 else ()
        )

    def distances(node: int) -> tuple[int, ...]:
        return tuple(10 if node == other else 20 if other < 2 else 40 for other in range(34))

    nodes = tuple(NUMANode(node, 64 * GIB, cores=cores(node), distances=distances(node)) for node in range(34))
    return MachineInfo(64, 2, 34 * 64 * GIB, nodes)
