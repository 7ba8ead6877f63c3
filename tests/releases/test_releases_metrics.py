"""The metrics of a kubelet by release (releases.md section 9)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.pods import guaranteed
from tests.node import metered
from tests.node.metered import Metered
from tests.node.podlevel_nodes import shared
from tests.node.resizable import SIXTEEN, pod
from tests.releases.flipped import flipped

import mooring.engine.node.metric_names as name
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Node
from mooring.engine.node.metric_names import METRICS, exposition
from mooring.engine.node.metrics import Metrics, fold, with_devices
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.gates import METRIC_HISTORY, metric_name
from mooring.engine.releases.rule import RELEASE_NAMES

STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="best-effort")


def started(release: str, config: KubeletConfig = STATIC) -> tuple[Node, Metrics]:
    node = Node.fresh(SIXTEEN, config, MooringConfig(release=RELEASES[release]))
    return node, Metrics.initial(node.settings, node.cpu)


def names_in(text: str) -> set[str]:
    return {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}


def test_every_history_is_that_of_a_metric() -> None:
    assert set(METRIC_HISTORY) <= {metric.name for metric in METRICS}
    assert all(metric_name(metric.name, "1.38") == metric.name for metric in METRICS)


@pytest.mark.parametrize(
    ("metric", "since"),
    [
        ("kubelet_cpu_manager_pinning_requests_total", "1.31"),
        ("kubelet_cpu_manager_shared_pool_size_millicores", "1.32"),
        ("kubelet_container_aligned_compute_resources_failure_count", "1.33"),
        ("kubelet_pod_in_progress_resizes", "1.34"),
    ],
)
def test_a_metric_is_shown_since_the_release_that_has_it(metric: str, since: str) -> None:
    on = replace(STATIC, feature_gates={"InPlacePodVerticalScaling": True})
    configs = {release: on if release < "1.38" else STATIC for release in RELEASE_NAMES}
    shown = {release: metric in names_in(exposition(started(release, configs[release])[1])) for release in configs}
    assert shown == {release: release >= since for release in RELEASE_NAMES}


def test_the_metrics_of_pod_level_managers_had_no_prefix_in_their_first_release() -> None:
    assert metric_name(name.ASSIGNMENTS.name, "1.35") == ""
    assert metric_name(name.ASSIGNMENTS.name, "1.36") == "resource_manager_container_assignments"
    config = replace(STATIC, feature_gates={"PodLevelResourceManagers": True})
    node, metrics = started("1.36", config)
    facts: list[object] = []
    node.admit(pod(2), facts.append)
    assert 'resource_manager_allocations_total{resource_name="cpu",source="node"} 1' in exposition(fold(metrics, facts))


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_up_to_1_32_alignment_is_counted_without_caches_and_not_from_the_start(release: str) -> None:
    """Rules alignment-not-counted-at-start and uncore-alignment-not-counted."""
    node, metrics = started(release)
    facts: list[object] = []
    node.admit(pod(2), facts.append)
    later = fold(metrics, facts)
    cores, caches = ({"boundary": boundary, "scope": "container"} for boundary in ("physical_cpu", "uncore_cache"))
    is_old = release <= "1.32"
    assert metrics.value(name.ALIGNED, **cores) == (None if is_old else 0)
    assert metrics.value(name.ALIGNED, **caches) == (None if is_old else 0)
    assert later.value(name.ALIGNED, **caches) == (None if is_old else 1)
    _, aligning = started(release, replace(STATIC, topology_manager_policy="restricted"))
    assert aligning.value(name.ALIGNED, boundary="numa_node", scope="container") == (None if is_old else 0)


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_up_to_1_32_shared_cpus_count_for_each_container_at_the_start(release: str) -> None:
    """Rule exclusive-cpus-summed-at-start."""
    whole = pod(2, 2)
    init = replace(whole.containers[0], kind=ContainerKind.INIT)
    node, _ = started(release)
    node, decision = node.admit(replace(whole, containers=(init, whole.containers[1])))
    assert decision.containers["a"].cpus == decision.containers["b"].cpus
    again = Metrics.initial(node.settings, node.cpu)
    assert again.value(name.CPU_EXCLUSIVE) == (4 if release <= "1.32" else 2)


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_up_to_1_36_memory_that_cannot_be_counted_is_a_pinning_request(release: str) -> None:
    """Rule memory-pinning-counted-first."""
    config = replace(STATIC, memory_manager_policy="Static", reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),))
    node, metrics = started(release, config)
    amounts = {"cpu": Quantity.parse("1"), "memory": Quantity.parse("100E")}
    asked = Pod("p", "p", containers=(Container("c", ContainerKind.APP, amounts, amounts),), qos=QoS.GUARANTEED)
    facts: list[object] = []
    _, decision = node.admit(asked, facts.append)
    assert not decision.admitted
    counted = int(release <= "1.36")
    after = fold(metrics, facts)
    assert after.value(name.MEMORY_PINNING_REQUESTS) == counted
    assert after.value(name.MEMORY_PINNING_ERRORS) == counted


@pytest.mark.parametrize(("release", "counts"), [("1.37", []), ("1.38", ["2", "1"])])
def test_since_1_38_devices_are_counted_by_their_health(release: str, counts: list[str]) -> None:
    devices = {"vendor.example/nic": (Device("nic0"), Device("nic1"), Device("nic2", healthy=False))}
    told = exposition(with_devices(started(release)[1], devices)).splitlines()
    healthy, unhealthy = (
        f'kubelet_device_plugin_devices{{health_state="{state}",resource_name="vendor.example/nic"}}'
        for state in ("healthy", "unhealthy")
    )
    found = dict(line.rsplit(" ", 1) for line in told if line.startswith("kubelet_device_plugin_devices{"))
    assert [found[one] for one in (healthy, unhealthy) if one in found] == counts


# Since v1.38 the gauges are computed from the state (rule gauges-by-difference).

PREVIEW = RELEASES["1.38"]
EXCLUSIVE = "cpu_manager_exclusive_cpu_allocation_count"
SHARED_POOL = "cpu_manager_shared_pool_size_millicores"
ON_NODE_0 = 'cpu_manager_allocation_per_numa{numa_node="0"}'
ON_NODE_1 = 'cpu_manager_allocation_per_numa{numa_node="1"}'
MANAGERS = {"PodLevelResourceManagers": True}


def gauges(node: Metered) -> tuple[int, ...]:
    found = node.numbers
    return tuple(found[one] for one in (EXCLUSIVE, SHARED_POOL, ON_NODE_0, ON_NODE_1) if one in found)


def test_since_1_38_every_node_has_a_count_from_the_start_and_returns_to_0() -> None:
    node = Metered(metered.config(), release=PREVIEW)
    start = gauges(node)
    assert start == (0, 14000, 0, 0)
    assert gauges(Metered(metered.config(), release=flipped(RELEASES["1.37"], "gauges-by-difference"))) == start
    assert ON_NODE_0 not in Metered(metered.config(), release=flipped(PREVIEW, "gauges-by-difference")).numbers
    node.admit(guaranteed("a", metered.container("main", "2")))
    assert gauges(node) == (2, 12000, 2, 0)
    node.remove("a")
    assert gauges(node) == start


def test_since_1_38_cpus_reused_from_an_init_container_count_once() -> None:
    node = Metered(metered.config(), release=PREVIEW)
    start = gauges(node)
    node.admit(guaranteed("a", metered.init("warm", "2"), metered.container("main", "4")))
    assert gauges(node) == (4, 10000, 4, 0)
    node.remove("a")
    assert gauges(node) == start


def test_since_1_38_the_cpus_of_a_whole_pod_are_exclusive_ones_too() -> None:
    asked = metered.pod_level("a", "4", "2Gi", metered.container("main", "2"), shared("rest"))
    kubelet = metered.config(policy="best-effort", scope="pod", gates=MANAGERS)
    older, newer = (Metered(kubelet, release=release) for release in (RELEASES["1.37"], PREVIEW))
    for one in (older, newer):
        one.admit(asked)
    assert gauges(newer) == (4, 10000, 4, 0)
    assert gauges(older)[:2] == (4, 10000)
    assert ON_NODE_0 not in older.numbers
