"""The metrics of the resource managers, as a fold over the facts that the engine reports.

Planner and agent count with the same rules and show the same numbers under the kubelet's names. The engine itself knows
nothing of metrics; without an observer nothing is counted and nothing is spent.

Source: kubelet v1.37.1, pkg/kubelet/metrics and where it is used; spec: metrics.md sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TypeAlias

from mooring.engine.cpumanager import facts as cpu_facts
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions import facts as extension_facts
from mooring.engine.memorymanager import facts as memory_facts
from mooring.engine.node import facts as node_facts
from mooring.engine.node import metric_names as names
from mooring.engine.node.metric_names import (
    METRICS,
    SCALE_DOWN_METRICS,
    Histogram,
    Labels,
    Metric,
    MetricType,
    Series,
    allocation,
    assignment,
    labels,
)
from mooring.engine.node.resources import INFEASIBLE
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.merge import NONE, SINGLE_NUMA_NODE
from mooring.lazy import dataclass, replace

NUMA_GAUGE = "numa-gauge"
"""Name of the defect by which the count of a NUMA node never returns to 0."""

_GAUGES = frozenset(metric.name for metric in (*METRICS, *SCALE_DOWN_METRICS) if metric.type is MetricType.GAUGE)


@dataclass(frozen=True, slots=True)
class Metrics:
    """All numbers of one kubelet since its start.

    >>> from mooring.engine.core.config import KubeletConfig
    >>> from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
    >>> from mooring.engine.node import Node
    >>> info = MachineInfo(2, 1, 2**30, (NUMANode(0, 2**30, cores=(Core(0, (0,), 0), Core(1, (1,), 0))),))
    >>> node = Node.fresh(info, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    >>> metrics = Metrics.initial(node.settings, node.cpu)
    >>> metrics.value(names.CPU_SHARED_POOL), metrics.value(names.CPU_PINNING_REQUESTS)
    (1000, 0)
    """

    settings: Settings
    """Of the kubelet that is counted: its policies and gates decide what counts and what is registered."""
    values: Mapping[Series, int]
    """Counters and gauges that have a series. A metric with labels has none before it counts for the first time."""
    histograms: Mapping[Series, Histogram]
    """Histograms that have a series."""
    before: Mapping[Series, int] | None = None
    """``values`` when the admission under way began; None between admissions."""

    @staticmethod
    def initial(settings: Settings, cpu: CPUState) -> Metrics:
        """Return the numbers of a kubelet that has just started; running pods are not admitted again yet.

        Args:
            settings: of the kubelet.
            cpu: the CPU manager's state after its start.
        """
        registered = [metric for metric in METRICS if metric.is_registered(settings.gates)]
        if settings.cpu is not None and settings.cpu.delays:
            registered += SCALE_DOWN_METRICS
        single = [metric for metric in registered if not metric.labels]
        values = {_series(metric): 0 for metric in single if metric.type is not MetricType.HISTOGRAM}
        histograms = {_series(metric): Histogram.of(metric) for metric in single if metric.type is MetricType.HISTOGRAM}
        counts_at_start = not settings.release.rules.alignment_not_counted_at_start
        if settings.topology_policy != NONE and counts_at_start:
            for metric in (names.ALIGNED, names.ALIGNED_FAILURE):
                values |= {_series(metric, boundary): 0 for boundary in (names.CONTAINER_NUMA, names.POD_NUMA)}
        if settings.cpu is not None:
            values |= _of_start(settings, settings.cpu, cpu)
        if cpu.pre_assignments:
            values[_series(names.SCALE_DOWN_PENDING)] = pending_cpus(cpu)
        return Metrics(settings, values, histograms)

    def after(self, fact: object) -> Metrics:
        """Return the numbers after a fact; the same object when the fact counts nowhere."""
        if isinstance(fact, node_facts.KubeletStarted):
            return Metrics.initial(fact.settings, fact.cpu)
        if isinstance(fact, node_facts.AdmissionEndless):
            # The numbers when an admission turns out to be endless. The counters stay: the kubelet has counted them
            # before it hangs. The gauges describe a node, and the node's value stays what it was before this admission.
            if self.before is None:
                return self
            counters = {series: value for series, value in self.values.items() if series[0] not in _GAUGES}
            gauges = {series: value for series, value in self.before.items() if series[0] in _GAUGES}
            return replace(self, values=counters | gauges, before=None)
        values: dict[Series, int] | None = None
        for metric, given, amount in increments(fact, self.settings):
            if not (amount and metric.is_registered(self.settings.gates)):
                continue
            values = dict(self.values) if values is None else values
            # Add to a series. One with labels that is taken back to 0 goes: the kubelet has never had it
            series = _series(metric, given)
            total = values.get(series, 0) + amount
            if total == 0 and amount < 0 and given:
                del values[series]
            else:
                values[series] = total
        if counted := _counted(fact):
            state, held = counted
            values = dict(self.values) if values is None else values
            if self.settings.release.rules.gauges_by_difference:
                values = _with_numa(self.settings, values, held)
            else:
                values |= _gauges(self.settings, state)
        metrics = self if values is None else replace(self, values=values)
        if isinstance(fact, node_facts.AdmissionBegun):
            return replace(metrics, before=self.values)
        return (
            replace(metrics, before=None)
            if isinstance(fact, node_facts.PodAdmitted | node_facts.PodRejected)
            else metrics
        )

    def value(self, metric: Metric, **given: str) -> int | None:
        """Return the number of one counter or gauge; None when it has no such series."""
        return self.values.get(_series(metric, labels(**given)))


def _series(metric: Metric, given: Labels = ()) -> Series:
    return metric.name, given


def _of_start(settings: Settings, policy: StaticPolicy, cpu: CPUState) -> dict[Series, int]:
    """Return what the static CPU policy sets when it has started.

    Up to v1.32 CPUs that containers share count once for each (rule exclusive-cpus-summed-at-start), and alignments
    have no series before the first is counted (rule alignment-not-counted-at-start; spec: releases.md section 9).
    """
    older = settings.release.rules
    held = cpu.held.bit_count()
    if older.exclusive_cpus_summed_at_start:
        held = sum(cpus.bit_count() for containers in cpu.assignments.values() for cpus in containers.values())
    gauges = {
        _series(names.CPU_SHARED_POOL): 1000 * (cpu.default & ~policy.reserved).bit_count(),
        _series(names.CPU_EXCLUSIVE): held,
    }
    values = gauges if older.gauges_by_difference else _gauges(settings, cpu)
    if not older.alignment_not_counted_at_start:
        values[_series(names.ALIGNED, names.WHOLE_CORES)] = 0
        values[_series(names.ALIGNED, names.ONE_UNCORE)] = 0
        values[_series(names.ALIGNED_FAILURE, names.WHOLE_CORES)] = 0
    return _with_numa(settings, values, cpu.held) if older.gauges_by_difference else values


def _gauges(settings: Settings, cpu: CPUState) -> dict[Series, int]:
    """Return the gauges of the CPU manager as v1.38.0-beta.0 computes them from its state."""
    policy = settings.cpu
    if policy is None:
        return {}
    held = reduce(or_, cpu.pods.values(), cpu.held) if settings.pod_level.managers else cpu.held
    per_node = policy.topology.numa.items()
    return {
        _series(names.CPU_SHARED_POOL): 1000 * (cpu.default & ~policy.reserved).bit_count(),
        _series(names.CPU_EXCLUSIVE): held.bit_count(),
        **{
            _series(names.CPU_PER_NUMA, labels(numa_node=str(node))): (held & inside).bit_count()
            for node, inside in per_node
        },
    }


def pending_cpus(cpu: CPUState) -> int:
    """Return how many CPUs containers will release."""
    return sum(
        (cpu.assignments[pod][container] & ~pre.cpus).bit_count()
        for pod, containers in cpu.pre_assignments.items()
        for container, pre in containers.items()
    )


def _with_numa(settings: Settings, values: dict[Series, int], held: int) -> dict[Series, int]:
    """Return the values with the count of exclusive CPUs of each NUMA node.

    Defect numa-gauge: only nodes that have some are set, so that the count of a node never returns to 0.
    """
    if settings.cpu is None:
        return values
    for node, inside in settings.cpu.topology.numa.items():
        series = _series(names.CPU_PER_NUMA, labels(numa_node=str(node)))
        count = (held & inside).bit_count()
        if count or (series in values and NUMA_GAUGE in settings.fixed_defects):
            values[series] = count
    return values


def fold(metrics: Metrics, facts: Iterable[object]) -> Metrics:
    """Return the numbers after all facts, in order."""
    return reduce(Metrics.after, facts, metrics)


def observe_duration(metrics: Metrics, milliseconds: int) -> Metrics:
    """Return the metrics after one admission was timed, in whole milliseconds as the kubelet cuts them.

    The engine has no clock: its callers measure admissions.
    """
    series = _series(names.ADMISSION_DURATION)
    observed = metrics.histograms[series].with_observation(milliseconds)
    return replace(metrics, histograms={**metrics.histograms, series: observed})


def with_devices(metrics: Metrics, devices: Mapping[str, tuple[Device, ...]]) -> Metrics:
    """Return the metrics after the node's capacity was computed, as a kubelet does whenever it updates its status.

    Args:
        metrics: before.
        devices: resource -> what its plugin has registered.

    Source: kubelet v1.38.0-beta.0, cm/devicemanager; spec: preview.md section 11.
    """
    values = dict(metrics.values)
    for resource, registered in devices.items():
        healthy = sum(device.healthy for device in registered)
        for state, count in (("healthy", healthy), ("unhealthy", len(registered) - healthy)):
            values[_series(names.DEVICES, labels(resource_name=resource, health_state=state))] = count
    return replace(metrics, values=values)


Increment: TypeAlias = tuple[Metric, Labels, int]
"""A metric, its labels, and by how much the series changes."""


def increments(fact: object, settings: Settings) -> Iterator[Increment]:
    """Yield what a fact adds to the series; nothing for a fact that no metric counts.

    Source: kubelet v1.37.1, policy_static.go of both managers, topologymanager scope_*.go, kubelet.go; spec: metrics.md
    section 2, preview.md section 11.
    """
    # CPUs and memory come from the node; without a container from the pod that was to be served as a whole.
    yield from _of_cpus(fact, settings)
    yield from _of_admission(fact, settings)
    match fact:
        case cpu_facts.PodShareCut():
            kind = names.POD_EXCLUSIVE if fact.exclusive else names.POD_SHARED
            yield names.ASSIGNMENTS, assignment(names.CPU, kind), 1
        case cpu_facts.PodPartitioned():
            yield names.ALLOCATIONS, allocation(names.CPU, names.POD), len(fact.containers)
        case memory_facts.MemoryPinningRequested():
            yield names.MEMORY_PINNING_REQUESTS, (), 1
        case memory_facts.MemoryPinningFailed():
            yield names.MEMORY_PINNING_ERRORS, (), 1
            yield names.ALLOCATION_ERRORS, allocation(names.MEMORY, names.NODE if fact.container else names.POD), 1
        case memory_facts.MemoryAssigned(error="") if fact.container:
            # One allocation for each type of memory, one assignment for the container.
            yield names.ALLOCATIONS, allocation(names.MEMORY, names.NODE), len(fact.blocks)
            yield names.ASSIGNMENTS, assignment(names.MEMORY, names.NODE_EXCLUSIVE), 1
        case memory_facts.MemoryPartitioned():
            served = len(fact.exclusive) + len(fact.shared)
            yield names.ALLOCATIONS, allocation(names.MEMORY, names.POD), served
            yield names.ASSIGNMENTS, assignment(names.MEMORY, names.POD_EXCLUSIVE), len(fact.exclusive)
            yield names.ASSIGNMENTS, assignment(names.MEMORY, names.POD_SHARED), len(fact.shared)
        case node_facts.ResizeRefused(reason=reason) if reason == INFEASIBLE:
            yield names.RESIZES_INFEASIBLE, labels(reason_detail=fact.detail), 1
        case extension_facts.ScaleDownStarted():
            yield names.SCALE_DOWN_STARTED, (), 1
            yield names.SCALE_DOWN_PENDING, (), (fact.current & ~fact.result).bit_count()
        case extension_facts.ScaleDownDropped():
            yield names.SCALE_DOWN_PENDING, (), -fact.pending.bit_count()
        case extension_facts.ScaleDownCompleted():
            yield names.SCALE_DOWN_COMPLETED, (), 1
            yield names.SCALE_DOWN_PENDING, (), -fact.released.bit_count()


def _of_cpus(fact: object, settings: Settings) -> Iterator[Increment]:
    policy = settings.cpu
    whole_cores = policy is not None and policy.rules.whole_cores
    match fact:
        case cpu_facts.CPUPinningRequested():
            yield names.CPU_PINNING_REQUESTS, (), 1
        case cpu_facts.CPUPinningFailed():
            yield names.CPU_PINNING_ERRORS, (), 1
            yield names.ALLOCATION_ERRORS, allocation(names.CPU, names.NODE if fact.container else names.POD), 1
            if whole_cores and fact.container:
                yield names.ALIGNED_FAILURE, names.WHOLE_CORES, 1
        case cpu_facts.ExistingCPUsKept():
            if whole_cores and fact.container:
                yield names.ALIGNED, names.WHOLE_CORES, 1
        case cpu_facts.CPUsAssigned():
            yield from _moved(settings, fact.cpus.bit_count())
            # Up to v1.32 uncore caches do not count (rule uncore-alignment-not-counted; spec: releases.md section 9).
            counts_uncores = not settings.release.rules.uncore_alignment_not_counted
            uncores = policy.topology.uncores.values() if policy is not None and counts_uncores else ()
            if any(not fact.cpus & ~inside for inside in uncores):
                yield names.ALIGNED, names.ONE_UNCORE, 1
            if not fact.container:
                return
            if whole_cores:
                yield names.ALIGNED, names.WHOLE_CORES, 1
            yield names.ALLOCATIONS, allocation(names.CPU, names.NODE), 1
            yield names.ASSIGNMENTS, assignment(names.CPU, names.NODE_EXCLUSIVE), 1
        case cpu_facts.CPUsReleased():
            yield from _moved(settings, -fact.cpus.bit_count())
        case extension_facts.CPUsMoved():
            yield from _moved(settings, fact.after.bit_count() - fact.before.bit_count())


def _moved(settings: Settings, count: int) -> Iterator[Increment]:
    """Count CPUs that became exclusive; with a negative number, CPUs that are shared again.

    The kubelet does not ask whether they were in the shared pool: CPUs reused from an init container are taken from it
    a second time, and both gauges drift. Since v1.38.0-beta.0 the state is counted (rule gauges-by-difference).
    """
    if settings.release.rules.gauges_by_difference:
        yield names.CPU_EXCLUSIVE, (), count
        yield names.CPU_SHARED_POOL, (), -1000 * count


def _of_admission(fact: object, settings: Settings) -> Iterator[Increment]:
    single = settings.topology_policy == SINGLE_NUMA_NODE
    boundary = names.POD_NUMA if settings.pod_scope else names.CONTAINER_NUMA
    match fact:
        case node_facts.AdmissionBegun():
            yield names.ADMISSION_REQUESTS, (), 1
        case HintsMerged(admitted=False) if single:
            yield names.ALIGNED_FAILURE, boundary, 1
        case node_facts.ContainerAdmitted() if single:
            yield names.ALIGNED, boundary, 1
        case node_facts.PodAdmitted():
            if single and settings.pod_scope:
                yield names.ALIGNED, boundary, 1
            yield names.POD_LEVEL_ADMISSIONS, names.pod_admission(fact.declared), 1
        case node_facts.PodRejected():
            # The scope of policy none returns a provider's error without counting it.
            if settings.topology_policy != NONE:
                yield names.ADMISSION_ERRORS, (), 1
            yield names.REJECTIONS, names.rejection(fact.reason), 1
        case node_facts.PodNotSupported():
            yield names.REJECTIONS, names.rejection(fact.reason), 1
        case node_facts.PodWithdrawn():
            # The kubelet counts an admitted pod after its last handler; here the managers have spoken before it.
            yield names.POD_LEVEL_ADMISSIONS, names.pod_admission(fact.declared), -1
            yield names.REJECTIONS, names.rejection(fact.reason), 1


def _counted(fact: object) -> tuple[CPUState, int] | None:
    """Return the CPU manager's state after a step with which its gauges change, and what kubelets up to 1.37 count.

    They count CPUs per NUMA node. On a release these are the sets that are left without the released CPUs, which
    differs from the sets when a CPU has two owners (defect average-sizes).
    """
    match fact:
        case (
            cpu_facts.CPUsAssigned()
            | extension_facts.CPUsMoved()
            | extension_facts.CPUsReplaced()
            | extension_facts.CPUsRestored()
        ):
            return fact.state, fact.held
        case cpu_facts.CPUsReleased():
            return fact.state, fact.held & ~fact.cpus
    return None
