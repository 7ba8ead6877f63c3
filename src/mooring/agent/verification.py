"""Looking at what the kernel shows, and handing what differs to the reactor.

The look at many containers happens without the lock. What seems to differ is looked at again under it, because the
state may have moved on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from mooring.agent.cgroups.cpuset import Cpuset, parsed
from mooring.agent.cgroups.protocol import CGroups, shows
from mooring.agent.holder import Holder
from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.deviation import deviation_found, quota_found
from mooring.agent.reactor.effects import LiftQuota, WriteCPUSet
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import HAS_CGROUP, AgentState
from mooring.agent.reactor.vanished import vanished
from mooring.agent.reactor.wanted import expected, expected_lifts, write_of
from mooring.agent.snapshot import EffectiveSet
from mooring.core.cpuset import CPUSet
from mooring.core.observer import Observer

Online: TypeAlias = Callable[[], CPUSet | None]
"""Reads which CPUs are online; None where nobody can know."""


def verify(
    holder: Holder, cgroups: CGroups, container_ids: Iterable[str] | None = None, online: Online | None = None
) -> None:
    """Compare the cpusets of containers with the state, and put right what differs.

    Containers whose updates are on their way are left out.

    Args:
        holder: has the state.
        cgroups: of the node.
        container_ids: None for all.
        online: reads the CPUs that are online, where these may change: one that has just gone is missed by the kernel
            before the state knows, and that is no deviation.
    """
    state = holder.state
    places = _places(state, container_ids, holder.in_flight())
    seen = {one.container_id: found for one in places if (found := cgroups.in_effect(one)) is not None}
    doubtful = [one for one in places if one.container_id not in seen or not shows(seen[one.container_id], one)]
    differing = cgroups.deviations(doubtful)
    holder.saw(state, {one: EffectiveSet(found.cpus, str(found.mems)) for one, found in seen.items()})
    for one in differing:
        if online is not None and _is_of_kernel(one.found, one.wanted, online):
            continue
        if one.trouble is not None:
            holder.complain(one.wanted.container_id, f"its cpuset cannot be read: {one.trouble.value}")
        elif not one.can_be_repaired:
            has = "nothing" if one.found is None else f"CPUs {one.found.cpus} and memory nodes {one.found.mems}"
            holder.complain(one.wanted.container_id, f"its cpuset is as decided, and the kernel gives it {has}")
        else:
            judged = partial(_judged, holder=holder, cgroups=cgroups, container_id=one.wanted.container_id)
            holder.apply(partial(judged, online=online))


def verify_quotas(holder: Holder, cgroups: CGroups) -> None:
    """Look for CFS quotas where none should be, and lift them again."""
    for found in cgroups.quotas(expected_lifts(holder.state)):
        quota = found.found.microseconds
        if quota is not None:
            holder.apply(partial(_lifted, lift=found.wanted, quota=quota))


def verify_sandboxes(holder: Holder, cgroups: CGroups, doubted: frozenset[str]) -> frozenset[str]:
    """Look for sandboxes of which nothing is left; those that were missed at the last look too are ended.

    Args:
        holder: has the state.
        cgroups: of the node.
        doubted: what the last look returned.

    Returns:
        Ids of the sandboxes that are missed now.
    """
    state = holder.state
    alive = {one.sandbox_id for one in state.containers.values() if one.cgroup and cgroups.has_group(one.cgroup, 0)}
    missed = frozenset(
        one.id
        for one in state.sandboxes.values()
        if one.id not in alive and one.cgroups_path and not cgroups.has_group(one.cgroups_path, one.pid)
    )
    # One look may come before the runtime's own word, or between the runtime's word and its deed.
    gone = sorted(missed & doubted)
    if gone:
        holder.apply(lambda now, hear: vanished(now, gone, hear))
    return missed.difference(gone)


def _lifted(state: AgentState, _hear: Observer, *, lift: LiftQuota, quota: int) -> Outcome:
    return quota_found(state, lift, quota)


def _places(state: AgentState, ids: Iterable[str] | None, without: frozenset[str]) -> list[WriteCPUSet]:
    wanted = expected(state)
    asked = wanted if ids is None else [one for one in ids if one in wanted]
    return [write_of(state.containers[one], wanted[one]) for one in asked if one not in without]


def _is_of_kernel(found: Cpuset | None, wanted: WriteCPUSet, online: Online) -> bool:
    """Tell whether the kernel shows what is wanted, but for CPUs that are offline."""
    there = online()
    if found is None or there is None or not wanted.cpus:
        return False
    cpus = parsed(wanted.cpus)
    if not cpus & there:
        # It may run where the group above may, until the state knows.
        return True
    return found.cpus != cpus and shows(replace(found, cpus=found.cpus | (cpus - there)), wanted)


def _judged(
    state: AgentState,
    _hear: Observer,
    *,
    holder: Holder,
    cgroups: CGroups,
    container_id: str,
    online: Online | None,
) -> Outcome:
    """Look once more, now that nothing moves, and have it put right."""
    known = state.containers.get(container_id)
    if known is None or known.phase not in HAS_CGROUP or container_id in holder.in_flight():
        return outcome(state, state)
    wanted = write_of(known, expected(state)[container_id])
    found = cgroups.in_effect(wanted)
    if found is None or (online is not None and _is_of_kernel(found, wanted, online)):
        return outcome(state, state)
    return deviation_found(state, container_id, str(found.cpus), str(found.mems))
