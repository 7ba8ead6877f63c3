"""Made-up machines and owners to draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Hardware, HardwareCPU, HardwareNode, Machine
from mooring.engine.core.machineinfo import CPUKind, MachineInfo
from mooring.inputs.machines.compact import parse_compact
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.view import NO_CPUS, CPUUse, MemoryUse, NodeView, RejectedPod

GIB = 1 << 30

_WISHES = (
    ("ml/trainer-7f9c8d5b6-x2x4z/worker", 8),
    ("ml/trainer-7f9c8d5b6-x2x4z/feeder", 2),
    ("telco/upf-0/dataplane", 6),
    ("telco/upf-0/control", 2),
    ("db/postgres-primary-0/postgres", 12),
    ("video/transcode-8c7f6/ffmpeg", 4),
    ("trading/matcher-0/matcher", 2),
    ("hpc/solver-rank-00/solver", 16),
    ("hpc/solver-rank-01/solver", 16),
    ("cache/redis-a-very-long-name-with-a-shard-number-17/redis", 4),
)
"""Owners of the demonstrations and how many cores' worth of CPUs they want."""
_WHY = "it needs 40 CPUs within one NUMA node; the node with the most has fewer free"


@dataclass(frozen=True, slots=True)
class SampleShape:
    """A regular machine in figures."""

    sockets: int = 1
    nodes: int = 1
    """NUMA nodes with CPUs per socket."""
    caches: int = 1
    """L3 groups per NUMA node."""
    cores: int = 4
    """Cores per L3 group."""
    threads: int = 2
    memory_only: int = 0
    """NUMA nodes without CPUs per socket."""
    node_memory: int = 64 * GIB
    """Bytes."""


def regular(shape: SampleShape, name: str = "sample") -> Machine:
    """Return a machine of ``shape`` as cAdvisor tells it.

    >>> regular(SampleShape(sockets=2, cores=4)).info.num_cores
    16
    """
    nodes = shape.sockets * shape.nodes
    caches, cpuless = nodes * shape.caches, shape.sockets * shape.memory_only
    text = f"sockets={shape.sockets} numa={nodes} l3={caches} cores={caches * shape.cores} threads={shape.threads}"
    info = parse_compact(f"{text} cpuless={cpuless}" if cpuless else text).info
    topology = tuple(replace(node, memory=shape.node_memory) for node in info.topology)
    return Machine(name, replace(info, memory_capacity=shape.node_memory * len(topology), topology=topology))


def hybrid(name: str = "hybrid") -> Machine:
    """Return a laptop processor: six performance cores with two threads, eight efficiency cores with one."""
    fast = CPUSet.parse("0-11")
    cpus = tuple(
        HardwareCPU(
            id=cpu,
            core=cpu // 2 * 2 if cpu in fast else cpu,
            package=0,
            package_first_cpu=0,
            numa=(0,),
            l3=0,
            efficiency=1 if cpu in fast else 0,
        )
        for cpu in range(20)
    )
    everything = CPUSet.parse("0-19")
    hardware = Hardware(
        cpus=cpus,
        online=everything,
        offline=CPUSet(),
        allowed=everything,
        isolated=CPUSet(),
        nodes=(HardwareNode(0, 32 * GIB, (), everything, "0-19"),),
        distances=None,
        kinds=(CPUKind(1, fast), CPUKind(0, everything - fast)),
    )
    return Machine(name, MachineInfo(20, 1, 32 * GIB, ()), hardware)


def occupied(machine: Machine, *, fill: float = 0.6, reserved_cores: int = 2) -> NodeView:
    """Return ``machine`` with made-up owners on whole cores until ``fill`` (0 to 1) of it is taken."""
    cores = [core.cpus for box in build_view(machine).boxes if not box.is_offline() for core in box.all_cores()]
    everything = CPUSet.from_ids(cpu.cpu for core in cores for cpu in core)
    reserved = CPUSet.from_ids(cpu.cpu for core in cores[:reserved_cores] for cpu in core)
    waiting = iter(cores[reserved_cores:])
    owners: list[CPUOwner] = []
    pool = everything
    for turn in range(len(cores)):
        label, amount = _WISHES[turn % len(_WISHES)]
        taken = CPUSet.from_ids(cpu.cpu for core in islice(waiting, max(1, amount * len(cores) // 128)) for cpu in core)
        if not taken or len(everything) - len(pool - taken) > fill * len(everything):
            break
        suffix = "" if turn < len(_WISHES) else f"-{turn // len(_WISHES)}"
        pool -= taken
        namespace, pod, container = label.split("/")
        owners.append(CPUOwner(f"{namespace}/{pod}{suffix}/{container}", f"{pod}{suffix}", taken))
    return build_view(
        machine,
        owners=owners,
        pools=pooled(reserved, pool, pool - reserved),
        memory={node.id: MemoryUse(2 * GIB, node.id % 4 * 12 * GIB) for node in build_view(machine).numa},
        rejected=[RejectedPod("ml/trainer-next-0", "TopologyAffinityError", _WHY)],
        subtitle="CPU manager static, full-pcpus-only · topology manager single-numa-node",
    )


def pooled(
    reserved: CPUSet = NO_CPUS, shared: CPUSet | None = None, free: CPUSet = NO_CPUS, offline: CPUSet = NO_CPUS
) -> Pools:
    """Return what CPUs without an exclusive owner are for; without a shared pool every CPU is shared."""
    known = {CPUUse.RESERVED: reserved, CPUUse.FREE: free, CPUUse.OFFLINE: offline}
    return known if shared is None else {**known, CPUUse.SHARED: shared}
