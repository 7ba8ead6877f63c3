"""Events without an answer of their own, each to its function: what the runtime has done with sandboxes and containers.

A pod starts with its first container and ends with its last sandbox. A container that ended keeps its place: an init
container by the kubelet's rules, any other because it may be started again, with a new id. After its own restart
containerd (2.1.9 and 2.4.2, measured) reports to no plugin that a sandbox from before it is stopped or removed: then
the check that finds no control group of it ends the pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mooring.agent.effects import AgentReport, Effect, Occasion, ReportKind, Verify
from mooring.agent.nri.types import Event, PodSandbox, RuntimeContainer
from mooring.agent.quota import lift_of_container, lift_of_pod
from mooring.agent.reactor import response
from mooring.agent.reactor.containers import believed, recorded, with_sandbox, without_container, without_sandbox
from mooring.agent.reactor.create_container import place_existing, start_container
from mooring.agent.reactor.desired import DesiredSettings, on_record, write_of
from mooring.agent.reactor.placing import Placed, place_waiting, without_pod
from mooring.agent.state import HAS_CGROUP, AgentState, DevicesFound, Phase
from mooring.engine.core.decision import Observer
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod

EVENTS = frozenset(Event)
"""What the agent subscribes to; a runtime does not send what it does not know."""


def needs_pod(state: AgentState, event: Event, sandbox: PodSandbox | None, container: RuntimeContainer | None) -> bool:
    """Tell whether :func:`state_change` must be given the pod: of a container whose creation the agent did not see.

    A connecting plugin misses what CRI-O reports between its list and the end of the connecting, any one event of a
    container (CRI-O 1.37.0, read; cri-o issue 10090).
    """
    if sandbox is None or container is None:
        return False
    is_unknown = container.id not in state.containers
    if event is Event.POST_START_CONTAINER:
        return is_unknown
    is_asked = event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER)
    return is_asked and (is_unknown or sandbox.uid not in state.kubelet.node.active)


def state_change(
    state: AgentState,
    event: Event,
    sandbox: PodSandbox | None,
    container: RuntimeContainer | None,
    pod: Pod | None = None,
    observer: Observer | None = None,
    devices: DevicesFound | None = None,
    now: Moment | None = None,
) -> response.EventOutcome:
    """Return what an event comes to; one that says nothing to the agent changes nothing."""
    match event, sandbox, container:
        case Event.RUN_POD_SANDBOX, PodSandbox(), _:
            # Nothing is decided yet: NRI knows no more of the pod.
            return response.outcome(state, with_sandbox(state, sandbox))
        case Event.STOP_POD_SANDBOX | Event.REMOVE_POD_SANDBOX, PodSandbox(), _:
            return end_sandbox(state, sandbox, observer)
        case Event.POST_CREATE_CONTAINER, PodSandbox(), RuntimeContainer():
            return container_created(state, sandbox, container, pod, observer, devices, now)
        case Event.START_CONTAINER, PodSandbox(), RuntimeContainer():
            return start_container(state, sandbox, container, pod, observer, devices, now)
        case Event.POST_START_CONTAINER, PodSandbox(), RuntimeContainer():
            return container_started(state, sandbox, container, pod, observer, now)
        case ((Event.POST_UPDATE_CONTAINER | Event.POST_UPDATE_POD_SANDBOX), PodSandbox(), _):
            return container_updated(state, sandbox, container)
        case Event.REMOVE_CONTAINER, _, RuntimeContainer():
            # Its pod stays until its sandbox ends: the next life of the container may be to come. The dead containers
            # of a pod in CrashLoopBackOff are removed, and so is one that the runtime could not make.
            return response.outcome(state, without_container(state, container.id))
        case _:
            return response.outcome(state, state)


def container_created(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod | None = None,
    observer: Observer | None = None,
    devices: DevicesFound | None = None,
    now: Moment | None = None,
) -> response.EventOutcome:
    """Learn that the runtime has a container on record: from now on it takes updates.

    A container whose creation the agent did not see is placed now; a refusal comes when it starts.
    """
    before, state = state, with_sandbox(state, sandbox)
    effects: tuple[Effect, ...] = ()
    if pod is not None:
        placed = place_existing(state, sandbox, container, pod, observer, devices, now)
        state, effects = placed.state, placed.effects
    known = state.containers.get(container.id)
    # A late word does not take a container back to an earlier phase.
    phase = Phase.CREATED if known is None or known.phase is Phase.CREATING else known.phase
    state, changed = response.enforced(before, recorded(state, sandbox, container, phase))
    return response.outcome(before, state, None, (*changed, *effects))


def container_started(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod | None = None,
    observer: Observer | None = None,
    now: Moment | None = None,
) -> response.EventOutcome:
    """Record that a container runs. For a very short one the end was reported before.

    A container that should not have been started is checked and corrected at once: CRI-O logs an error of
    StartContainer and starts the container (CRI-O 1.37.0, read and measured). The same holds where no answer was
    decided because the agent failed, and for a container of which nothing was heard before; that one is placed.
    """
    before = state.containers.get(container.id)
    placed = Placed(with_sandbox(state, sandbox))
    if pod is not None:
        placed = place_existing(placed.state, sandbox, container, pod, observer, now=now)
    after = recorded(placed.state, sandbox, container, Phase.RUNNING)
    if before is not None and before.phase in (Phase.STARTING, Phase.RUNNING, Phase.ENDED):
        return response.outcome(state, after)
    after, changed = response.enforced(state, after)
    known = after.containers[container.id]
    wanted = DesiredSettings.now(after).of(known.uid, known.name)
    effects: tuple[Effect, ...] = (
        *changed,
        write_of(known, wanted, Occasion.CHECK),
        *lift_of_container(known, wanted),
        *lift_of_pod(after, sandbox.uid),
        *(
            response.started_despite_refusal(after, known)
            if before is not None and before.phase is Phase.REFUSED
            else ()
        ),
        *placed.effects,
        Verify((container.id,)),
    )
    return response.outcome(state, after.with_container(response.with_write(known, wanted)), None, effects)


def container_updated(
    state: AgentState, sandbox: PodSandbox, container: RuntimeContainer | None = None
) -> response.EventOutcome:
    """Lift the pod's quota again, which a resize of the kubelet writes again, and see to the container's cpuset.

    Between the answer and its deed the runtime lets other events pass. Where one of them changed what the container
    should have, the answer was late: its cgroup is corrected now, its record with the next reply.
    """
    known = None if container is None else state.containers.get(container.id)
    lifts = lift_of_pod(state, sandbox.uid)
    if container is None or known is None or known.phase not in HAS_CGROUP:
        return response.outcome(state, state, None, lifts)
    wanted = DesiredSettings.now(state).of(known.uid, known.name)
    after = state.with_container(replace(known, record=believed(known.record, on_record(container.resources))))
    return response.outcome(state, after, None, (write_of(known, wanted, Occasion.CHECK), *lifts))


def stop_container(state: AgentState, container: RuntimeContainer) -> response.EventOutcome:
    """Learn that a container has ended, and use the reply for what the runtime was not told yet."""
    known = state.containers.get(container.id)
    after = state if known is None else state.with_container(replace(known, phase=Phase.ENDED))
    refresh = response.refreshed(after)
    return response.outcome(state, refresh.state, response.Accepted(refresh.updates), refresh.writes)


def end_sandbox(state: AgentState, sandbox: PodSandbox, observer: Observer | None = None) -> response.EventOutcome:
    """Learn that a sandbox was stopped or removed; with the last one of its pod the pod's place is free.

    The reply carries no updates, so that containers of a shared pool that grows are widened by their cgroups.
    """
    after = without_sandbox(state, sandbox.id)
    if any(one.uid == sandbox.uid for one in after.sandboxes.values()):
        return response.outcome(state, after)
    placed = place_waiting(without_pod(after, sandbox.uid, observer), observer)
    now, changed = response.enforced(state, placed.state)
    return response.outcome(state, now, None, (*changed, *placed.effects))


def end_missing_sandboxes(
    state: AgentState, sandbox_ids: Iterable[str], observer: Observer | None = None
) -> response.EventOutcome:
    """End sandboxes of which the kernel has nothing left.

    One in which a container is being made stays: its group is yet to come.

    Args:
        state: now.
        sandbox_ids: where neither the sandbox nor a container of it has a control group.
        observer: receives the engine's facts, for metrics.
    """
    making = {
        one.sandbox_id for one in state.containers.values() if one.phase is Phase.CREATING and not one.is_doubtful
    }
    after = state
    effects: list[Effect] = []
    for sandbox_id in sandbox_ids:
        sandbox = after.sandboxes.get(sandbox_id)
        if sandbox is None or sandbox_id in making:
            continue
        ended = end_sandbox(after, sandbox, observer)
        after = ended.state
        text = f"the sandbox of {sandbox.namespace}/{sandbox.name} has ended, and the runtime did not report it"
        effects += [*ended.effects, AgentReport(ReportKind.POD_GONE, text, sandbox.uid)]
    return response.outcome(state, after, None, tuple(effects))
