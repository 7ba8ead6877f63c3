"""The reconcile loop of the cgroups: what the kernel shows, against the state; what differs is an event of the reactor.

Many containers are checked without the lock. What seems to differ is checked again under it, because the state may have
moved on meanwhile. When a scale-down delay is over, CPUs are reclaimed: first from the container, then they are free
for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, CPUSetWritten, Deviation, lasting_text, shows
from mooring.agent.effects import LiftQuota, WriteCPUSet
from mooring.agent.reactor.desired import are_files_behind, expected, expected_lifts, write_of
from mooring.agent.reactor.lifecycle import end_missing_sandboxes
from mooring.agent.reactor.reconcile import correct_deviation, correct_quota, report_deviation, without_deviation
from mooring.agent.reactor.response import EventOutcome, outcome
from mooring.agent.reactor.update_container import is_due, reclaiming_writes, released
from mooring.agent.state import HAS_CGROUP, AgentState, Setting
from mooring.agent.state_holder import StateHolder
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer
from mooring.engine.core.moment import Moment

Online: TypeAlias = Callable[[], CPUSet | None]
"""Reads which CPUs are online; None where that is unknown."""


def verify(
    holder: StateHolder, cgroups: CGroups, container_ids: Iterable[str] | None = None, online: Online | None = None
) -> None:
    """Compare the cpusets of containers with the state, and correct what differs.

    Containers whose updates are on their way are left out.

    Args:
        holder: has the state.
        cgroups: of the node.
        container_ids: None for all.
        online: reads the CPUs that are online, where these may change: one that has just gone is missed by the kernel
            before the state knows, and that is no deviation.
    """
    state = holder.state
    wanted, on_their_way = expected(state), holder.in_flight()
    asked = wanted if container_ids is None else [one for one in container_ids if one in wanted]
    places = [write_of(state.containers[one], wanted[one]) for one in asked if one not in on_their_way]
    seen = {one.container_id: found for one in places if (found := cgroups.in_effect(one)) is not None}
    doubtful = [one for one in places if one.container_id not in seen or not shows(seen[one.container_id], one)]
    differing = cgroups.deviations(doubtful)
    holder.saw(state, seen)
    right = seen.keys() - {one.wanted.container_id for one in differing}
    if right & state.deviating.keys():
        holder.apply(lambda now, _observer: EventOutcome(without_deviation(now, right)))
    for one in differing:
        if online is not None and _is_of_kernel(one.found, one.wanted, online):
            continue
        if one.trouble is not None or not one.can_be_repaired:
            holder.apply(partial(_lasts, found=one))
        else:
            judged = partial(_judged, holder=holder, cgroups=cgroups, container_id=one.wanted.container_id)
            holder.apply(partial(judged, online=online))


def _lasts(state: AgentState, _observer: Observer, *, found: Deviation) -> EventOutcome:
    known = state.containers.get(found.wanted.container_id)
    if known is None or write_of(known, expected(state).get(known.id, Setting())) != found.wanted:
        # It ended, or something else was decided, while the state was not locked.
        return EventOutcome(state)
    return report_deviation(state, known.id, lasting_text(found), is_known=found.found is not None)


def verify_quotas(holder: StateHolder, cgroups: CGroups) -> None:
    """Look for CFS quotas where none should be, and lift them again."""
    for lift, found in cgroups.quotas(expected_lifts(holder.state)):
        if found.microseconds is not None:
            holder.apply(partial(_lifted, lift=lift, quota=found.microseconds))


@dataclass(frozen=True, slots=True)
class SandboxCheck:
    """Result of a check of the control groups of all sandboxes."""

    missed: frozenset[str] = frozenset()
    """Ids of sandboxes of which there was nothing."""
    has_seen: bool = False
    """Whether this check or an earlier one saw a group."""
    is_blind: bool = False
    """Whether no group was ever seen, although the runtime says that containers run."""


def verify_sandboxes(holder: StateHolder, cgroups: CGroups, last: SandboxCheck) -> SandboxCheck:
    """Check for sandboxes of which nothing is left; those that were missing at the last check too are ended.

    In a control group namespace of its own, or where a runtime keeps its containers in machines of their own, an agent
    sees no group of any container. It releases nothing for that.

    Args:
        holder: has the state.
        cgroups: of the node.
        last: what the last check returned.
    """
    state = holder.state
    alive = {one.sandbox_id for one in state.containers.values() if one.cgroup and cgroups.has_group(one.cgroup, 0)}
    asked = [one for one in state.sandboxes.values() if one.cgroups_path]
    missed = frozenset(
        one.id for one in asked if one.id not in alive and not cgroups.has_group(one.cgroups_path, one.pid)
    )
    has_seen = last.has_seen or bool(alive) or len(missed) < len(asked)
    if not has_seen and any(one.sandbox_id in missed and one.phase in HAS_CGROUP for one in state.containers.values()):
        holder.complain(
            "control groups", "no control group of any pod is visible: pods that end unreported are not detected"
        )
        return SandboxCheck(missed, is_blind=True)
    # One check may come before the runtime's own event, or between the event and what it reports.
    gone = sorted(missed & last.missed)
    if gone:
        holder.apply(lambda now, observer: end_missing_sandboxes(now, gone, observer))
    return SandboxCheck(missed.difference(gone), has_seen)


def _lifted(state: AgentState, _observer: Observer, *, lift: LiftQuota, quota: int) -> EventOutcome:
    return correct_quota(state, lift, quota)


def _is_of_kernel(found: Cpuset | None, wanted: WriteCPUSet, online: Online) -> bool:
    """Tell whether the kernel shows what is wanted, but for CPUs that are offline."""
    there = online()
    if found is None or there is None or not wanted.cpus:
        return False
    cpus = wanted.cpus
    if not cpus & there:
        # It may run where the group above may, until the state knows.
        return True
    return found.cpus != cpus and shows(replace(found, cpus=found.cpus | (cpus - there)), wanted)


def _judged(
    state: AgentState,
    _observer: Observer,
    *,
    holder: StateHolder,
    cgroups: CGroups,
    container_id: str,
    online: Online | None,
) -> EventOutcome:
    """Check once more, now that nothing changes, and have it corrected."""
    known = state.containers.get(container_id)
    if known is None or known.phase not in HAS_CGROUP or container_id in holder.in_flight():
        return outcome(state, state)
    wanted = write_of(known, expected(state)[container_id])
    found = cgroups.in_effect(wanted)
    if found is None or (online is not None and _is_of_kernel(found, wanted, online)):
        return outcome(state, state)
    return correct_deviation(state, container_id, found.cpus, found.mems)


def release(holder: StateHolder, cgroups: CGroups, now: Moment) -> None:
    """Apply the releases whose delay is over; those that the kernel does not take are tried again at the next call.

    Args:
        holder: has the state.
        cgroups: of the node.
        now: the present moment.
    """
    if is_due(holder.state, now):
        holder.apply(partial(_released, cgroups=cgroups, now=now, complain=holder.complain))


def update_late_files(holder: StateHolder) -> None:
    """Let files say what containers got by an answer after which no event came."""
    if are_files_behind(holder.state):
        holder.apply(lambda state, _observer: outcome(state, state))


def _released(
    state: AgentState, observer: Observer, *, cgroups: CGroups, now: Moment, complain: Callable[[str, str], None]
) -> EventOutcome:
    spared = set()
    for owner, writes in reclaiming_writes(state, now).items():
        for one in writes:
            written = cgroups.write_cpuset(one)
            if not _is_taken(written):
                spared.add(owner)
                complain(one.container_id, f"its CPUs are not reclaimed: {written.problem or 'it still has them'}")
    return released(state, now, spared, observer)


def _is_taken(written: CPUSetWritten) -> bool:
    """Return whether a container has no CPU but those that it keeps: it ended, the kernel says so, or it is not seen.

    It may have fewer of them: version 2 shows those that are online, version 1 takes these and refuses the others.
    """
    if written.after is None:
        return written.trouble in (None, CGroupTrouble.GONE)
    cpus = written.wanted.cpus
    return not cpus or written.after.cpus <= cpus
