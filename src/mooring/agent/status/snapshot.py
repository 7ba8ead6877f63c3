"""What the agent shows of itself: one frozen value, made between two events and read from any thread at any time.

Metrics, health, status and the PodResources API all read the same snapshot, so that they never contradict one another,
and none of them waits for the agent or holds it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.reactor.values import AgentState
from mooring.agent.status.overlap import Overlap, overlaps
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.node.metrics.metrics import Metrics
from mooring.engine.plugins.facts import PluginFailed
from mooring.lazy import lazily

if TYPE_CHECKING:
    from mooring.engine.extensions.interrupts import Step, Why

with lazily():
    from mooring.engine.extensions import interrupts as steering


@dataclass(frozen=True, slots=True)
class InterruptView:
    """Interrupts at the newest check."""

    mode: str
    """``dry-run`` or ``on``."""
    steps: tuple[Step, ...] = ()
    """As they were after the check, the last of its writes included."""
    findings: tuple[Finding, ...] = ()
    """What is in the way."""

    @property
    def total(self) -> int:
        """How many interrupts there are."""
        return sum(step.interrupt.number != steering.NEW for step in self.steps)

    @property
    def moved(self) -> tuple[Step, ...]:
        """Those that are not where they were before the agent came."""
        return tuple(one for one in self.steps if one.place is not None and one.interrupt.allowed != one.original)

    @property
    def pending(self) -> tuple[Step, ...]:
        """Those that would be written, or could not be."""
        return tuple(one for one in self.steps if one.write is not None)

    @property
    def alone(self) -> tuple[Step, ...]:
        """Those that another program has moved."""
        return tuple(one for one in self.steps if one.place is None)

    def count(self, why: Why) -> int:
        """Return how many interrupts stand where they stand for this reason."""
        return sum(one.place is not None and one.place.why is why for one in self.steps)


@dataclass(frozen=True, slots=True)
class RuntimeLink:
    """The connection to the container runtime."""

    name: str = ""
    """``containerd`` or ``cri-o``, as the runtime calls itself; empty before the first connection."""
    version: str = ""
    connected: bool = False
    synchronized: bool = False
    """Whether the runtime has told everything that runs since the connection was made."""
    since: float = 0.0
    """When it was made or lost, in seconds since 1970."""
    silent: bool = False
    """Whether the runtime has let the agent wait longer than a container should take to stop."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The configuration that the agent follows."""

    files: tuple[str, ...] = ()
    generation: int = 1
    """How many configurations have been in force since the start."""
    since: float = 0.0
    """When it came into force, in seconds since 1970."""
    refusal: str = ""
    """Why the files as they are now are not in force; empty when they are."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent at one moment."""

    machine: Machine
    state: AgentState | None = None
    """What it knows and decided; None before the engine started, and when it does not start."""
    refusal: str = ""
    """Why the engine does not start."""
    runtime: RuntimeLink = RuntimeLink()
    configuration: InForce = InForce()
    metrics: Metrics | None = None
    """The kubelet's numbers."""
    effective: Mapping[str, Cpuset] = field(default_factory=dict)
    """What the kernel lets containers use, by id, for those whose cgroup was read."""
    interrupts: InterruptView | None = None
    """None while they are not managed."""
    troubled_plugins: Mapping[str, PluginFailures] = field(default_factory=dict)
    """Plugins whose answers were left out since the agent started, by name (extension plugins)."""
    unwritable: str = ""
    """Why the state folder cannot be written; empty when it can."""
    blind: bool = False
    """Whether the agent sees no control group of anything that runs."""
    conflict: str = ""
    """Which other agent of this node is in the way, in words; empty when there is none."""
    node: str = ""
    """Name of the node in the cluster."""
    started: float = 0.0
    """When the agent started, in seconds since 1970."""
    taken: float = 0.0
    """When this snapshot was made, in seconds since 1970."""

    def overlaps(self) -> tuple[Overlap, ...]:
        """Return which containers may run on exclusive CPUs of others: none, unless something went wrong."""
        if self.state is None:
            return ()
        return overlaps(self.state, {container: found.cpus for container, found in self.effective.items()})


class SnapshotProvider(Protocol):
    """Whoever knows the agent."""

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot; called from any thread, waits for nothing."""


class Published:
    """Keeps the newest snapshot for readers of other threads."""

    def __init__(self, first: Snapshot) -> None:
        self._newest = first

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot."""
        # One reference is stored, which no reader can see half of.
        self._newest = snapshot

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        return self._newest


@dataclass(frozen=True, slots=True)
class AgentCounts:
    """What happened since the agent started."""

    replies: int = 0
    reply_seconds: float = 0.0
    """Of all replies together."""
    rejections: int = 0
    evictions: int = 0
    repairs: int = 0
    reconnects: int = 0
    state_write_failures: int = 0


@dataclass(frozen=True, slots=True)
class PluginFailures:
    """How often one plugin failed."""

    failures: int
    point: str
    """The extension point at which it failed last."""
    why: str
    """One sentence about that."""


def with_failure(known: Mapping[str, PluginFailures], failed: PluginFailed) -> dict[str, PluginFailures]:
    """Return what is known after one more failure.

    >>> with_failure({}, PluginFailed("uid", "app", "mine", "pre_score", "it raised ValueError: x"))["mine"].failures
    1
    """
    before = known.get(failed.plugin)
    times = 1 if before is None else before.failures + 1
    return {**known, failed.plugin: PluginFailures(times, failed.point, failed.why)}
