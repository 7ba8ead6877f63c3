"""Synchronize: the runtime tells everything that there is, and the state is brought in line with it.

In this order: what the runtime does not list although it runs is kept; pods that are gone free their places; running
pods keep the entries that they have; entries and resizes that were lost are taken over from the runtime's record; what
is left is decided about in the order of the sandboxes. Updates of containers with CPUs of their own come before those
of the shared pool. Nothing is dropped silently: whatever differed is reported.

An agent that leaves the node for good undoes its changes after it has been told what there is (:func:`rollback`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

from mooring.agent.effects import AgentReport, Effect, LiftQuota, Occasion, QuotaOf, ReportKind, WriteCPUSet, said
from mooring.agent.nri.types import ContainerUpdate, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.source import asked_of, quota_of_pod
from mooring.agent.reactor import desired, placing
from mooring.agent.reactor.containers import kept_containers, kept_sandboxes, listed
from mooring.agent.reactor.desired import DesiredSettings, difference, files_after_restart, nodes_of, sweep, write_of
from mooring.agent.reactor.devices import with_devices
from mooring.agent.reactor.recovery import cpus_of, live_names, taken_over, with_resizes_on_record, with_sizes_on_record
from mooring.agent.reactor.response import Accepted, EventOutcome, outcome, refreshed
from mooring.agent.reactor.update_container import releases_resumed, resizes_missed
from mooring.agent.state import HAS_CGROUP, LIVE, UPDATABLE, AgentState, DevicesFound, HeldPod, LastSeen, Phase
from mooring.engine.core.bits import NO_NODES, NUMAMask, list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.extensions.owners import state_owner
from mooring.engine.memorymanager.policy import container_requests


def unknown_pods(
    state: AgentState,
    sandboxes: Sequence[PodSandbox],
    containers: Sequence[RuntimeContainer],
    running: AbstractSet[str] = frozenset(),
) -> tuple[PodSandbox, ...]:
    """Return the sandboxes whose pods :func:`synchronize` must be given; its arguments.

    These have containers or entries, and their pods, or some of their containers, are unknown.
    """
    node = state.kubelet.node
    names: dict[str, set[str]] = {}
    for container in containers:
        names.setdefault(container.pod_sandbox_id, set()).add(container.name)
    for kept in kept_containers(state, containers, running):
        names.setdefault(kept.sandbox_id, set()).add(kept.name)
    found = []
    for sandbox in (*sandboxes, *kept_sandboxes(state, sandboxes, containers, running)):
        pod = node.active.get(sandbox.uid) or state.remembered.get(sandbox.uid)
        live = names.get(sandbox.id, set())
        if pod is None:
            is_missed = bool(live) or sandbox.uid in node.cpu.assignments or sandbox.uid in node.memory.assignments
        else:
            is_missed = not live <= {one.name for one in pod.containers}
        if is_missed:
            found.append(sandbox)
    return tuple(found)


def synchronize(
    state: AgentState,
    sandboxes: Sequence[PodSandbox],
    containers: Sequence[RuntimeContainer],
    pods: Mapping[str, Pod],
    observer: Observer | None = None,
    now: Moment | None = None,
    running: AbstractSet[str] = frozenset(),
    devices: Mapping[str, DevicesFound] = MappingProxyType({}),
) -> EventOutcome:
    """Bring state and runtime together.

    Args:
        state: what the agent remembers.
        sandboxes: all of the runtime's, those that have ended too.
        containers: those that are made or run.
        pods: by uid, for :func:`unknown_pods`.
        observer: receives the engine's facts, for metrics.
        now: the present moment, for releases that continue or start again.
        running: ids of those of :func:`~mooring.agent.reactor.containers.unlisted` that have processes.
        devices: what is known of those of pods, by uid; empty without the extension device-alignment.
    """
    found = listed(state, sandboxes, containers, running)
    now = now or found.state.kubelet.node.moment
    effects: list[Effect] = [*found.effects]
    # A delay that is to start again starts now.
    timed = found.state.kubelet.at(now) if placing.resizes(found.state.kubelet) else found.state.kubelet
    step = _without_missing(replace(found.state, kubelet=timed), observer)
    effects += step.effects
    step = _placed(step.state, {**pods, **state.remembered}, containers, devices, observer)
    effects += step.effects
    step = _with_grown(step.state, pods, devices, observer)
    effects += step.effects
    kubelet = step.state.kubelet.settled().replanned(observer)
    after = replace(step.state, kubelet=kubelet, remembered={}, last_seen=LastSeen())
    if placing.resizes(after.kubelet):
        # The sizes first: a container whose growth was recovered would have to release what its pod was not granted.
        grown = resizes_missed(after, containers, now, observer)
        after = releases_resumed(grown.state, observer)
        effects += grown.effects
    effects += _differences(after)
    after, files = files_after_restart(after)
    told, updates, _ = refreshed(after)
    writes = _all_written(after, told)
    lifts: list[Effect] = []
    for uid in dict.fromkeys(one.uid for one in after.containers.values() if one.phase in LIVE):
        lifts += desired.lift_of_pod(after, uid)
    return outcome(
        state,
        told,
        Accepted(updates),
        (*files, *writes, *lifts, sweep(told), *effects),
    )


def _without_missing(state: AgentState, observer: Observer | None) -> EventOutcome:
    """End pods that have no sandbox any more, and drop entries of unknown pods."""
    uids = {one.uid for one in state.sandboxes.values()}
    effects: list[Effect] = []
    node = state.kubelet.node
    entries = [*_uids_of_entries(state), *node.active, *state.held, *state.remembered]
    for uid in dict.fromkeys(entries):
        # Hidden threads go with their container.
        if uid in uids or not state_owner(uid).is_pods:
            continue
        cpus = cpus_of(node.cpu.assignments.get(uid, {}).values())
        held = f"; CPUs {cpus} came back" if cpus else ""
        effects.append(AgentReport(ReportKind.POD_GONE, f"pod {uid} has no sandbox any more{held}", uid))
        state = placing.without_pod(state, uid, observer)
    remembered = {uid: pod for uid, pod in state.remembered.items() if uid in uids}
    gone = any(state_owner(uid).is_pods and uid not in uids for uid in _uids_of_entries(state))
    if gone:
        # A pod that no journal has may run by then on the CPUs of entries that are dropped later.
        node = state.kubelet.node
        staying = [_stand_in(state, uid) for uid in _uids_of_entries(state) if uid in uids and uid not in node.active]
        kubelet = replace(state.kubelet, node=node.adopt(staying)).settled()
        state = replace(state, kubelet=replace(kubelet, node=replace(kubelet.node, active=node.active, swept=None)))
    return EventOutcome(replace(state, remembered=remembered), effects=tuple(effects))


def _uids_of_entries(state: AgentState) -> list[str]:
    node = state.kubelet.node
    return [*dict.fromkeys([*node.cpu.assignments, *node.memory.assignments])]


def _placed(
    state: AgentState,
    pods: Mapping[str, Pod],
    containers: Sequence[RuntimeContainer],
    devices: Mapping[str, DevicesFound],
    observer: Observer | None,
) -> EventOutcome:
    """See to it that every pod with a sandbox has its place."""
    waiting: list[Pod] = []
    kept: list[Pod] = []
    # The journal knows the order in which pods came; of the others the sandboxes are listed in some order.
    for uid in dict.fromkeys([*state.remembered, *(one.uid for one in state.sandboxes.values())]):
        if uid in state.kubelet.node.active:
            continue
        has_entries = bool(_entry_names(state, uid))
        pod = pods.get(uid, _stand_in(state, uid) if has_entries else None)
        if pod is None or (uid not in state.remembered and not has_entries and not state.containers_of(uid)):
            # Its next container decides about it.
            continue
        pod = with_sizes_on_record(state, pod, containers)
        (kept if _has_its_entries(state, pod) else waiting).append(pod)
    # All that have entries are active before the engine is asked anything: it drops entries of pods that are not.
    kubelet = replace(state.kubelet, node=state.kubelet.node.adopt(kept)) if kept else state.kubelet
    state = replace(state, kubelet=kubelet)
    for pod in kept:
        state = with_devices(state, pod.uid, devices.get(pod.uid))
    resized = with_resizes_on_record(state, containers)
    recovered = taken_over(resized.state, waiting, observer)
    state, effects = recovered.state, [*resized.effects, *recovered.effects]
    for pod in waiting:
        before = state
        placed = placing.place(state, pod, "", observer, devices.get(pod.uid))
        state = placed.state
        if placed.rejection is not None:
            had = before.kubelet.node
            if pod.uid in had.cpu.assignments or pod.uid in had.memory.assignments:
                # It is active with what it has, though the engine would not admit it, and shares what it lacks.
                others: Mapping[str, HeldPod] = {uid: one for uid, one in state.held.items() if uid != pod.uid}
                adopted = replace(state.kubelet, node=state.kubelet.node.adopt([pod]))
                state = replace(state, kubelet=adopted, held=others)
            effects += placing.report_unplaced(state, pod, placed.rejection, ReportKind.UNPLACED)
        else:
            for name in live_names(state, pod):
                state = replace(state, kubelet=placing.started(state.kubelet, pod.uid, name, observer))
            if pod.uid not in before.remembered:
                text = f"{pod.namespace}/{pod.name} was started while the agent was disconnected"
                effects.append(AgentReport(ReportKind.FOUND_RUNNING, text, pod.uid))
    return EventOutcome(state, effects=tuple(effects))


def _with_grown(
    state: AgentState, pods: Mapping[str, Pod], devices: Mapping[str, DevicesFound], observer: Observer | None
) -> EventOutcome:
    """Place containers that joined a pod, known from its containers only, while the agent was away."""
    effects: list[Effect] = []
    for uid, pod in pods.items():
        for one in state.containers_of(uid):
            if uid in state.kubelet.node.active:
                placed = placing.place(state, pod, one.name, observer, devices.get(uid))
                state = placed.state
                if placed.rejection is not None:
                    effects += placing.report_unplaced(state, pod, placed.rejection, ReportKind.UNPLACED)
    return EventOutcome(state, effects=tuple(effects))


def _entry_names(state: AgentState, uid: str) -> list[str]:
    node = state.kubelet.node
    return [*dict.fromkeys([*node.cpu.assignments.get(uid, {}), *node.memory.assignments.get(uid, {})])]


def _stand_in(state: AgentState, uid: str) -> Pod:
    """Return a pod of which nothing but its entries is known; it keeps them from being stale."""
    return Pod(uid, uid, "", tuple(Container(name) for name in _entry_names(state, uid)))


def _has_its_entries(state: AgentState, pod: Pod) -> bool:
    """Tell whether the state says what the pod requests: CPUs and memory of its own where it requests any."""
    settings, node = state.kubelet.settings, state.kubelet.node
    if placing.opted_out(state, pod) or settings.pod_level.leaves_out(pod):
        return True
    if settings.pod_level.manages(pod) and pod.qos is QoS.GUARANTEED:
        return (settings.cpu is None or pod.uid in node.cpu.assignments) and (
            settings.memory is None or pod.uid in node.memory.assignments
        )
    cpus = settings.cpu is not None and any(exclusive_cpus(pod, one, settings.pod_level) for one in pod.containers)
    memory = (
        settings.memory is not None
        and pod.qos is QoS.GUARANTEED
        and any(container_requests(pod, one, settings.pod_level) for one in pod.containers)
    )
    return (not cpus or pod.uid in node.cpu.assignments) and (not memory or pod.uid in node.memory.assignments)


def _differences(state: AgentState) -> list[Effect]:
    wanted = DesiredSettings.now(state)
    found: list[Effect] = []
    for one in state.containers.values():
        if one.phase not in LIVE or one.phase is Phase.CREATING:
            continue
        setting = wanted.of(one.uid, one.name)
        if not setting.cpus and state.kubelet.settings.cpu is not None:
            text = f"{one.name} runs on {one.record.cpus or 'all CPUs'}, and the shared pool is empty"
            # A running program cannot be stopped: the event makes it visible at the pod.
            report = AgentReport(ReportKind.CONTAINER_UNPLACED, text, one.uid, one.id)
            found += said(state, report, placing.EMPTY_POOL.reason)
            continue
        change = difference(one.record, setting)
        if change is not None and (change.cpus or change.mems):
            parts = [f"CPUs {one.record.cpus or 'all'} instead of {change.cpus}"] if change.cpus else []
            parts += (
                [f"memory nodes {nodes_of(one.record.mems) or 'all'} instead of {nodes_of(change.mems)}"]
                if change.mems
                else []
            )
            text = f"{one.name} had {' and '.join(parts)}"
            found.append(AgentReport(ReportKind.CPUSET_DIFFERED, text, one.uid, one.id))
    return found


def _all_written(listed: AgentState, state: AgentState) -> list[Effect]:
    """Write the cgroups of all containers: the record may be wrong, and an update may miss the cgroup.

    Who has on record what he should have, and something else in his cgroup, has missed an update.
    """
    wanted = DesiredSettings.now(state)
    found = [one for one in state.containers.values() if one.phase in HAS_CGROUP]
    found.sort(key=lambda one: (not wanted.is_exclusive(one.uid, one.name), wanted.is_mixed(one.uid, one.name)))
    writes: list[Effect] = []
    for one in found:
        setting = wanted.of(one.uid, one.name)
        is_on_record = difference(listed.containers[one.id].record, setting) is None
        writes.append(write_of(one, setting, Occasion.CHECK if is_on_record else Occasion.DECISION))
    return writes


def rollback(
    state: AgentState, pods: Mapping[str, Pod]
) -> tuple[list[tuple[LiftQuota, int]], list[WriteCPUSet], list[ContainerUpdate]]:
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
    pods, period = {**state.kubelet.node.active, **pods}, quota_period(state)
    places: dict[str, tuple[LiftQuota, int]] = {}
    for uid in dict.fromkeys(one.uid for one in state.sandboxes.values()):
        for lift in desired.lift_of_pod(state, uid):
            amount = quota_of_pod(pods[uid], period)
            if lift.of is QuotaOf.POD and amount:
                places.setdefault(lift.cgroup, (lift, amount))
    quotas, cpusets, updates = [*places.values()], list[WriteCPUSet](), list[ContainerUpdate]()
    for one in state.containers.values():
        if one.phase not in UPDATABLE:
            continue
        lifts = desired.lift_of_container(one, DesiredSettings.now(state).of(one.uid, one.name))
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
            quotas += [(lifts[0], own)] if own else []
    return quotas, cpusets, updates


def all_cpus(info: MachineInfo) -> CPUSet:
    """Return the CPUs of a machine."""
    return CPUSet.from_ids(cpu for node in info.topology for core in node.cores for cpu in core.thread_ids)


def memory_nodes(info: MachineInfo) -> NUMAMask:
    """Return the NUMA nodes that have memory; the kernel takes no others."""
    return NUMAMask(mask_of(node.node_id for node in info.topology if node.memory))


def quota_period(state: AgentState) -> int:
    """Return the period of the kubelet's CFS quotas, in microseconds."""
    return state.kubelet.settings.config.cpu_cfs_quota_period_ns // 1000
