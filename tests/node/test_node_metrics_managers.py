"""What the CPU manager and the memory manager count, step by step."""

from __future__ import annotations

import pytest
from tests.cpumanager.pods import guaranteed as pod
from tests.node.metered import Metered, Numbers, config, container, init, numbers, pod_level
from tests.node.podlevel_nodes import shared

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import ContainerKind, Pod, QoS
from mooring.engine.cpumanager.facts import CPUsAssigned, CPUsReleased
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node.metrics import NUMA_GAUGE, fold

MANAGERS = {"PodLevelResourceManagers": True}
INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR

REQUESTS = "cpu_manager_pinning_requests_total"
ERRORS = "cpu_manager_pinning_errors_total"
EXCLUSIVE = "cpu_manager_exclusive_cpu_allocation_count"
SHARED_POOL = "cpu_manager_shared_pool_size_millicores"
ON_NODE_0 = 'cpu_manager_allocation_per_numa{numa_node="0"}'
ON_NODE_1 = 'cpu_manager_allocation_per_numa{numa_node="1"}'
ONE_UNCORE = 'container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"}'
WHOLE_CORES = 'container_aligned_compute_resources_count{boundary="physical_cpu",scope="container"}'
NO_WHOLE_CORES = 'container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"}'
MEMORY_REQUESTS = "memory_manager_pinning_requests_total"
MEMORY_ERRORS = "memory_manager_pinning_errors_total"


def allocations(resource: str, source: str, kind: str = "allocations") -> str:
    return f'resource_manager_{kind}_total{{resource_name="{resource}",source="{source}"}}'


def errors(resource: str, source: str) -> str:
    return allocations(resource, source, "allocation_errors")


def given(resource: str, kind: str) -> str:
    return f'resource_manager_container_assignments_total{{assignment_type="{kind}",resource_name="{resource}"}}'


def of_memory(change: Numbers) -> Numbers:
    """Keep what the memory manager counts."""
    return {series: by for series, by in change.items() if "memory" in series}


def of_cpus(change: Numbers) -> Numbers:
    """Leave out what other managers count of the same pod."""
    others = ("topology_manager_", "admission_rejections_", "pod_level_resources_", "memory_manager_")
    return {series: by for series, by in change.items() if not series.startswith(others)}


def cpus(*options: str, gates: dict[str, bool] | None = MANAGERS) -> KubeletConfig:
    return config(options=options, gates=gates)


def whole_pods(*options: str) -> KubeletConfig:
    return config(policy="best-effort", scope="pod", options=options, gates=MANAGERS)


def memory(policy: str = "none", scope: str = "container", gates: dict[str, bool] | None = MANAGERS) -> KubeletConfig:
    return config(cpu="none", memory="Static", policy=policy, scope=scope, gates=gates)


NOT_SERVED = {REQUESTS: 1, ERRORS: 1, errors("cpu", "node"): 1}
POD_NOT_SERVED = {ERRORS: 1, errors("cpu", "pod"): 1}
CPU_CHANGES: dict[str, tuple[KubeletConfig, Pod, Numbers]] = {
    "a container that is served moves both gauges": (
        config(),
        pod("a", container("main", "2")),
        {REQUESTS: 1, EXCLUSIVE: 2, SHARED_POOL: -2000, ON_NODE_0: 2, ONE_UNCORE: 1},
    ),
    "half cores are an error and a failure": (
        cpus("full-pcpus-only"),
        pod("odd", container("main", "3")),
        {**NOT_SERVED, NO_WHOLE_CORES: 1},
    ),
    "too few whole cores are an error and a failure": (
        cpus("full-pcpus-only"),
        pod("many", container("main", "16")),
        {**NOT_SERVED, NO_WHOLE_CORES: 1},
    ),
    "a partition is counted once and its containers by what they get": (
        whole_pods(),
        pod_level(
            *("a", "8", "4Gi", init("own", "2"), shared("all", INIT), container("side", "1", kind=SIDECAR)),
            *(container("main", "4"), shared("rest")),
        ),
        {
            REQUESTS: 3,
            EXCLUSIVE: 8,
            SHARED_POOL: -8000,
            allocations("cpu", "pod"): 5,
            given("cpu", "pod_exclusive"): 3,
            given("cpu", "pod_shared"): 2,
        },
    ),
    "an empty shared pool of a pod is one error and no request": (
        whole_pods(),
        pod_level("a", "4", "2Gi", container("one", "4"), shared("two")),
        POD_NOT_SERVED,
    ),
    "half cores of a pod are one error and no request": (
        whole_pods("full-pcpus-only"),
        pod_level("b", "3", "2Gi", container("one", "2"), shared("two")),
        POD_NOT_SERVED,
    ),
    "too many CPUs of a pod are one error and no request": (
        whole_pods(),
        pod_level("c", "15", "2Gi", container("one", "2"), shared("two")),
        POD_NOT_SERVED,
    ),
    # The API server would refuse containers that exceed their pod.
    "an error in the middle leaves the partition and the earlier parts counted": (
        whole_pods(),
        pod_level("a", "4", "4Gi", shared("first", INIT), container("one", "2"), container("two", "3")),
        {
            REQUESTS: 2,
            **POD_NOT_SERVED,
            EXCLUSIVE: 4,
            SHARED_POOL: -4000,
            given("cpu", "pod_exclusive"): 1,
            given("cpu", "pod_shared"): 1,
        },
    ),
}


@pytest.mark.parametrize(("kubelet", "asked", "change"), CPU_CHANGES.values(), ids=CPU_CHANGES)
def test_what_the_cpu_manager_counts_of_a_pod(kubelet: KubeletConfig, asked: Pod, change: Numbers) -> None:
    assert of_cpus(Metered(kubelet).change(asked)) == change


MEMORY_CHANGES: dict[str, tuple[KubeletConfig, Pod, Numbers]] = {
    "no memory": (memory(), pod("a", container("main", memory="")), {}),
    "another class": (memory(), pod("b", container("main"), qos=QoS.BURSTABLE), {}),
    "a pod level pod without its managers": (memory(gates={}), pod_level("c", "4", "1Gi", container("main")), {}),
    "each type is an allocation, each container an assignment": (
        memory(),
        pod("a", container("one", pages="2Mi"), container("two")),
        {MEMORY_REQUESTS: 2, allocations("memory", "node"): 3, given("memory", "node_exclusive"): 2},
    ),
    "memory that no node has is an error": (
        memory(),
        pod("a", container("main", memory="64Gi")),
        {MEMORY_REQUESTS: 1, MEMORY_ERRORS: 1, errors("memory", "node"): 1},
    ),
    "a pod counts itself, its init containers and its exclusive apps": (
        memory("best-effort", "pod"),
        pod_level(
            *("a", "8", "4Gi", init("own", memory="1Gi"), shared("all", INIT), shared("side", SIDECAR)),
            *(container("main", memory="1Gi"), shared("rest")),
        ),
        {
            MEMORY_REQUESTS: 1 + 3 + 1,
            allocations("memory", "pod"): 5,
            given("memory", "pod_exclusive"): 2,
            given("memory", "pod_shared"): 3,
        },
    ),
    "an empty shared pool is an error of the pod": (
        memory("best-effort", "pod"),
        pod_level("a", "4", "2Gi", container("one", "2", "2Gi"), shared("two")),
        {MEMORY_REQUESTS: 1, MEMORY_ERRORS: 1, errors("memory", "pod"): 1},
    ),
    "in container scope containers of a pod level pod are served from the node": (
        memory("best-effort"),
        pod_level("a", "4", "4Gi", container("one"), shared("two")),
        {MEMORY_REQUESTS: 1, allocations("memory", "node"): 1, given("memory", "node_exclusive"): 1},
    ),
}


@pytest.mark.parametrize(("kubelet", "asked", "change"), MEMORY_CHANGES.values(), ids=MEMORY_CHANGES)
def test_what_the_memory_manager_counts_of_a_pod(kubelet: KubeletConfig, asked: Pod, change: Numbers) -> None:
    assert of_memory(Metered(kubelet).change(asked)) == change


def test_a_request_that_cannot_be_read_fails_before_it_counts() -> None:
    change = Metered(memory()).change(pod("a", container("main", memory="0.5Gi")))
    assert change['admission_rejections_total{reason="UnexpectedAdmissionError"}'] == 1
    assert of_memory(change) == {}


def test_after_a_restart_blocks_count_as_a_request_and_cpus_as_one_and_as_whole_cores() -> None:
    metered = Metered(memory())
    metered.admit(pod("a", container("main")))
    assert isinstance(metered.node.restart(observer=metered.observer), tuple)
    assert {series: value for series, value in of_memory(metered.numbers).items() if value} == {MEMORY_REQUESTS: 1}
    metered = Metered(cpus("full-pcpus-only"))
    metered.admit(pod("a", container("main", "2")))
    assert isinstance(metered.node.restart(observer=metered.observer), tuple)
    found = metered.numbers
    assert (found[REQUESTS], found[WHOLE_CORES], found[EXCLUSIVE], found[SHARED_POOL]) == (1, 1, 2, 12000)
    assert not {allocations("cpu", "node"), given("cpu", "node_exclusive")} & found.keys()
    assert found[ONE_UNCORE] == 0


def test_cpus_of_two_uncore_caches_are_not_aligned_whatever_the_option() -> None:
    # A cache has four CPUs; of the first one two are reserved, so that two are left beside the second one.
    plain = Metered(config())
    assert ONE_UNCORE not in plain.change(pod("a", container("main", "4")))
    assert plain.change(pod("b", container("main", "2")))[ONE_UNCORE] == 1
    preferring = Metered(config(options=("prefer-align-cpus-by-uncorecache",)))
    assert preferring.change(pod("a", container("main", "4")))[ONE_UNCORE] == 1
    assert ONE_UNCORE not in preferring.change(pod("b", container("main", "6")))


# Removal.


@pytest.mark.parametrize(("fixed", "change"), [((), {}), ((NUMA_GAUGE,), {ON_NODE_1: -8})], ids=["defect", "fixed"])
def test_the_gauge_of_a_numa_node_keeps_its_last_count_and_fixed_returns_to_0(
    fixed: tuple[str, ...], change: Numbers
) -> None:
    metered = Metered(config(), fixed=fixed)
    assert ON_NODE_1 not in metered.numbers
    metered.admit(pod("a", container("main", "6")))
    metered.admit(pod("b", container("main", "8")))
    assert (metered.numbers[ON_NODE_0], metered.numbers[ON_NODE_1]) == (6, 8)
    assert metered.change_of_removal("b") == {EXCLUSIVE: -8, SHARED_POOL: 8000, **change}
    assert metered.numbers[ON_NODE_1] == (0 if fixed else 8)


def test_a_released_cpu_that_another_pod_has_too_is_not_counted_per_node() -> None:
    # Only with defect average-sizes does a CPU have two owners.
    both, one = CPUMask(0b1111 << 4), CPUMask(0b11 << 4)
    state = CPUState("static", NO_CPUS, {"a": {"main": both}})
    told = [CPUsAssigned("a", "main", both, state.held, state), CPUsReleased("b", "main", one, state.held, state)]
    assert numbers(fold(Metered(config()).observer.metrics, told))[ON_NODE_0] == 2


def test_cpus_reused_from_an_init_container_are_counted_again_and_stay_counted() -> None:
    metered = Metered(config())
    start = metered.numbers
    change = metered.change(pod("a", init("warm", "2"), container("main", "4")))
    assert (change[EXCLUSIVE], change[SHARED_POOL], change[ON_NODE_0]) == (6, -6000, 4)
    assert metered.node.cpu.held.bit_count() == 4
    # The sets go one after another; the second one is the last that the count per node sees.
    assert metered.change_of_removal("a") == {EXCLUSIVE: -4, SHARED_POOL: 4000, ON_NODE_0: -2}
    end = metered.numbers
    assert (end[EXCLUSIVE] - start[EXCLUSIVE], end[SHARED_POOL] - start[SHARED_POOL]) == (2, -2000)
    assert metered.node.cpu.held == 0


# Whole pods.


def test_a_partition_in_one_uncore_cache_is_aligned_once() -> None:
    metered = Metered(whole_pods("full-pcpus-only"))
    apart = metered.change(pod_level("a", "4", "1Gi", container("one", "2"), shared("two")))
    assert ONE_UNCORE not in apart
    together = metered.change(pod_level("b", "2", "1Gi", container("one", "1", "512Mi"), shared("two")))
    assert together[ONE_UNCORE] == 1
    assert WHOLE_CORES not in together


def test_the_count_per_numa_node_misses_a_pod_until_the_next_step() -> None:
    metered = Metered(whole_pods())
    assert ON_NODE_1 not in metered.change(pod_level("a", "8", "4Gi", container("one", "8")))
    assert metered.node.cpu.held.bit_count() == 8
    assert metered.change(pod_level("b", "2", "1Gi", container("one", "2")))[ON_NODE_1] == 8
    assert ON_NODE_0 not in metered.numbers
