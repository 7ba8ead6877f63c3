"""Containers that may run on exclusive CPUs of others: the one thing that must never be.

Held against one another are what the engine gave exclusively and what the kernel lets each container use. Where a
cgroup was not read yet, the runtime's record counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from mooring.agent.reactor.values import HAS_CGROUP, AgentState, KnownContainer, claimed_cpus
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, ContainerKind
from mooring.engine.node.isolation import Isolation, cpu_isolation


@dataclass(frozen=True, slots=True)
class Overlap:
    """One container on CPUs of another."""

    container_id: str
    """Who may run there."""
    owner_id: str
    """Whose CPUs they are."""
    cpus: CPUSet


def overlaps(state: AgentState, effective: Mapping[str, CPUSet]) -> tuple[Overlap, ...]:
    """Return every overlap among containers with processes, in the order in which they were seen.

    The CPUs of a container that is being made are its own already, and a container that still runs on them does no
    harm: the runtime moves them before it continues with the container, and what it misses is corrected before the
    program runs.

    Args:
        state: what was decided and told.
        effective: CPUs that the kernel lets a container use, by container id, where that is known.
    """
    live = [one for one in state.containers.values() if one.phase in HAS_CGROUP]
    may_use = {one.id: effective.get(one.id, one.record.cpus).mask for one in live}
    claimed = claimed_cpus(state)
    exclusive = {one.id: exclusive_cpus(state, one, claimed).mask for one in live}
    taken = reduce(or_, exclusive.values(), 0)
    found: list[Overlap] = []
    for other in live:
        # Nearly all containers stay within their own CPUs: only the others are compared in pairs.
        if not may_use[other.id] & taken & ~exclusive[other.id]:
            continue
        for owner in live:
            shared = (
                may_use[other.id] & exclusive[owner.id] & ~(claimed.get(_key(other), 0) & claimed.get(_key(owner), 0))
            )
            if shared and other.id != owner.id and not _in_turn(state, owner, other):
                found.append(Overlap(other.id, owner.id, CPUSet(shared)))
    return tuple(found)


def _in_turn(state: AgentState, one: KnownContainer, other: KnownContainer) -> bool:
    """Tell whether two containers of a pod never run at once: an init container leaves its CPUs to those after it."""
    return one.uid == other.uid and any(_kind(state, each) is ContainerKind.INIT for each in (one, other))


def _kind(state: AgentState, container: KnownContainer) -> ContainerKind | None:
    known = _described(state, container)
    return known.kind if known is not None else None


def _described(state: AgentState, container: KnownContainer) -> Container | None:
    pod = state.kubelet.node.active.get(container.uid)
    return None if pod is None else pod.container(container.name)


def exclusive_cpus(state: AgentState, container: KnownContainer, claimed: Mapping[tuple[str, str], int]) -> CPUSet:
    """Return the CPUs that a container shares only with users of the same claims; empty when it has none.

    Args:
        state: what was decided.
        container: one of it.
        claimed: what all containers have of claims; to find that out, all containers are read.
    """
    of_claims = CPUSet(CPUMask(claimed.get(_key(container), 0)))
    node = state.kubelet.node
    pod, known = node.active.get(container.uid), _described(state, container)
    if pod is None or known is None:
        return of_claims
    if cpu_isolation(node.settings, node.providers, pod, known) is not Isolation.CONTAINER:
        return of_claims
    return of_claims | CPUSet(node.cpu.assignments[pod.uid][known.name])


def _key(container: KnownContainer) -> tuple[str, str]:
    return container.uid, container.name
