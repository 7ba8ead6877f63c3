"""Leaving a node for good, while its containers run: ``mooring agent --leave``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mooring.agent.assigned import AssignedFiles
from mooring.agent.cgroups.files import Trouble
from mooring.agent.cgroups.protocol import CGroups
from mooring.agent.cgroups.quota import Quota
from mooring.agent.giving_back import GivenBack, given_back
from mooring.agent.interrupts.care import leave_interrupts
from mooring.agent.nri.errors import NRIError
from mooring.agent.nri.out_of_band import update_by_synchronizing
from mooring.agent.nri.plugin import connect_to
from mooring.agent.nri.session import PluginOptions
from mooring.agent.nri.types import Container, ContainerUpdate, PodSandbox
from mooring.agent.online_cpus import OnlineCPUs
from mooring.agent.options import choices_of
from mooring.agent.pods.resolve import resolved
from mooring.agent.pods.source import PodsAtHand
from mooring.agent.reactor.effects import SweepAssigned
from mooring.agent.reactor.hotplug import cpus_changed, is_watched
from mooring.agent.reactor.listing import unlisted
from mooring.agent.reactor.resume import resume
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.values import AgentState
from mooring.agent.setting_up import Asked, Beginning, beginning_of
from mooring.agent.sources import Surroundings, surroundings
from mooring.agent.store import Store
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.manifest.defaults import PodGates

_PATIENCE = 5.0
"""Seconds for the API server to lose the taint."""


@dataclass(frozen=True, slots=True)
class Left:
    """What came of leaving."""

    containers: int
    """How many may use every CPU and memory node again."""
    quotas: int
    """How many groups have the kubelet's CFS quota again."""
    problems: tuple[str, ...] = ()
    """What is not as it was before the agent came, one line each."""


def leave(asked: Asked) -> Left:
    """Give everything back, in the control groups and on the runtime's record, and let the node be.

    The state folder stays: an agent that starts again puts every container back where it was.

    Raises:
        InputError: the configuration cannot be used, an agent runs, or the runtime is not reached.
    """
    beginning = beginning_of(asked)
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
        online = OnlineCPUs(beginning.root).read() if beginning.root and is_watched(state) else None
        if online is not None:
            state = cpus_changed(state, online.mask).state
        problems: list[str] = []

        def report(finding: Finding) -> None:
            # Without the taint it does not matter whether the cluster hears of the agent once more.
            if options.fail_closed and finding.severity == "warning":
                problems.append(f"{finding.subject}: {finding.message}")

        gates = PodGates.of(beginning.configuration.kubelet.feature_gates, beginning.configuration.mooring.extensions)
        around = surroundings(options, gates, beginning.node, report)
        try:
            left = _left(beginning, state, around)
            if options.fail_closed:
                around.outward.taint(present=False)
        finally:
            around.stop(_PATIENCE)
        if beginning.root:
            problems += leave_interrupts(beginning.root, store.folder)
        return Left(left.containers, left.quotas, (*left.problems, *problems))
    finally:
        store.unlock()


def _left(beginning: Beginning, state: AgentState, around: Surroundings) -> Left:
    found: list[Left] = []

    def updates(sandboxes: Sequence[PodSandbox], containers: Sequence[Container]) -> Sequence[ContainerUpdate]:
        running = _running(state, beginning.cgroups, sandboxes, containers)
        back = _decided(state, around, sandboxes, containers, running)
        left = _written(back, beginning.cgroups)
        # Nobody has anything for himself any more.
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
    state: AgentState, cgroups: CGroups, sandboxes: Sequence[PodSandbox], containers: Sequence[Container]
) -> frozenset[str]:
    """Return who runs although the runtime does not list it."""
    found = unlisted(state, sandboxes, containers)
    return frozenset(one.id for one in found if cgroups.has_processes(one.cgroup, one.pid))


def _decided(
    state: AgentState,
    around: Surroundings,
    sandboxes: Sequence[PodSandbox],
    containers: Sequence[Container],
    running: frozenset[str],
) -> GivenBack:
    of_sandbox: dict[str, list[Container]] = {}
    for one in containers:
        of_sandbox.setdefault(one.pod_sandbox_id, []).append(one)
    known = around.pods.known(sandboxes)
    specs = {
        one.uid: resolved(PodsAtHand(known), one, None, of_sandbox.get(one.id, ())).pod
        for one in unknown_pods(state, sandboxes, containers, running)
    }
    return given_back(synchronize(state, sandboxes, containers, specs, running=running).state, known)


def _written(back: GivenBack, cgroups: CGroups) -> Left:
    """Write the control groups; the runtime, which does the same, is told afterwards."""
    problems: list[str] = []
    restored = 0
    for quota in back.quotas:
        trouble = cgroups.restore_quota(quota.place, Quota(quota.microseconds, quota.period))
        restored += trouble is None
        if trouble not in (None, Trouble.GONE):
            problems.append(f"{quota.place.cgroup}: its quota of {quota.microseconds} is not written: {trouble.value}")
    for one in back.cpusets:
        written = cgroups.write_cpuset(one)
        if written.trouble not in (None, Trouble.GONE):
            problems.append(f"{one.cgroup}: its cpuset is not widened: {written.problem}")
    return Left(len(back.updates), restored, tuple(problems))
