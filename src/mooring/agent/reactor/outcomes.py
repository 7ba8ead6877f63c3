"""What an event results in: a new state, the runtime's answer, and effects; and what a refusal makes of it.

A container of a placed pod that is refused does not hold back its pod. The kubelet tries again every few seconds, each
time with another container id, so a refusal is reported once, until the container starts or is refused for another
reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mooring.agent.nri.types import ContainerAdjustment, ContainerUpdate
from mooring.agent.pods.events import warning_about
from mooring.agent.reactor.effects import AgentReport, Effect, Persist, ReportKind
from mooring.agent.reactor.placing import STATE_UNWRITABLE, text_of
from mooring.agent.reactor.values import AgentState, KnownContainer
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
    state: AgentState, uid: str, name: str, rejection: Rejection, finding: ReportKind, container_id: str = ""
) -> EventOutcome:
    """Return the state in which a refusal was reported, and the reports: for the metrics, the log and the cluster.

    The pod is not evicted whatever ``onRejection`` says: what else it runs would go with it.

    Args:
        state: before.
        uid: of the pod.
        name: of the container.
        rejection: why.
        finding: which kind of report it is.
        container_id: of the container, which is another one at each try.
    """
    if state.unstarted.get((uid, name)) == rejection:
        return EventOutcome(state)
    pods = {one.uid for one in state.sandboxes.values()}
    unstarted = {key: why for key, why in state.unstarted.items() if key[0] in pods}
    pod = state.kubelet.node.active.get(uid)
    place = uid if pod is None else f"{pod.namespace}/{pod.name}"
    text = f"{place}: {name}: {text_of(rejection)}"
    effects: list[Effect] = [AgentReport(finding, text, uid, container_id, rejection.reason)]
    if pod is not None:
        effects.append(warning_about(pod, rejection.reason, rejection.message))
    return EventOutcome(replace(state, unstarted={**unstarted, (uid, name): rejection}), effects=tuple(effects))


def started_despite_refusal(state: AgentState, container: KnownContainer) -> tuple[Effect, ...]:
    """Return what reports a container that runs although its start was refused.

    Args:
        state: in which it runs.
        container: of it.
    """
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
    return EventOutcome(replace(before, sandboxes=outcome.state.sandboxes), Refused(text_of(refused)), (report,))
