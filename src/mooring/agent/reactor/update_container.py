"""UpdateContainer: the kubelet changes sizes. With the extension exclusive-resize that is a resize in place.

Without it the CPUs stay as they are. The runtime takes what its client sends where no plugin answers, so that CPUs and
nodes are answered where the client names some; and where the record lacks them, which corrects a record that an update
has missed. Else they are left out: containerd does what is answered here after it has let the next event pass, so that
a list could come after a newer one and bring back CPUs that another container has by then (2.1.9 and 2.4.2, seen under
churn).

A resize that the engine refuses leaves everything as it was. CPUs that a container releases are not free before they
were really taken from it, so that a release writes the container's cgroup first (:func:`reclaiming_writes`) and spares
those with which that went wrong (:func:`released`).

Source: KEP-5554, KEP-6122; spec: resize.md sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from mooring.agent import effects
from mooring.agent.nri.types import ContainerState, ContainerUpdate, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.resolve import resized
from mooring.agent.reactor import desired
from mooring.agent.reactor.containers import recorded, with_sandbox
from mooring.agent.reactor.desired import DesiredSettings, has_files, node_set_of, resources_of, set_of, write_of
from mooring.agent.reactor.placing import EMPTY_POOL, opted_out, place_waiting, pool_is_missed, resizes
from mooring.agent.reactor.response import Accepted, EventOutcome, Refused, enforced, outcome, refreshed
from mooring.agent.state import HAS_CGROUP, LIVE, AgentState, Phase, Setting, by_name
from mooring.engine.core.bits import NO_NODES, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.extensions.scale_down import is_resized
from mooring.engine.kubelet.admit import decide
from mooring.engine.node.resources import DEFERRED

_PHASES = {ContainerState.CREATED: Phase.CREATED, ContainerState.STOPPED: Phase.ENDED}


def update_container(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    resources: LinuxResources,
    target: Pod | None = None,
    now: Moment | None = None,
    observer: Observer | None = None,
) -> EventOutcome:
    """Answer a request to update a container.

    Args:
        state: before.
        sandbox: of the pod.
        container: as it is before the update.
        resources: what the client requests. A CFS quota in it is overruled where it is lifted.
        target: the pod with the resources that it is to have, as the API server knows it.
        now: the present moment, from which a scale-down delay counts.
        observer: receives the engine's facts, for metrics.
    """
    before, state = state, with_sandbox(state, sandbox)
    known = state.containers.get(container.id)
    # Clients may update a container that has ended long ago.
    phase = _PHASES.get(container.state, Phase.RUNNING) if known is None else known.phase
    state = recorded(state, sandbox, container, phase)
    state = replace(state, missed=state.missed - {sandbox.uid})
    found, pod = EventOutcome(state), state.kubelet.node.active.get(sandbox.uid)
    if pod is not None and resizes(state.kubelet):
        after = resized(pod, container.name, resources, target)
        if after is None and sandbox.uid in state.kubelet.node.waiting:
            # Back to what it has: the request that was refused is withdrawn.
            after = pod
        if after is not None:
            found = asked(state, after, now or state.kubelet.node.moment, container.id, observer)
    if isinstance(found.answer, Refused):
        return outcome(before, found.state, found.answer, found.effects)
    state = found.state
    known = state.containers[container.id]
    wanted = DesiredSettings.now(state).of(sandbox.uid, known.name)
    kept = replace(resources, cpus="", mems="") if resources.shares or resources.quota else known.asked
    client = Setting(set_of(resources.cpus), node_set_of(resources.mems), resources.quota or None)
    record = wanted.over(client).over(known.record)
    state = state.with_container(replace(known, asked=kept, record=record, written=None))
    state, updates, writes = refreshed(state, skip=container.id)
    answer = Setting(
        wanted.cpus if resources.cpus or known.record.cpus != wanted.cpus else CPUSet(),
        wanted.mems if resources.mems or known.record.mems != wanted.mems else NO_NODES,
        wanted.quota,
    )
    mine = ContainerUpdate(container.id, resources_of(answer), ignore_failure=False)
    answered = (mine,) if answer != Setting() else ()
    others: tuple[effects.Effect, ...] = (*writes, *desired.lift_of_pod(state, sandbox.uid), *found.effects)
    return outcome(before, state, Accepted((*answered, *updates)), others)


def asked(
    state: AgentState, pod: Pod, now: Moment, container_id: str = "", observer: Observer | None = None
) -> EventOutcome:
    """Ask the engine for other resources of an active pod.

    A pod that has nothing for itself is not asked about: what the kubelet has granted it is granted. CPUs that are
    released at once are for those that wait for some.
    """
    known = state.kubelet.node.active[pod.uid]
    if pod.qos is not QoS.GUARANTEED or opted_out(state, known):
        return EventOutcome(replace(state, kubelet=replace(state.kubelet, node=state.kubelet.node.adopt([pod]))))
    kubelet, answer = state.kubelet.at(now).resize(pod, observer)
    name = f"{pod.namespace}/{pod.name}"
    if answer.rejection is not None:
        text = f"{answer.reason}: {answer.message}"
        answered = effects.ResizeAnswered(answer.reason.lower(), f"{name}: {text}", pod.uid, container_id)
        events = tuple(
            effects.warning_about(pod, event, f"{answer.rejection.reason}: {answer.message}") for event in answer.events
        )
        # The request is remembered, nothing else: a kubelet that tries again is no news.
        is_news = kubelet.node.waiting[pod.uid] != state.kubelet.node.waiting.get(pod.uid)
        return EventOutcome(replace(state, kubelet=kubelet) if is_news else state, Refused(text), (answered, *events))
    if pool_is_missed(state, kubelet, pod):
        answered = effects.ResizeAnswered(DEFERRED.lower(), f"{name}: {EMPTY_POOL.message}", pod.uid, container_id)
        return EventOutcome(state, Refused(f"{DEFERRED}: {EMPTY_POOL.message}"), (answered,))
    after = replace(state, kubelet=kubelet)
    placed: tuple[effects.Effect, ...] = ()
    if kubelet.node.cpu is not state.kubelet.node.cpu:
        waiting = place_waiting(after, observer)
        after, placed = waiting.state, waiting.effects
    cpu, parts = after.kubelet.node.cpu, []
    for container, cpus in cpu.assignments.get(pod.uid, {}).items():
        pre = cpu.pre_assignments.get(pod.uid, {}).get(container)
        pending = "" if pre is None else f" and releases {list_text(cpus & ~pre.cpus)}"
        parts.append(f"{container} has CPUs {list_text(cpus)}{pending}")
    said = f"{name}: {', '.join(parts) or 'resized'}"
    return EventOutcome(after, effects=(effects.ResizeAnswered("accepted", said, pod.uid, container_id), *placed))


def restarted(
    state: AgentState, container: RuntimeContainer, pod: Pod, now: Moment, observer: Observer | None = None
) -> EventOutcome:
    """Resize a container that is made again with other sizes, as ``resizePolicy: RestartContainer`` wants it.

    One that may not have them starts with the CPUs that it had. That it lived before need not be known: after a restart
    no runtime tells of containers that have ended, and their removal may come before the new one.

    Args:
        state: in which the pod is active.
        container: that is being created.
        pod: as a pod source knows it now.
        now: the present moment.
        observer: receives the engine's facts, for metrics.
    """
    known = state.kubelet.node.active.get(pod.uid)
    if known is None or not resizes(state.kubelet):
        return EventOutcome(state)
    after = resized(known, container.name, container.resources, pod)
    return EventOutcome(state) if after is None else asked(state, after, now, container.id, observer)


def resize_missed(
    state: AgentState, uid: str, container: RuntimeContainer, now: Moment, observer: Observer | None = None
) -> EventOutcome:
    """Make up for a resize that the runtime carried out while the agent was away: its record has the new sizes.

    The record of a refused one has the old sizes. What the engine refuses here cannot be undone and is reported.
    """
    pod = state.kubelet.node.active.get(uid)
    wanted = None if pod is None or not resizes(state.kubelet) else resized(pod, container.name, container.resources)
    if wanted is None:
        return EventOutcome(state)
    found = asked(state, wanted, now, container.id, observer)
    if not isinstance(found.answer, Refused):
        return found
    text = f"{container.name} was resized while the agent was disconnected: {found.answer.text}"
    report = effects.AgentReport(effects.ReportKind.RESIZE_MISSED, text, uid, container.id)
    after = replace(found.state, missed=found.state.missed | {uid})
    return EventOutcome(after, effects=(*found.effects, report))


def resizes_missed(
    state: AgentState, containers: Sequence[RuntimeContainer], now: Moment, observer: Observer | None = None
) -> EventOutcome:
    """Make up for resizes of listed containers (:func:`resize_missed`)."""
    told: list[effects.Effect] = []
    for one in containers:
        known = state.containers.get(one.id)
        # Of two with one name the other has come further: this one is left over, with the sizes of its time.
        if known is not None and by_name(state.containers_of(known.uid))[known.name].id == known.id:
            found = resize_missed(state, known.uid, one, now, observer)
            state = found.state
            told += found.effects
    return EventOutcome(state, effects=tuple(told))


def releases_resumed(state: AgentState, observer: Observer | None = None) -> AgentState:
    """Take up the releases of pods that have more CPUs than they were granted, after a restart.

    What the state file has of a release continues by the decision table of the proposal; any other starts again. So
    does a growth that was granted, except onto the last CPUs of the shared pool.
    """
    policy = state.kubelet.settings.cpu
    if policy is None or not policy.resizes:
        return state
    for pod in state.kubelet.node.active.values():
        if any(is_resized(policy, state.kubelet.node.cpu, pod, one) for one in pod.containers):
            result = decide(state.kubelet, pod, observer=observer)
            if result.admitted and not pool_is_missed(state, result.decided, pod):
                state = replace(state, kubelet=result.decided)
    return state


def is_due(state: AgentState, now: Moment) -> bool:
    """Tell whether a release can be applied."""
    return any(uid in state.kubelet.node.active for uid, _, _ in _due(state, now))


def reclaiming_writes(state: AgentState, now: Moment) -> dict[tuple[str, str], tuple[effects.WriteCPUSet, ...]]:
    """Return what takes CPUs from containers whose delay is over, by pod uid and container."""
    wanted = DesiredSettings.now(state)
    return {
        (uid, name): tuple(
            write_of(one, replace(wanted.of(uid, name), cpus=wanted.cpus_with(uid, name, cpus)))
            for one in state.containers.values()
            if (one.uid, one.name) == (uid, name) and one.phase in HAS_CGROUP
        )
        for uid, name, cpus in _due(state, now)
    }


def released(
    state: AgentState, now: Moment, spared: Collection[tuple[str, str]] = (), observer: Observer | None = None
) -> EventOutcome:
    """Give CPUs whose delay is over to others.

    Args:
        state: before.
        now: the present moment.
        spared: pod uid and container of those that still have them.
        observer: receives the engine's facts, for metrics.
    """
    active = state.kubelet.node.active
    due = {(uid, name) for uid, name, _ in _due(state, now)}
    absent = {(uid, name) for uid, name in due if uid not in active}
    kubelet = state.kubelet.at(now).reconcile(observer, absent.union(spared))
    if kubelet.node.cpu is state.kubelet.node.cpu:
        return outcome(state, state)
    placed = place_waiting(replace(state, kubelet=kubelet), observer)
    after, changed = enforced(state, placed.state)
    lessened = due - absent - {*spared}
    # Kernels before 6.2 undo the pins of all threads when a cpuset changes. Here that is later than the files, so that
    # nothing but files that are written again tells a program to pin its threads again.
    again = [
        effects.WriteAssigned(one.id, one.shown, makes=False, again=True)
        for one in after.containers.values()
        if (one.uid, one.name) in lessened and one.phase in LIVE and one.shown is not None and has_files(after, one)
    ]
    return outcome(state, after, None, (*changed, *placed.effects, *again))


def _due(state: AgentState, now: Moment) -> list[tuple[str, str, int]]:
    """Return pod uid, container and the CPUs that are left to it, for every release whose delay is over."""
    return [
        (uid, name, pre.cpus)
        for uid, containers in state.kubelet.node.cpu.pre_assignments.items()
        for name, pre in containers.items()
        if pre.apply_at.has_come(now)
    ]
