"""Keeping track of sandboxes and containers as events name them."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.values import AgentState, KnownContainer, Phase
from mooring.agent.reactor.wanted import on_record


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


def seen(state: AgentState, sandbox: PodSandbox, container: Container, phase: Phase) -> AgentState:
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
            told=record,
            asked=container.resources,
            pid=container.pid,
            cgroup=container.cgroups_path,
        )
        return state.with_container(known)
    return state.with_container(
        replace(
            known,
            phase=known.phase if known.phase is Phase.ENDED else phase,
            told=record,
            pid=container.pid or known.pid,
            cgroup=container.cgroups_path or known.cgroup,
        )
    )


def messages_of(state: AgentState, sandbox_id: str) -> tuple[Container, ...]:
    """Return the containers of a sandbox as their creation asked for them, to derive a pod from."""
    return tuple(
        Container(one.id, one.sandbox_id, one.name, pid=one.pid, resources=one.asked, cgroups_path=one.cgroup)
        for one in state.containers.values()
        if one.sandbox_id == sandbox_id
    )
