"""Small pods and policies."""

from __future__ import annotations

from dataclasses import replace

from tests.cpumanager.machines import fixture, mask

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node import Node
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.machines.compact import parse_compact

PACKED = TakeRules()


def amounts(cpu: str, memory: str = "1Gi") -> dict[str, Quantity]:
    """Return cpu and memory; an empty text leaves a resource out."""
    texts = {"cpu": cpu, "memory": memory}
    return {name: Quantity.parse(text) for name, text in texts.items() if text}


def container(name: str, cpu: str = "", *, kind: ContainerKind = ContainerKind.APP, memory: str = "1Gi") -> Container:
    """Return a container whose limits equal its requests."""
    return Container(name, kind, amounts(cpu, memory), amounts(cpu, memory))


def guaranteed(uid: str, *containers: Container, qos: QoS = QoS.GUARANTEED) -> Pod:
    return Pod(uid, uid, containers=containers, qos=qos)


def pod_level(uid: str, cpu: str, *containers: Container, qos: QoS = QoS.GUARANTEED) -> Pod:
    """Return a pod with resources of its own, limits equal to requests."""
    resources = PodResources(amounts(cpu, "4Gi"), amounts(cpu, "4Gi"))
    return Pod(uid, uid, containers=containers, qos=qos, resources=resources)


def pod_level_node(release: str, *fixed: str, state: CPUState | None = None) -> Node:
    """Return a node of eight CPUs, the first one reserved, that gives pods CPUs of their own (KEP-5526)."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    info = parse_compact("cores=8 threads=1").info
    node = Node.fresh(info, config, MooringConfig(fixed_defects=frozenset(fixed), release=RELEASES[release]))
    return node if state is None else replace(node, providers=replace(node.providers, cpu=state))


def static_policy(name: str, *, rules: TakeRules = PACKED, reserved: str = "", strict: bool = False) -> StaticPolicy:
    topology = fixture(name)
    cpus = mask(reserved)
    return StaticPolicy(topology, rules, cpus, topology.core_siblings(cpus), strict_reservation=strict)
