"""What verification found: repairs and reports."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Finding, LiftQuota, Occasion, Report
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import HAS_CGROUP, AgentState, Setting
from mooring.agent.reactor.wanted import Wanted, expected_lifts, same_list, write_of


def deviation_found(state: AgentState, container_id: str, cpus: str, mems: str) -> Outcome:
    """Put a container right whose cgroup is not what it should be; what is right by now is left alone.

    Whether it was repaired is told when it was written (:func:`mooring.agent.reactor.written.write_done`).

    Args:
        state: now.
        container_id: of the container.
        cpus: CPU list that the kernel shows.
        mems: list of NUMA nodes that the kernel shows.
    """
    known = state.containers.get(container_id)
    if known is None or known.phase not in HAS_CGROUP:
        return outcome(state, state)
    wanted = Wanted.now(state).of(known.uid, known.name)
    if all(not right or same_list(found, right) for found, right in ((cpus, wanted.cpus), (mems, wanted.mems))):
        return outcome(state, state)
    # Perhaps an update failed, and the runtime's record is as wrong as the cgroup was.
    after = state.with_container(replace(known, told=Setting(), written=wanted))
    return outcome(state, after, None, (write_of(known, wanted, Occasion.CHECK),))


def quota_found(state: AgentState, lift: LiftQuota, quota: int) -> Outcome:
    """Lift a CFS quota again that is back where none should be.

    Args:
        state: now.
        lift: the place, from :func:`~mooring.agent.reactor.wanted.expected_lifts`.
        quota: what was found, in microseconds per period.
    """
    if lift not in expected_lifts(state):
        return outcome(state, state)
    text = f"the {lift.of.value} had a CFS quota of {quota} microseconds"
    return outcome(state, state, None, (lift, Report(Finding.QUOTA_DEVIATION, text, lift.uid, lift.container_id)))
