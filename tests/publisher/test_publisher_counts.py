"""What a publisher counts, and when it has waiting pods tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector
from tests.publisher.published_node import NODE, RHYTHM, STATE, Node

from mooring.engine.core.machine import PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.published.kubelet_source import LISTING, SLICES, KubeletAndSlices, ListedSlices
from mooring.published.naming import device_state
from mooring.published.objects import PodKey
from mooring.published.observation import Observation
from mooring.published.publisher import PublisherCounts, PublisherMetrics
from mooring.service.apiserver import ClusterError
from mooring.service.podresources import ListedClaimDevice, ListedContainer, ListedPod

WAKE = f"PATCH /api/v1/nodes/{NODE}"


@pytest.fixture
def node() -> Iterator[Node]:
    with FaultInjector(node=NODE) as cluster:
        one = Node(cluster, rhythm=replace(RHYTHM, waking=5.0))
        yield one
        one.publisher.close()


@pytest.fixture
def quiet() -> Iterator[Node]:
    with FaultInjector(node=NODE) as cluster:
        one = Node(cluster)
        yield one
        one.publisher.close()


def woken(node: Node) -> list[str]:
    return [body["metadata"]["annotations"]["mooring.dev/room"] for body in node.written(WAKE)]


def test_nobody_is_woken_unless_it_is_asked_for(quiet: Node) -> None:
    quiet.admit("a")
    quiet.let_pass(10.0)
    quiet.remove("a")
    quiet.let_pass(10.0)
    assert len(quiet.written()) == 2
    assert not quiet.written(WAKE)


def test_more_room_wakes_after_it_is_published_and_less_room_does_not(node: Node) -> None:
    node.let_pass(10.0)
    assert len(woken(node)) == 1, "what was there before the first state is not known"
    node.admit("a")
    node.let_pass(10.0)
    assert len(woken(node)) == 1
    node.remove("a")
    node.let_pass(10.0)
    assert len(woken(node)) == 2
    assert woken(node)[-1] == str(node.written()[-1]["spec"]["sequence"])
    order = [request.what for request in node.cluster.requests if request.what in (STATE, WAKE)]
    assert order[-2:] == [STATE, WAKE]
    assert node.publisher.counts.wakes == 2


def test_an_annotation_is_all_that_is_written_of_a_node(node: Node) -> None:
    node.let_pass(2.0)
    (request,) = node.cluster.asked(WAKE)
    assert set(request.body) == {"metadata"}
    assert set(request.body["metadata"]) == {"annotations"}
    assert set(request.body["metadata"]["annotations"]) == {"mooring.dev/room"}


def test_pods_are_tried_again_every_five_seconds_at_most(node: Node) -> None:
    for number in range(60):
        if number % 2:
            node.remove("a")
        else:
            node.admit("a")
        node.let_pass(1.0)
    assert 10 <= len(woken(node)) <= 13


def test_room_that_grew_while_nobody_could_be_woken_is_told_later(node: Node) -> None:
    node.admit("a")
    node.let_pass(1.0)
    node.remove("a")
    node.let_pass(2.0)
    assert len(node.written()) == 2
    assert len(woken(node)) == 1
    node.let_pass(4.0)
    assert len(woken(node)) == 2


def test_a_refusal_is_reported_and_tried_again_and_holds_up_no_state(node: Node) -> None:
    node.cluster.fail(WAKE, Fault(403))
    node.let_pass(2.0)
    assert node.publisher.counts.wakes == 0
    (told,) = node.told
    assert told.severity == "warning"
    assert "waiting pods tried again is not written" in told.message
    node.admit("a")
    node.let_pass(2.0)
    assert len(node.written()) == 2
    node.let_pass(4.0)
    assert node.publisher.counts.wakes == 1


def test_once_wakes_too(node: Node) -> None:
    node.publisher.once()
    assert len(woken(node)) == 1


def values(counts: PublisherCounts, now: float) -> dict[str, float]:
    lines = PublisherMetrics(counts, lambda: now).text().decode().splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_the_page_has_the_counts(quiet: Node) -> None:
    quiet.let_pass(1.0)
    quiet.cluster.fail(STATE, Fault(503))
    quiet.admit("a")
    quiet.let_pass(4.0)
    assert values(quiet.publisher.counts, quiet.now) == {
        "mooring_publish_changes_total": 2,
        "mooring_publish_writes_total": 2,
        "mooring_publish_failures_total": 1,
        "mooring_publish_blind_looks_total": 0,
        "mooring_publish_wakes_total": 0,
        "mooring_publish_last_write_age_seconds": quiet.now - (quiet.publisher.counts.written_at or 0.0),
        "mooring_publish_change_cpu_seconds_count": 2,
        "mooring_publish_change_cpu_seconds_sum": 0,
    }


def test_a_heartbeat_is_a_write_and_no_change(quiet: Node) -> None:
    quiet.let_pass(700.0)
    assert (quiet.publisher.counts.writes, quiet.publisher.counts.bursts, quiet.publisher.counts.changes) == (3, 1, 1)


def test_the_age_of_the_last_write_grows_and_is_absent_before_the_first(quiet: Node) -> None:
    age = "mooring_publish_last_write_age_seconds"
    assert age not in values(quiet.publisher.counts, quiet.now)
    quiet.let_pass(1.0)
    written = quiet.publisher.counts.written_at
    assert written is not None
    assert values(quiet.publisher.counts, written + 77.5)[age] == 77.5


def test_looks_that_fail_are_counted(quiet: Node) -> None:
    quiet.let_pass(1.0)
    quiet.problem = "the kubelet is away"
    quiet.let_pass(5.0)
    assert values(quiet.publisher.counts, quiet.now)["mooring_publish_blind_looks_total"] >= 2


def test_the_cpu_time_of_a_burst_is_for_seeing_and_writing_it(quiet: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet.let_pass(5.0)
    before = quiet.publisher.counts.burst_cpu, quiet.publisher.counts.bursts
    observe = quiet.observe

    def costly() -> Observation:
        quiet.computed += 0.25
        return observe()

    # Every observation costs a quarter of a second.
    monkeypatch.setattr(quiet, "observe", costly)
    quiet.let_pass(5.0)
    assert (quiet.publisher.counts.burst_cpu, quiet.publisher.counts.bursts) == before, "nothing has changed"
    quiet.admit("a")
    quiet.let_pass(0.1)
    quiet.admit("b")
    quiet.let_pass(5.0)
    assert quiet.publisher.counts.bursts == before[1] + 1
    assert quiet.publisher.counts.burst_cpu == before[0] + 0.5


# Devices of dynamic resource allocation as a publisher sees them: slices of the node, holders of the kubelet.


DRIVER = "gpu.example.com"
PCI = (PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1, "pci0000:3a"),)


def test_holders_are_those_that_the_kubelet_lists_with_and_without_a_uid() -> None:
    def pod(name: str, device: str) -> ListedPod:
        claimed = ListedClaimDevice("shop", "claim", DRIVER, "n", device)
        return ListedPod("shop", name, (ListedContainer("app", 0, dynamic=(claimed,)),))

    offered = {DRIVER: (Device("n/g0", (0,)), Device("n/g1", (1,)), Device("n/g2", (1,)))}
    keys = [PodKey("shop", "web", "u1"), PodKey("shop", "db", "")]
    state = device_state(offered, [pod("web", "g1"), pod("db", "g2")], keys, ())
    assert state.held_by("u1", "app", DRIVER) == {"n/g1"}
    assert state.available(DRIVER) == {"n/g0"}


def test_a_device_that_no_slice_lists_any_more_is_not_free_for_others() -> None:
    claimed = ListedClaimDevice("shop", "claim", DRIVER, "n", "gone")
    pods = [ListedPod("shop", "web", (ListedContainer("app", 0, dynamic=(claimed,)),))]
    state = device_state({}, pods, [PodKey("shop", "web", "u1")], ())
    assert state.devices == {DRIVER: (Device("n/gone", healthy=False),)}


class Cluster:
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
    listed = ListedSlices(Cluster, "n", PCI, clock=lambda: now)  # type: ignore[arg-type]
    expected = {DRIVER: (Device("n/g", (1,)),)}
    assert listed() == expected
    now = LISTING - 1
    assert listed() == expected
    now = LISTING + 1
    assert listed() == expected
    assert asked == [f"{SLICES}?spec.nodeName=n"] * 2


def test_a_kubelets_devices_are_those_of_plugins_and_of_slices() -> None:
    class Kubelet:
        def listed(self) -> bytes:
            return b"list"

        def devices(self) -> dict[str, tuple[Device, ...]]:
            return {"v/gpu": (Device("a"),)}

    both = KubeletAndSlices(Kubelet(), lambda: {DRIVER: (Device("n/g"),)})
    assert (both.listed(), both.devices()) == (b"list", {DRIVER: (Device("n/g"),), "v/gpu": (Device("a"),)})
