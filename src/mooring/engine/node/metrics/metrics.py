"""The metrics of the resource managers, as a fold over the facts that the engine reports.

Planner and agent count with the same rules and show the same numbers under the kubelet's names. The engine itself knows
nothing of metrics; without an observer nothing is counted and nothing is spent.

Source: kubelet v1.37.1, pkg/kubelet/metrics and where it is used, Prometheus' text format 0.0.4; spec: metrics.md
sections 1 and 2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import accumulate
from typing import TypeAlias

from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Device
from mooring.engine.node.facts import AdmissionBegun, AdmissionEndless, KubeletStarted, PodAdmitted, PodRejected
from mooring.engine.node.metrics import names
from mooring.engine.node.metrics.names import METRICS, SCALE_DOWN_METRICS, Labels, Metric, MetricType, labels
from mooring.engine.node.metrics.rules import counted_per_numa, increments, state_after
from mooring.engine.node.settings import Settings
from mooring.engine.releases.flags import metric_name
from mooring.engine.topologymanager.merge import NONE
from mooring.lazy import dataclass, replace

NUMA_GAUGE = "numa-gauge"
"""Name of the defect by which the count of a NUMA node never returns to 0."""

Series: TypeAlias = tuple[str, Labels]
"""Name of a metric and its labels."""

Sample: TypeAlias = tuple[str, Labels, int]
"""Name, labels and value, as one line of the Prometheus text format has them."""

_SUFFIXES = ("_bucket", "_sum", "_count")
_GAUGES = frozenset(metric.name for metric in (*METRICS, *SCALE_DOWN_METRICS) if metric.type is MetricType.GAUGE)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often a quantity lay between two bounds."""

    bounds: tuple[float, ...]
    """Upper bounds of the buckets, ascending, each belonging to its bucket."""
    counts: tuple[int, ...]
    """Observations of each bucket alone, and last of those above all bounds."""
    total: int = 0
    """Sum of everything that was observed."""

    @staticmethod
    def of(metric: Metric) -> Histogram:
        """Return the histogram of a metric without observations."""
        return Histogram(metric.buckets, (0,) * (len(metric.buckets) + 1))

    def with_observation(self, value: int) -> Histogram:
        """Return the histogram after one more observation."""
        counts = list(self.counts)
        counts[bisect_left(self.bounds, value)] += 1
        return replace(self, counts=tuple(counts), total=self.total + value)

    def samples(self, metric: str, given: Labels) -> Iterator[Sample]:
        """Yield the samples: each bucket with everything below it, then the sum and the number of observations."""
        limits = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        for limit, count in zip(limits, accumulate(self.counts), strict=True):
            yield f"{metric}_bucket", labels(**dict(given), le=limit), count
        yield f"{metric}_sum", given, self.total
        yield f"{metric}_count", given, sum(self.counts)


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
        if settings.cpu is not None and settings.cpu.scale_down.is_on:
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
        if isinstance(fact, KubeletStarted):
            return Metrics.initial(fact.settings, fact.cpu)
        if isinstance(fact, AdmissionEndless):
            # The numbers when an admission turns out to be endless. The counters stay: the kubelet has counted them
            # before it hangs. The gauges describe a node, and the node's value stays what it was before this admission.
            if self.before is None:
                return self
            counters = {series: value for series, value in self.values.items() if series[0] not in _GAUGES}
            gauges = {series: value for series, value in self.before.items() if series[0] in _GAUGES}
            return replace(self, values=counters | gauges, before=None)
        values: dict[Series, int] | None = None
        for increment in increments(fact, self.settings):
            if not (increment.amount and increment.metric.is_registered(self.settings.gates)):
                continue
            values = dict(self.values) if values is None else values
            # Add to a series. One with labels that is taken back to 0 goes: the kubelet has never had it
            series = _series(increment.metric, increment.labels)
            total = values.get(series, 0) + increment.amount
            if total == 0 and increment.amount < 0 and series[1]:
                del values[series]
            else:
                values[series] = total
        counted, state = counted_per_numa(fact), state_after(fact)
        if counted is not None and state is not None:
            values = dict(self.values) if values is None else values
            if self.settings.release.rules.gauges_by_difference:
                values = _with_numa(self.settings, values, counted)
            else:
                values |= _gauges(self.settings, state)
        metrics = self if values is None else replace(self, values=values)
        if isinstance(fact, AdmissionBegun):
            return replace(metrics, before=self.values)
        return replace(metrics, before=None) if isinstance(fact, PodAdmitted | PodRejected) else metrics

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
    held = cpu.held
    for cpus in cpu.pods.values() if settings.pod_level.managers else ():
        held |= cpus
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


def samples(metrics: Metrics) -> Iterator[Sample]:
    """Yield every sample, ascending by name and labels; those of a histogram together, by ascending bounds."""
    for series in sorted({*metrics.values, *metrics.histograms}):
        if series in metrics.histograms:
            yield from metrics.histograms[series].samples(*series)
        else:
            yield *series, metrics.values[series]


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


def exposition(metrics: Metrics) -> str:
    """Return all samples, each metric under its help and its type, with the names of the kubelet's release.

    A histogram without observations is left out: the planner has no clock, and zeros would look like measurements.

    >>> from mooring.engine.core.config import KubeletConfig
    >>> from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
    >>> from mooring.engine.node import Node
    >>> info = MachineInfo(1, 1, 2**30, (NUMANode(0, 2**30, cores=(Core(0, (0,), 0),)),))
    >>> node = Node.fresh(info, KubeletConfig())
    >>> text = exposition(Metrics.initial(node.settings, node.cpu))
    >>> [line for line in text.splitlines() if "pinning_errors" in line and "cpu" in line][1:]
    ['# TYPE kubelet_cpu_manager_pinning_errors_total counter', 'kubelet_cpu_manager_pinning_errors_total 0']
    """
    return "\n".join(_lines(metrics)) + "\n"


def _lines(metrics: Metrics) -> Iterator[str]:
    known = {metric.name: metric for metric in (*METRICS, *SCALE_DOWN_METRICS)}
    told = ""
    for sample, pairs, value in samples(metrics):
        metric = known.get(sample) or known[_base(sample)]
        own = metric_name(metric.name, metrics.settings.release.name)
        if not own or (metric.type is MetricType.HISTOGRAM and not _is_observed(metrics, metric.name)):
            continue
        if metric.name != told:
            told = metric.name
            yield f"# HELP {own} {metric.help}"
            yield f"# TYPE {own} {metric.type.name.lower()}"
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in pairs)
        line = own + sample.removeprefix(metric.name)
        yield f"{line}{{{inside}}} {value}" if inside else f"{line} {value}"


def _is_observed(metrics: Metrics, metric: str) -> bool:
    return any(sum(histogram.counts) for (one, _), histogram in metrics.histograms.items() if one == metric)


def _base(series: str) -> str:
    return next((series.removesuffix(suffix) for suffix in _SUFFIXES if series.endswith(suffix)), series)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
