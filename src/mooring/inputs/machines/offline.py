"""A machine as its kubelet would read it if some CPUs were offline when it starts.

Source: cAdvisor 0.60.5, which leaves CPUs out that are offline (``machine.GetTopology``, ``sysinfo.GetNodesInfo``);
their NUMA nodes stay with their memory.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.hardware import Hardware
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.machineinfo import MachineInfo, NUMANode

CODE = "MOOR-517"


def without_cpus(machine: Machine, cpus: CPUSet) -> Machine:
    """Return a machine with some of its CPUs offline.

    Raises:
        InputError: it does not have them, or no CPU would be left.
    """
    known = CPUSet.from_ids(cpu for node in machine.info.topology for core in node.cores for cpu in core.thread_ids)
    if cpus - known:
        raise InputError(f"the machine has no CPU {cpus - known}", field="--offline", remedy=f"it has {known}")
    if not known - cpus:
        raise InputError("no CPU would be left", field="--offline", remedy="leave one online")
    message = "offline before the kubelet starts; for CPUs that go offline later use the extension cpu-hotplug"
    finding = Finding("info", f"CPU{'' if len(cpus) == 1 else 's'} {cpus}", message, CODE)
    hardware = None if machine.hardware is None else _hardware(machine.hardware, cpus)
    return replace(machine, info=_info(machine.info, cpus), hardware=hardware, findings=(*machine.findings, finding))


def _info(info: MachineInfo, cpus: CPUSet) -> MachineInfo:
    topology = tuple(_node(node, cpus) for node in info.topology)
    cores = [core for node in topology for core in node.cores]
    return replace(
        info,
        num_cores=sum(len(core.thread_ids) for core in cores),
        num_sockets=len({core.socket_id for core in cores}),
        topology=topology,
    )


def _node(node: NUMANode, cpus: CPUSet) -> NUMANode:
    cores = (replace(core, thread_ids=tuple(cpu for cpu in core.thread_ids if cpu not in cpus)) for core in node.cores)
    return replace(node, cores=tuple(core for core in cores if core.thread_ids))


def _hardware(hardware: Hardware, cpus: CPUSet) -> Hardware:
    nodes = tuple(replace(node, local_cpus=node.local_cpus - cpus) for node in hardware.nodes)
    left = tuple(cpu for cpu in hardware.cpus if cpu.id not in cpus)
    return replace(
        hardware,
        cpus=left,
        online=hardware.online - cpus,
        offline=hardware.offline | cpus,
        nodes=nodes,
        num_cores=len({cpu.core for cpu in left}),
        num_packages=len({cpu.package_first_cpu for cpu in left}),
    )
