"""A plain kubelet is seen as one moment: its files and its PodResources API, over a real socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.small_node import CONFIG, INFO
from tests.plans import started_kubelet
from tests.values import not_none, refusal

from mooring.agent.state import AgentState
from mooring.agent.status import Snapshot
from mooring.engine.checkpoint.device_file import HeldDevices, device_text
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.machine import Machine, PCIDevice
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.releases.catalog import RELEASES
from mooring.published.kubelet_source import (
    ASKING,
    LISTING,
    REGISTERING,
    SLICES,
    KubeletAndSlices,
    KubeletSource,
    ListedSlices,
    UnsettledError,
    held_devices,
)
from mooring.published.objects import NodeFacts, PodKey
from mooring.service import messages
from mooring.service.apiserver import ClusterError
from mooring.service.grpc_socket import GRPCSocket
from mooring.service.logs import Log
from mooring.service.podresources import (
    ListedPod,
    PodResourcesClient,
    PodResourcesError,
    pods_in,
    serve_pod_resources,
)

GPU = "vendor.example/gpu"
DEVICES = {GPU: (Device("a", (0,)), Device("b", (1,)), Device("c"))}
FACTS = NodeFacts(INFO, CONFIG, MooringConfig())


def pod(uid: str, cpus: str = "1", gpus: int = 0) -> Pod:
    amounts = {"cpu": Quantity.parse(cpus), "memory": Quantity.parse("100Mi")}
    if gpus:
        amounts[GPU] = Quantity.parse(str(gpus))
    app = Container("app", requests=amounts, limits=amounts)
    return Pod(f"uid-{uid}", uid, namespace="shop", containers=(app,), qos=QoS.GUARANTEED)


@dataclass
class RunningKubelet:
    """A simulated kubelet with the files and the socket of a real one."""

    root: Path
    kubelet: Kubelet
    now: float = 100.0
    pauses: list[float] = field(default_factory=list)
    while_pausing: Callable[[], object] = lambda: None
    client: PodResourcesClient = field(init=False)

    @property
    def socket(self) -> Path:
        return self.root / "pod-resources/kubelet.sock"

    def snapshot(self) -> Snapshot:
        return Snapshot(Machine("m", INFO), AgentState(self.kubelet))

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.while_pausing()

    def write(self) -> None:
        texts = {"cpu_manager_state": self.kubelet.files.cpu, "memory_manager_state": self.kubelet.files.memory}
        held = self.kubelet.node.providers.devices.held
        entries = [
            HeldDevices(uid, name, resource, {-1: tuple(sorted(ids))})
            for uid, containers in held.items()
            for name, resources in containers.items()
            for resource, ids in resources.items()
        ]
        texts["device-plugins/kubelet_internal_checkpoint"] = device_text(entries, {})
        for name, text in texts.items():
            new = self.root / f"{name}.new"
            new.write_text(text or "", encoding="utf-8")
            new.rename(self.root / name)

    def admit(self, one: Pod) -> None:
        self.kubelet, decision = self.kubelet.admit(one)
        assert decision.admitted, decision.rejection
        self.write()
        self.now += 10

    def remove(self, uid: str) -> None:
        self.kubelet, _ = self.kubelet.remove(f"uid-{uid}")
        self.write()
        self.now += 10


def serving(path: Path, provider: RunningKubelet) -> GRPCSocket:
    """Serve as a kubelet does, whose socket stays the same: the agent's is replaced when the first client connects."""
    service = serve_pod_resources(str(path), lambda: provider.snapshot().state.kubelet.node, Log("test"))
    client = PodResourcesClient(str(path))
    client.listed()
    client.close()
    return service


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKubelet]:
    root = tmp_path_factory.mktemp("k")
    (root / "device-plugins").mkdir()
    (root / "pod-resources").mkdir()
    one = RunningKubelet(root, started_kubelet(INFO, CONFIG).with_devices(DeviceState(DEVICES)))
    one.write()
    service = serving(one.socket, one)
    one.client = PodResourcesClient(str(one.socket))
    yield one
    one.client.close()
    service.close()


def source(
    running: RunningKubelet,
    load: Callable[[], NodeFacts] = lambda: FACTS,
    names: Callable[[tuple[ListedPod, ...]], Mapping[tuple[str, str], str]] | None = None,
    kubelet: KubeletAndSlices | None = None,
) -> KubeletSource:
    return KubeletSource(
        "n",
        running.root,
        load,
        kubelet or running.client,
        socket=running.socket,
        names=names,
        clock=lambda: running.now,
        pause=running.pause,
    )


def test_observation_is_the_kubelet_as_it_is(running: RunningKubelet) -> None:
    running.admit(pod("a", "2", gpus=2))
    running.admit(pod("b", "1"))
    seen = not_none(source(running).observe())
    assert seen.node is not None
    assert seen.facts == FACTS
    assert seen.state.files == running.kubelet.files
    assert seen.state.pods == (PodKey("shop", "a", "uid-a"), PodKey("shop", "b", "uid-b"))
    assert seen.state.devices.held == running.kubelet.node.providers.devices.held
    devices = {device.id: device for device in seen.state.devices.devices[GPU]}
    assert devices == {device.id: device for device in DEVICES[GPU]}
    assert seen.node.cpu.assignments == running.kubelet.node.cpu.assignments
    assert seen.node.shared_pool == running.kubelet.node.shared_pool
    assert seen.node.memory == running.kubelet.node.memory


def test_same_observation_is_the_same_object_until_a_change(running: RunningKubelet) -> None:
    looking = source(running)
    first = looking.observe()
    running.now += 100
    assert looking.observe() is first
    running.admit(pod("a"))
    second = looking.observe()
    assert second is not first
    assert looking.observe() is second


def test_pods_without_own_devices_wait_for_the_next_listing(running: RunningKubelet) -> None:
    looking = source(running)
    looking.observe()
    running.kubelet = replace(running.kubelet, node=running.kubelet.node.adopt([pod("plain", "500m")]))
    running.now += 1
    assert looking.observe() is looking.observe()
    running.now += 2
    assert not_none(looking.observe()).state.pods == (PodKey("shop", "plain"),)


def test_files_that_are_behind_the_list_are_read_again_and_not_published_before(running: RunningKubelet) -> None:
    old = running.kubelet.files
    running.admit(pod("a"))
    new, running.kubelet = running.kubelet, replace(running.kubelet, cpu_file=old.cpu, memory_file=old.memory)
    running.write()
    with pytest.raises(UnsettledError, match="container app of shop/a has CPUs that the state file has not"):
        source(running).observe()
    running.pauses.clear()
    running.kubelet = new
    running.while_pausing = running.write
    assert not_none(source(running).observe()).state.files == new.files
    assert len(running.pauses) == 1


def test_files_that_change_all_the_time_are_not_believed(running: RunningKubelet) -> None:
    class Restless:
        """Every question changes a file."""

        def listed(self) -> bytes:
            (running.root / "cpu_manager_state").write_text(f"{os.urandom(4).hex()}", encoding="utf-8")
            return running.client.listed()

        def devices(self) -> dict[str, tuple[Device, ...]]:
            return running.client.devices()

    looking = KubeletSource("n", running.root, lambda: FACTS, Restless(), pause=running.pause)
    with pytest.raises(UnsettledError, match="change all the time"):
        looking.observe()


def test_ended_pods_leave_nothing_when_all_others_are_known(running: RunningKubelet) -> None:
    running.admit(pod("a", gpus=1))
    running.admit(pod("b", gpus=1))
    held = running.kubelet.node.providers.devices.held
    node = running.kubelet.node
    active = {uid: one for uid, one in node.active.items() if uid != "uid-a"}
    running.kubelet = replace(running.kubelet, node=replace(node, active=active))
    assert set(held) == {"uid-a", "uid-b"}, "the kubelet's record still has both"
    seen = not_none(source(running).observe())
    assert seen.node is not None
    assert set(seen.state.devices.held) == {"uid-b"}
    assert set(seen.node.cpu.assignments) == {"uid-b"}


def test_damaged_file_is_published_with_nothing_available(running: RunningKubelet) -> None:
    (running.root / "cpu_manager_state").write_text("{", encoding="utf-8")
    seen = not_none(source(running).observe())
    assert seen.node is None
    assert seen.problem
    assert seen.state.files.cpu == "{"


def test_configuration_is_read_again_when_the_kubelet_starts_anew_which_counts_once_though_the_socket_blinks(
    running: RunningKubelet,
) -> None:
    current = [FACTS]
    looking = source(running, lambda: current[0])
    first = looking.observe()
    current[0] = replace(FACTS, config=replace(CONFIG, max_pods=7))
    running.now += 100
    assert looking.observe() is first
    running.socket.rename(running.root / "away.sock")
    looking.observe()
    other = running.root / "other.sock"
    service = serving(other, running)
    other.replace(running.socket)
    running.now += 100
    seen = not_none(looking.observe())
    service.close()
    assert looking.starts == 2
    assert seen.facts.config.max_pods == 7
    assert seen.state.facts != not_none(first).state.facts


def test_api_server_tells_the_uids_that_the_files_do_not(running: RunningKubelet) -> None:
    running.kubelet = replace(running.kubelet, node=running.kubelet.node.adopt([pod("plain", "500m")]))
    running.admit(pod("a"))
    asked: list[int] = []

    def names(pods: tuple[ListedPod, ...]) -> Mapping[tuple[str, str], str]:
        asked.append(len(pods))
        told = {("shop", "a"): "older uid of a"}
        return told if len(asked) < 3 else {**told, ("shop", "plain"): "uid-plain"}

    looking = source(running, names=names)
    for _ in range(10):
        seen = looking.observe()
        running.now += 10
    assert seen is not None
    assert set(seen.state.pods) == {PodKey("shop", "a", "uid-a"), PodKey("shop", "plain", "uid-plain")}
    assert len(asked) == 3


def test_api_server_that_never_tells_is_not_asked_for_ever(running: RunningKubelet) -> None:
    running.kubelet = replace(running.kubelet, node=running.kubelet.node.adopt([pod("plain", "500m")]))
    asked: list[int] = []

    def nobody(pods: tuple[ListedPod, ...]) -> Mapping[tuple[str, str], str]:
        asked.append(len(pods))
        return {}

    looking = source(running, names=nobody)
    first = looking.observe()
    for _ in range(20):
        running.now += 10
        assert looking.observe() is first
    assert len(asked) == 1 + ASKING


def test_kubelet_that_is_away_is_an_error_in_words(running: RunningKubelet) -> None:
    running.client.close()
    running.client = PodResourcesClient(str(running.root / "nobody.sock"))
    with pytest.raises(PodResourcesError, match=r"nobody\.sock: List: "):
        source(running).observe()


@pytest.mark.parametrize("text", ["", "{}", '{"Data":{"PodDeviceEntries":[{"PodUID":1}]}}', "\udcff"])
def test_record_of_devices_or_answer_that_is_none_is_named(text: str) -> None:
    assert "device-plugins/kubelet_internal_checkpoint: is not a record of devices" in refusal(held_devices, text)
    with pytest.raises(PodResourcesError, match="is no ListPodResourcesResponse"):
        pods_in(b"\xff\xff")


def test_the_release_is_read_again_when_a_kubelet_registers(running: RunningKubelet) -> None:
    current = [FACTS]
    looking = source(running, lambda: current[0])
    first = not_none(looking.observe())
    newer = replace(FACTS.mooring, release=RELEASES["1.34"])
    current[0] = replace(FACTS, config=replace(CONFIG, max_pods=7), mooring=newer)
    running.now += REGISTERING
    seen = not_none(looking.observe())
    assert (seen.facts.mooring.release.name, seen.facts.config) == ("1.34", first.facts.config)
    assert seen.state.facts != first.state.facts


# Devices of dynamic resource allocation as a publisher sees them: slices of the node, holders of the kubelet.


DRIVER = "gpu.example.com"
PCI = (PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1, "pci0000:3a"),)


@dataclass
class ListedKubelet:
    """A kubelet of which only its answers are known: each pod has a device of a claim."""

    devices_of_pods: dict[str, str]

    def listed(self) -> bytes:
        answer = messages.ListPodResourcesResponseMessage()
        for name, device in self.devices_of_pods.items():
            claim = answer.pod_resources.add(namespace="shop", name=name).containers.add(name="app")
            given = claim.dynamic_resources.add(claim_namespace="shop", claim_name="claim").claim_resources
            given.add(driver_name=DRIVER, pool_name="n", device_name=device)
        return answer.SerializeToString()

    def devices(self) -> dict[str, tuple[Device, ...]]:
        return {GPU: (Device("a"),)}


def test_holders_are_those_that_the_kubelet_lists_with_and_without_a_uid_and_of_a_slice_or_not(
    running: RunningKubelet,
) -> None:
    offered = {DRIVER: (Device("n/g0", (0,)), Device("n/g1", (1,)), Device("n/g2", (1,)))}

    def state(given: dict[str, str]) -> DeviceState:
        kubelet = KubeletAndSlices(ListedKubelet(given), lambda: offered)
        return not_none(
            source(running, names=lambda _: {("shop", "web"): "u1"}, kubelet=kubelet).observe()
        ).state.devices

    found = state({"web": "g1", "db": "g2"})
    assert found.held_by("u1", "app", DRIVER) == {"n/g1"}
    assert found.available(DRIVER) == {"n/g0"}
    assert found.available(GPU) == {"a"}
    # A device that no slice lists any more is not free for others.
    offered.clear()
    assert state({"web": "gone"}).devices == {DRIVER: (Device("n/gone", healthy=False),), GPU: (Device("a"),)}


class NoCluster:
    """What :class:`ListedSlices` uses of a way to the API server."""

    http: Any = None

    def close(self) -> None:
        pass


def test_slices_are_listed_now_and_then_and_kept_while_the_api_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [{"name": "g", "attributes": attributes}]}
    asked: list[str] = []
    answers: list[Any] = [[{"metadata": {"name": "s"}, "spec": spec}], ClusterError("away")]

    def objects(_http: object, path: str, query: dict[str, str]) -> Any:
        asked.append(f"{path}?{query['fieldSelector']}")
        answer = answers.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    monkeypatch.setattr("mooring.published.kubelet_source.objects_at", objects)
    now = 0.0
    listed = ListedSlices(NoCluster, "n", PCI, clock=lambda: now)  # type: ignore[arg-type]
    expected = {DRIVER: (Device("n/g", (1,)),)}
    assert listed() == expected
    now = LISTING - 1
    assert listed() == expected
    now = LISTING + 1
    assert listed() == expected
    assert asked == [f"{SLICES}?spec.nodeName=n"] * 2
