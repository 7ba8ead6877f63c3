"""Uninstalling the agent from a node whose containers run on: ``mooring agent --leave``.

Containers get all CPUs, all memory nodes and the kubelet's CFS quotas back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, Quota
from mooring.agent.effects import LiftQuota, QuotaOf, SweepAssigned, WriteCPUSet
from mooring.agent.executor import AssignedFiles
from mooring.agent.interrupts.files import restore_interrupts
from mooring.agent.nri.plugin import connect_to, update_by_synchronizing
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import ContainerUpdate, LinuxResources, NRIError, PodSandbox, RuntimeContainer
from mooring.agent.pods.cluster import PodSources, open_cluster_access
from mooring.agent.pods.resolve import resolved
from mooring.agent.pods.source import asked_of, quota_of_pod
from mooring.agent.reactor.containers import unlisted
from mooring.agent.reactor.desired import DesiredSettings, lift_of_container, lift_of_pod
from mooring.agent.reactor.hotplug import cpus_changed, is_watched
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reconcile import online_cpus
from mooring.agent.startup import AgentCommand, Startup, read_startup, resume_state
from mooring.agent.state import HAS_CGROUP, UPDATABLE, AgentState
from mooring.agent.store import Store
from mooring.engine.core.bits import NO_NODES, NUMAMask, list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod

_PATIENCE = 5.0
"""Seconds for the API server to lose the taint."""


class Uninstalled(NamedTuple):
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
        state = resume_state(beginning, store.read()).state
        online = online_cpus(beginning.root) if beginning.root and is_watched(state) else None
        if online is not None:
            state = cpus_changed(state, online.mask).state
        problems: list[str] = []

        def report(finding: Finding) -> None:
            # Without the taint, a last report to the cluster does not matter.
            if options.marks_node and finding.severity == "warning":
                problems.append(f"{finding.subject}: {finding.message}")

        pods, outward = open_cluster_access(options, beginning.configuration.gates, beginning.node, report)
        try:
            left = _left(beginning, state, pods)
            if options.marks_node:
                outward.taint(present=False)
        finally:
            outward.stop(_PATIENCE)
            pods.stop(_PATIENCE)
        if beginning.root:
            problems += restore_interrupts(beginning.root, store.folder)
        return left._replace(problems=(*left.problems, *problems))
    finally:
        store.unlock()


def _left(beginning: Startup, state: AgentState, pods: PodSources) -> Uninstalled:
    found: list[Uninstalled] = []

    def updates(sandboxes: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]) -> Sequence[ContainerUpdate]:
        # What runs although the runtime does not list it
        groups = unlisted(state, sandboxes, containers)
        running = frozenset(one for one, group in groups.items() if beginning.cgroups.has_processes(*group))
        of_sandbox: dict[str, list[RuntimeContainer]] = {}
        for one in containers:
            of_sandbox.setdefault(one.pod_sandbox_id, []).append(one)
        known = pods.known(sandboxes)
        specs = {
            one.uid: resolved(known.get(one.uid), one, None, of_sandbox.get(one.id, ())).pod
            for one in unknown_pods(state, sandboxes, containers, running)
        }
        synchronized = synchronize(state, sandboxes, containers, specs, running=running).state
        quotas, cpusets, told = rollback(synchronized, known)
        restored, problems = _written(quotas, cpusets, beginning.cgroups)
        # No container has exclusive CPUs any more.
        if problem := files.do(SweepAssigned(frozenset(), frozenset(one.id for one in containers))):
            problems.append(problem)
        found.append(Uninstalled(len(told), restored, tuple(problems)))
        return told

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
    return found[-1]


def _written(
    quotas: Iterable[tuple[LiftQuota, Quota]], cpusets: Iterable[WriteCPUSet], cgroups: CGroups
) -> tuple[int, list[str]]:
    """Write the control groups; the runtime, which does the same, gets its updates afterwards.

    Returns:
        How many quotas were restored, and what was not.
    """
    problems: list[str] = []
    restored = 0
    for place, quota in quotas:
        trouble = cgroups.restore_quota(place, quota)
        restored += trouble is None
        if trouble not in (None, CGroupTrouble.GONE):
            problems.append(f"{place.cgroup}: its quota of {quota.microseconds} is not written: {trouble.value}")
    for one in cpusets:
        written = cgroups.write_cpuset(one)
        if written.trouble not in (None, CGroupTrouble.GONE):
            problems.append(f"{one.cgroup}: its cpuset is not widened: {written.problem}")
    return restored, problems


def rollback(
    state: AgentState, pods: Mapping[str, Pod]
) -> tuple[list[tuple[LiftQuota, Quota]], list[WriteCPUSet], list[ContainerUpdate]]:
    """Return what undoes the agent's changes on a node, in the order in which it is to be written and told.

    Quotas of pods come before those of their containers: in cgroup v1 no group may have more than the group above. The
    updates are for the runtime's record, which would else bring the old cpuset back with the next resize.
    A container without CPUs or memory nodes on the runtime's record was never placed and stays as it is. The sandbox
    has a group of its own that no kubelet gives a quota.

    Args:
        state: after the runtime has told what there is.
        pods: by uid, with their present limits; where one is missing, the state's counts.
    """
    info = state.kubelet.info
    # Version 1 refuses CPUs that are offline, and a runtime's record with one would fail at the next resize.
    cpus, mems = all_cpus(info) - CPUSet(state.kubelet.node.cpu.offline), memory_nodes(info)
    pods, period = {**state.kubelet.node.active, **pods}, state.kubelet.settings.config.cpu_cfs_quota_period_ns // 1000
    places: dict[str, tuple[LiftQuota, Quota]] = {}
    for uid in dict.fromkeys(one.uid for one in state.sandboxes.values()):
        for lift in lift_of_pod(state, uid):
            amount = quota_of_pod(pods[uid], period)
            if lift.of is QuotaOf.POD and amount:
                places.setdefault(lift.cgroup, (lift, Quota(amount, period)))
    quotas, cpusets, updates = [*places.values()], list[WriteCPUSet](), list[ContainerUpdate]()
    for one in state.containers.values():
        if one.phase not in UPDATABLE:
            continue
        lifts = lift_of_container(one, DesiredSettings.now(state).of(one.uid, one.name))
        pod = pods.get(one.uid)
        spec = None if pod is None or not lifts else pod.container(one.name)
        own = None if pod is None or spec is None else asked_of(pod, spec, period).quota
        wide = LinuxResources(
            cpus=str(cpus) if one.record.cpus else "",
            mems=list_text(mems) if one.record.mems else "",
            quota=own or None,
            period=period if own else None,
        )
        if wide == LinuxResources():
            continue
        updates.append(ContainerUpdate(one.id, wide, ignore_failure=True))
        if one.phase in HAS_CGROUP:
            back = cpus if wide.cpus else CPUSet(), mems if wide.mems else NO_NODES
            cpusets.append(WriteCPUSet(one.id, one.pid, one.cgroup, *back))
            quotas += [(lifts[0], Quota(own, period))] if own else []
    return quotas, cpusets, updates


def all_cpus(info: MachineInfo) -> CPUSet:
    """Return the CPUs of a machine."""
    return CPUSet.from_ids(cpu for node in info.topology for core in node.cores for cpu in core.thread_ids)


def memory_nodes(info: MachineInfo) -> NUMAMask:
    """Return the NUMA nodes that have memory; the kernel takes no others."""
    return NUMAMask(mask_of(node.node_id for node in info.topology if node.memory))
