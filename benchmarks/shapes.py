"""The inputs of the kubelet's own figures: nodes and pods as docs/explanation/performance.md describes them."""

from __future__ import annotations

from mooring.core.config import KubeletConfig
from mooring.core.machineinfo import Core, MachineInfo, Node
from mooring.core.pod import Container, Pod, QoS
from mooring.core.quantity import Quantity
from mooring.node import Node as KubeletNode

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
            Node(
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


def filled(node: KubeletNode, share: float) -> KubeletNode:
    """Admit pods of 4 CPUs until ``share`` of the node's CPUs is taken."""
    if node.settings.topology is None:
        raise ValueError("the machine has no CPUs")
    count = int(node.settings.topology.num_cpus * share) // 4
    for number in range(count):
        node, decision = node.admit(pod(f"filler-{number}"))
        if not decision.admitted:
            raise ValueError(decision.message)
    return node
