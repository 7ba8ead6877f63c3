"""Events without an answer of their own, each to its function: what the runtime has done with sandboxes and containers.

A pod starts with its first container and ends with its last sandbox. A container that ended keeps its place: an init
container by the kubelet's rules, any other because it may be started again, with a new id. After its own restart
containerd (2.1.9 and 2.4.2, measured) reports to no plugin that a sandbox from before it is stopped or removed: then
the check that finds no control group of it ends the pod.

What came of writing a container's cpuset is an event, too: it was corrected, could not be, or its program may not run.
At StartContainer a container does not run unless the kernel shows that it stays within what was decided: nothing later
could keep its program off the CPUs of others. On containerd a refusal fails the start, and the kubelet tries again.
CRI-O ignores it: what starts is checked at PostStartContainer. The same holds
for a group that cannot be found or read although its process lives, and on a node where none can be found no container
starts: reason, readiness and event then say why. Not refused are containers

* that have less than was decided (a CPU is offline, or a group above lacks it): they disturb no other container, and
  are reported;
* whose process has ended: nothing would run, and the runtime finds out itself;
* of a machine that is not this one, whose cgroups cannot be read.

Source: wire measurements on containerd 2.1.9: an update of a container that is being made is lost without a word, a
refused start leaves an exited container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from mooring.agent.effects import AgentReport, Effect, LiftQuota, Occasion, ReportKind, Verify, WriteCPUSet, said
from mooring.agent.nri.types import Event, PodSandbox, RuntimeContainer
from mooring.agent.reactor import desired, response
from mooring.agent.reactor.containers import believed, recorded, with_sandbox, without_container, without_sandbox
from mooring.agent.reactor.create_container import place_existing, start_container
from mooring.agent.reactor.desired import DesiredSettings, expected_lifts, on_record, write_of
from mooring.agent.reactor.placing import Placed, place_waiting, without_pod
from mooring.agent.reactor.response import EventOutcome, enforced, outcome, report_refusal, without_refusal
from mooring.agent.state import HAS_CGROUP, AgentState, DevicesFound, Phase, Setting
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, Rejection
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
) -> EventOutcome:
    """Return what an event comes to; one that says nothing to the agent changes nothing."""
    match event, sandbox, container:
        case Event.RUN_POD_SANDBOX, PodSandbox(), _:
            # Nothing is decided yet: NRI knows no more of the pod.
            return outcome(state, with_sandbox(state, sandbox))
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
            return outcome(state, without_container(state, container.id))
        case _:
            return outcome(state, state)


def container_created(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod | None = None,
    observer: Observer | None = None,
    devices: DevicesFound | None = None,
    now: Moment | None = None,
) -> EventOutcome:
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
    state, changed = enforced(before, recorded(state, sandbox, container, phase))
    return outcome(before, state, None, (*changed, *effects))


def container_started(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod | None = None,
    observer: Observer | None = None,
    now: Moment | None = None,
) -> EventOutcome:
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
        return outcome(state, after)
    after, changed = enforced(state, after)
    known = after.containers[container.id]
    wanted = DesiredSettings.now(after).of(known.uid, known.name)
    was_refused = before is not None and before.phase is Phase.REFUSED
    effects: tuple[Effect, ...] = (
        *changed,
        write_of(known, wanted, Occasion.CHECK),
        *desired.lift_of_container(known, wanted),
        *desired.lift_of_pod(after, sandbox.uid),
        *(response.started_despite_refusal(after, known) if was_refused else ()),
        *placed.effects,
        Verify((container.id,)),
    )
    return outcome(state, after.with_container(response.with_write(known, wanted)), None, effects)


def container_updated(
    state: AgentState, sandbox: PodSandbox, container: RuntimeContainer | None = None
) -> EventOutcome:
    """Lift the pod's quota again, which a resize of the kubelet writes again, and see to the container's cpuset.

    Between the answer and its deed the runtime lets other events pass. Where one of them changed what the container
    should have, the answer was late: its cgroup is corrected now, its record with the next reply.
    """
    known = None if container is None else state.containers.get(container.id)
    lifts = desired.lift_of_pod(state, sandbox.uid)
    if container is None or known is None or known.phase not in HAS_CGROUP:
        return outcome(state, state, None, lifts)
    wanted = DesiredSettings.now(state).of(known.uid, known.name)
    after = state.with_container(replace(known, record=believed(known.record, on_record(container.resources))))
    return outcome(state, after, None, (write_of(known, wanted, Occasion.CHECK), *lifts))


def stop_container(state: AgentState, container: RuntimeContainer) -> EventOutcome:
    """Learn that a container has ended, and use the reply for what the runtime was not told yet."""
    known = state.containers.get(container.id)
    after = state if known is None else state.with_container(replace(known, phase=Phase.ENDED))
    after, updates, writes = response.refreshed(after)
    return outcome(state, after, response.Accepted(updates), writes)


def end_sandbox(state: AgentState, sandbox: PodSandbox, observer: Observer | None = None) -> EventOutcome:
    """Learn that a sandbox was stopped or removed; with the last one of its pod the pod's place is free.

    The reply carries no updates, so that containers of a shared pool that grows are widened by their cgroups.
    """
    after = without_sandbox(state, sandbox.id)
    if any(one.uid == sandbox.uid for one in after.sandboxes.values()):
        return outcome(state, after)
    placed = place_waiting(without_pod(after, sandbox.uid, observer), observer)
    now, changed = enforced(state, placed.state)
    return outcome(state, now, None, (*changed, *placed.effects))


def end_missing_sandboxes(
    state: AgentState, sandbox_ids: Iterable[str], observer: Observer | None = None
) -> EventOutcome:
    """End sandboxes of which the kernel has nothing left.

    One in which a container is being made stays: its group is yet to come.

    Args:
        state: now.
        sandbox_ids: where neither the sandbox nor a container of it has a control group.
        observer: receives the engine's facts, for metrics.
    """
    # One that was being made when the connection ended, and that the runtime does not list, may never come.
    making = {one.sandbox_id for one in state.containers.values() if one.phase is Phase.CREATING and not one.unlisted}
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
    return outcome(state, after, None, tuple(effects))


CPUSET_NOT_ENFORCED = "CPUSetNotEnforced"
_NO_PROCESS = "has no control group of its name, and the runtime does not name its process"


class Compliance(Enum):
    """What the kernel shows after a write."""

    RIGHT = "right"
    """Exactly what is wanted."""
    WITHIN = "within"
    """A part of it: no other container is disturbed."""
    BEYOND = "beyond"
    """Something that it should not use."""
    UNKNOWN = "unknown"
    """Its group cannot be found or read, and it may have processes."""
    ENDED = "ended"
    """It has no group any more, and no process as far as can be seen."""
    UNSEEN = "unseen"
    """Its cgroups cannot be read: the machine is not this one."""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What came of a :class:`~mooring.agent.effects.WriteCPUSet`."""

    write: WriteCPUSet
    standing: Compliance
    had: str = ""
    """In words, what was there before something was written; empty when nothing was."""
    problem: str = ""
    """In words, what is there and why; empty when it is right."""


def writes_done(outcome: EventOutcome, results: Collection[WriteOutcome]) -> EventOutcome:
    """Return an outcome after its cpusets were written: the state, the answer, and what is still to be told.

    Args:
        outcome: whose effects were done.
        results: of its writes, in their order; the last one of a container counts.
    """
    state, answer = outcome.state, outcome.answer
    told: list[Effect] = []
    for one in results:
        known = state.containers.get(one.write.container_id)
        if known is None:
            continue
        if one.had and one.standing is Compliance.RIGHT and one.write.occasion is Occasion.CHECK:
            report = AgentReport(ReportKind.DEVIATION, f"{known.name} had {one.had}", known.uid, known.id)
            told += said(state, report, "CPUSetRepaired")
    for one in {each.write.container_id: each for each in results}.values():
        known = state.containers.get(one.write.container_id)
        if known is None:
            continue
        if one.standing in (Compliance.RIGHT, Compliance.WITHIN):
            state = without_deviation(state, (known.id,)) if one.standing is Compliance.RIGHT else state
            state = without_refusal(state, known.uid, known.name) if known.phase is Phase.RUNNING else state
        if known.id != outcome.starts or one.standing is Compliance.WITHIN:
            lasting = report_deviation(state, known.id, one.problem, is_known=one.standing is not Compliance.UNKNOWN)
            state, told = lasting.state, [*told, *lasting.effects]
        if known.id != outcome.starts:
            continue
        # Without a process, a container that has ended looks like one whose group has another name.
        unsure = one.standing is Compliance.ENDED and not one.write.pid
        if unsure or one.standing in (Compliance.BEYOND, Compliance.UNKNOWN):
            rejection = Rejection(CPUSET_NOT_ENFORCED, f"{known.name} {one.problem or _NO_PROCESS}")
            refused = report_refusal(state, known, rejection, ReportKind.START_REFUSED)
            # containerd ends it now; a runtime that starts it nevertheless says so by PostStartContainer.
            state = refused.state.with_container(replace(known, phase=Phase.REFUSED))
            answer, told = refused.answer, [*told, *refused.effects]
        elif one.standing is not Compliance.ENDED:
            state = without_refusal(state, known.uid, known.name)
    return EventOutcome(state, answer, tuple(told))


def report_deviation(state: AgentState, container_id: str, problem: str, *, is_known: bool = True) -> EventOutcome:
    """Report a container whose cgroup is not as decided and could not be corrected; once, until that changes.

    Args:
        state: now.
        container_id: of the container.
        problem: in words that continue its name; empty when there is none.
        is_known: whether the kernel shows what it may use.
    """
    known = state.containers.get(container_id)
    now = problem, is_known
    if not problem or known is None or known.phase not in HAS_CGROUP or state.deviating.get(container_id) == now:
        return EventOutcome(state)
    there = {one: told for one, told in state.deviating.items() if one in state.containers}
    report = AgentReport(ReportKind.DEVIATION_LASTS, f"{known.name} {problem}", known.uid, container_id)
    after = replace(state, deviating={**there, container_id: now})
    return EventOutcome(after, effects=said(state, report, "CPUSetDiffers"))


def without_deviation(state: AgentState, container_ids: Collection[str]) -> AgentState:
    """Return the state after cgroups were found as decided: a new deviation is reported again."""
    if not any(one in state.deviating for one in container_ids):
        return state
    for one in container_ids:
        known = state.containers.get(one)
        if known is not None and known.phase is Phase.RUNNING:
            # A container that runs within its set is no longer refused, whatever made it so.
            state = without_refusal(state, known.uid, known.name)
    return replace(state, deviating={one: told for one, told in state.deviating.items() if one not in container_ids})


def correct_deviation(state: AgentState, container_id: str, cpus: CPUSet, mems: NUMAMask) -> EventOutcome:
    """Correct a container whose cgroup is not what it should be; what is correct by now is left alone.

    Whether it was corrected is reported after the write (:func:`mooring.agent.reactor.lifecycle.writes_done`).

    Args:
        state: now.
        container_id: of the container.
        cpus: that the kernel shows.
        mems: that the kernel shows.
    """
    known = state.containers.get(container_id)
    if known is None or known.phase not in HAS_CGROUP:
        return outcome(state, state)
    wanted = DesiredSettings.now(state).of(known.uid, known.name)
    if (not wanted.cpus or cpus == wanted.cpus) and (not wanted.mems or mems == wanted.mems):
        return outcome(state, state)
    # Perhaps an update failed, and the runtime's record is as wrong as the cgroup was.
    after = state.with_container(replace(known, record=Setting(), written=wanted))
    return outcome(state, after, None, (write_of(known, wanted, Occasion.CHECK),))


def correct_quota(state: AgentState, lift: LiftQuota, quota: int) -> EventOutcome:
    """Lift a CFS quota again that is back where none should be.

    Args:
        state: now.
        lift: the place, from :func:`~mooring.agent.reactor.desired.expected_lifts`.
        quota: what was found, in microseconds per period.
    """
    if lift not in expected_lifts(state):
        return outcome(state, state)
    text = f"the {lift.of.value} had a CFS quota of {quota} microseconds"
    report = AgentReport(ReportKind.QUOTA_DEVIATION, text, lift.uid, lift.container_id)
    return outcome(state, state, None, (lift, report))
