"""What is kept for the system (configuration.md section 5), and whether all requests fit the rest (metrics.md 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level
from tests.node.nodes import GIB, machine, refusal, settings_of

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Rejection, StartRefusal
from mooring.engine.core.machineinfo import HugePages, MachineInfo
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.node.resources import allocatable, check_fit, pod_requests
from mooring.engine.node.settings import Settings

SYSTEM = "--system-reserved value failed to parse: "
FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
KUBE = "--kube-reserved value failed to parse: "


def reserved(config: KubeletConfig) -> Mapping[str, Quantity]:
    return settings_of(config).reservation.reserved


def refused(config: KubeletConfig, info: MachineInfo | None = None) -> str:
    found = refusal(config, info)
    assert found.stage == "reservation"
    return found.message


# Eviction.


@pytest.mark.parametrize(
    ("thresholds", "merge", "memory"),
    [
        (None, False, 100 * 2**20),
        ({}, False, 0),
        ({"nodefs.available": "5%"}, False, 0),
        ({"nodefs.available": "5%"}, True, 100 * 2**20),
        ({}, True, 100 * 2**20),
        ({"memory.available": "1Gi"}, False, GIB),
        ({"memory.available": "1Gi"}, True, GIB),
        ({"memory.available": "25%"}, False, 4 * GIB),
        ({"memory.available": "0%"}, False, 0),
        ({"memory.available": "100%"}, False, 0),
        ({"memory.available": "0.5%"}, False, int(16 * GIB * 0.004999999888241291)),
    ],
)
def test_the_hard_eviction_threshold_of_memory_is_reserved(
    thresholds: dict[str, str] | None, merge: bool, memory: int
) -> None:
    config = KubeletConfig(eviction_hard=thresholds, merge_default_eviction_settings=merge)
    found = reserved(config).get("memory")
    assert (found.units if found else 0) == memory


MEMORY = "memory.available"
ABOVE = f"eviction percentage threshold {MEMORY} must be <= 100%: "


@pytest.mark.parametrize(
    ("thresholds", "text"),
    [
        ({"nodefs.available": "-1%"}, "eviction percentage threshold nodefs.available must be >= 0%: -1%"),
        *(({MEMORY: f"{one}%"}, f"{ABOVE}{one}%") for one in ("101", "inf", "+Infinity", "150", "1.0001e2")),
        ({MEMORY: "0"}, f"eviction threshold {MEMORY} must be positive: 0"),
        ({MEMORY: "-1Gi"}, f"eviction threshold {MEMORY} must be positive: -1Gi"),
        ({MEMORY: "-1024Mi"}, f"eviction threshold {MEMORY} must be positive: -1Gi"),
        ({MEMORY: "-0.5Gi"}, f"eviction threshold {MEMORY} must be positive: -512Mi"),
        ({MEMORY: "0.0Gi"}, f"eviction threshold {MEMORY} must be positive: 0"),
        ({"memory.free": "x"}, "unsupported eviction signal memory.free"),
        ({"nodefs.available": "x", "": "1Gi"}, "unsupported eviction signal "),
        ({MEMORY: "much"}, FORMAT),
        *(
            ({MEMORY: f"{one}%"}, f'strconv.ParseFloat: parsing "{one}": invalid syntax')
            for one in ("x", "", " 5", "_10", "5%5", "nan", "1e999.")
        ),
        *(
            ({MEMORY: f"{one}%"}, f'strconv.ParseFloat: parsing "{one}": value out of range')
            for one in ("1e39", "-1e999", "9" * 400 + ".")
        ),
    ],
)
def test_bad_thresholds(thresholds: dict[str, str], text: str) -> None:
    assert refused(KubeletConfig(eviction_hard=thresholds)) == text


def test_every_percent_sign_at_the_end_is_dropped() -> None:
    """The kubelet trims them all (v1.37.1, pkg/kubelet/eviction/helpers.go, parsePercentage)."""
    found = [reserved(KubeletConfig(eviction_hard={"memory.available": text})) for text in ("25%", "25%%")]
    assert [{name: str(amount) for name, amount in one.items()} for one in found] == [{"memory": "4Gi"}] * 2


# Reserved amounts.


def test_amounts_of_mixed_suffixes_add_up_exactly() -> None:
    config = KubeletConfig(eviction_hard={}, kube_reserved={"memory": "1M"}, system_reserved={"memory": "1Mi"})
    assert reserved(config)["memory"].units == 2**20 + 10**6


@pytest.mark.parametrize(("text", "milli"), [("0.0005", 1), ("0.0004", 0), ("1.0015", 1002), ("1.00149", 1001)])
def test_cpu_is_rounded_to_the_nearest_milli(text: str, milli: int) -> None:
    found = reserved(KubeletConfig(eviction_hard={}, kube_reserved={"cpu": text})).get("cpu")
    assert (found.milli if found else 0) == milli


@pytest.mark.parametrize(
    ("kube", "system", "text"),
    [
        ({"hugepages-2Mi": "1Gi"}, {}, f'{KUBE}cannot reserve "hugepages-2Mi" resource'),
        ({}, {"gpu": "1"}, f'{SYSTEM}cannot reserve "gpu" resource'),
        ({"cpu": "x"}, {"cpu": "x"}, f'{KUBE}failed to parse quantity "x" for "cpu" resource: {FORMAT}'),
        ({}, {"memory": "-1Gi"}, f'{SYSTEM}resource quantity for "memory" cannot be negative: -1Gi'),
    ],
)
def test_bad_amounts(kube: dict[str, str], system: dict[str, str], text: str) -> None:
    assert refused(KubeletConfig(kube_reserved=kube, system_reserved=system)) == text


# Explicit CPUs.


def test_explicit_cpus_need_a_topology() -> None:
    info = replace(machine(), num_cores=0)
    text = "unable to discover CPU topology info: could not detect number of cpus"
    assert refused(KubeletConfig(reserved_system_cpus="0"), info) == text
    assert refusal(KubeletConfig(), info).stage == "cpuManager"


# Capacity and what is left.


def test_capacity_and_allocatable() -> None:
    info = machine(hugepages=(HugePages(2048, 512), HugePages(1048576, 2)))
    found = settings_of(
        KubeletConfig(kube_reserved={"cpu": "1500m", "memory": "1Gi"}, eviction_hard={}), info
    ).reservation
    assert {name: str(amount) for name, amount in found.capacity.items()} == {
        "cpu": "16",
        "memory": "16Gi",
        "hugepages-2Mi": "1Gi",
        "hugepages-1Gi": "2Gi",
    }
    assert found.allocatable("cpu") == 14500
    assert found.allocatable("memory") == 15 * GIB
    assert found.allocatable("hugepages-2Mi") == GIB
    assert found.allocatable("gpu") == 0


CPUS = "{{17000 -3} {<nil>}  DecimalSI} but capacity of {{16000 -3} {<nil>}  DecimalSI}"
SEVENTEEN = f"{{{{{17 * GIB} 0}} {{<nil>}}  BinarySI}} but capacity of {{{{{16 * GIB} 0}} {{<nil>}}  BinarySI}}"


@pytest.mark.parametrize(
    ("kube", "texts"),
    [
        ({"memory": "17Gi"}, [f'Resource "memory" has a reservation of {SEVENTEEN}']),
        (
            {"cpu": "17", "memory": "17Gi"},
            [f'Resource "cpu" has a reservation of {CPUS}', f'Resource "memory" has a reservation of {SEVENTEEN}'],
        ),
    ],
    ids=["memory", "both"],
)
def test_every_resource_of_which_too_much_is_kept_is_named(kube: dict[str, str], texts: list[str]) -> None:
    """The kubelet joins the errors of all resources (v1.37.1, node_container_manager_linux.go)."""
    settings = settings_of(KubeletConfig(kube_reserved=kube, eviction_hard={}))
    assert settings.reservation.allocatable("memory") == 0
    found = Node.start(settings)
    assert isinstance(found, StartRefusal)
    wrong = " ".join(f"{text}. Expected capacity >= reservation." for text in texts)
    assert found.message.endswith(f"invalid Node Allocatable configuration. {wrong}")


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


def short(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    amounts = f"requested: {requested}, used: {used}, capacity: {capacity}"
    return Rejection(f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {amounts}")


def of_pages(kind: str) -> Container:
    return Container("c", requests={kind: Quantity.parse("2Gi")})


@pytest.mark.parametrize(
    ("asked", "rejection"),
    [
        (container("c", "10500m", memory=""), None),
        (container("c", "10501m", memory=""), short("cpu", 10501, 5000, 15500)),
        (container("c", "11", memory="99Gi"), short("cpu", 11000, 5000, 15500)),
        (container("c", "1", memory="15Gi"), short("memory", 15 * GIB, GIB, 15 * GIB)),
        (of_pages("hugepages-2Mi"), short("hugepages-2Mi", 2 * GIB, 0, GIB)),
        # Of a size that the node does not list.
        (of_pages("hugepages-1Gi"), short("hugepages-1Gi", 2 * GIB, 0, 0)),
        (container("c", "", memory=""), None),
        # A device that the node does not list is no reason.
        (Container("c", requests={"vendor.example/gpu": Quantity.parse("2")}), None),
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
    assert found == short("pods", 1, 2, 2)


def test_a_node_that_is_over_full_still_takes_pods_that_ask_for_nothing() -> None:
    running = [guaranteed("r", container("c", "99"))]
    assert check_fit(pod("u", container("c", "", memory="")), running, understood().reservation, 110) is None
