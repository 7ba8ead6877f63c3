"""Which fact counts in which metric: the kubelet's increments, one rule beside the other.

Source: kubelet v1.37.1, policy_static.go of both managers, topologymanager scope_*.go, kubelet.go; spec: metrics.md
section 2, preview.md section 11.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager import facts as cpu_facts
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.facts import (
    CPUsMoved,
    CPUsReplaced,
    CPUsRestored,
    ScaleDownCompleted,
    ScaleDownDropped,
    ScaleDownStarted,
)
from mooring.engine.memorymanager import facts as memory_facts
from mooring.engine.node import facts as node_facts
from mooring.engine.node.metrics import names
from mooring.engine.node.metrics.names import Labels, Metric, allocation, assignment
from mooring.engine.node.resize.feasibility import INFEASIBLE
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.merge import NONE, SINGLE_NUMA_NODE
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class Increment:
    """By how much one series changes."""

    metric: Metric
    labels: Labels = ()
    amount: int = 1


def increments(fact: object, settings: Settings) -> Iterator[Increment]:
    """Yield what a fact adds to the series; nothing for a fact that no metric counts."""
    yield from _of_cpus(fact, settings)
    match fact:
        case cpu_facts.PodShareCut():
            kind = names.POD_EXCLUSIVE if fact.exclusive else names.POD_SHARED
            yield Increment(names.ASSIGNMENTS, assignment(names.CPU, kind))
        case cpu_facts.PodPartitioned():
            yield Increment(names.ALLOCATIONS, allocation(names.CPU, names.POD), len(fact.containers))
    match fact:
        case memory_facts.MemoryPinningRequested():
            yield Increment(names.MEMORY_PINNING_REQUESTS)
        case memory_facts.MemoryPinningFailed():
            yield Increment(names.MEMORY_PINNING_ERRORS)
            yield Increment(names.ALLOCATION_ERRORS, allocation(names.MEMORY, _source(fact.container)))
        case memory_facts.MemoryAssigned(error="") if fact.container:
            # One allocation for each type of memory, one assignment for the container.
            yield Increment(names.ALLOCATIONS, allocation(names.MEMORY, names.NODE), len(fact.blocks))
            yield Increment(names.ASSIGNMENTS, assignment(names.MEMORY, names.NODE_EXCLUSIVE))
        case memory_facts.MemoryPartitioned():
            served = len(fact.exclusive) + len(fact.shared)
            yield Increment(names.ALLOCATIONS, allocation(names.MEMORY, names.POD), served)
            yield Increment(names.ASSIGNMENTS, assignment(names.MEMORY, names.POD_EXCLUSIVE), len(fact.exclusive))
            yield Increment(names.ASSIGNMENTS, assignment(names.MEMORY, names.POD_SHARED), len(fact.shared))
    yield from _of_admission(fact, settings)
    match fact:
        case node_facts.ResizeRefused(reason=reason) if reason == INFEASIBLE:
            yield Increment(names.RESIZES_INFEASIBLE, names.labels(reason_detail=fact.detail))
        case CPUsMoved():
            yield from _moved(settings, fact.after.bit_count() - fact.before.bit_count())
        case ScaleDownStarted():
            yield Increment(names.SCALE_DOWN_STARTED)
            yield Increment(names.SCALE_DOWN_PENDING, amount=(fact.current & ~fact.result).bit_count())
        case ScaleDownDropped():
            yield Increment(names.SCALE_DOWN_PENDING, amount=-fact.pending.bit_count())
        case ScaleDownCompleted():
            yield Increment(names.SCALE_DOWN_COMPLETED)
            yield Increment(names.SCALE_DOWN_PENDING, amount=-fact.released.bit_count())


def _of_cpus(fact: object, settings: Settings) -> Iterator[Increment]:
    policy = settings.cpu
    whole_cores = policy is not None and policy.rules.whole_cores
    match fact:
        case cpu_facts.CPUPinningRequested():
            yield Increment(names.CPU_PINNING_REQUESTS)
        case cpu_facts.CPUPinningFailed():
            yield Increment(names.CPU_PINNING_ERRORS)
            yield Increment(names.ALLOCATION_ERRORS, allocation(names.CPU, _source(fact.container)))
            if whole_cores and fact.container:
                yield Increment(names.ALIGNED_FAILURE, names.WHOLE_CORES)
        case cpu_facts.ExistingCPUsKept():
            if whole_cores and fact.container:
                yield Increment(names.ALIGNED, names.WHOLE_CORES)
        case cpu_facts.CPUsAssigned():
            yield from _moved(settings, fact.cpus.bit_count())
            # Up to v1.32 uncore caches do not count (rule uncore-alignment-not-counted; spec: releases.md section 9).
            counts_uncore = policy is not None and not settings.release.rules.uncore_alignment_not_counted
            if policy is not None and counts_uncore and is_in_one_uncore(policy.topology, fact.cpus):
                yield Increment(names.ALIGNED, names.ONE_UNCORE)
            if not fact.container:
                return
            if whole_cores:
                yield Increment(names.ALIGNED, names.WHOLE_CORES)
            yield Increment(names.ALLOCATIONS, allocation(names.CPU, names.NODE))
            yield Increment(names.ASSIGNMENTS, assignment(names.CPU, names.NODE_EXCLUSIVE))
        case cpu_facts.CPUsReleased():
            yield from _moved(settings, -fact.cpus.bit_count())


def _moved(settings: Settings, count: int) -> Iterator[Increment]:
    """Count CPUs that became exclusive; with a negative number, CPUs that are shared again.

    The kubelet does not ask whether they were in the shared pool: CPUs reused from an init container are taken from it
    a second time, and both gauges drift. Since v1.38.0-beta.0 the state is counted (rule gauges-by-difference).
    """
    if not settings.release.rules.gauges_by_difference:
        return
    yield Increment(names.CPU_EXCLUSIVE, amount=count)
    yield Increment(names.CPU_SHARED_POOL, amount=-1000 * count)


def is_in_one_uncore(topology: Topology, cpus: int) -> bool:
    """Tell whether all CPUs have the same uncore cache, whatever the policy options say."""
    return any(not cpus & ~inside for inside in topology.uncores.values())


def _source(container: str) -> str:
    """Return where CPUs or memory should have come from; without a container a whole pod was to be served."""
    return names.NODE if container else names.POD


def _of_admission(fact: object, settings: Settings) -> Iterator[Increment]:
    single = settings.topology_policy == SINGLE_NUMA_NODE
    boundary = names.POD_NUMA if settings.pod_scope else names.CONTAINER_NUMA
    match fact:
        case node_facts.AdmissionBegun():
            yield Increment(names.ADMISSION_REQUESTS)
        case HintsMerged(admitted=False) if single:
            yield Increment(names.ALIGNED_FAILURE, boundary)
        case node_facts.ContainerAdmitted() if single:
            yield Increment(names.ALIGNED, boundary)
        case node_facts.PodAdmitted():
            if single and settings.pod_scope:
                yield Increment(names.ALIGNED, boundary)
            yield Increment(names.POD_LEVEL_ADMISSIONS, names.pod_admission(fact.declared))
        case node_facts.PodRejected():
            # The scope of policy none returns a provider's error without counting it.
            if settings.topology_policy != NONE:
                yield Increment(names.ADMISSION_ERRORS)
            yield Increment(names.REJECTIONS, names.rejection(fact.reason))
        case node_facts.PodNotSupported():
            yield Increment(names.REJECTIONS, names.rejection(fact.reason))
        case node_facts.PodWithdrawn():
            # The kubelet counts an admitted pod after its last handler; here the managers have spoken before it.
            yield Increment(names.POD_LEVEL_ADMISSIONS, names.pod_admission(fact.declared), -1)
            yield Increment(names.REJECTIONS, names.rejection(fact.reason))


def state_after(fact: object) -> CPUState | None:
    """Return the CPU manager's state after a step with which its gauges change; None after any other."""
    match fact:
        case cpu_facts.CPUsAssigned() | CPUsMoved() | CPUsReplaced() | CPUsRestored() | cpu_facts.CPUsReleased():
            return fact.state
    return None


def counted_per_numa(fact: object) -> int | None:
    """Return the CPUs that kubelets up to 1.37 count per NUMA node after a step; None when it does not count them.

    On a release these are the sets that are left without the released CPUs, which differs from the sets when a CPU has
    two owners (defect average-sizes).
    """
    match fact:
        case cpu_facts.CPUsAssigned() | CPUsMoved() | CPUsReplaced() | CPUsRestored():
            return fact.held
        case cpu_facts.CPUsReleased():
            return fact.held & ~fact.cpus
    return None
