"""What the CPU manager counts, step by step."""

from __future__ import annotations

from tests.node.metered import Metered, Numbers, config, container, init, numbers, pod, pod_level, shared

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.pod import ContainerKind
from mooring.engine.cpumanager.facts import CPUsAssigned, CPUsReleased
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node.metrics import NUMA_GAUGE, fold

MANAGERS = {"PodLevelResourceManagers": True}

REQUESTS = "cpu_manager_pinning_requests_total"
ERRORS = "cpu_manager_pinning_errors_total"
EXCLUSIVE = "cpu_manager_exclusive_cpu_allocation_count"
SHARED_POOL = "cpu_manager_shared_pool_size_millicores"
ON_NODE_0 = 'cpu_manager_allocation_per_numa{numa_node="0"}'
ON_NODE_1 = 'cpu_manager_allocation_per_numa{numa_node="1"}'
ONE_UNCORE = 'container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"}'
WHOLE_CORES = 'container_aligned_compute_resources_count{boundary="physical_cpu",scope="container"}'
NO_WHOLE_CORES = 'container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"}'
ALLOCATIONS_OF_NODE = 'resource_manager_allocations_total{resource_name="cpu",source="node"}'
ALLOCATIONS_OF_POD = 'resource_manager_allocations_total{resource_name="cpu",source="pod"}'
ERRORS_OF_NODE = 'resource_manager_allocation_errors_total{resource_name="cpu",source="node"}'
ERRORS_OF_POD = 'resource_manager_allocation_errors_total{resource_name="cpu",source="pod"}'
NODE_EXCLUSIVE = 'resource_manager_container_assignments_total{assignment_type="node_exclusive",resource_name="cpu"}'
POD_EXCLUSIVE = 'resource_manager_container_assignments_total{assignment_type="pod_exclusive",resource_name="cpu"}'
POD_SHARED = 'resource_manager_container_assignments_total{assignment_type="pod_shared",resource_name="cpu"}'

OTHER_MANAGERS = ("topology_manager_", "admission_rejections_", "pod_level_resources_", "memory_manager_")


def holding(cpus: int) -> CPUState:
    return CPUState("static", NO_CPUS, {"a": {"main": CPUMask(cpus)}})


def of_cpus(change: Numbers) -> Numbers:
    """Leave out what other managers count of the same pod."""
    return {series: by for series, by in change.items() if not series.startswith(OTHER_MANAGERS)}


# Containers.


def test_a_container_that_is_served_moves_both_gauges() -> None:
    assert of_cpus(Metered(config()).change(pod("a", container("main", "2")))) == {
        REQUESTS: 1,
        EXCLUSIVE: 2,
        SHARED_POOL: -2000,
        ON_NODE_0: 2,
        ONE_UNCORE: 1,
    }


def test_cpus_of_two_uncore_caches_are_not_aligned_whatever_the_option() -> None:
    # A cache has four CPUs; of the first one two are reserved, so that two are left beside the second one.
    plain = Metered(config())
    assert ONE_UNCORE not in plain.change(pod("a", container("main", "4")))
    assert plain.change(pod("b", container("main", "2")))[ONE_UNCORE] == 1
    preferring = Metered(config(options=("prefer-align-cpus-by-uncorecache",)))
    assert preferring.change(pod("a", container("main", "4")))[ONE_UNCORE] == 1
    assert ONE_UNCORE not in preferring.change(pod("b", container("main", "6")))


def test_a_refused_alignment_of_cores_is_an_error_and_a_failure() -> None:
    metered = Metered(config(options=("full-pcpus-only",), gates=MANAGERS))
    for uid, cpus in (("odd", "3"), ("many", "16")):
        assert of_cpus(metered.change(pod(uid, container("main", cpus)))) == {
            REQUESTS: 1,
            ERRORS: 1,
            ERRORS_OF_NODE: 1,
            NO_WHOLE_CORES: 1,
        }


def test_an_existing_set_counts_as_a_request_and_as_whole_cores_only() -> None:
    metered = Metered(config(options=("full-pcpus-only",), gates=MANAGERS))
    metered.admit(pod("a", container("main", "2")))
    assert isinstance(metered.node.restart(observer=metered.observer), tuple)
    found = metered.numbers
    assert (found[REQUESTS], found[WHOLE_CORES], found[EXCLUSIVE], found[SHARED_POOL]) == (1, 1, 2, 12000)
    assert ALLOCATIONS_OF_NODE not in found
    assert NODE_EXCLUSIVE not in found
    assert found[ONE_UNCORE] == 0


# Removal.


def test_the_gauge_of_a_numa_node_keeps_its_last_count() -> None:
    metered = Metered(config())
    metered.admit(pod("a", container("main", "6")))
    metered.admit(pod("b", container("main", "8")))
    assert (metered.numbers[ON_NODE_0], metered.numbers[ON_NODE_1]) == (6, 8)
    assert metered.change_of_removal("b") == {EXCLUSIVE: -8, SHARED_POOL: 8000}
    assert metered.numbers[ON_NODE_1] == 8


def test_without_the_defect_it_returns_to_0() -> None:
    metered = Metered(config(), fixed=(NUMA_GAUGE,))
    assert ON_NODE_1 not in metered.numbers
    metered.admit(pod("a", container("main", "6")))
    metered.admit(pod("b", container("main", "8")))
    assert metered.change_of_removal("b") == {EXCLUSIVE: -8, SHARED_POOL: 8000, ON_NODE_1: -8}
    assert metered.numbers[ON_NODE_1] == 0


def test_a_released_cpu_that_another_pod_has_too_is_not_counted_per_node() -> None:
    # Only with defect average-sizes does a CPU have two owners.
    metrics = Metered(config()).observer.metrics
    both, one = 0b1111 << 4, 0b11 << 4
    metrics = fold(
        metrics,
        [
            CPUsAssigned("a", "main", CPUMask(both), holding(both).held, holding(both)),
            CPUsReleased("b", "main", CPUMask(one), holding(both).held, holding(both)),
        ],
    )
    assert numbers(metrics)[ON_NODE_0] == 2


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


def in_pod_scope(*, whole_cores: bool = False) -> Metered:
    options = ("full-pcpus-only",) if whole_cores else ()
    return Metered(config(policy="best-effort", scope="pod", options=options, gates=MANAGERS))


def test_a_partition_is_counted_once_and_its_containers_by_what_they_get() -> None:
    change = in_pod_scope().change(
        pod_level(
            "a",
            "8",
            "4Gi",
            init("own", "2"),
            shared("all", ContainerKind.INIT),
            container("side", "1", kind=ContainerKind.SIDECAR),
            container("main", "4"),
            shared("rest"),
        )
    )
    assert of_cpus(change) == {
        REQUESTS: 3,
        EXCLUSIVE: 8,
        SHARED_POOL: -8000,
        ALLOCATIONS_OF_POD: 5,
        POD_EXCLUSIVE: 3,
        POD_SHARED: 2,
    }


def test_a_partition_in_one_uncore_cache_is_aligned_once() -> None:
    metered = in_pod_scope(whole_cores=True)
    apart = metered.change(pod_level("a", "4", "1Gi", container("one", "2"), shared("two")))
    assert ONE_UNCORE not in apart
    together = metered.change(pod_level("b", "2", "1Gi", container("one", "1", "512Mi"), shared("two")))
    assert together[ONE_UNCORE] == 1
    assert WHOLE_CORES not in together


def test_the_count_per_numa_node_misses_a_pod_until_the_next_step() -> None:
    metered = in_pod_scope()
    assert ON_NODE_1 not in metered.change(pod_level("a", "8", "4Gi", container("one", "8")))
    assert metered.node.cpu.held.bit_count() == 8
    assert metered.change(pod_level("b", "2", "1Gi", container("one", "2")))[ON_NODE_1] == 8
    assert ON_NODE_0 not in metered.numbers


def test_every_error_of_a_whole_pod_is_one_error_and_no_request() -> None:
    greedy = pod_level("a", "4", "2Gi", container("one", "4"), shared("two"))
    assert of_cpus(in_pod_scope().change(greedy)) == {ERRORS: 1, ERRORS_OF_POD: 1}
    odd = pod_level("b", "3", "2Gi", container("one", "2"), shared("two"))
    assert of_cpus(in_pod_scope(whole_cores=True).change(odd)) == {ERRORS: 1, ERRORS_OF_POD: 1}
    large = pod_level("c", "15", "2Gi", container("one", "2"), shared("two"))
    assert of_cpus(in_pod_scope().change(large)) == {ERRORS: 1, ERRORS_OF_POD: 1}


def test_an_error_in_the_middle_leaves_the_partition_and_the_earlier_parts_counted() -> None:
    # The API server would refuse containers that exceed their pod.
    change = in_pod_scope().change(
        pod_level("a", "4", "4Gi", shared("first", ContainerKind.INIT), container("one", "2"), container("two", "3"))
    )
    assert of_cpus(change) == {
        REQUESTS: 2,
        ERRORS: 1,
        ERRORS_OF_POD: 1,
        EXCLUSIVE: 4,
        SHARED_POOL: -4000,
        POD_EXCLUSIVE: 1,
        POD_SHARED: 1,
    }
