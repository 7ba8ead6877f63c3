"""Results of writing a container's cpuset: repairs, what could not be corrected, and whether its program may run.

At StartContainer a container does not run unless the kernel shows that it stays within what was decided: nothing later
could keep its program off the CPUs of others. On containerd a refusal fails the start, and the kubelet tries again.
CRI-O ignores it: what starts is checked at PostStartContainer (:mod:`mooring.agent.reactor.lifecycle`). The same holds
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

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from mooring.agent import effects
from mooring.agent.reactor.desired import DesiredSettings, expected_lifts, write_of
from mooring.agent.reactor.placing import text_of
from mooring.agent.reactor.response import EventOutcome, Refused, outcome, report_refusal, without_refusal
from mooring.agent.state import HAS_CGROUP, AgentState, KnownDeviation, Phase, Setting
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection

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

    write: effects.WriteCPUSet
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
    told: list[effects.Effect] = []
    for one in results:
        known = state.containers.get(one.write.container_id)
        if known is None:
            continue
        if one.had and one.standing is Compliance.RIGHT and one.write.occasion is effects.Occasion.CHECK:
            report = effects.AgentReport(
                effects.ReportKind.DEVIATION, f"{known.name} had {one.had}", known.uid, known.id
            )
            told += effects.said(state, report, "CPUSetRepaired")
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
            refused = report_refusal(
                state, known.uid, known.name, rejection, effects.ReportKind.START_REFUSED, known.id
            )
            # containerd ends it now; a runtime that starts it nevertheless says so by PostStartContainer.
            state = refused.state.with_container(replace(known, phase=Phase.REFUSED))
            answer, told = Refused(text_of(rejection)), [*told, *refused.effects]
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
    now = KnownDeviation(problem, is_known)
    if not problem or known is None or known.phase not in HAS_CGROUP or state.deviating.get(container_id) == now:
        return EventOutcome(state)
    there = {one: told for one, told in state.deviating.items() if one in state.containers}
    text = f"{known.name} {problem}"
    told = effects.said(
        state, effects.AgentReport(effects.ReportKind.DEVIATION_LASTS, text, known.uid, container_id), "CPUSetDiffers"
    )
    return EventOutcome(replace(state, deviating={**there, container_id: now}), effects=told)


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

    Whether it was corrected is reported after the write (:func:`mooring.agent.reactor.reconcile.writes_done`).

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
    return outcome(state, after, None, (write_of(known, wanted, effects.Occasion.CHECK),))


def correct_quota(state: AgentState, lift: effects.LiftQuota, quota: int) -> EventOutcome:
    """Lift a CFS quota again that is back where none should be.

    Args:
        state: now.
        lift: the place, from :func:`~mooring.agent.reactor.desired.expected_lifts`.
        quota: what was found, in microseconds per period.
    """
    if lift not in expected_lifts(state):
        return outcome(state, state)
    text = f"the {lift.of.value} had a CFS quota of {quota} microseconds"
    return outcome(
        state,
        state,
        None,
        (lift, effects.AgentReport(effects.ReportKind.QUOTA_DEVIATION, text, lift.uid, lift.container_id)),
    )
