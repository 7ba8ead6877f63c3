"""Pods with claims go where their devices, CPUs and memory can be on one NUMA node, and are bound nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.scheduling.extender_cluster import NODE, World, facts_with, guaranteed, started, state_of_node
from tests.scheduling.extender_requests import Recorder, ask, ready_extender

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.deciding import Decider, NodeVerdict
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.cluster.extender.scores import Weights
from mooring.cluster.extender.watches import claim_listener, class_listener
from mooring.cluster.extender.wire import Arguments
from mooring.engine.core.config import DEVICE_ALIGNMENT, MooringConfig
from mooring.engine.core.pod import ClaimUse, Pod, QoS
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.shapes import shape_of
from mooring.published.facts_document import digest_of

DRIVER = "gpu.example.com"
CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


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
        extensions = frozenset({DEVICE_ALIGNMENT} if follows else ())
        facts = replace(facts, mooring=MooringConfig(extensions=extensions))
        gpus = (Device(f"{NODE}/g0", (0,)), Device(f"{NODE}/g1", (1,)))
        node = started(facts)
        if busy:
            node, decision = node.admit(guaranteed("busy", busy))
            assert decision.admitted
        holdings = {"busy": {"c0": {DRIVER: frozenset({f"{NODE}/{held}"})}}} if held else {}
        self.claims = ClaimView()
        self.world = World(facts, node.with_devices(DeviceState({DRIVER: gpus}, holdings)), claims=self.claims)
        self.claims.put_class(CLASS)
        self.answers = Answers(self.world.view, Decider(), Weights(), Shapes(), self.claims)

    def verdict(self, pod: Pod) -> NodeVerdict:
        shape = self.answers.shape_on(NODE, pod, shape_of(pod))
        return self.answers.decider.verdict(self.world.view.outlook(NODE, pod), shape)


def asking(cpus: int, *names: str) -> Pod:
    pod = guaranteed("asked", cpus)
    uses = tuple(ClaimUse(name) for name in names or ("gpu-claim",))
    return replace(pod, containers=(replace(pod.containers[0], claims=uses),), claims=tuple(one.claim for one in uses))


@pytest.mark.parametrize(("device", "cpus", "good"), [("g0", 1, True), ("g0", 2, False), ("g1", 8, True)])
def test_a_pod_is_bound_where_the_cpus_beside_its_allocated_device_are_free(
    device: str, cpus: int, *, good: bool
) -> None:
    cluster = Cluster()
    cluster.claims.put_claim(claim(given=device))
    found = cluster.verdict(asking(cpus))
    assert (not found.reason) is good, found
    assert good or "MOOR-136" in found.reason


def test_before_the_allocation_a_node_is_good_when_some_free_device_can_be_aligned() -> None:
    cluster = Cluster()
    cluster.claims.put_claim(claim())
    assert not cluster.verdict(asking(8)).reason
    assert cluster.verdict(asking(9)).reason
    cluster.claims.put_claim(claim(count=2))
    assert cluster.verdict(asking(1)).reason
    taken = Cluster(held="g1")
    taken.claims.put_claim(claim())
    assert taken.verdict(asking(8)).reason
    assert not taken.verdict(asking(1)).reason


def test_two_claims_need_one_node_and_what_is_given_ties_what_is_asked() -> None:
    cluster = Cluster(busy=0)
    for name, given in (("a", "g0"), ("b", "g1")):
        cluster.claims.put_claim(claim(name, given=given))
    found = cluster.verdict(asking(2, "a", "b"))
    assert "MOOR-137" in found.reason, found


def test_a_node_that_does_not_follow_devices_is_asked_as_its_kubelet_decides() -> None:
    cluster = Cluster(follows=False)
    cluster.claims.put_claim(claim(given="g0"))
    assert not cluster.verdict(asking(8)).reason


def test_devices_for_administration_and_claims_that_nobody_knows_tie_nothing() -> None:
    cluster = Cluster()
    assert not cluster.verdict(asking(8)).reason
    cluster.claims.put_claim(claim(given="g0", admin=True))
    assert not cluster.verdict(asking(8)).reason
    cluster.claims.put_claim(claim(given="unpublished"))
    assert not cluster.verdict(asking(8)).reason


def test_a_class_in_other_words_promises_nothing() -> None:
    cluster = Cluster(held="g1")
    words = f'device.driver == "{DRIVER}" && device.attributes["x"].y == 1'
    cluster.claims.put_class({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": words}}]}})
    cluster.claims.put_claim(claim())
    assert not cluster.verdict(asking(8)).reason


def test_a_pod_keeps_its_claims_and_its_wish_beside_others_of_its_shape() -> None:
    shapes = Shapes()

    def seen(name: str, used: str) -> Pod:
        container = {"name": "c", "resources": {"claims": [{"name": "g"}] if used else []}}
        claims = [{"name": "g", "resourceClaimName": used}] if used else []
        metadata = {"name": name, "uid": name, "annotations": {"mooring/device-alignment": "require", "other": "x"}}
        pod = {"metadata": metadata, "spec": {"containers": [container], "resourceClaims": claims}}
        return seen_pod(json.dumps(pod).encode(), shapes).pod

    first, second, plain = seen("a", "one"), seen("b", "two"), seen("c", "")
    assert [one.containers[0].claims for one in (first, second, plain)] == [(ClaimUse("one"),), (ClaimUse("two"),), ()]
    assert first.annotations == {"mooring/device-alignment": "require"}


def test_claims_and_classes_come_and_go_as_the_api_server_says() -> None:
    cluster, problems = Cluster(), list[str]()
    of_claims = claim_listener(
        cluster.claims, cluster.world.view, lambda about, problem: problems.append(f"{about}: {problem}")
    )
    of_classes = class_listener(cluster.claims, lambda about, problem: problems.append(f"{about}: {problem}"))

    def raw(content: object) -> msgspec.Raw:
        return msgspec.Raw(json.dumps(content).encode())

    of_classes.listed(iter([[raw(CLASS)]]))
    of_claims.listed(iter([[raw(claim(given="g0"))]]))
    assert cluster.verdict(asking(8)).reason
    of_claims.changed(raw(claim(given="g1")))
    assert not cluster.verdict(asking(8)).reason
    of_claims.changed(raw(claim(given="g0")))
    of_claims.deleted(raw(claim()))
    assert not cluster.verdict(asking(8)).reason
    of_claims.changed(raw({**claim(), "status": {"allocation": {"devices": {"results": [7]}}}}))
    of_classes.deleted(raw(CLASS))
    (problem,) = problems
    assert problem.startswith("ResourceClaim default/gpu-claim: API server: status.allocation.devices.results: must be")


def test_a_bound_pod_counts_beside_its_device_before_its_node_has_published_it() -> None:
    cluster = Cluster(busy=0)
    cluster.world.view.assume(asking(6), NODE)
    listener = claim_listener(cluster.claims, cluster.world.view, lambda _about, _problem: None)
    # Without its device it would be on NUMA node 0, of which one CPU is reserved.
    assert not cluster.verdict(guaranteed("other", 8)).reason
    listener.changed(msgspec.Raw(json.dumps(claim(given="g1", pod="asked")).encode()))
    assert cluster.verdict(guaranteed("other", 8)).reason
    assert not cluster.verdict(guaranteed("other", 7)).reason
    # Its claim may be gone before the pod is.
    listener.deleted(msgspec.Raw(json.dumps(claim()).encode()))
    cluster.world.view.given(["asked"])
    assert cluster.verdict(guaranteed("other", 8)).reason


def test_a_device_of_a_bound_pod_without_cpus_of_its_own_is_taken() -> None:
    cluster = Cluster()
    small = replace(asking(1, "small"), uid="small", qos=QoS.BURSTABLE)
    cluster.claims.put_claim(claim("small", given="g1", pod="small"))
    cluster.claims.put_claim(claim())
    assert not cluster.verdict(asking(8)).reason
    cluster.world.view.assume(small, NODE)
    assert cluster.verdict(asking(8)).reason


def test_what_the_api_server_has_shown_is_not_undone_by_an_older_word() -> None:
    cluster = Cluster()
    cluster.claims.put_claim(claim(given="g0", version=7))
    cluster.claims.put_claim(claim(version=6))
    assert cluster.verdict(asking(8)).reason
    cluster.claims.put_claim(claim(version=3), listed=True)
    assert not cluster.verdict(asking(8)).reason


@pytest.mark.parametrize(("device", "bound"), [("g0", False), ("g1", True)])
def test_a_bind_reads_the_claims_that_the_scheduler_has_just_allocated(device: str, *, bound: bool) -> None:
    server = Recorder()
    extender = ready_extender(ExtenderOptions(device_claims=True), server)
    facts = Cluster().world.facts
    node, _ = started(facts).admit(guaranteed("busy", 6))
    gpus = (Device(f"{NODE}/g0", (0,)), Device(f"{NODE}/g1", (1,)))
    extender.view.put_facts(digest_of(facts), facts)
    extender.view.put_state(NODE, 1, state_of_node(facts, node.with_devices(DeviceState({DRIVER: gpus}))))
    amounts = {"cpu": "8", "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts, "claims": [{"name": "gpu"}]}
    pod: dict[str, Any] = {
        "metadata": {"name": "asked", "namespace": "default", "uid": "asked"},
        "spec": {
            "containers": [{"name": "c0", "resources": resources}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        },
        "status": {"qosClass": "Guaranteed"},
    }
    # What the watches have shown is older: a pod whose claim was not made yet.
    extender.view.put_pod(seen_pod(json.dumps(pod).encode(), Shapes()))
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "gpu-claim"}]
    server.pod = json.dumps(pod).encode()
    server.claims["gpu-claim"] = json.dumps(claim(given=device, pod="asked")).encode()
    asked = {"PodName": "asked", "PodNamespace": "default", "PodUID": "asked", "Node": NODE}
    _, answer = ask(extender, "/bind", json.dumps(asked).encode())
    assert (server.bound == [("asked", NODE)]) is bound, answer
    assert bound or "MOOR-136" in answer["Error"]


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
    cluster, said = Cluster(), list[str]()
    asked = claim()
    asked["spec"]["devices"]["requests"] = [{"name": "r", **request_}]
    cluster.claims.put_claim(asked)
    answers = replace(cluster.answers, undecided=lambda about, why: said.append(f"{about}: {why}"))
    body = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {
            "containers": [{"name": "c", "resources": {"claims": [{"name": "g"}]}}],
            "resourceClaims": [{"name": "g", "resourceClaimName": "gpu-claim"}],
        },
    }
    pod = msgspec.Raw(json.dumps(body).encode())
    for _ in range(2):
        assert answers.filtered(Arguments(pod, None, [NODE])).NodeNames == [NODE]
    assert len(said) == bool(words)
    assert all(words in one and "(MOOR-627)" in one for one in said)
