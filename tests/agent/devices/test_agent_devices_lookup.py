"""What the kubelet tells of devices, asked over a real gRPC socket, within the time that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tests.agent.devices.made_up_podresources import ClaimDevice, PodResources
from tests.values import not_none

from mooring.agent.devices import DeviceLookup, Whereabouts, by_name
from mooring.engine.checkpoint.device_file import DEVICE_FILE, HeldDevices, device_text
from mooring.engine.core.pod import ClaimUse, Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device

GPU, NIC, DRIVER = "nvidia.com/gpu", "intel.com/sriov", "gpu.example.com"
GPU0, GPU1 = Device("gpu0", (0,)), Device("gpu1", (1,))


class Clock:
    """Time that goes on by waiting only; something may happen meanwhile."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []
        self.meanwhile: dict[int, object] = {}

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)
        event = self.meanwhile.get(len(self.waits))
        if callable(event):
            event()


class Slices:
    """Knows where some devices are."""

    def __init__(self, *devices: tuple[str, Device]) -> None:
        self.devices = {(driver, device.id): device for driver, device in devices}

    def device(self, driver: str, name: str) -> Device | None:
        return self.devices.get((driver, name))


LookUp = Callable[..., DeviceLookup]


@pytest.fixture
def lookup(kubelet: PodResources) -> Iterator[LookUp]:
    """Return what looks devices up, and is closed at the end."""
    made: list[DeviceLookup] = []

    def look(clock: Clock, whereabouts: Whereabouts | None = None) -> DeviceLookup:
        made.append(DeviceLookup(lambda: str(kubelet.path), whereabouts or by_name, clock, clock.wait))
        return made[-1]

    yield look
    for one in made:
        one.close()


def wanting(*limits: tuple[str, int], claims: tuple[str, ...] = (), kind: ContainerKind = ContainerKind.APP) -> Pod:
    amounts = {name: Quantity.parse(str(count)) for name, count in limits}
    uses = tuple(ClaimUse(claim) for claim in claims)
    return Pod("u", "web", containers=(Container("main", kind, amounts, amounts, claims=uses),))


def test_a_pod_that_wants_no_device_is_not_asked_about(lookup: LookUp, kubelet: PodResources) -> None:
    assert lookup(Clock()).of_pod(wanting(("cpu", 2)), 101.0) is None
    assert kubelet.asked == []


def test_devices_of_plugins_come_with_their_nodes_in_one_question(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU0, GPU1)}}
    found = not_none(lookup(Clock()).of_pod(wanting((GPU, 2)), 101.0))
    assert (found.held, found.unknown) == ({"main": {GPU: (GPU0, GPU1)}}, "")
    assert kubelet.asked == ["GetPodResourcesRequest"]


def test_devices_of_drivers_are_where_their_slices_say(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.claims["web"] = {"main": (ClaimDevice("gpu", DRIVER, "node-1", "g3"),)}
    near = Device("node-1/g3", (1,))
    found = not_none(lookup(Clock(), Slices((DRIVER, near)).device).of_pod(wanting(claims=("gpu",)), 101.0))
    assert (found.held, found.unknown) == ({"main": {DRIVER: (near,)}}, "")


def test_a_driver_without_a_slice_is_waited_for_and_then_done_without(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.claims["web"] = {"main": (ClaimDevice("gpu", DRIVER, "node-1", "g3"),)}
    clock = Clock()
    found = not_none(lookup(clock, Slices().device).of_pod(wanting(claims=("gpu",)), 100.2))
    assert found.unknown == f"not told yet: the slice of {DRIVER} with its device"
    assert found.missing == (DRIVER,)
    assert 0.08 < sum(clock.waits) <= 0.1


def test_what_is_there_a_little_later_is_found_within_the_time(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.plugins[GPU] = (GPU0, GPU1)
    kubelet.pods["web"] = {"main": {}}
    clock = Clock()
    clock.meanwhile[3] = lambda: kubelet.pods.update(web={"main": {GPU: (GPU1,)}})
    found = not_none(lookup(clock).of_pod(wanting((GPU, 1)), 101.0))
    assert (found.held, found.unknown, len(clock.waits)) == ({"main": {GPU: (GPU1,)}}, "", 3)


def test_a_resource_that_no_plugin_serves_is_not_waited_for(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.plugins[GPU] = (GPU0,)
    kubelet.pods["web"] = {"main": {}}
    clock = Clock()
    found = not_none(lookup(clock).of_pod(wanting(("example.com/licence", 1)), 101.0))
    assert (found.held, found.unknown, clock.waits) == ({}, "", [])


def test_init_containers_that_end_are_not_waited_for(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.pods["web"] = {}
    clock = Clock()
    found = not_none(lookup(clock).of_pod(wanting((GPU, 1), kind=ContainerKind.INIT), 101.0))
    assert (found.held, found.unknown, clock.waits) == ({}, "", [])


@pytest.mark.parametrize(
    ("code", "words"),
    [(grpc.StatusCode.RESOURCE_EXHAUSTED, "made up"), (grpc.StatusCode.UNAVAILABLE, "made up")],
    ids=["rate limit", "away"],
)
def test_a_kubelet_that_refuses_is_asked_again_until_half_of_the_time_is_over(
    lookup: LookUp, kubelet: PodResources, code: grpc.StatusCode, words: str
) -> None:
    kubelet.refusing = code
    clock = Clock()
    found = not_none(lookup(clock).of_pod(wanting((GPU, 1)), 100.4))
    assert found.held == {}
    assert words in found.unknown
    assert 0.15 < sum(clock.waits) <= 0.2


def test_a_kubelet_that_hangs_costs_the_time_and_no_more(kubelet: PodResources) -> None:
    kubelet.goes.clear()
    found = not_none(
        DeviceLookup(lambda: str(kubelet.path), by_name, lambda: 100.0, _never).of_pod(wanting((GPU, 1)), 100.0)
    )
    assert found.unknown.startswith("the kubelet does not tell")
    assert found.missing == (GPU,)


def _never(_seconds: float) -> None:
    raise AssertionError("there is no time to wait")


def test_a_kubelet_without_the_question_is_asked_for_its_list(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU0,)}}
    kubelet.unknown.add("Get")
    found = not_none(lookup(Clock()).of_pod(wanting((GPU, 1)), 101.0))
    assert (found.held, found.unknown) == ({"main": {GPU: (GPU0,)}}, "")


def test_a_kubelet_that_comes_back_is_asked_over_a_new_connection(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU0,)}}
    clock = Clock()
    asking = lookup(clock)
    assert asking.of_pod(wanting((GPU, 1)), 101.0)
    kubelet.stop()
    clock.meanwhile[2] = kubelet.start
    found = not_none(asking.of_pod(wanting((GPU, 1)), 102.0))
    assert (found.held, found.unknown) == ({"main": {GPU: (GPU0,)}}, "")


def test_any_pod_of_which_nothing_but_containers_is_known_is_asked_about(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU1,)}}
    found = not_none(lookup(Clock()).of_pod(wanting(("cpu", 1)), 101.0, is_derived=True))
    assert found.held == {"main": {GPU: (GPU1,)}}


def test_all_pods_are_learned_in_one_question_with_their_devices_health(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.plugins[GPU] = (GPU0,)
    kubelet.pods = {"web": {"main": {GPU: (GPU0, GPU1)}}, "other": {"main": {}}}
    pods = {"u": wanting(), "o": Pod("o", "other"), "g": Pod("g", "gone")}
    found = lookup(Clock()).of_all(pods, {"o": (NIC,), "u": (GPU,)}, 5.0)
    assert [one.healthy for one in found["u"].held["main"][GPU]] == [True, False]
    assert (found["u"].unknown, found["u"].missing, found["o"].missing) == ("", (), (NIC,))
    assert found["g"].unknown
    assert kubelet.asked == ["ListPodResourcesRequest", "AllocatableResourcesRequest"]


def test_without_a_kubelet_nothing_is_known_of_any_pod(tmp_path: Path) -> None:
    found = DeviceLookup(lambda: str(tmp_path / "none.sock"), by_name).of_all({"u": wanting()}, {"u": (GPU,)}, 1.0)
    assert (found["u"].held, found["u"].missing) == ({}, (GPU,))
    assert found["u"].unknown.startswith("the kubelet does not tell")


def with_init(*, claims: tuple[str, ...] = ()) -> Pod:
    one = {GPU: Quantity.parse("1")}
    init = Container("init", ContainerKind.INIT, one, one, claims=tuple(ClaimUse(claim) for claim in claims))
    two = {GPU: Quantity.parse("2")}
    return Pod("u", "web", containers=(init, Container("main", ContainerKind.APP, two, two)))


def test_devices_of_an_init_container_are_in_the_kubelets_record(lookup: LookUp, kubelet: PodResources) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU0, GPU1)}}
    kubelet.path = kubelet.path.parent / "pod-resources" / "kubelet.sock"
    kubelet.path.parent.mkdir()
    kubelet.stop()
    kubelet.start()
    file = kubelet.path.parent.parent / DEVICE_FILE
    file.parent.mkdir()
    held = [
        HeldDevices("u", "init", GPU, {1: ("gpu1",)}, b"\n\x00"),
        HeldDevices("other", "init", GPU, {0: ("gpu0",)}, b"\n\x00"),
    ]
    file.write_text(device_text(held, {GPU: ["gpu0", "gpu1"]}), encoding="utf-8")
    found = not_none(lookup(Clock()).of_pod(with_init(), 101.0))
    assert found.held == {"main": {GPU: (GPU0, GPU1)}, "init": {GPU: (GPU1,)}}


def test_without_the_record_an_init_container_counts_with_its_pods_first_devices(
    lookup: LookUp, kubelet: PodResources
) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU0, GPU1)}}
    assert not_none(lookup(Clock()).of_pod(with_init(), 101.0)).held["init"] == {GPU: (GPU0,)}


def test_an_init_container_has_the_claimed_devices_that_others_of_its_pod_have(
    lookup: LookUp, kubelet: PodResources
) -> None:
    kubelet.pods["web"] = {"main": {GPU: (GPU0, GPU1)}}
    kubelet.claims["web"] = {"main": (ClaimDevice("nic", DRIVER, "node-1", "n0"),)}
    near = Device("node-1/n0", (1,))
    found = not_none(lookup(Clock(), Slices((DRIVER, near)).device).of_pod(with_init(claims=("nic",)), 101.0))
    assert found.held["init"] == {GPU: (GPU0,), DRIVER: (near,)}
