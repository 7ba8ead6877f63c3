"""A small node whose state files the doctor looks at: four CPUs, two NUMA nodes, huge pages on the first."""

from __future__ import annotations

from dataclasses import replace

from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.machineinfo import Core, HugePages, MachineInfo, NUMANode

GiB = 2**30
MACHINE = MachineInfo(
    num_cores=4,
    num_sockets=1,
    memory_capacity=2 * GiB,
    topology=(
        NUMANode(0, GiB, (HugePages(2048, 8),), (Core(0, (0,), 0), Core(1, (1,), 0))),
        NUMANode(1, GiB, (), (Core(2, (2,), 0), Core(3, (3,), 0))),
    ),
    hugepages=(HugePages(2048, 8),),
)
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    reserved_system_cpus="0",
    kube_reserved={"memory": "28Mi"},
    reserved_memory=(ReservedMemory(0, {"memory": "128Mi"}),),
)


def config(*, strict: bool = False, pods: bool = False) -> KubeletConfig:
    return replace(
        CONFIG,
        cpu_manager_policy_options={"strict-cpu-reservation": "true"} if strict else {},
        feature_gates={"PodLevelResourceManagers": True} if pods else {},
    )
