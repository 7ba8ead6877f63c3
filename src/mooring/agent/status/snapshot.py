"""What the agent shows of itself: one frozen value, made between two events and read from any thread at any time.

Metrics, health, status and the PodResources API all read the same snapshot, so that they never contradict one another,
and none of them waits for the agent or holds it up.

The one thing that must never be are containers that may run on exclusive CPUs of others. Held against one another are
what the engine gave exclusively and what the kernel lets each container use. Where a cgroup was not read yet, the
runtime's record counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import or_

from msgspec import UNSET, UnsetType

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.state import HAS_CGROUP, AgentState, KnownContainer, claimed_cpus
from mooring.documents.status import ConfigurationPart, InterruptsPart, PluginFailurePart, RuntimePart
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, ContainerKind
from mooring.engine.node.isolation import Isolation, cpu_isolation
from mooring.engine.node.metrics import Metrics


def overlaps(state: AgentState, effective: Mapping[str, CPUSet]) -> tuple[tuple[str, str, CPUSet], ...]:
    """Return every overlap among containers with processes, in the order in which they were seen.

    Each is the id of a container, the id of that on whose exclusive CPUs it may run too, and these CPUs.

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
    found: list[tuple[str, str, CPUSet]] = []
    for other in live:
        # Nearly all containers stay within their own CPUs: only the others are compared in pairs.
        if not may_use[other.id] & taken & ~exclusive[other.id]:
            continue
        for owner in live:
            both = claimed.get((other.uid, other.name), 0) & claimed.get((owner.uid, owner.name), 0)
            shared = may_use[other.id] & exclusive[owner.id] & ~both
            if not shared or other.id == owner.id:
                continue
            kinds = {known.kind for one in (owner, other) if (known := _described(state, one)) is not None}
            # An init container leaves its CPUs to those after it in its pod.
            if owner.uid != other.uid or ContainerKind.INIT not in kinds:
                found.append((other.id, owner.id, CPUSet(shared)))
    return tuple(found)


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
    of_claims = CPUSet(CPUMask(claimed.get((container.uid, container.name), 0)))
    node = state.kubelet.node
    pod, known = node.active.get(container.uid), _described(state, container)
    if pod is None or known is None:
        return of_claims
    if cpu_isolation(node.settings, node.providers, pod, known) is not Isolation.CONTAINER:
        return of_claims
    return of_claims | CPUSet(node.cpu.assignments[pod.uid][known.name])


def moment(seconds: float) -> str:
    """Return a time as RFC 3339 writes it in UTC; an empty text for none.

    >>> moment(0.0), moment(1_770_000_000.25)
    ('', '2026-02-02T02:40:00Z')
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


NO_RUNTIME = RuntimePart("", "", connected=False, synchronized=False, since="")
"""Before the first connection."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent at one moment; what needs no engine is in the form of the status document."""

    machine: Machine
    state: AgentState
    """What it knows and decided."""
    runtime: RuntimePart = field(default_factory=lambda: NO_RUNTIME)
    is_silent: bool = False
    """Whether the runtime has let the agent wait longer than a container should take to stop."""
    configuration: ConfigurationPart = field(default_factory=lambda: ConfigurationPart([], 1, "", ""))
    metrics: Metrics | None = None
    """The kubelet's numbers."""
    effective: Mapping[str, Cpuset] = field(default_factory=dict)
    """What the kernel lets containers use, by id, for those whose cgroup was read."""
    interrupts: InterruptsPart | UnsetType = UNSET
    troubled_plugins: Mapping[str, tuple[int, PluginFailurePart]] = field(default_factory=dict)
    """How often answers of a plugin were left out since the agent started, and why last, by name (extension plugins).
    """
    unwritable: str = ""
    """Why the state folder cannot be written; empty when it can."""
    is_blind: bool = False
    """Whether the agent sees no control group of anything that runs."""
    conflict: str = ""
    """Which other agent of this node is in the way, in words; empty when there is none."""
    node: str = ""
    """Name of the node in the cluster."""
    started: float = 0.0
    """When the agent started, in seconds since 1970."""
    taken: float = 0.0
    """When this snapshot was made, in seconds since 1970."""

    def overlaps(self) -> tuple[tuple[str, str, CPUSet], ...]:
        """Return which containers may run on exclusive CPUs of others: none, unless something went wrong."""
        return overlaps(self.state, {container: found.cpus for container, found in self.effective.items()})


class Published:
    """Keeps the newest snapshot for readers of other threads."""

    def __init__(self, first: Snapshot) -> None:
        self._newest = first

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot."""
        # One reference is stored, which no reader can see half of.
        self._newest = snapshot

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot; called from any thread, waits for nothing."""
        return self._newest
