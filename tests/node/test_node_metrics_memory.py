"""What the memory manager counts, step by step."""

from __future__ import annotations

from tests.node.metered import Metered, Numbers, config, container, init, pod, pod_level, shared

from mooring.engine.core.pod import ContainerKind, QoS

MANAGERS = {"PodLevelResourceManagers": True}

REQUESTS = "memory_manager_pinning_requests_total"
ERRORS = "memory_manager_pinning_errors_total"
ALLOCATIONS_OF_NODE = 'resource_manager_allocations_total{resource_name="memory",source="node"}'
ALLOCATIONS_OF_POD = 'resource_manager_allocations_total{resource_name="memory",source="pod"}'
ERRORS_OF_NODE = 'resource_manager_allocation_errors_total{resource_name="memory",source="node"}'
ERRORS_OF_POD = 'resource_manager_allocation_errors_total{resource_name="memory",source="pod"}'
NODE_EXCLUSIVE = 'resource_manager_container_assignments_total{assignment_type="node_exclusive",resource_name="memory"}'
POD_EXCLUSIVE = 'resource_manager_container_assignments_total{assignment_type="pod_exclusive",resource_name="memory"}'
POD_SHARED = 'resource_manager_container_assignments_total{assignment_type="pod_shared",resource_name="memory"}'


def of_memory(change: Numbers) -> Numbers:
    """Keep what the memory manager counts."""
    return {series: by for series, by in change.items() if "memory" in series}


def metered(policy: str = "none", scope: str = "container", *, managers: bool = True) -> Metered:
    return Metered(config(cpu="none", memory="Static", policy=policy, scope=scope, gates=MANAGERS if managers else {}))


# Containers.


def test_pods_that_ask_for_nothing_and_pods_of_other_classes_count_nothing() -> None:
    node = metered()
    assert of_memory(node.change(pod("a", container("main", memory="")))) == {}
    assert of_memory(node.change(pod("b", container("main"), qos=QoS.BURSTABLE))) == {}
    assert of_memory(metered(managers=False).change(pod_level("c", "4", "1Gi", container("main")))) == {}


def test_a_request_that_cannot_be_read_fails_before_it_counts() -> None:
    node = metered()
    change = node.change(pod("a", container("main", memory="0.5Gi")))
    assert change['admission_rejections_total{reason="UnexpectedAdmissionError"}'] == 1
    assert of_memory(change) == {}


def test_each_type_is_an_allocation_and_each_container_an_assignment() -> None:
    change = metered().change(pod("a", container("one", pages="2Mi"), container("two")))
    assert of_memory(change) == {REQUESTS: 2, ALLOCATIONS_OF_NODE: 3, NODE_EXCLUSIVE: 2}


def test_memory_that_no_node_has_is_an_error() -> None:
    assert of_memory(metered().change(pod("a", container("main", memory="64Gi")))) == {
        REQUESTS: 1,
        ERRORS: 1,
        ERRORS_OF_NODE: 1,
    }


def test_existing_blocks_count_as_a_request_only() -> None:
    node = metered()
    node.admit(pod("a", container("main")))
    assert isinstance(node.node.restart(observer=node.observer), tuple)
    assert {series: value for series, value in of_memory(node.numbers).items() if value} == {REQUESTS: 1}


# Whole pods.


def test_a_pod_counts_itself_its_init_containers_and_its_exclusive_apps() -> None:
    change = metered("best-effort", "pod").change(
        pod_level(
            "a",
            "8",
            "4Gi",
            init("own", memory="1Gi"),
            shared("all", ContainerKind.INIT),
            shared("side", ContainerKind.SIDECAR),
            container("main", memory="1Gi"),
            shared("rest"),
        )
    )
    assert of_memory(change) == {REQUESTS: 1 + 3 + 1, ALLOCATIONS_OF_POD: 5, POD_EXCLUSIVE: 2, POD_SHARED: 3}


def test_an_empty_shared_pool_is_an_error_of_the_pod() -> None:
    greedy = pod_level("a", "4", "2Gi", container("one", "2", "2Gi"), shared("two"))
    assert of_memory(metered("best-effort", "pod").change(greedy)) == {REQUESTS: 1, ERRORS: 1, ERRORS_OF_POD: 1}


def test_in_container_scope_the_containers_of_a_pod_level_pod_are_served_from_the_node() -> None:
    change = metered("best-effort").change(pod_level("a", "4", "4Gi", container("one"), shared("two")))
    assert of_memory(change) == {REQUESTS: 1, ALLOCATIONS_OF_NODE: 1, NODE_EXCLUSIVE: 1}
