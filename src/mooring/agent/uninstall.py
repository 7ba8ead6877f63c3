"""Uninstalling the agent from a node whose containers run on: ``mooring agent --leave``.

Containers get all CPUs, all memory nodes and the kubelet's CFS quotas back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, Quota
from mooring.agent.cpu_hotplug import OnlineCPUList
from mooring.agent.effects import LiftQuota, QuotaOf, SweepAssigned, WriteCPUSet
from mooring.agent.executor import AssignedFiles
from mooring.agent.interrupts.reconcile import restore_interrupts
from mooring.agent.nri.plugin import connect_to, update_by_synchronizing
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import ContainerUpdate, LinuxResources, NRIError, PodSandbox, RuntimeContainer
from mooring.agent.pods.cluster import ClusterAccess, open_cluster_access
from mooring.agent.pods.resolve import resolved
from mooring.agent.quota import asked_of, lift_of_container, lift_of_pod, quota_of_pod
from mooring.agent.reactor.containers import unlisted
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.hotplug import cpus_changed, is_watched
from mooring.agent.reactor.resume import resume
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.startup import AgentCommand, Startup, choices_of, read_startup
from mooring.agent.state import HAS_CGROUP, UPDATABLE, AgentState, KnownContainer
from mooring.agent.storage.store import Store
from mooring.engine.core.bits import NO_NODES, NUMAMask, list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod
from mooring.inputs.pods.defaults import PodGates

_PATIENCE = 5.0
"""Seconds for the API server to lose the taint."""


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """What came of leaving."""

    containers: int
    """How many may use every CPU and memory node again."""
    quotas: int
    """How many groups have the kubelet's CFS quota again."""
    problems: tuple[str, ...] = ()
    """What is not as it was before the agent came, one line each."""


def uninstall(asked: AgentCommand) -> Uninstalled:
    """Give everything back, in the control groups and on the runtime's record, and let the node be.

    The state folder stays: an agent that starts again puts every container back where it was.

    Raises:
        InputError: the configuration cannot be used, an agent runs, or the runtime is not reached.
    """
    beginning = read_startup(asked)
    options = beginning.configuration.options
    store = Store(Path(options.state_dir))
    store.check()
    store.lock()
    try:
        state = resume(
            beginning.machine.info,
            beginning.configuration.kubelet,
            beginning.configuration.mooring,
            store.read(),
            choices_of(options),
            source=beginning.configuration.source,
        ).state
        online = OnlineCPUList(beginning.root).read() if beginning.root and is_watched(state) else None
        if online is not None:
            state = cpus_changed(state, online.mask).state
        problems: list[str] = []

        def report(finding: Finding) -> None:
            # Without the taint, a last report to the cluster does not matter.
            if options.fail_closed and finding.severity == "warning":
                problems.append(f"{finding.subject}: {finding.message}")

        gates = PodGates.of_node(beginning.configuration.kubelet, beginning.configuration.mooring)
        around = open_cluster_access(options, gates, beginning.node, report)
        try:
            left = _left(beginning, state, around)
            if options.fail_closed:
                around.outward.taint(present=False)
        finally:
            around.stop(_PATIENCE)
        if beginning.root:
            problems += restore_interrupts(beginning.root, store.folder)
        return Uninstalled(left.containers, left.quotas, (*left.problems, *problems))
    finally:
        store.unlock()


def _left(beginning: Startup, state: AgentState, around: ClusterAccess) -> Uninstalled:
    found: list[Uninstalled] = []

    def updates(sandboxes: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]) -> Sequence[ContainerUpdate]:
        running = _running(state, beginning.cgroups, sandboxes, containers)
        of_sandbox: dict[str, list[RuntimeContainer]] = {}
        for one in containers:
            of_sandbox.setdefault(one.pod_sandbox_id, []).append(one)
        known = around.pods.known(sandboxes)
        specs = {
            one.uid: resolved(known.get(one.uid), one, None, of_sandbox.get(one.id, ())).pod
            for one in unknown_pods(state, sandboxes, containers, running)
        }
        back = rollback(synchronize(state, sandboxes, containers, specs, running=running).state, known)
        left = _written(back, beginning.cgroups)
        # No container has exclusive CPUs any more.
        problem = files.do(SweepAssigned(frozenset(), frozenset(one.id for one in containers)))
        found[:] = [replace(left, problems=(*left.problems, problem)) if problem else left]
        return back.updates

    options = beginning.configuration.options
    files = AssignedFiles(Path(options.assigned_dir))
    try:
        update_by_synchronizing(
            partial(connect_to, options.nri_socket), updates, PluginOptions(index=options.plugin_index)
        )
    except NRIError as error:
        raise InputError(
            f"the runtime is not reached: {error}",
            source=options.nri_socket,
            remedy="start it: its record has the containers' CPUs too",
        ) from None
    return found[0]


def _running(
    state: AgentState, cgroups: CGroups, sandboxes: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
) -> frozenset[str]:
    """Return what runs although the runtime does not list it."""
    found = unlisted(state, sandboxes, containers)
    return frozenset(one.id for one in found if cgroups.has_processes(one.cgroup, one.pid))


def _written(back: Rollback, cgroups: CGroups) -> Uninstalled:
    """Write the control groups; the runtime, which does the same, gets its updates afterwards."""
    problems: list[str] = []
    restored = 0
    for quota in back.quotas:
        trouble = cgroups.restore_quota(quota.place, Quota(quota.microseconds, quota.period))
        restored += trouble is None
        if trouble not in (None, CGroupTrouble.GONE):
            problems.append(f"{quota.place.cgroup}: its quota of {quota.microseconds} is not written: {trouble.value}")
    for one in back.cpusets:
        written = cgroups.write_cpuset(one)
        if written.trouble not in (None, CGroupTrouble.GONE):
            problems.append(f"{one.cgroup}: its cpuset is not widened: {written.problem}")
    return Uninstalled(len(back.updates), restored, tuple(problems))


@dataclass(frozen=True, slots=True)
class RestoredQuota:
    """A group that gets its quota back."""

    place: LiftQuota
    microseconds: int
    """Per period."""
    period: int
    """Microseconds."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """What is to be written and told, in the order of the fields."""

    quotas: tuple[RestoredQuota, ...]
    """Pods before their containers: in cgroup v1 no group may have more than the group above."""
    cpusets: tuple[WriteCPUSet, ...]
    updates: tuple[ContainerUpdate, ...]
    """For the runtime's record, which would else bring the old cpuset back with the next resize."""


def rollback(state: AgentState, pods: Mapping[str, Pod]) -> Rollback:
    """Return what undoes the agent's changes on a node.

    A container without CPUs or memory nodes on the runtime's record was never placed and stays as it is. The sandbox
    has a group of its own that no kubelet gives a quota.

    Args:
        state: after the runtime has told what there is.
        pods: by uid, with their present limits; where one is missing, the state's counts.
    """
    info = state.kubelet.info
    # Version 1 refuses CPUs that are offline, and a runtime's record with one would fail at the next resize.
    cpus, mems = all_cpus(info) - CPUSet(state.kubelet.node.cpu.offline), memory_nodes(info)
    quotas: list[RestoredQuota] = [*_of_pods(state, pods)]
    cpusets: list[WriteCPUSet] = []
    updates: list[ContainerUpdate] = []
    for one in state.containers.values():
        if one.phase not in UPDATABLE:
            continue
        quota = _of_container(state, pods, one)
        wide = LinuxResources(
            cpus=str(cpus) if one.record.cpus else "",
            mems=list_text(mems) if one.record.mems else "",
            quota=quota.microseconds if quota is not None else None,
            period=quota.period if quota is not None else None,
        )
        if wide == LinuxResources():
            continue
        updates.append(ContainerUpdate(one.id, wide, ignore_failure=True))
        if one.phase in HAS_CGROUP:
            cpusets.append(
                WriteCPUSet(
                    one.id, one.pid, one.cgroup, cpus if wide.cpus else CPUSet(), mems if wide.mems else NO_NODES
                )
            )
            quotas += [quota] if quota is not None else []
    return Rollback(tuple(quotas), tuple(cpusets), tuple(updates))


def all_cpus(info: MachineInfo) -> CPUSet:
    """Return the CPUs of a machine."""
    return CPUSet.from_ids(cpu for node in info.topology for core in node.cores for cpu in core.thread_ids)


def memory_nodes(info: MachineInfo) -> NUMAMask:
    """Return the NUMA nodes that have memory; the kernel takes no others."""
    return NUMAMask(mask_of(node.node_id for node in info.topology if node.memory))


def _of_pods(state: AgentState, pods: Mapping[str, Pod]) -> Iterator[RestoredQuota]:
    seen: set[str] = set()
    period = _period(state)
    for uid in dict.fromkeys(one.uid for one in state.sandboxes.values()):
        for lift in lift_of_pod(state, uid):
            pod = pods.get(uid) or state.kubelet.node.active[uid]
            quota = quota_of_pod(pod, period)
            if lift.of is QuotaOf.POD and quota and lift.cgroup not in seen:
                seen.add(lift.cgroup)
                yield RestoredQuota(lift, quota, period)


def _of_container(state: AgentState, pods: Mapping[str, Pod], one: KnownContainer) -> RestoredQuota | None:
    lifts = lift_of_container(one, DesiredSettings.now(state).of(one.uid, one.name))
    pod = pods.get(one.uid) or state.kubelet.node.active.get(one.uid)
    spec = None if pod is None else pod.container(one.name)
    if not lifts or pod is None or spec is None:
        return None
    quota = asked_of(pod, spec, _period(state)).quota
    return RestoredQuota(lifts[0], quota, _period(state)) if quota else None


def _period(state: AgentState) -> int:
    return state.kubelet.settings.config.cpu_cfs_quota_period_ns // 1000
