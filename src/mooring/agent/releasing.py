"""Reclaiming CPUs when a scale-down delay is over: first from the container, then they are free for others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, CPUSetWritten
from mooring.agent.reactor.assigned import are_files_behind
from mooring.agent.reactor.outcomes import EventOutcome
from mooring.agent.reactor.resizing import is_due, reclaiming_writes, released
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import AgentState
from mooring.agent.state_holder import StateHolder
from mooring.core.moment import Moment
from mooring.core.observer import Observer


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
        holder.apply(lambda state, _hear: outcome(state, state))


def _released(
    state: AgentState, hear: Observer, *, cgroups: CGroups, now: Moment, complain: Callable[[str, str], None]
) -> EventOutcome:
    spared = set()
    for owner, writes in reclaiming_writes(state, now).items():
        for one in writes:
            written = cgroups.write_cpuset(one)
            if not _is_taken(written):
                spared.add(owner)
                complain(one.container_id, f"its CPUs are not reclaimed: {written.problem or 'it still has them'}")
    return released(state, now, spared, hear)


def _is_taken(written: CPUSetWritten) -> bool:
    """Return whether a container has no more than it keeps: it ended, the kernel says so, or that cannot be read."""
    if written.trouble is not None:
        return written.trouble is CGroupTrouble.GONE
    return written.after is None or written.is_right
