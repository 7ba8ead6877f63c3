"""Refusals that name how much was used: the pods that were counted are found, however many they were."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.shadow.observing import STATIC, Node, container, node

from mooring.engine.core.config import KubeletConfig
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.monitoring.shadow.judge import judge
from mooring.monitoring.shadow.judgement import Judgement, unlike_outcome
from mooring.monitoring.shadow.unseen import ObservedNode, UnseenPods, observed_pod

SHARED = replace(STATIC, cpu_manager_policy="none")
REFUSED = ("10", "11", "12", "13", "14")
"""CPUs of pods that the node with 15 of them refuses beside one with 7; any sum of some is a sum of no others."""


def refused_after(*counted: str) -> Node:
    """Return a node whose kubelet refused a pod while it was still ending pods that it had refused before."""
    watched = node(SHARED)
    watched.admit("first", "7")
    return and_refused(watched, 7 + sum(map(int, counted)))


def and_refused(watched: Node, used: int) -> Node:
    for cpus in REFUSED:
        assert not watched.admit(f"large-{cpus}", cpus)
    kubelet = watched.kubelet
    watched.kubelet = kubelet.counting({**kubelet.used, "cpu": used * 1000})
    assert not watched.admit("last", "9")
    assert f"used: {used * 1000}," in watched.objects["last"]["status"]["message"]
    watched.kubelet = kubelet
    return watched


@pytest.mark.parametrize("counted", [(), REFUSED[:1], REFUSED[1:3], REFUSED[:4], REFUSED])
def test_refused_pods_that_a_kubelet_was_ending_are_found_by_their_sum(counted: tuple[str, ...]) -> None:
    before = node(SHARED)
    before.admit("first", "7")
    watched = refused_after(*counted)
    lines = [one.line() for one in said(before, watched)]
    assert lines == [f"agreed: default/large-{cpus} refused" for cpus in REFUSED] + ["agreed: default/last refused"]


def test_a_pod_that_was_refused_long_ago_counts_while_it_is_deleted() -> None:
    watched = node(SHARED)
    watched.admit("first", "7")
    assert not watched.admit("large", "10")
    before = watched.observed()
    kubelet = watched.kubelet
    watched.kubelet = kubelet.counting({**kubelet.used, "cpu": 17_000})
    assert not watched.admit("last", "9")
    watched.kubelet = kubelet
    assert [one.line() for one in judged(before, watched.observed())] == ["agreed: default/last refused"]


def test_a_sum_that_no_pods_explain_differs() -> None:
    before = node(SHARED)
    before.admit("first", "7")
    watched = node(SHARED)
    watched.admit("first", "7")
    lines = [one.line() for one in said(before, and_refused(watched, 9))]
    assert lines[-1].startswith("differs: default/last refused: message: ")


def said(before: Node, after: Node) -> list[Judgement]:
    return judged(before.observed(), after.observed())


def judged(before: ObservedNode, after: ObservedNode) -> list[Judgement]:
    return [one for interval in judge(before, after) for one in interval.judgements]


def test_pods_that_are_too_large_by_what_is_checked_first_are_not_among_those_that_counted() -> None:
    watched = node(SHARED)
    watched.admit("first", "7", memory="3Gi")
    before = watched.observed()
    for number in range(12):
        assert not watched.admit(f"large-{number}", "1000", memory="6Gi")
    for number in range(2):
        assert not watched.admit(f"wide-{number}", "1", memory="6Gi")
    kubelet = watched.kubelet
    used = {"cpu": 9_000, "memory": kubelet.used["memory"] + 12 * 2**30}
    watched.kubelet = kubelet.counting({**kubelet.used, **used})
    assert not watched.admit("last", "1", memory="1Gi")
    assert watched.objects["last"]["status"]["reason"] == "OutOfmemory"
    watched.kubelet = kubelet
    assert {one.line().partition(":")[0] for one in judged(before, watched.observed())} == {"agreed"}


def test_a_pod_that_has_nothing_of_the_named_resource_can_have_left_before_another_that_counts() -> None:
    watched = node(SHARED)
    watched.admit("wide", "7", memory="0")
    watched.admit("has-memory", "1", memory="1Gi")
    base = watched.kubelet
    watched.end("wide")
    assert not watched.admit("last", "9", memory="9Gi")
    assert watched.objects["last"]["status"]["reason"] == "OutOfmemory"
    refused = observed_pod(watched.objects["last"], watched.gates)
    mismatch, _ = unlike_outcome(refused.pod, refused, [base], UnseenPods(leaving=["has-memory", "wide"]))
    assert mismatch is None


@pytest.mark.parametrize("is_listed", [True, False])
def test_the_requests_of_a_pod_that_ends_count_when_its_cpus_are_released(*, is_listed: bool) -> None:
    watched = node(STATIC)
    watched.admit("stays", "7")
    base = watched.kubelet
    watched.admit("ends", "6")
    ending = watched.kubelet.node.active["ends"]
    before = watched.kubelet if is_listed else base
    besides = UnseenPods(leaving=["ends"]) if is_listed else UnseenPods(possible=[ending])
    watched.kubelet = base.counting(watched.kubelet.used)
    assert not watched.admit("last", "3")
    assert "requested: 3000, used: 13000, capacity: 15000" in watched.objects["last"]["status"]["message"]
    refused = observed_pod(watched.objects["last"], watched.gates)
    mismatch, position = unlike_outcome(refused.pod, refused, [before], besides)
    assert (mismatch, position) == (None, None)


GPU = "vendor.example/gpu"


def _with_gpus(count: int, config: KubeletConfig = STATIC) -> Node:
    watched = node(config)
    gpus = DeviceState({GPU: tuple(Device(f"g{number}", (0,)) for number in range(count))})
    watched.kubelet = watched.kubelet.with_devices(gpus)
    return watched


def _admit_with_a_gpu(watched: Node, uid: str) -> bool:
    wanted = container("c0", "1", "1Mi")
    wanted["resources"]["limits"][GPU] = "1"
    return watched.admit_pod(uid, [], [wanted])


def test_a_refused_pod_that_ends_counts_with_its_devices_too() -> None:
    watched = _with_gpus(2)
    assert _admit_with_a_gpu(watched, "stays")
    base = watched.kubelet
    assert _admit_with_a_gpu(watched, "ends")
    ending, watched.kubelet = watched.kubelet.node.active["ends"], base.counting(watched.kubelet.used)
    assert not _admit_with_a_gpu(watched, "last")
    refused = observed_pod(watched.objects["last"], watched.gates)
    assert (refused.reason, refused.message) == (
        f"OutOf{GPU}",
        f"Node didn't have enough resource: {GPU}, requested: 1, used: 2, capacity: 2",
    )
    mismatch, _ = unlike_outcome(refused.pod, refused, [base], UnseenPods(ending=[ending]))
    assert mismatch is None


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_pod_that_only_the_node_resources_check_refused_has_its_devices_until_it_has_ended(
    *, is_accepted: bool
) -> None:
    watched = _with_gpus(1, replace(STATIC, topology_manager_policy="single-numa-node"))
    base = watched.kubelet
    assert _admit_with_a_gpu(watched, "ends")
    ending = watched.kubelet.node.active["ends"]
    assert not _admit_with_a_gpu(watched, "last")
    refused = observed_pod(watched.objects["last"], watched.gates)
    assert refused.reason == "TopologyAffinityError"
    accepted = frozenset({"ends"} if is_accepted else ())
    mismatch, _ = unlike_outcome(refused.pod, refused, [base], UnseenPods(ending=[ending], accepted=accepted))
    assert (mismatch is None) is is_accepted


def test_a_pod_that_the_managers_refused_has_what_its_first_container_got_until_it_has_ended() -> None:
    watched = _with_gpus(1)
    base = watched.kubelet
    first, second = container("c0", "1", "1Mi"), container("c1", "40", "1Mi")
    first["resources"]["limits"][GPU] = "1"
    assert not watched.admit_pod("ends", [], [first, second])
    ending = observed_pod(watched.objects["ends"], watched.gates)
    watched.kubelet = replace(watched.kubelet, node=watched.kubelet.node.adopt([ending.pod]))
    assert not _admit_with_a_gpu(watched, "last")
    refused = observed_pod(watched.objects["last"], watched.gates)
    assert "requested number of devices unavailable" in refused.message
    mismatch, _ = unlike_outcome(refused.pod, refused, [base], UnseenPods(ending=[ending.pod]))
    assert mismatch is None
