"""The table of metrics, and which series a kubelet has before anything happened."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.node.metered import Metered, Numbers, config, container, pod

from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.node.metric_names import DEVICES, METRICS, Metric, MetricType
from mooring.engine.releases.gates import known_gates

ROWS = """
cpu_manager_pinning_requests_total | counter | – | always
cpu_manager_pinning_errors_total | counter | – | always
cpu_manager_shared_pool_size_millicores | gauge | – | always
cpu_manager_exclusive_cpu_allocation_count | gauge | – | always
cpu_manager_allocation_per_numa | gauge | numa_node | always
container_aligned_compute_resources_count | counter | scope, boundary | always
container_aligned_compute_resources_failure_count | counter | scope, boundary | always
memory_manager_pinning_requests_total | counter | – | always
memory_manager_pinning_errors_total | counter | – | always
topology_manager_admission_requests_total | counter | – | always
topology_manager_admission_errors_total | counter | – | always
topology_manager_admission_duration_ms | histogram | – | always
admission_rejections_total | counter | reason | always
resource_manager_allocations_total | counter | resource_name, source | PodLevelResourceManagers
resource_manager_allocation_errors_total | counter | resource_name, source | PodLevelResourceManagers
resource_manager_container_assignments_total | counter | resource_name, assignment_type | PodLevelResourceManagers
pod_level_resources_admission_total | counter | config_mode, qos_class | PodLevelResources
container_requested_resizes_total | counter | resource, requirement, operation | InPlacePodVerticalScaling
pod_resize_duration_milliseconds | histogram | success | InPlacePodVerticalScaling
pod_pending_resizes | gauge | reason, priority_bucket | InPlacePodVerticalScaling
pod_infeasible_resizes_total | counter | reason_detail | InPlacePodVerticalScaling
pod_in_progress_resizes | gauge | – | InPlacePodVerticalScaling
pod_deferred_accepted_resizes_total | counter | retry_trigger | InPlacePodVerticalScaling
pod_deferred_resize_duration_seconds | histogram | resolution, priority_bucket | InPlacePodVerticalScaling
"""
"""The kubelet's table: name, type, labels, gate."""

ALWAYS: Numbers = {
    "cpu_manager_exclusive_cpu_allocation_count": 0,
    "cpu_manager_pinning_errors_total": 0,
    "cpu_manager_pinning_requests_total": 0,
    "cpu_manager_shared_pool_size_millicores": 0,
    "memory_manager_pinning_errors_total": 0,
    "memory_manager_pinning_requests_total": 0,
    "pod_in_progress_resizes": 0,
    "topology_manager_admission_errors_total": 0,
    "topology_manager_admission_requests_total": 0,
}
"""Series without labels: they are there as soon as the metric is registered."""

OF_CPUS: Numbers = {
    'container_aligned_compute_resources_count{boundary="physical_cpu",scope="container"}': 0,
    'container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"}': 0,
    'container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"}': 0,
}
"""What the static CPU policy creates."""

OF_TOPOLOGY: Numbers = {
    'container_aligned_compute_resources_count{boundary="numa_node",scope="container"}': 0,
    'container_aligned_compute_resources_count{boundary="numa_node",scope="pod"}': 0,
    'container_aligned_compute_resources_failure_count{boundary="numa_node",scope="container"}': 0,
    'container_aligned_compute_resources_failure_count{boundary="numa_node",scope="pod"}': 0,
}
"""What the topology manager creates."""


def row(metric: Metric) -> tuple[str, str, frozenset[str], str]:
    return metric.name, metric.type.value, frozenset(metric.labels), metric.gate


def test_the_table_is_the_kubelets() -> None:
    expected = []
    for line in ROWS.strip().splitlines():
        name, kind, labels, gate = (part.strip() for part in line.split("|"))
        named = frozenset() if labels == "–" else frozenset(labels.split(", "))
        expected.append((f"kubelet_{name}", kind, named, "" if gate == "always" else gate))
    assert [row(metric) for metric in METRICS if metric is not DEVICES] == expected


def test_histograms_and_only_they_have_ascending_buckets() -> None:
    for metric in METRICS:
        assert (metric.type is MetricType.HISTOGRAM) == bool(metric.buckets)
        assert all(left < right for left, right in pairwise(metric.buckets))


@pytest.mark.parametrize(
    ("metric", "count", "first", "last"),
    [
        ("topology_manager_admission_duration_ms", 15, 0.05, 819.2),
        ("pod_resize_duration_milliseconds", 14, 10, 600000),
        ("pod_deferred_resize_duration_seconds", 16, 5, 3600),
    ],
)
def test_buckets_begin_and_end_where_the_kubelets_do(metric: str, count: int, first: float, last: float) -> None:
    (found,) = [one for one in METRICS if one.name == f"kubelet_{metric}"]
    assert (len(found.buckets), found.buckets[0], found.buckets[-1]) == (count, first, last)


def gates(**configured: bool) -> FeatureGates:
    resolved = resolve_gates(configured, known_gates("1.37"))
    assert isinstance(resolved, FeatureGates)
    return resolved


def test_metrics_are_registered_with_their_gates() -> None:
    by_default = {metric.gate for metric in METRICS if metric.is_registered(gates())}
    assert by_default == {"", "PodLevelResources", "InPlacePodVerticalScaling"}
    with_managers = gates(PodLevelResourceManagers=True)
    assert all(metric.is_registered(with_managers) for metric in METRICS)
    off = gates(
        PodLevelResources=False,
        PodLevelResourcesFixDefaulting=False,
        PodLevelResourcesFixKubeletQOSClass=False,
        InPlacePodLevelResourcesVerticalScaling=False,
    )
    assert {metric.gate for metric in METRICS if metric.is_registered(off)} == {"", "InPlacePodVerticalScaling"}


def test_without_policies_only_series_without_labels_exist() -> None:
    assert Metered(config(cpu="none")).numbers == ALWAYS


def test_the_static_cpu_policy_creates_its_series_and_counts_its_pool() -> None:
    pool = {"cpu_manager_shared_pool_size_millicores": 14000}
    assert Metered(config()).numbers == {**ALWAYS, **OF_CPUS, **pool}


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_every_topology_policy_but_none_creates_its_series(policy: str, scope: str) -> None:
    assert Metered(config(cpu="none", policy=policy, scope=scope)).numbers == {**ALWAYS, **OF_TOPOLOGY}


def test_a_start_on_a_state_counts_what_it_holds() -> None:
    before = Metered(config())
    before.admit(pod("a", container("one", "2"), container("two", "8")))
    held = before.node.cpu.assignments["a"]
    assert (held["one"] | held["two"]).bit_count() == 10
    restarted = before.node.restart(observer=before.observer)
    assert isinstance(restarted, tuple)
    found = before.numbers
    assert found["cpu_manager_exclusive_cpu_allocation_count"] == 10
    assert found["cpu_manager_shared_pool_size_millicores"] == 4000
    assert found['cpu_manager_allocation_per_numa{numa_node="0"}'] == 2
    assert found['cpu_manager_allocation_per_numa{numa_node="1"}'] == 8


def test_without_pod_level_resources_admitted_pods_are_not_counted_by_them() -> None:
    off = dict.fromkeys(
        (
            "PodLevelResources",
            "PodLevelResourcesFixDefaulting",
            "PodLevelResourcesFixKubeletQOSClass",
            "InPlacePodLevelResourcesVerticalScaling",
        ),
        False,
    )
    metered = Metered(config(gates=off))
    assert metered.admit(pod("a", container("main"))).admitted
    assert not [series for series in metered.numbers if series.startswith("pod_level_resources_")]
