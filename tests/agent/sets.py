"""Values of the reactor from CPU lists as people write them."""

from __future__ import annotations

from mooring.agent.effects import Occasion, WriteCPUSet
from mooring.agent.state import Assigned, Setting
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.cpuset import CPUSet

cpus = CPUSet.parse


def nodes(text: str) -> NUMAMask:
    return NUMAMask(cpus(text).mask)


def setting(cpu_list: str = "", mems: str = "", quota: int | None = None) -> Setting:
    return Setting(cpus(cpu_list), nodes(mems), quota)


def assigned(cpu_list: str = "", mems: str = "", shared: str | None = None) -> Assigned:
    return Assigned(cpus(cpu_list), nodes(mems), None if shared is None else cpus(shared))


def cpuset_write(
    container_id: str, pid: int, cgroup: str, cpu_list: str, mems: str, occasion: Occasion = Occasion.DECISION
) -> WriteCPUSet:
    return WriteCPUSet(container_id, pid, cgroup, cpus(cpu_list), nodes(mems), occasion)
