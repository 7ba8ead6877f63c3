"""Pods with claims go where their devices, CPUs and memory can be on one NUMA node, and are bound nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scheduling.extender_cluster import (
    NODE,
    Recorder,
    World,
    ask,
    bind,
    facts_with,
    guaranteed,
    pod_body,
    publish,
    ready_extender,
    started,
)

from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.view import ASSUMED_FOR
from mooring.engine.core.config import DEVICE_ALIGNMENT, MooringConfig, ReservedMemory
from mooring.engine.core.pod import ClaimUse, Pod
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.published.objects import PodKey
from mooring.published.possible_kubelets import BEFORE_US, UNSETTLED, after_sequences

DRIVER = "gpu.example.com"
CLASS = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}}


def claim(
    name: str = "gpu-claim", *, count: int = 1, given: str = "", admin: bool = False, pod: str = "", version: int = 1
) -> dict[str, Any]:
    exact = {"deviceClassName": "gpu", "count": count, "adminAccess": admin}
    results = [
        {"request": "r", "driver": DRIVER, "pool": NODE, "device": one, "adminAccess": admin} for one in given.split()
    ]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}} if given else {}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": pod}]
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exact}]}},
        "status": status,
    }


class Cluster:
    """A node with 7 and 8 free CPUs on its NUMA nodes, and a GPU near each, whose agent follows devices or not."""

    def __init__(self, *, follows: bool = True, held: str = "", busy: int = 6) -> None:
        facts = facts_with(
            "sockets=2 numa=2 cores=16 threads=1 memory=32Gi", topology_manager_policy="single-numa-node"
        )
        facts = replace(facts, mooring=MooringConfig(extensions=frozenset({DEVICE_ALIGNMENT} if follows else ())))
        gpus = (Device(f"{NODE}/g0", (0,)), Device(f"{NODE}/g1", (1,)))
        holdings = {"busy": {"c0": {DRIVER: frozenset({f"{NODE}/{held}"})}}} if held else {}
        node = started(facts)
        if busy:
            node, decision = node.admit(guaranteed("busy", busy))
            assert decision.admitted
        self.server, self.said = Recorder(), list[str]()
        self.extender = ready_extender(
            ExtenderOptions(device_claims=True),
            self.server,
            report=lambda about, problem: self.said.append(f"{about}: {problem}"),
        )
        publish(self.extender.view, facts, {NODE: node.with_devices(DeviceState({DRIVER: gpus}, holdings))})
        self.classes, self.claims, *_ = (one.listener for one in self.extender.followers)
        self.classes.changed(raw(CLASS))

    def put(self, *claims: dict[str, Any]) -> None:
        for one in claims:
            self.claims.changed(raw(one))

    def bound(self, pod: dict[str, Any]) -> None:
        self.extender.view.put_pod(seen_pod(raw({**pod, "spec": {**pod["spec"], "nodeName": NODE}}), Shapes()))

    def refusal(self, cpus: int, *claims: str) -> str:
        """Return why the node is not for a pod; empty when it is."""
        body = {"Pod": asking(str(cpus), *(claims or ("gpu-claim",))), "NodeNames": [NODE]}
        _, answer = ask(self.extender, "/filter", json.dumps(body).encode())
        return str({**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}.get(NODE, ""))


def raw(content: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(content).encode())


def asking(cpus: str, *claims: str, uid: str = "asked") -> dict[str, Any]:
    return pod_body(uid, cpus, claims=[one for one in claims if one])


@pytest.mark.parametrize(("device", "cpus", "good"), [("g0", 1, True), ("g0", 2, False), ("g1", 8, True)])
def test_a_pod_is_bound_where_cpus_beside_its_allocated_device_are_free(device: str, cpus: int, *, good: bool) -> None:
    cluster = Cluster()
    cluster.put(claim(given=device))
    found = cluster.refusal(cpus)
    assert (not found) is good, found
    assert good or "MOOR-136" in found


def test_before_the_allocation_a_node_is_good_when_some_free_device_can_be_aligned() -> None:
    cluster, taken = Cluster(), Cluster(held="g1")
    cluster.put(claim())
    assert [bool(cluster.refusal(cpus)) for cpus in (8, 9)] == [False, True]
    cluster.put(claim(count=2))
    assert cluster.refusal(1)
    taken.put(claim())
    assert [bool(taken.refusal(cpus)) for cpus in (8, 1)] == [True, False]


def test_two_claims_need_one_node_and_what_is_given_ties_what_is_asked() -> None:
    cluster = Cluster(busy=0)
    cluster.put(claim("a", given="g0"), claim("b", given="g1"))
    assert "MOOR-137" in cluster.refusal(2, "a", "b")


def test_a_node_that_does_not_follow_devices_is_asked_as_its_kubelet_decides() -> None:
    cluster = Cluster(follows=False)
    cluster.put(claim(given="g0"))
    assert not cluster.refusal(8)


def test_devices_for_administration_and_claims_that_nobody_knows_tie_nothing() -> None:
    cluster = Cluster()
    assert not cluster.refusal(8)
    for known in (claim(given="g0", admin=True), claim(given="unpublished")):
        cluster.put(known)
        assert not cluster.refusal(8)


def test_a_class_in_other_words_promises_nothing() -> None:
    cluster = Cluster(held="g1")
    words = f'device.driver == "{DRIVER}" && device.attributes["x"].y == 1'
    cluster.classes.changed(raw({**CLASS, "spec": {"selectors": [{"cel": {"expression": words}}]}}))
    cluster.put(claim())
    assert not cluster.refusal(8)


def test_a_pod_keeps_its_claims_and_its_wish_beside_others_of_its_shape() -> None:
    shapes, annotations = Shapes(), {"mooring/device-alignment": "require", "other": "x"}

    def seen(name: str, used: str) -> Pod:
        body = asking("1", used, uid=name)
        return seen_pod(raw({**body, "metadata": {**body["metadata"], "annotations": annotations}}), shapes).pod

    first, second, plain = seen("a", "one"), seen("b", "two"), seen("c", "")
    assert [one.containers[0].claims for one in (first, second, plain)] == [(ClaimUse("one"),), (ClaimUse("two"),), ()]
    assert first.annotations == {"mooring/device-alignment": "require"}


def test_claims_and_classes_come_and_go_as_the_api_server_says() -> None:
    cluster = Cluster()
    cluster.classes.listed(iter([[raw(CLASS)]]))
    cluster.claims.listed(iter([[raw(claim(given="g0"))]]))
    assert cluster.refusal(8)
    cluster.put(claim(given="g1"))
    assert not cluster.refusal(8)
    cluster.put(claim(given="g0"))
    cluster.claims.deleted(raw(claim()))
    assert not cluster.refusal(8)
    cluster.put({**claim(), "status": {"allocation": {"devices": {"results": [7]}}}})
    cluster.classes.deleted(raw(CLASS))
    (problem,) = cluster.said
    assert problem.startswith("ResourceClaim default/gpu-claim: API server: status.allocation.devices.results: must be")


def test_a_bound_pod_counts_beside_its_device_before_its_node_has_published_it() -> None:
    cluster = Cluster(busy=0)
    cluster.bound(asking("6", "gpu-claim", uid="first"))
    # Without its device it would be on NUMA node 0, of which one CPU is reserved.
    assert not cluster.refusal(8, "")
    cluster.put(claim(given="g1", pod="first"))
    assert [bool(cluster.refusal(cpus, "")) for cpus in (8, 7)] == [True, False]
    # Its claim may be gone before the pod is.
    cluster.claims.deleted(raw(claim()))
    cluster.extender.view.given(["first"])
    assert cluster.refusal(8, "")


def test_a_device_of_a_bound_pod_without_cpus_of_its_own_is_taken() -> None:
    cluster = Cluster()
    cluster.put(claim("small", given="g1", pod="small"), claim())
    assert not cluster.refusal(8)
    small = asking("1", "small", uid="small")
    del small["spec"]["containers"][0]["resources"]["limits"], small["status"]["qosClass"]
    cluster.bound(small)
    assert cluster.refusal(8)


def test_what_the_api_server_has_shown_is_not_undone_by_an_older_word() -> None:
    cluster = Cluster()
    cluster.put(claim(given="g0", version=7), claim(version=6))
    assert cluster.refusal(8)
    cluster.claims.listed(iter([[raw(claim(version=3))]]))
    assert not cluster.refusal(8)


@pytest.mark.parametrize(("device", "bound"), [("g0", False), ("g1", True)])
def test_a_bind_reads_the_claims_that_the_scheduler_has_just_allocated(device: str, *, bound: bool) -> None:
    cluster = Cluster()
    pod = asking("8", "gpu")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    # What the watches have shown is older: a pod whose claim was not made yet.
    cluster.extender.view.put_pod(seen_pod(raw(pod), Shapes()))
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "gpu-claim"}]
    cluster.server.pod = json.dumps(pod).encode()
    cluster.server.claims["gpu-claim"] = json.dumps(claim(given=device, pod="asked")).encode()
    refusal = bind(cluster.extender, "asked", NODE)
    assert (cluster.server.bound == [("asked", NODE)]) is bound, refusal
    assert bound or "MOOR-136" in refusal


def test_the_first_bind_to_a_node_reads_the_claims_of_the_pods_that_are_bound_there() -> None:
    cluster = Cluster(busy=0)
    # The watch of pods has shown what another replica has bound, and that of claims has not.
    cluster.bound(asking("6", "gpu-claim", uid="first"))
    cluster.server.claims["gpu-claim"] = json.dumps(claim(given="g1", pod="first")).encode()
    cluster.server.pod = json.dumps(asking("8")).encode()
    assert "MOOR-1" in bind(cluster.extender, "asked", NODE)


@pytest.mark.parametrize("namespace", ["default", "another"])
def test_a_claim_of_another_pod_that_is_gone_refuses_no_bind(namespace: str) -> None:
    cluster = Cluster(busy=0)
    other, own = asking("1", "gone" if namespace == "default" else "own", uid="first"), asking("1", "own")
    other["metadata"]["namespace"] = namespace
    cluster.bound(other)
    cluster.server.claims["own"] = json.dumps(claim("own", given="g0", pod="asked")).encode()
    cluster.server.pod = json.dumps(own).encode()
    assert bind(cluster.extender, "asked", NODE) == ""
    assert cluster.server.bound == [("asked", NODE)]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}]}}, "selectors of its"),
        ({"firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}, "alternatives (firstAvailable)"),
        ({"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}, "all devices (allocationMode All)"),
        ({"exactly": {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "8Gi"}}}}, "a share of a device"),
        ({"exactly": {"deviceClassName": "other"}}, "DeviceClass other names no single driver"),
        ({"exactly": {"deviceClassName": "gpu"}}, ""),
    ],
)
def test_what_the_filter_cannot_foresee_is_named_once_and_refuses_no_node(request_: dict[str, Any], words: str) -> None:
    cluster, asked = Cluster(), claim()
    asked["spec"]["devices"]["requests"] = [{"name": "r", **request_}]
    cluster.put(asked)
    assert not (cluster.refusal(1))
    assert not (cluster.refusal(1))
    assert len(cluster.said) == bool(words)
    assert all(words in one and "(MOOR-627)" in one for one in cluster.said)


# A pod that the extender binds is admitted by the node, however late, twice or out of order it hears of anything.


MEMORY: dict[str, Any] = {
    "memory_manager_policy": "Static",
    "reserved_memory": (ReservedMemory(0, {"memory": "1Gi"}),),
    "system_reserved": {"memory": "924Mi"},
}
KINDS = {
    "single": facts_with("sockets=2 numa=4 cores=8 threads=2 memory=16Gi", topology_manager_policy="single-numa-node"),
    "pod": facts_with(
        "sockets=2 numa=2 cores=8 threads=1 memory=16Gi",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
    ),
    "memory": facts_with(
        "sockets=2 numa=4 cores=8 threads=1 memory=16Gi", topology_manager_policy="restricted", **MEMORY
    ),
    "whole-cores": facts_with(
        "sockets=1 numa=2 cores=8 threads=2 memory=16Gi",
        topology_manager_policy="single-numa-node",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_system_cpus="0,8",
    ),
}


class Interleavings(RuleBasedStateMachine):
    """Binds, events, publications, ends and restarts in any order."""

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def begin(self, kind: str) -> None:
        facts = KINDS[kind]
        self.world = World(facts, started(facts))
        self.count = 0
        self.lost: list[Pod] = []

    @rule(
        cpus=st.sampled_from([[2], [2], [1], [3], [4], [1, 1], [2, 1], [1, 3], [2, 2, 1], [5]]),
        memory=st.sampled_from(["64Mi", "64Mi", "1Gi", "3Gi"]),
        init=st.sampled_from([0, 0, 0, 2]),
        arrives=st.sampled_from([True, True, True, False]),
        answered=st.sampled_from([True, True, False]),
    )
    def bind(self, cpus: list[int], memory: str, init: int, *, arrives: bool, answered: bool) -> None:
        # Nobody can allow for an end that was not heard of; everything else may still be under way.
        self.world.hear(self.world.departures)
        self.count += 1
        pod = guaranteed(f"pod-{self.count}", *cpus, memory=memory, init=init)
        if self.world.bind(pod, arrives=arrives, answered=answered) and not (arrives and answered):
            self.lost.append(pod)

    @precondition(lambda self: self.lost)
    @rule(data=st.data(), arrives=st.booleans(), answered=st.booleans())
    def bind_again(self, data: st.DataObject, *, arrives: bool, answered: bool) -> None:
        self.world.hear(self.world.departures)
        self.world.bind(data.draw(st.sampled_from(self.lost)), arrives=arrives, answered=answered)

    @rule(steps=st.integers(0, 4), events=st.integers(0, 8))
    def read(self, steps: int, events: int) -> None:
        self.world.read(steps, events)

    @rule(steps=st.integers(1, 4))
    def step_node(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step_node()

    @rule(events=st.integers(1, 4))
    def hear(self, events: int) -> None:
        self.world.hear(self.world.at_extender + events)

    @rule()
    def publish(self) -> None:
        self.world.publish()

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        self.world.deliver(data.draw(st.integers(0, len(self.world.states) - 1)))

    @precondition(lambda self: self.world.stored)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.stored)))
        seen = self.world.stored[uid]
        if not seen.leaving and not seen.finished:
            self.world.tell(Seen(seen.pod, NODE, leaving=True))

    @precondition(lambda self: self.world.kubelet.node.active)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.world.finish(data.draw(st.sampled_from(sorted(self.world.kubelet.node.active))))

    @rule(data=st.data(), crashed=st.sampled_from([False, False, False, True]))
    def restart(self, data: st.DataObject, *, crashed: bool) -> None:
        if not crashed:
            return
        self.world.begin()
        self.world.deliver(data.draw(st.integers(0, len(self.world.states) - 1)))

    @invariant()
    def nobody_is_refused(self) -> None:
        if hasattr(self, "world"):
            assert not self.world.rejected

    @invariant()
    def every_pod_that_is_bound_counts(self) -> None:
        if hasattr(self, "world"):
            stored = self.world.stored.values()
            staying = {seen.pod.uid for seen in stored if not seen.leaving and not seen.finished}
            assert staying <= self.world.view.pods_on(NODE).keys()

    def teardown(self) -> None:
        """Let the node come to everything that was bound."""
        if hasattr(self, "world"):
            while self.world.at_node < len(self.world.events):
                self.world.step_node()
            assert not self.world.rejected
            caught_up(self.world)
            self.world.publish()
            self.world.deliver(len(self.world.states) - 1)
            self.world.now += ASSUMED_FOR + 1
            self.world.view.prune()
            known = self.world.view.situation(NODE, guaranteed("asked", 1)).pods
            assert known.keys() == self.world.kubelet.node.active.keys()


Interleavings.TestCase.settings = settings(deadline=None, max_examples=25, stateful_step_count=40)
TestInterleavings = Interleavings.TestCase


@pytest.fixture
def world() -> World:
    facts = facts_with("sockets=2 numa=2 cores=8 threads=1 memory=16Gi", topology_manager_policy="single-numa-node")
    return World(facts, started(facts))


def caught_up(world: World) -> None:
    while world.at_node < len(world.events):
        world.step_node()
    world.hear(len(world.events))


def test_an_older_state_brings_nothing_back_and_loses_nothing(world: World) -> None:
    assert world.bind(guaranteed("one", 3))
    assert world.bind(guaranteed("two", 4))
    caught_up(world)
    world.publish()
    world.deliver(1)
    world.finish("two")
    caught_up(world)
    world.publish()
    world.deliver(2)
    for late in (0, 1, 0):
        world.deliver(late)
    assert not world.wants(guaranteed("three", 5))
    assert world.wants(guaranteed("three", 4))
    assert world.view.counts()["assumed"] == 0


def test_a_bind_of_which_nobody_knows_counts_until_it_is_known_or_long_ago(world: World) -> None:
    assert world.bind(guaranteed("lost", 4), arrives=False, answered=False)
    assert not world.wants(guaranteed("next", 4))
    assert world.wants(guaranteed("next", 3))
    world.now += ASSUMED_FOR + 1
    world.view.prune()
    assert world.wants(guaranteed("next", 4))


def test_a_pod_that_is_bound_at_the_second_try_comes_after_those_that_were_bound_since(world: World) -> None:
    assert world.bind(guaranteed("one", 3), arrives=False, answered=False)
    assert world.bind(guaranteed("two", 2))
    assert world.bind(guaranteed("one", 3))
    # The node puts "two" on NUMA node 0 with 3 CPUs, "one" on NUMA node 1: one CPU is left on each.
    assert world.wants(guaranteed("three", 1))
    assert not world.wants(guaranteed("three", 2))


def test_a_pod_that_was_bound_at_the_first_try_keeps_its_place(world: World) -> None:
    assert world.bind(guaranteed("one", 3), answered=False)
    assert world.bind(guaranteed("two", 2))
    assert world.bind(guaranteed("one", 3))
    # "one" fills NUMA node 0, so that "two" leaves 2 CPUs on NUMA node 1.
    assert world.wants(guaranteed("three", 2))


def test_a_pod_that_came_and_went_between_two_states_stands_in_nobodys_way(world: World) -> None:
    assert world.bind(guaranteed("short", 4))
    caught_up(world)
    assert not world.wants(guaranteed("next", 4))
    world.finish("short")
    caught_up(world)
    assert world.wants(guaranteed("next", 4))


def test_who_came_beside_a_pod_that_went_may_lie_where_either_put_it(world: World) -> None:
    assert world.bind(guaranteed("short", 2))
    assert world.bind(guaranteed("stays", 3))
    world.tell(Seen(guaranteed("short", 2), NODE, leaving=True))
    world.tell("short")
    world.hear(len(world.events))
    # It is on NUMA node 0 with 3 CPUs, or on NUMA node 1 because the first one was still there: 3 fit either way.
    assert not world.wants(guaranteed("next", 4))
    assert world.wants(guaranteed("next", 3))
    world.now += 61  # a minute after its deletion at the latest
    world.view.prune()
    assert not world.wants(guaranteed("next", 4)), "it counts as long as somebody waits to be named"


def test_after_a_restart_nothing_is_promised_beside_pods_that_no_state_names(world: World) -> None:
    assert world.bind(guaranteed("one", 2))
    world.begin()
    world.deliver(0)
    assert world.view.outlook(NODE).trouble == BEFORE_US
    assert not world.wants(guaranteed("next", 2))
    caught_up(world)
    world.publish()
    world.deliver(1)
    assert world.wants(guaranteed("next", 2))


def test_a_pod_that_is_named_before_it_is_shown_counts_once_however_many_were_never_shown(world: World) -> None:
    for number in range(3):
        never = tuple(PodKey("default", "pod", f"{number}-{place}") for place in range(400))
        world.states.append(replace(world.states[0], pods=never))
        world.deliver(number + 1)
    world.kubelet, _ = world.kubelet.admit(guaranteed("late", 3))
    world.publish()
    world.deliver(4)
    world.view.put_pod(Seen(guaranteed("late", 3), NODE))
    assert world.view.counts()["assumed"] == 0


def test_where_too_much_comes_and_goes_nothing_is_promised(world: World) -> None:
    for number in range(12):
        pod = guaranteed(f"pod-{number}", 1 + number % 3)
        world.tell(Seen(pod, NODE))
        world.tell(Seen(pod, NODE, leaving=True))
    world.hear(len(world.events))
    assert world.view.outlook(NODE).trouble == UNSETTLED
    assert not world.wants(guaranteed("next", 1))


def test_every_subset_of_the_leaving_pods_may_be_gone() -> None:
    base = started(KINDS["single"])
    freed = {}
    for cpus, uid in enumerate(("a", "b", "c"), 1):
        base, decision = base.admit(guaranteed(uid, cpus))
        assert decision.admitted
        freed[uid] = sum(base.node.cpu.assignments[uid].values())
    found = after_sequences("digest", base, freed, [])
    assert found is not None
    pools = [base.node.cpu.default | sum(gone) for size in range(4) for gone in combinations(freed.values(), size)]
    assert found[0] == base
    assert sorted(course.node.cpu.default for course in found) == sorted(pools)
