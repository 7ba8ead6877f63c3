"""What the agent shows of itself: one frozen value, made between two events and read from any thread at any time.

Metrics, health, status and the PodResources API all read the same snapshot, so that they never contradict one another,
and none of them waits for the agent or holds it up.

The one thing that must never be are containers that may run on exclusive CPUs of others. Held against one another are
what the engine gave exclusively and what the kernel lets each container use. Where a cgroup was not read yet, the
runtime's record counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.reactor.devices import devices_of, elsewhere, places_of
from mooring.agent.state import HAS_CGROUP, AgentState, KnownContainer, claimed_cpus
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.node.isolation import Isolation, cpu_isolation
from mooring.engine.node.metrics.metrics import Metrics
from mooring.engine.plugins.facts import PluginFailed
from mooring.explanations.alignment import are_near, with_devices
from mooring.explanations.phrases import nodes_of
from mooring.lazy import lazily

if TYPE_CHECKING:
    from mooring.engine.extensions.interrupts import Step, Why

with lazily():
    from mooring.engine.extensions import interrupts as steering

ALL = "all"
"""In place of a resource: CPUs, memory and devices together, of containers that have devices."""


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
    described = (_described(state, each) for each in (one, other))
    return one.uid == other.uid and any(each is not None and each.kind is ContainerKind.INIT for each in described)


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


class DeviceFit(Enum):
    """How the CPUs and memory of a container lie to its devices; the value is the word in documents."""

    ALIGNED = "aligned"
    """On a NUMA node that all of them are near."""
    ELSEWHERE = "elsewhere"
    """They have no NUMA node in common."""
    UNKNOWN = "unknown"
    """Not all devices of its pod are known yet."""
    FREE = "free"
    """It has no CPUs or memory of its own, or nothing ties these to its devices."""


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """The devices of one container."""

    held: Mapping[str, tuple[Device, ...]]
    """Resource or driver -> devices."""
    fit: DeviceFit


def devices_of_pod(state: AgentState, pod: Pod) -> dict[str, ContainerDevices]:
    """Return what the containers of a pod hold, by name; containers of which nothing is to be said are left out."""
    far = {name for name, _ in elsewhere(state, pod)}
    found = {}
    for name, place in places_of(state, pod).items():
        held = devices_of(state.kubelet, pod.uid, name)
        if pod.uid in state.without_devices:
            fit = DeviceFit.UNKNOWN
        elif not held:
            continue
        elif name in far:
            fit = DeviceFit.ELSEWHERE
        else:
            fit = DeviceFit.ALIGNED if are_near(held) and (place.cpus or place.mems) else DeviceFit.FREE
        found[name] = ContainerDevices(held, fit)
    return found


@dataclass(frozen=True, slots=True)
class AlignmentCounts:
    """How many containers have what on one NUMA node, and how many have it on several."""

    aligned: Mapping[str, int]
    """``cpu``, ``memory``, a resource of devices, or :data:`ALL` -> containers."""
    unaligned: Mapping[str, int]
    with_devices: int
    """Containers that hold devices."""


def alignment_counts(state: AgentState) -> AlignmentCounts:
    """Count the containers of placed pods."""
    aligned, unaligned, holding = Counter[str](), Counter[str](), 0
    for pod in state.kubelet.node.active.values():
        for held, extents in _extents(state, pod):
            holding += bool(held)
            for resource, count in extents.items():
                (aligned if count == 1 else unaligned)[resource] += 1
    return AlignmentCounts(aligned, unaligned, holding)


def _extents(state: AgentState, pod: Pod) -> Iterator[tuple[Mapping[str, tuple[Device, ...]], dict[str, int]]]:
    """Yield the devices of each container, and on how many NUMA nodes it has what."""
    topology = state.kubelet.settings.topology
    for name, place in places_of(state, pod).items():
        held = {
            resource: devices
            for resource, devices in devices_of(state.kubelet, pod.uid, name).items()
            if any(one.numa for one in devices)
        }
        cpus = set() if topology is None else {*nodes_of(topology, place.cpus.mask)}
        memory = {*place.mems}
        found = {kind: len(where) for kind, where in (("cpu", cpus), ("memory", memory)) if where}
        for resource, devices in held.items():
            found[resource] = len(with_devices(cpus | memory, devices))
        if held and (cpus or memory):
            found[ALL] = len(with_devices(cpus | memory, (one for devices in held.values() for one in devices)))
        yield devices_of(state.kubelet, pod.uid, name), found
