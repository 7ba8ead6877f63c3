"""The kubelet's metrics of its resource managers: names, types, labels, when they are registered, and their text.

Names, labels, buckets and conditions are the kubelet's, so that one dashboard serves a kubelet and Mooring; the helps
are our own words. All are ALPHA in v1.37.1.

Source: kubelet v1.37.1, pkg/kubelet/metrics and kubelet.go, Prometheus' text format 0.0.4; spec: metrics.md sections 1
and 2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from mooring.engine.core.decision import OUT_OF
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import FeatureGates
from mooring.engine.releases.gates import metric_name
from mooring.lazy import dataclass, replace

if TYPE_CHECKING:
    from mooring.engine.node.metrics import Metrics

_SUFFIXES = ("_bucket", "_sum", "_count")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(label, value), ascending by label."""


def labels(**values: str) -> Labels:
    """Return labels in their order.

    >>> labels(scope="pod", boundary="numa_node")
    (('boundary', 'numa_node'), ('scope', 'pod'))
    """
    return tuple(sorted(values.items()))


CONTAINER_SCOPE = "container"
POD_SCOPE = "pod"
"""Scopes of an alignment."""

WHOLE_CORES = labels(scope=CONTAINER_SCOPE, boundary="physical_cpu")
ONE_UNCORE = labels(scope=CONTAINER_SCOPE, boundary="uncore_cache")
CONTAINER_NUMA = labels(scope=CONTAINER_SCOPE, boundary="numa_node")
POD_NUMA = labels(scope=POD_SCOPE, boundary="numa_node")

CPU = "cpu"
MEMORY = "memory"
"""Resources of a manager. Huge pages count as memory."""

NODE = "node"
POD = "pod"
"""Sources of an allocation: the node, or the partition of a pod (KEP-5526)."""


def allocation(resource: str, source: str) -> Labels:
    """Return the labels of an allocation or its failure."""
    return labels(resource_name=resource, source=source)


NODE_EXCLUSIVE = "node_exclusive"
POD_EXCLUSIVE = "pod_exclusive"
POD_SHARED = "pod_shared"
"""Types of what a container is given."""


def assignment(resource: str, kind: str) -> Labels:
    """Return the labels of a container's assignment."""
    return labels(resource_name=resource, assignment_type=kind)


REASONS = frozenset(
    {
        "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo",
        "InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError",
        "UnknownReason", "UnexpectedPredicateFailureType", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage",
        "OutOfpods", "PodLevelResourcesNotSupported", "PodFeatureUnsupported",
        "node(s) had taints that the pod didn't tolerate", "Evicted", "SysctlForbidden", "TopologyAffinityError",
        "NodeShutdown", "VolumeAttachmentLimitExceeded",
    },
)  # fmt: skip
"""Reasons of a rejection that are counted under their own name."""


def rejection(reason: str) -> Labels:
    """Return the label of a rejection: few values, whatever the reasons, so that the series stay few.

    >>> [dict(rejection(reason))["reason"] for reason in ("OutOfcpu", "OutOfvendor.example/nic", "SMTAlignmentError")]
    ['OutOfcpu', 'OutOfExtendedResources', 'Other']
    """
    if reason in REASONS:
        return labels(reason=reason)
    return labels(reason="OutOfExtendedResources" if reason.startswith(OUT_OF) else "Other")


def pod_admission(pod: Pod) -> Labels:
    """Return the labels of an admitted pod: where its resources are declared, and its QoS class.

    That any request or limit of any container counts as declared there is inferred from the metric's help in v1.37.1.
    """
    in_containers = any(container.requests or container.limits for container in pod.containers)
    if pod.is_pod_level:
        mode = "pod_and_container_level" if in_containers else "pod_level"
    else:
        mode = "container_level" if in_containers else ""
    return labels(config_mode=mode, qos_class=pod.qos.value.lower())


POD_LEVEL_RESOURCES = "PodLevelResources"
POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
RESIZE = "InPlacePodVerticalScaling"


class MetricType(Enum):
    """Type of a metric; the value is the word of the Prometheus text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Without labels it has one series, which is there with 0 as soon as the metric is registered."""

    name: str
    type: MetricType
    help: str
    """What it tells, in one sentence."""
    labels: tuple[str, ...] = ()
    """Label names, ascending."""
    gate: str = ""
    """The feature gate with which it is registered; empty means always."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, without the infinite one."""

    def is_registered(self, gates: FeatureGates) -> bool:
        """Tell whether a kubelet with these gates has the metric."""
        return not self.gate or gates[self.gate]


# fmt: off
CPU_PINNING_REQUESTS = Metric(
    "kubelet_cpu_manager_pinning_requests_total", MetricType.COUNTER,
    "Containers with a claim to exclusive CPUs for which the CPU manager was asked.",
)
CPU_PINNING_ERRORS = Metric(
    "kubelet_cpu_manager_pinning_errors_total", MetricType.COUNTER,
    "Requests for exclusive CPUs that the CPU manager could not serve.",
)
CPU_SHARED_POOL = Metric(
    "kubelet_cpu_manager_shared_pool_size_millicores", MetricType.GAUGE,
    "CPUs of the shared pool without the reserved ones, in thousandths of a CPU.",
)
CPU_EXCLUSIVE = Metric(
    "kubelet_cpu_manager_exclusive_cpu_allocation_count", MetricType.GAUGE,
    "CPUs that are assigned exclusively; CPUs reused from init containers count again.",
)
CPU_PER_NUMA = Metric(
    "kubelet_cpu_manager_allocation_per_numa", MetricType.GAUGE,
    "CPUs of a NUMA node that containers hold exclusively.", ("numa_node",),
)
ALIGNED = Metric(
    "kubelet_container_aligned_compute_resources_count", MetricType.COUNTER,
    "Containers, or pods as a whole, whose resources respect a boundary of the hardware.", ("boundary", "scope"),
)
ALIGNED_FAILURE = Metric(
    "kubelet_container_aligned_compute_resources_failure_count", MetricType.COUNTER,
    "Containers, or pods as a whole, that could not be given resources inside a requested boundary.",
    ("boundary", "scope"),
)
MEMORY_PINNING_REQUESTS = Metric(
    "kubelet_memory_manager_pinning_requests_total", MetricType.COUNTER,
    "Times that the memory manager was asked for memory of a container or a pod.",
)
MEMORY_PINNING_ERRORS = Metric(
    "kubelet_memory_manager_pinning_errors_total", MetricType.COUNTER,
    "Requests for memory that the memory manager could not serve.",
)
ADMISSION_REQUESTS = Metric(
    "kubelet_topology_manager_admission_requests_total", MetricType.COUNTER,
    "Admissions for which the topology manager was asked.",
)
ADMISSION_ERRORS = Metric(
    "kubelet_topology_manager_admission_errors_total", MetricType.COUNTER,
    "Admissions that failed because the policy rejected the merged hint or a provider had an error.",
)
ADMISSION_DURATION = Metric(
    "kubelet_topology_manager_admission_duration_ms", MetricType.HISTOGRAM,
    "How long admissions took in the topology manager, in whole milliseconds.",
    buckets=tuple(0.05 * 2**i for i in range(15)),
)
REJECTIONS = Metric(
    "kubelet_admission_rejections_total", MetricType.COUNTER, "Pods that were not admitted to the node, by reason.",
    ("reason",),
)
ALLOCATIONS = Metric(
    "kubelet_resource_manager_allocations_total", MetricType.COUNTER,
    "Allocations by a manager, from the node or from a pod's partition.", ("resource_name", "source"),
    POD_LEVEL_MANAGERS,
)
ALLOCATION_ERRORS = Metric(
    "kubelet_resource_manager_allocation_errors_total", MetricType.COUNTER, "Allocations by a manager that failed.",
    ("resource_name", "source"), POD_LEVEL_MANAGERS,
)
ASSIGNMENTS = Metric(
    "kubelet_resource_manager_container_assignments_total", MetricType.COUNTER,
    "Containers that were given resources of the node, resources of their pod, or what their pod shares.",
    ("assignment_type", "resource_name"), POD_LEVEL_MANAGERS,
)
POD_LEVEL_ADMISSIONS = Metric(
    "kubelet_pod_level_resources_admission_total", MetricType.COUNTER,
    "Admitted pods by where their resources are declared, and by QoS class.", ("config_mode", "qos_class"),
    POD_LEVEL_RESOURCES,
)
RESIZES_REQUESTED = Metric(
    "kubelet_container_requested_resizes_total", MetricType.COUNTER,
    "Changes of a container's requests or limits by in-place resize.", ("operation", "requirement", "resource"), RESIZE,
)
RESIZE_DURATION = Metric(
    "kubelet_pod_resize_duration_milliseconds", MetricType.HISTOGRAM,
    "How long it took to carry out a resize, in milliseconds.", ("success",), RESIZE,
    (10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000),
)
RESIZES_PENDING = Metric(
    "kubelet_pod_pending_resizes", MetricType.GAUGE, "Pods whose resize is not allocated.",
    ("priority_bucket", "reason"), RESIZE,
)
RESIZES_INFEASIBLE = Metric(
    "kubelet_pod_infeasible_resizes_total", MetricType.COUNTER, "Evaluations of a resize that found it infeasible.",
    ("reason_detail",), RESIZE,
)
RESIZES_IN_PROGRESS = Metric(
    "kubelet_pod_in_progress_resizes", MetricType.GAUGE, "Pods whose resize is allocated and not carried out yet.",
    gate=RESIZE,
)
RESIZES_DEFERRED_ACCEPTED = Metric(
    "kubelet_pod_deferred_accepted_resizes_total", MetricType.COUNTER, "Deferred resizes that were accepted later.",
    ("retry_trigger",), RESIZE,
)
RESIZE_DEFERRED_DURATION = Metric(
    "kubelet_pod_deferred_resize_duration_seconds", MetricType.HISTOGRAM, "How long a resize was deferred, in seconds.",
    ("priority_bucket", "resolution"), RESIZE,
    (5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600),
)
DEVICES = Metric(
    "kubelet_device_plugin_devices", MetricType.GAUGE,
    "Devices that the plugin of a resource has registered, healthy and unhealthy.", ("health_state", "resource_name"),
)
# fmt: on
METRICS: tuple[Metric, ...] = tuple(one for one in dict(globals()).values() if isinstance(one, Metric))
"""All metrics of the newest release and of the preview, which stand above in the order of the specification. Of those
of resize the infeasible ones are counted."""

SCALE_DOWN_STARTED = Metric(
    "kubelet_cpu_manager_scale_down_delay_started_total", MetricType.COUNTER,
    "Containers that release CPUs when a delay is over.",
)  # fmt: skip
SCALE_DOWN_COMPLETED = Metric(
    "kubelet_cpu_manager_scale_down_delay_completed_total", MetricType.COUNTER,
    "Containers whose delay was over, so that their CPUs are free.",
)  # fmt: skip
SCALE_DOWN_PENDING = Metric(
    "kubelet_cpu_manager_scale_down_pending_cpu_count", MetricType.GAUGE,
    "CPUs that containers still hold and will release.",
)  # fmt: skip
SCALE_DOWN_METRICS: tuple[Metric, ...] = (SCALE_DOWN_STARTED, SCALE_DOWN_COMPLETED, SCALE_DOWN_PENDING)
"""Metrics of KEP-6122, which a kubelet with the extension scale-down-delay has besides."""

Series: TypeAlias = tuple[str, Labels]
"""Name of a metric and its labels."""

Sample: TypeAlias = tuple[str, Labels, int]
"""Name, labels and value, as one line of the Prometheus text format has them."""


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


def samples(metrics: Metrics) -> Iterator[Sample]:
    """Yield every sample, ascending by name and labels; those of a histogram together, by ascending bounds."""
    for series in sorted({*metrics.values, *metrics.histograms}):
        if series in metrics.histograms:
            yield from metrics.histograms[series].samples(*series)
        else:
            yield *series, metrics.values[series]


def exposition(metrics: Metrics) -> str:
    """Return all samples, each metric under its help and its type, with the names of the kubelet's release.

    A histogram without observations is left out: the planner has no clock, and zeros would look like measurements.

    >>> from mooring.engine.core.config import KubeletConfig
    >>> from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
    >>> from mooring.engine.node import Node
    >>> from mooring.engine.node.metrics import Metrics
    >>> info = MachineInfo(1, 1, 2**30, (NUMANode(0, 2**30, cores=(Core(0, (0,), 0),)),))
    >>> node = Node.fresh(info, KubeletConfig())
    >>> text = exposition(Metrics.initial(node.settings, node.cpu))
    >>> [line for line in text.splitlines() if "pinning_errors" in line and "cpu" in line][1:]
    ['# TYPE kubelet_cpu_manager_pinning_errors_total counter', 'kubelet_cpu_manager_pinning_errors_total 0']
    """
    known = {metric.name: metric for metric in (*METRICS, *SCALE_DOWN_METRICS)}
    observed = {name for (name, _), histogram in metrics.histograms.items() if any(histogram.counts)}
    told, lines = "", list[str]()
    for sample, pairs, value in samples(metrics):
        base = next((sample.removesuffix(suffix) for suffix in _SUFFIXES if sample.endswith(suffix)), sample)
        metric = known.get(sample) or known[base]
        own = metric_name(metric.name, metrics.settings.release.name)
        if not own or (metric.type is MetricType.HISTOGRAM and metric.name not in observed):
            continue
        if metric.name != told:
            told = metric.name
            lines += [f"# HELP {own} {metric.help}", f"# TYPE {own} {metric.type.name.lower()}"]
        inside = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in pairs)
        line = own + sample.removeprefix(metric.name)
        lines.append(f"{line}{{{inside}}} {value}" if inside else f"{line} {value}")
    return "\n".join(lines) + "\n"
