"""The table of metrics and their series at the start; what an admission counts; restarts, durations, observers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cpumanager.pods import amounts
from tests.cpumanager.pods import guaranteed as pod
from tests.node.metered import Metered, Numbers, config, container, machine, pod_level
from tests.node.podlevel_nodes import shared

import mooring.engine.node.metric_names as name
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Rejection, StartRefusal
from mooring.engine.core.pod import Container, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.facts import CPUsAssigned
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Node
from mooring.engine.node.facts import AdmissionBegun, AdmissionEndless, KubeletStarted
from mooring.engine.node.metric_names import (
    DEVICES,
    METRICS,
    Histogram,
    Metric,
    MetricType,
    labels,
    pod_admission,
    rejection,
    samples,
)
from mooring.engine.node.metrics import Metrics, fold, observe_duration
from mooring.engine.releases.gates import known_gates

REQUESTS = "topology_manager_admission_requests_total"
ERRORS = "topology_manager_admission_errors_total"
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")

NIC = "vendor.example/nic"


UNREADABLE = pod("a", container("one", memory="0.5Gi"))
"""Its memory is no whole number to the kubelet: without a hint, and with an error when it is allocated."""


def aligned(scope: str) -> str:
    return f'container_aligned_compute_resources_count{{boundary="numa_node",scope="{scope}"}}'


def not_aligned(scope: str) -> str:
    return f'container_aligned_compute_resources_failure_count{{boundary="numa_node",scope="{scope}"}}'


def rejections(reason: str) -> str:
    return f'admission_rejections_total{{reason="{reason}"}}'


def admissions(mode: str, qos: str = "guaranteed") -> str:
    return f'pod_level_resources_admission_total{{config_mode="{mode}",qos_class="{qos}"}}'


def of_admission(change: Numbers) -> Numbers:
    """Keep what the topology manager and the kubelet count."""
    kept = ("topology_manager_", "admission_", "pod_level_", "container_aligned_")
    return {series: by for series, by in change.items() if series.startswith(kept) and "uncore_cache" not in series}


def asking_for_a_nic(uid: str) -> Pod:
    wanted = {**amounts("1", "1Gi"), NIC: Quantity.parse("1")}
    return pod(uid, Container("main", requests=wanted, limits=wanted))


# The topology manager.


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_error_of_a_provider_is_an_error_but_under_policy_none(policy: str, scope: str) -> None:
    change = Metered(config(cpu="none", memory="Static", policy=policy, scope=scope)).change(UNREADABLE)
    assert change[rejections("UnexpectedAdmissionError")] == 1
    assert change.get(ERRORS, 0) == (0 if policy == "none" else 1)


def test_a_failed_device_counts_as_any_other_provider() -> None:
    metered = Metered(config(policy="best-effort"))
    metered.node = metered.node.with_devices({NIC: (Device("only", (0,)),)})
    assert of_admission(metered.change(asking_for_a_nic("a"))) == {REQUESTS: 1, admissions("container_level"): 1}
    change = of_admission(metered.change(asking_for_a_nic("b")))
    assert change == {REQUESTS: 1, ERRORS: 1, rejections("UnexpectedAdmissionError"): 1}


AFFINITY = rejections("TopologyAffinityError")
COUNTED: dict[str, tuple[str, Pod, Numbers]] = {
    "each container": (
        "container",
        pod("a", container("one", "2"), shared("two"), container("three", "4")),
        {aligned("container"): 3, admissions("container_level"): 1},
    ),
    "up to the container that fails": (
        "container",
        pod("a", container("one", "2"), container("two", "10"), container("three", "2")),
        {ERRORS: 1, aligned("container"): 1, not_aligned("container"): 1, AFFINITY: 1},
    ),
    "the pod once": (
        "pod",
        pod("a", container("one", "2"), container("two", "4")),
        {aligned("pod"): 1, admissions("container_level"): 1},
    ),
    "the failure of the pod": (
        "pod",
        pod("b", container("one", "6"), container("two", "4")),
        {ERRORS: 1, not_aligned("pod"): 1, AFFINITY: 1},
    ),
    "a pod with a partition": (
        "pod",
        pod_level("a", "4", "1Gi", container("one", "2"), shared("two")),
        {aligned("pod"): 1, admissions("pod_and_container_level"): 1},
    ),
}


@pytest.mark.parametrize(("scope", "asked", "change"), COUNTED.values(), ids=COUNTED)
def test_a_scope_counts_its_containers_or_the_pod(scope: str, asked: Pod, change: Numbers) -> None:
    gates = {"PodLevelResourceManagers": True}
    metered = Metered(config(policy="single-numa-node", scope=scope, gates=gates))
    assert of_admission(metered.change(asked)) == {REQUESTS: 1, **change}


# Rejections.


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("OutOfvendor.example/nic", "OutOfExtendedResources"),
        ("OutOfhugepages-2Mi", "OutOfExtendedResources"),
        ("OutOf", "OutOfExtendedResources"),
        ("SMTAlignmentError", "Other"),
        ("EmptyPodSharedPoolError", "Other"),
        ("evicted", "Other"),
        ("", "Other"),
    ],
)
def test_other_reasons_are_counted_together(reason: str, label: str) -> None:
    assert rejection(reason) == (("reason", label),)


def test_a_pod_that_another_handler_rejects_is_no_admitted_pod() -> None:
    metered = Metered(config(policy="best-effort"))
    metered.admit(pod("a", container("one", "2")))
    asked = pod("b", container("one", "2"), qos=QoS.GUARANTEED)

    def refuse() -> None:
        metered.admit(asked)
        refusal = Rejection("OutOfmemory", "Node didn't have enough resource")
        metered.node = metered.node.withdraw("b", refusal, metered.observer)

    change = metered.changed_by(refuse)
    assert of_admission(change) == {REQUESTS: 1, rejections("OutOfmemory"): 1}
    assert metered.numbers[admissions("container_level")] == 1
    # What it was given stays counted until the managers are asked again.
    assert change["cpu_manager_exclusive_cpu_allocation_count"] == 2
    assert metered.change_of_removal("")["cpu_manager_exclusive_cpu_allocation_count"] == -2


def test_a_withdrawal_without_words_or_of_an_unknown_pod_counts_nothing() -> None:
    metered = Metered(config())
    metered.admit(pod("a", container("one", "2")))
    before = metered.numbers
    metered.node.withdraw("a", None, metered.observer)
    metered.node.withdraw("unknown", Rejection("OutOfcpu", ""), metered.observer)
    assert metered.numbers == before


# Where resources are declared.


@pytest.mark.parametrize(
    ("declared", "mode", "qos"),
    [
        (pod("a", container("one")), "container_level", "guaranteed"),
        (pod("a", shared("one"), qos=QoS.BEST_EFFORT), "", "besteffort"),
        (pod("a", Container("two", limits=amounts("1", "")), qos=QoS.BURSTABLE), "container_level", "burstable"),
        (pod_level("a", "2", "1Gi", shared("one")), "pod_level", "guaranteed"),
        (pod_level("a", "2", "1Gi", shared("one"), container("two", "1")), "pod_and_container_level", "guaranteed"),
        (replace(pod("a", shared("one"), qos=QoS.BEST_EFFORT), resources=PodResources()), "", "besteffort"),
    ],
)
def test_admitted_pods_are_counted_by_where_their_resources_are_declared(declared: Pod, mode: str, qos: str) -> None:
    assert pod_admission(declared) == labels(config_mode=mode, qos_class=qos)
    assert Metered(config()).change(declared)[admissions(mode, qos)] == 1


# An admission that never ends.


def test_an_endless_admission_keeps_its_counts_and_gives_its_gauges_back() -> None:
    metered = Metered(config())
    metered.admit(pod("a", container("one", "2")))
    before = metered.numbers
    held = {"b": {"one": CPUMask(0b1100 << 8)}}
    state = replace(metered.node.cpu, assignments={**metered.node.cpu.assignments, **held})
    told = [
        AdmissionBegun("b"),
        CPUsAssigned("b", "one", CPUMask(0b1100 << 8), state.held, state),
        AdmissionEndless("b", "group-loop"),
    ]
    after = Metered(config())
    after.observer.metrics = fold(metered.observer.metrics, told)
    grown = {series: value - before.get(series, 0) for series, value in after.numbers.items()}
    assert {series: by for series, by in grown.items() if by} == {
        REQUESTS: 1,
        'container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"}': 1,
    }
    assert after.numbers.keys() == before.keys()
    assert after.observer.metrics.before is None


# The value and its observers.


def test_a_start_is_reported_and_a_refused_one_is_not() -> None:
    node = Metered(config()).node
    told: list[object] = []
    assert isinstance(Node.start(node.settings, observer=told.append), Node)
    assert told == [KubeletStarted(node.settings, node.cpu)]
    refused = Metered(config(policy="restricted", options=("full-pcpus-only",))).node
    told.clear()
    assert isinstance(refused.restart(StartRefusal("decode", "no"), told.append), StartRefusal)
    assert told == []


def test_samples_are_sorted_and_complete() -> None:
    metrics = Metered(config(policy="single-numa-node")).observer.metrics
    found = [sample for sample in samples(metrics) if "_duration_" not in sample[0]]
    assert found == sorted(found)
    assert len(found) == len(metrics.values)
    assert all(one.startswith("kubelet_") for one, _, _ in found)


@given(st.lists(st.integers(min_value=0, max_value=2000)))
def test_durations_fall_into_the_kubelets_buckets(durations: list[int]) -> None:
    metrics = Metrics.initial(NODE.settings, NODE.cpu)
    for duration in durations:
        metrics = observe_duration(metrics, duration)
    found = [sample for sample in samples(metrics) if sample[0].startswith(name.ADMISSION_DURATION.name)]
    buckets = {dict(given)["le"]: value for one, given, value in found if one.endswith("_bucket")}
    limits = ["0.05", "0.1", "0.2", "0.4", "0.8", "1.6", "3.2", "6.4", "12.8", "25.6", "51.2", "102.4", "204.8"]
    assert list(buckets) == [*limits, "409.6", "819.2", "+Inf"]
    for limit, value in buckets.items():
        assert value == sum(duration <= float(limit) for duration in durations)
    sums = {one.rpartition("_")[2]: value for one, given, value in found if not given}
    assert sums == {"sum": sum(durations), "count": len(durations)}


def test_an_observation_on_a_bound_belongs_to_its_bucket() -> None:
    empty = Histogram.of(name.RESIZE_DURATION)
    assert empty.with_observation(10).with_observation(11).counts[:3] == (1, 1, 0)


NODE = Node.fresh(machine(), config())


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


WITHOUT_POD_LEVEL = dict.fromkeys(
    (
        *("PodLevelResources", "PodLevelResourcesFixDefaulting", "PodLevelResourcesFixKubeletQOSClass"),
        "InPlacePodLevelResourcesVerticalScaling",
    ),
    False,
)


def gates(**configured: bool) -> FeatureGates:
    resolved = resolve_gates(configured, known_gates("1.37"))
    assert isinstance(resolved, FeatureGates)
    return resolved


def test_metrics_are_registered_with_their_gates() -> None:
    by_default = {metric.gate for metric in METRICS if metric.is_registered(gates())}
    assert by_default == {"", "PodLevelResources", "InPlacePodVerticalScaling"}
    with_managers = gates(PodLevelResourceManagers=True)
    assert all(metric.is_registered(with_managers) for metric in METRICS)
    off = gates(**WITHOUT_POD_LEVEL)
    assert {metric.gate for metric in METRICS if metric.is_registered(off)} == {"", "InPlacePodVerticalScaling"}
    metered = Metered(config(gates=WITHOUT_POD_LEVEL))
    assert metered.admit(pod("a", container("main"))).admitted
    assert not [series for series in metered.numbers if series.startswith("pod_level_resources_")]


@pytest.mark.parametrize(
    ("kubelet", "created"),
    [
        (config(cpu="none"), {}),
        (config(), {**OF_CPUS, "cpu_manager_shared_pool_size_millicores": 14000}),
        *(
            (config(cpu="none", policy=policy, scope=scope), OF_TOPOLOGY)
            for policy in POLICIES[1:]
            for scope in ("container", "pod")
        ),
    ],
)
def test_every_policy_but_none_creates_its_series(kubelet: KubeletConfig, created: Numbers) -> None:
    assert Metered(kubelet).numbers == {**ALWAYS, **created}


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
