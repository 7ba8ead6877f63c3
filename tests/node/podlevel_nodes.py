"""Nodes for pods with resources of their own (KEP-5526)."""

from __future__ import annotations

from dataclasses import replace

from tests.cpumanager.pods import amounts, container
from tests.node.nodes import config, machine

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.node import Node

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
ONE_THREAD = machine(1, 6, threads=1)
"""CPUs 0 to 5, of which 0 is reserved, as in the examples of KEP-5526."""


def managed(policy: str = "best-effort", scope: str = "pod", *, memory: bool = False, **more: object) -> KubeletConfig:
    """Return a configuration with PodLevelResourceManagers; further arguments are those of ``nodes.config``."""
    found = config(policy, scope, **{"gates": {"PodLevelResourceManagers": True}, **more})  # type: ignore[arg-type]
    if not memory:
        return found
    return replace(found, memory_manager_policy="Static", reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),))


def fresh(kubelet: KubeletConfig, info: MachineInfo = ONE_THREAD, *fixed: str) -> Node:
    return Node.fresh(info, kubelet, MooringConfig(fixed_defects=frozenset(fixed)))


def shared(name: str, kind: ContainerKind = APP) -> Container:
    """Return a container without requests."""
    return Container(name, kind)


def whole(cpu: str, *containers: Container, memory: str = "4Gi", uid: str = "pod", qos: QoS = QoS.GUARANTEED) -> Pod:
    resources = PodResources(amounts(cpu, memory), amounts(cpu, memory))
    return Pod(uid, uid, containers=containers, qos=qos, resources=resources)


def cpus_of(node: Node, uid: str = "pod") -> dict[str, str]:
    """Return the CPUs of a pod's containers as texts, and those of the pod under the empty name."""
    found = {name: list_text(mask) for name, mask in node.cpu.assignments.get(uid, {}).items()}
    return {**found, "": list_text(node.cpu.pods[uid])} if uid in node.cpu.pods else found


__all__ = ["APP", "INIT", "ONE_THREAD", "SIDECAR", "container", "cpus_of", "fresh", "managed", "shared", "whole"]
