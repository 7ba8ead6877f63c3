"""The check behind the managers: do all requests fit the node's allocatable (metrics.md section 3)?"""

from __future__ import annotations

import pytest
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level
from tests.node.nodes import GIB, machine, settings_of

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Rejection
from mooring.engine.core.machineinfo import HugePages
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources
from mooring.engine.core.quantity import Quantity
from mooring.engine.node.resources import allocatable, check_fit, pod_requests
from mooring.engine.node.settings import Settings

INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR


def understood(**kube_reserved: str) -> Settings:
    pages = machine(hugepages=(HugePages(2048, 512),))
    return settings_of(KubeletConfig(kube_reserved=kube_reserved, eviction_hard={}), pages)


def pod(uid: str, *containers: Container, **more: object) -> Pod:
    return Pod(uid, uid, containers=containers, **more)  # type: ignore[arg-type]


def test_apps_and_sidecars_run_together_and_init_containers_one_after_another() -> None:
    assert pod_requests(pod("u", container("a", "1"), container("b", "500m"))) == {"cpu": 1500, "memory": 2 * GIB}
    assert pod_requests(pod("u", container("i", "3", kind=INIT), container("a", "1")))["cpu"] == 3000
    before = pod("u", container("s", "1", kind=SIDECAR), container("i", "3", kind=INIT), container("a", "2"))
    assert pod_requests(before) == {"cpu": 4000, "memory": 2 * GIB}
    after = pod("u", container("i", "3", kind=INIT), container("s", "1", kind=SIDECAR), container("a", "1"))
    assert pod_requests(after)["cpu"] == 3000


def test_the_peak_is_that_of_each_resource() -> None:
    init = Container("i", INIT, requests=amounts("3", "1Gi"))
    app = Container("a", requests=amounts("1", "4Gi"))
    assert pod_requests(pod("u", init, app)) == {"cpu": 3000, "memory": 4 * GIB}


def test_requests_of_the_pod_replace_those_of_its_containers_and_overhead_comes_on_top() -> None:
    found = pod_level("u", "5", container("c", "2"))
    assert pod_requests(found) == {"cpu": 5000, "memory": 4 * GIB}
    partial = pod("u", container("c", "2"), resources=PodResources(requests=amounts("", "3Gi")))
    assert pod_requests(partial) == {"cpu": 2000, "memory": 3 * GIB}
    overhead = pod("u", container("c", "2"), overhead=amounts("250m", "1Gi"))
    assert pod_requests(overhead) == {"cpu": 2250, "memory": 2 * GIB}


def test_pools_of_huge_pages_are_taken_off_the_memory() -> None:
    found = allocatable(understood(cpu="500m", memory="1Gi").reservation)
    assert found == {"cpu": 15500, "memory": 14 * GIB, "hugepages-2Mi": GIB}


@pytest.mark.parametrize(
    ("asked", "rejection"),
    [
        (container("c", "10500m", memory=""), None),
        (
            container("c", "10501m", memory=""),
            Rejection(
                "OutOfcpu", "Node didn't have enough resource: cpu, requested: 10501, used: 5000, capacity: 15500"
            ),
        ),
        (
            container("c", "11", memory="99Gi"),
            Rejection(
                "OutOfcpu", "Node didn't have enough resource: cpu, requested: 11000, used: 5000, capacity: 15500"
            ),
        ),
        (
            container("c", "1", memory="15Gi"),
            Rejection(
                "OutOfmemory",
                f"Node didn't have enough resource: memory, requested: {15 * GIB}, used: {GIB}, capacity: {15 * GIB}",
            ),
        ),
        (
            Container("c", requests={"hugepages-2Mi": Quantity.parse("2Gi")}),
            Rejection(
                "OutOfhugepages-2Mi",
                f"Node didn't have enough resource: hugepages-2Mi, requested: {2 * GIB}, used: 0, capacity: {GIB}",
            ),
        ),
        (container("c", "", memory=""), None),
    ],
)
def test_the_first_resource_that_does_not_suffice_is_named(asked: Container, rejection: Rejection | None) -> None:
    running = [guaranteed("r", container("c", "5"))]
    found = check_fit(pod("u", asked), running, understood(cpu="500m").reservation, 110)
    assert found == rejection


def test_pods_are_counted_first() -> None:
    running = [pod("a"), pod("b")]
    assert check_fit(pod("u"), running, understood().reservation, 3) is None
    found = check_fit(pod("u", container("c", "99")), running, understood().reservation, 2)
    text = "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"
    assert found == Rejection("OutOfpods", text)


def test_a_node_that_is_over_full_still_takes_pods_that_ask_for_nothing() -> None:
    running = [guaranteed("r", container("c", "99"))]
    assert check_fit(pod("u", container("c", "", memory="")), running, understood().reservation, 110) is None


def test_huge_pages_of_a_size_that_the_node_does_not_list_are_short() -> None:
    wanted = pod("u", Container("c", requests={"hugepages-1Gi": Quantity.parse("2Gi")}))
    found = check_fit(wanted, [], understood().reservation, 110)
    assert found is not None
    assert found.reason == "OutOfhugepages-1Gi"
    assert found.message.endswith("hugepages-1Gi, requested: 2147483648, used: 0, capacity: 0")


def test_devices_that_the_node_does_not_list_are_no_reason() -> None:
    wanted = pod("u", Container("c", requests={"vendor.example/gpu": Quantity.parse("2")}))
    assert check_fit(wanted, [], understood().reservation, 110) is None
