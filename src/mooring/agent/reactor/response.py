"""What an event results in: a new state, the runtime's answer, effects; which other containers must change with it.

An update in a reply moves the record and the cgroup of a container that runs. One that is being created misses it, one
that is about to run may miss it; these are corrected by their cgroups (containerd 2.1.9, measured). An answer that
never arrived is made up for in the same way: the runtime does not know what the state says.

A container of a placed pod that is refused does not hold back its pod. The kubelet tries again every few seconds, each
time with another container id, so a refusal is reported once, until the container starts or is refused for another
reason.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from mooring.agent.effects import (
    AgentReport,
    Effect,
    Occasion,
    Persist,
    ReportKind,
    Verify,
    WriteCPUSet,
    said,
    warning_about,
)
from mooring.agent.nri.types import ContainerAdjustment, ContainerUpdate
from mooring.agent.reactor import desired
from mooring.agent.reactor.desired import DesiredSettings, change_of, difference, resources_of, write_of
from mooring.agent.reactor.placing import STATE_UNWRITABLE, text_of
from mooring.agent.state import HAS_CGROUP, UPDATABLE, AgentState, KnownContainer, Phase, Setting
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.extensions.owners import OwnerKind, state_owner


@dataclass(frozen=True, slots=True)
class Accepted:
    """Nothing but the updates of containers, where the event's reply can carry any."""

    updates: tuple[ContainerUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class Adjusted:
    """What becomes of the container that is being created, and updates of others."""

    adjustment: ContainerAdjustment
    updates: tuple[ContainerUpdate, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """An error for the runtime; the shell raises it as :class:`~mooring.agent.nri.types.RefusalError`."""

    text: str
    """``REASON: message``, the kubelet's where it is the engine that refuses."""
    updates: ClassVar[tuple[ContainerUpdate, ...]] = ()
    """An error carries none."""

    @staticmethod
    def of(rejection: Rejection) -> Refused:
        """Return the refusal of what was rejected."""
        return Refused(text_of(rejection))


Answer = Accepted | Adjusted | Refused


@dataclass(frozen=True, slots=True)
class EventOutcome:
    """A new state, the answer, and what is to be done, in that order of doing."""

    state: AgentState
    answer: Answer = Accepted()
    effects: tuple[Effect, ...] = ()
    starts: str = ""
    """Id of the container whose program runs as soon as this is answered; empty for all other events."""


def report_refusal(
    state: AgentState, container: KnownContainer, rejection: Rejection, finding: ReportKind
) -> EventOutcome:
    """Return a refusal with the state in which it was reported, and its reports: for metrics, log and cluster.

    The pod is not evicted whatever ``onRejection`` says: what else it runs would go with it.

    Args:
        state: before.
        container: which is another one at each try.
        rejection: why.
        finding: which kind of report it is.
    """
    answer, key = Refused.of(rejection), (container.uid, container.name)
    if state.unstarted.get(key) == rejection:
        return EventOutcome(state, answer)
    pods = {one.uid for one in state.sandboxes.values()}
    unstarted = {known: why for known, why in state.unstarted.items() if known[0] in pods}
    pod = state.kubelet.node.active.get(container.uid)
    place = container.uid if pod is None else f"{pod.namespace}/{pod.name}"
    text = f"{place}: {container.name}: {answer.text}"
    report = AgentReport(finding, text, container.uid, container.id, rejection.reason)
    after = replace(state, unstarted={**unstarted, key: rejection})
    return EventOutcome(after, answer, said(state, report, rejection.reason, rejection.message))


def started_despite_refusal(state: AgentState, container: KnownContainer) -> tuple[Effect, ...]:
    """Return what reports a container that runs although its start was refused."""
    held = state.held.get(container.uid)
    rejection = state.unstarted.get((container.uid, container.name), held.rejection if held is not None else None)
    if rejection is None:
        return ()
    pod = state.kubelet.node.active.get(container.uid, held.pod if held is not None else None)
    place = container.uid if pod is None else f"{pod.namespace}/{pod.name}"
    text = f"{container.name} runs although its start was refused: {rejection.message or rejection.reason}"
    report = AgentReport(
        ReportKind.STARTED_DESPITE_REFUSAL, f"{place}: {text}", container.uid, container.id, rejection.reason
    )
    if pod is None:
        return (report,)
    return report, warning_about(pod, rejection.reason, text)


def without_refusal(state: AgentState, uid: str, name: str) -> AgentState:
    """Return the state after a container has started; the next refusal is reported again."""
    if (uid, name) not in state.unstarted:
        return state
    return replace(state, unstarted={key: why for key, why in state.unstarted.items() if key != (uid, name)})


def unwritten(before: AgentState, outcome: EventOutcome, uid: str, problem: str) -> EventOutcome:
    """Return what is done instead of an outcome whose :class:`Persist` failed.

    By default the same: the runtime and the cgroups hold every placement too, and a reconciliation reads them. With
    ``place_while_unwritable`` off a container with CPUs of its own is refused, unless its pod had them before.

    Args:
        before: the state before the event.
        outcome: what the event came to.
        uid: of the event's pod; empty where there is none.
        problem: of the folder, in words.
    """
    rest = tuple(effect for effect in outcome.effects if not isinstance(effect, Persist))
    report = AgentReport(ReportKind.STATE_UNWRITABLE, problem, uid)
    own = outcome.state.kubelet.node.cpu.assignments.get(uid, {})
    had = before.kubelet.node.cpu.assignments.get(uid, {})
    # An answer to a creation, to an update that makes a container grow, or to a claim that had nothing.
    grows = any(
        had.get(name, 0 if state_owner(uid).kind is OwnerKind.CLAIM else cpus) & cpus != cpus
        for name, cpus in own.items()
    )
    is_given = isinstance(outcome.answer, Adjusted) or grows
    if outcome.state.options.place_while_unwritable or not is_given:
        return replace(outcome, effects=(report, *rest))
    if not any(own.values()) or had == own:
        return replace(outcome, effects=(report, *rest))
    refused = Rejection(STATE_UNWRITABLE, "CPUs of its own are not given while the agent's state cannot be written")
    return EventOutcome(replace(before, sandboxes=outcome.state.sandboxes), Refused.of(refused), (report,))


def refreshed(
    state: AgentState, skip: str = ""
) -> tuple[AgentState, tuple[ContainerUpdate, ...], tuple[WriteCPUSet, ...]]:
    """Return the state in which the runtime has been told everything, and the updates that bring its record there.

    Containers with CPUs of their own come first. The writes are for containers that an update may miss: about to run,
    with a cgroup that the runtime does not know, unlisted.

    Args:
        state: where the runtime is behind.
        skip: id of a container that the reply speaks of anyway.
    """
    wanted = DesiredSettings.now(state)
    own: list[ContainerUpdate] = []
    shared: list[ContainerUpdate] = []
    writes: list[WriteCPUSet] = []
    containers = dict(state.containers)
    for one in state.containers.values():
        if one.phase is Phase.CREATING and one.id != skip:
            # No update is sent, for it would be dropped; that it was due shows when the container starts.
            due = wanted.of(one.uid, one.name)
            containers[one.id] = replace(one, missed=None if difference(one.record, due) is None else due)
        if one.phase not in UPDATABLE or one.id == skip:
            continue
        setting = wanted.of(one.uid, one.name)
        change = change_of(one, setting)
        if change is None:
            continue
        # A container can end before the runtime gets to it; that must not fail what the reply answers.
        update = ContainerUpdate(one.id, resources_of(change), ignore_failure=True)
        has_own = wanted.is_exclusive(one.uid, one.name) and not wanted.is_mixed(one.uid, one.name)
        (own if has_own else shared).append(update)
        containers[one.id] = replace(one, record=setting.over(one.record), written=None, missed=None)
        if one.phase is Phase.STARTING or one.written is not None or one.unlisted:
            writes.append(write_of(one, setting))
    if not own and not shared and containers == state.containers:
        return state, (), ()
    return replace(state, containers=containers), (*own, *shared), tuple(writes)


def enforced(before: AgentState, after: AgentState) -> tuple[AgentState, tuple[Effect, ...]]:
    """Return the second state, with what makes a change of the engine's state true where no reply can carry updates.

    Cgroups are written at once, those that lose CPUs first, so that no container gets a CPU that another still has.
    The runtime's record follows with the next reply.
    """
    if before.kubelet.node.providers is after.kubelet.node.providers:
        return after, ()
    old, new = DesiredSettings.now(before), DesiredSettings.now(after)
    ranked: list[tuple[int, tuple[Effect, ...]]] = []
    lifted: dict[str, None] = {}
    containers = dict(after.containers)
    for one in after.containers.values():
        setting, had = new.of(one.uid, one.name), old.of(one.uid, one.name)
        change = difference(had, setting) if one.phase in HAS_CGROUP else None
        if change is None:
            continue
        lifts: tuple[Effect, ...] = ()
        if change.quota is not None:
            lifts = desired.lift_of_container(one, setting)
            lifted[one.uid] = None
        ranked.append((_turn(had.cpus, setting.cpus), (write_of(one, setting), *lifts)))
        containers[one.id] = replace(one, written=setting.over(one.written or one.record))
    ranked.sort(key=lambda each: each[0])
    effects = [effect for _, each in ranked for effect in each]
    for uid in lifted:
        effects += desired.lift_of_pod(after, uid)
    return replace(after, containers=containers), tuple(effects)


def with_write(container: KnownContainer, wanted: Setting) -> KnownContainer:
    """Return a container whose cgroup is written past the runtime, where the runtime has something else on record."""
    return replace(container, written=None if difference(container.record, wanted) is None else wanted, missed=None)


def _turn(old: CPUSet, new: CPUSet) -> int:
    """Return when a cgroup's turn is: 0 when it only loses CPUs, 2 when it only gets some, 1 when both.

    Who should have had none ran wherever he was, and may lose some too.
    """
    if not old:
        return 1
    if new <= old:
        return 0
    return 2 if old <= new else 1


def outcome(
    before: AgentState, after: AgentState, answer: Answer | None = None, effects: tuple[Effect, ...] = ()
) -> EventOutcome:
    """Return an event's outcome with what every event brings along.

    The state is written when the engine's changed or a container is new. What earlier replies changed is verified now,
    because the runtime has done it by the time of the next event; except what UpdateContainer requested, which is
    verified at PostUpdateContainer. The files of containers follow their CPUs.
    """
    answer = answer or Accepted()
    updated = frozenset(one.container_id for one in answer.updates)
    due = tuple(
        one.id for one in after.containers.values() if one.id in before.unverified - updated and one.phase in HAS_CGROUP
    )
    if after.unverified != updated:
        after = replace(after, unverified=updated)
    after, lessened, rest = desired.file_changes(before, after, updated)
    is_changed = before.kubelet is not after.kubelet or before.claim_users != after.claim_users
    # A container that is gone may stay in the journal until the next write: nothing is read off it.
    is_worth_writing = is_changed or not after.containers.keys() <= before.containers.keys()
    first: tuple[Effect, ...] = (Persist(after),) if is_worth_writing else ()
    last: tuple[Effect, ...] = (Verify(due),) if due else ()
    later = tuple(one for one in rest if one not in effects)
    return EventOutcome(after, answer, (*first, *lessened, *effects, *later, *last))


def answer_lost(state: AgentState, container_ids: Collection[str]) -> EventOutcome:
    """Make true what a lost answer was to make true: the cgroups at once, the runtime's record with the next update.

    Args:
        state: in which the answer counts as given.
        container_ids: containers that the answer had updates of.
    """
    wanted = DesiredSettings.now(state)
    after, effects = state, list[Effect]()
    for one in state.containers.values():
        if one.id not in container_ids or one.phase not in UPDATABLE:
            continue
        setting = wanted.of(one.uid, one.name)
        if one.phase in HAS_CGROUP:
            effects += (write_of(one, setting, Occasion.CHECK), *desired.lift_of_container(one, setting))
            after = after.with_container(replace(one, record=Setting(), written=setting))
        else:
            after = after.with_container(replace(one, record=Setting()))
    return outcome(state, after, None, tuple(effects))
