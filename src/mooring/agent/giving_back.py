"""What gives a node back that an agent leaves for good: all CPUs, all memory nodes, and the kubelet's CFS quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mooring.agent.nri.types import ContainerUpdate, LinuxResources
from mooring.agent.pods.agreement import asked_of
from mooring.agent.pods.pod_quota import quota_of_pod
from mooring.agent.reactor.effects import LiftQuota, QuotaOf, WriteCPUSet
from mooring.agent.reactor.values import HAS_CGROUP, UPDATABLE, AgentState, KnownContainer
from mooring.agent.reactor.wanted import Wanted, lift_of_container, lift_of_pod
from mooring.core.cpuset import CPUSet
from mooring.core.machineinfo import MachineInfo
from mooring.core.pod import Pod


@dataclass(frozen=True, slots=True)
class QuotaBack:
    """A group that gets its quota back."""

    place: LiftQuota
    microseconds: int
    """Per period."""
    period: int
    """Microseconds."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What is to be written and told, in the order of the fields."""

    quotas: tuple[QuotaBack, ...]
    """Pods before their containers: in cgroup v1 nobody may have more than the group above."""
    cpusets: tuple[WriteCPUSet, ...]
    updates: tuple[ContainerUpdate, ...]
    """For the runtime's record, which would else bring the old cpuset back with the next resize."""


def given_back(state: AgentState, pods: Mapping[str, Pod]) -> GivenBack:
    """Return what makes a node look as if no agent had been there.

    A container without CPUs or memory nodes on the runtime's record was never placed and stays as it is. The sandbox
    has a group of its own that no kubelet gives a quota.

    Args:
        state: after the runtime has told what there is.
        pods: by uid, with their present limits; where one is missing, the state's counts.
    """
    info = state.kubelet.info
    # Version 1 refuses CPUs that are offline, and a runtime's record with one would fail at the next resize.
    cpus, mems = all_cpus(info) - CPUSet(state.kubelet.node.cpu.offline), memory_nodes(info)
    quotas: list[QuotaBack] = [*_of_pods(state, pods)]
    cpusets: list[WriteCPUSet] = []
    updates: list[ContainerUpdate] = []
    for one in state.containers.values():
        if one.phase not in UPDATABLE:
            continue
        quota = _of_container(state, pods, one)
        wide = LinuxResources(
            cpus=str(cpus) if one.told.cpus else "",
            mems=str(mems) if one.told.mems else "",
            quota=quota.microseconds if quota is not None else None,
            period=quota.period if quota is not None else None,
        )
        if wide == LinuxResources():
            continue
        updates.append(ContainerUpdate(one.id, wide, ignore_failure=True))
        if one.phase in HAS_CGROUP:
            cpusets.append(WriteCPUSet(one.id, one.pid, one.cgroup, wide.cpus, wide.mems))
            quotas += [quota] if quota is not None else []
    return GivenBack(tuple(quotas), tuple(cpusets), tuple(updates))


def all_cpus(info: MachineInfo) -> CPUSet:
    """Return the CPUs of a machine."""
    return CPUSet.from_ids(cpu for node in info.topology for core in node.cores for cpu in core.thread_ids)


def memory_nodes(info: MachineInfo) -> CPUSet:
    """Return the NUMA nodes that have memory; the kernel takes no others."""
    return CPUSet.from_ids(node.node_id for node in info.topology if node.memory)


def _of_pods(state: AgentState, pods: Mapping[str, Pod]) -> Iterator[QuotaBack]:
    seen: set[str] = set()
    period = _period(state)
    for uid in dict.fromkeys(one.uid for one in state.sandboxes.values()):
        for lift in lift_of_pod(state, uid):
            pod = pods.get(uid) or state.kubelet.node.active[uid]
            quota = quota_of_pod(pod, period)
            if lift.of is QuotaOf.POD and quota and lift.cgroup not in seen:
                seen.add(lift.cgroup)
                yield QuotaBack(lift, quota, period)


def _of_container(state: AgentState, pods: Mapping[str, Pod], one: KnownContainer) -> QuotaBack | None:
    lifts = lift_of_container(one, Wanted.now(state).of(one.uid, one.name))
    pod = pods.get(one.uid) or state.kubelet.node.active.get(one.uid)
    spec = next((each for each in pod.containers if each.name == one.name), None) if pod is not None else None
    if not lifts or pod is None or spec is None:
        return None
    quota = asked_of(pod, spec, _period(state)).quota
    return QuotaBack(lifts[0], quota, _period(state)) if quota else None


def _period(state: AgentState) -> int:
    return state.kubelet.settings.config.cpu_cfs_quota_period_ns // 1000
