"""What verification found: repairs and reports."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Effect, EventFor, Finding, LiftQuota, Report
from mooring.agent.reactor.updates import outcome
from mooring.agent.reactor.values import HAS_CGROUP, AgentState, Setting
from mooring.agent.reactor.wanted import Wanted, expected_lifts, same_list, write_of


def deviation_found(state: AgentState, container_id: str, cpus: str, mems: str) -> Outcome:
    """Put a container right whose cgroup is not what it should be; what is right by now is left alone.

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
    wrong = [
        f"{what} {found or 'none'} instead of {right}"
        for what, found, right in (("CPUs", cpus, wanted.cpus), ("memory nodes", mems, wanted.mems))
        if right and not same_list(found, right)
    ]
    if not wrong:
        return outcome(state, state)
    text = f"{known.name} had {' and '.join(wrong)}"
    effects: list[Effect] = [write_of(known, wanted), Report(Finding.DEVIATION, text, known.uid, container_id)]
    pod = state.kubelet.node.active.get(known.uid)
    if pod is not None:
        effects.append(EventFor(pod.uid, pod.namespace, pod.name, "CPUSetRepaired", text))
    # Perhaps an update failed, and the runtime's record is as wrong as the cgroup was.
    after = state.with_container(replace(known, told=Setting(), written=wanted))
    return outcome(state, after, None, tuple(effects))


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
