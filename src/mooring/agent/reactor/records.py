"""Keeping track of sandboxes and containers as events name them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mooring.agent.nri.types import PodSandbox, RuntimeContainer
from mooring.agent.reactor.desired import on_record
from mooring.agent.reactor.values import AgentState, KnownContainer, Phase, Setting


def with_sandbox(state: AgentState, sandbox: PodSandbox) -> AgentState:
    """Return the state with a sandbox as the runtime tells it now."""
    if state.sandboxes.get(sandbox.id) == sandbox:
        return state
    return replace(state, sandboxes={**state.sandboxes, sandbox.id: sandbox})


def without_sandbox(state: AgentState, sandbox_id: str) -> AgentState:
    """Return the state without a sandbox and its containers."""
    return replace(
        state,
        sandboxes={known: one for known, one in state.sandboxes.items() if known != sandbox_id},
        containers={known: one for known, one in state.containers.items() if one.sandbox_id != sandbox_id},
    )


def without_container(state: AgentState, container_id: str) -> AgentState:
    """Return the state without a container."""
    if container_id not in state.containers:
        return state
    return replace(state, containers={known: one for known, one in state.containers.items() if known != container_id})


def recorded(state: AgentState, sandbox: PodSandbox, container: RuntimeContainer, phase: Phase) -> AgentState:
    """Return the state with what an event says of a container; one that has ended stays ended."""
    known = state.containers.get(container.id)
    record = on_record(container.resources)
    if known is None:
        known = KnownContainer(
            id=container.id,
            sandbox_id=sandbox.id,
            uid=sandbox.uid,
            name=container.name,
            phase=phase,
            record=record,
            asked=container.resources,
            pid=container.pid,
            cgroup=container.cgroups_path,
            claims=container.claims,
        )
        return state.with_container(known)
    return state.with_container(
        replace(
            known,
            phase=known.phase if known.phase is Phase.ENDED else phase,
            record=believed(known.record, record),
            pid=container.pid or known.pid,
            cgroup=container.cgroups_path or known.cgroup,
            claims=container.claims or known.claims,
        )
    )


def believed(told: Setting, record: Setting) -> Setting:
    """Return what is on record, as far as that is known.

    A message is put together before the runtime's turn for it comes, so that it can be older than the last answer
    (containerd 2.1.9 and 2.4.2, read and seen under churn). Where the two differ the record is unknown, and the next
    reply tells the container anew: to trust the older one could leave a container where it may not be any more.

    >>> from mooring.core.cpuset import CPUSet
    >>> few, many = CPUSet.parse("0-3"), CPUSet.parse("0-5")
    >>> str(believed(Setting(few), Setting(few, quota=-1)).cpus), str(believed(Setting(few), Setting(many)).cpus)
    ('0-3', '')
    """
    is_same = told.cpus == record.cpus and told.mems == record.mems
    return record if is_same else Setting(quota=record.quota)


def as_requested(state: AgentState, containers: Iterable[RuntimeContainer]) -> list[RuntimeContainer]:
    """Return containers of the runtime's record with the resources that their creation asked for, where that is known.

    The record has what the agent made of them: without its quota a Guaranteed container looks like a Burstable one.
    """
    known = state.containers
    return [replace(one, resources=known[one.id].asked) if one.id in known else one for one in containers]


def messages_of(state: AgentState, sandbox_id: str) -> tuple[RuntimeContainer, ...]:
    """Return the containers of a sandbox as their creation asked for them, to derive a pod from."""
    return tuple(
        RuntimeContainer(one.id, one.sandbox_id, one.name, pid=one.pid, resources=one.asked, cgroups_path=one.cgroup)
        for one in state.containers.values()
        if one.sandbox_id == sandbox_id
    )
