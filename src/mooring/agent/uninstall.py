"""Uninstalling the agent from a node whose containers run on: ``mooring agent --leave``.

Containers get all CPUs, all memory nodes and the kubelet's CFS quotas back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, Quota
from mooring.agent.effects import LiftQuota, SweepAssigned, WriteCPUSet
from mooring.agent.executor import AssignedFiles
from mooring.agent.interrupts.files import restore_interrupts
from mooring.agent.nri.plugin import connect_to, update_by_synchronizing
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import ContainerUpdate, NRIError, PodSandbox, RuntimeContainer
from mooring.agent.pods.cluster import PodSources, open_cluster_access
from mooring.agent.pods.resolve import resolved
from mooring.agent.reactor.containers import unlisted
from mooring.agent.reactor.hotplug import cpus_changed, is_watched
from mooring.agent.reactor.synchronize import quota_period, rollback, synchronize, unknown_pods
from mooring.agent.reconcile import online_cpus
from mooring.agent.startup import AgentCommand, Startup, read_startup, resume_state
from mooring.agent.state import AgentState
from mooring.agent.store import Store
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding

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
        restored, problems = _written(quotas, cpusets, quota_period(state), beginning.cgroups)
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
    quotas: Iterable[tuple[LiftQuota, int]], cpusets: Iterable[WriteCPUSet], period: int, cgroups: CGroups
) -> tuple[int, list[str]]:
    """Write the control groups; the runtime, which does the same, gets its updates afterwards.

    Returns:
        How many quotas were restored, and what was not.
    """
    problems: list[str] = []
    restored = 0
    for place, quota in quotas:
        trouble = cgroups.restore_quota(place, Quota(quota, period))
        restored += trouble is None
        if trouble not in (None, CGroupTrouble.GONE):
            problems.append(f"{place.cgroup}: its quota of {quota} is not written: {trouble.value}")
    for one in cpusets:
        written = cgroups.write_cpuset(one)
        if written.trouble not in (None, CGroupTrouble.GONE):
            problems.append(f"{one.cgroup}: its cpuset is not widened: {written.problem}")
    return restored, problems
