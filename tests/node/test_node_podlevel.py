"""Pods with resources of their own, in every scope (pod-level.md sections 1 to 4 and 7)."""

from __future__ import annotations

import pytest
from tests.cpumanager.pods import amounts
from tests.node.nodes import machine
from tests.node.podlevel_nodes import INIT, ONE_THREAD, SIDECAR, container, cpus_of, fresh, managed, shared, whole

from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Decision, Node, StartRefusedError

MIXED = whole("4", container("own", "2"), shared("rest"))


def admitted(node: Node, pod: Pod) -> Node:
    node, decision = node.admit(pod)
    assert decision.admitted, decision.message
    return node


def refused(node: Node, pod: Pod) -> tuple[str, str]:
    _, decision = node.admit(pod)
    assert not decision.admitted
    return decision.reason, decision.message


# Who is affected.


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_without_the_gate_the_pod_runs_in_the_shared_pool(policy: str, scope: str) -> None:
    node = fresh(managed(policy, scope, memory=True, gates={"PodLevelResourceManagers": False}))
    after, decision = node.admit(MIXED)
    assert decision.admitted
    assert (after.cpu, after.memory) == (node.cpu, node.memory)
    assert not any((decision.hints or {}).values())
    assert not decision.pod_hints


def test_without_pod_level_resources_the_managers_gate_is_not_accepted() -> None:
    with pytest.raises(StartRefusedError, match="PodLevelResource"):
        fresh(managed(gates={"PodLevelResourceManagers": True, "PodLevelResources": False}))


# Allocation in pod scope.


def test_more_than_the_pod_has_is_not_refused_where_nobody_shares() -> None:
    # API validation keeps such pods away; the check does not.
    pod = whole("2", container("a", "2"), container("b", "1"))
    text = "not enough cpus available to satisfy request: requested=1, available=0"
    assert refused(fresh(managed()), pod) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {text}, which is unexpected",
    )


def test_nothing_is_reused_from_init_containers_in_pod_scope() -> None:
    pod = whole("5", container("i", "4", kind=INIT), container("a", "4"), container("b", "1"))
    assert cpus_of(admitted(fresh(managed()), pod)) == {"i": "1-4", "a": "1-4", "b": "5", "": "1-5"}


def test_everything_comes_back_with_the_pod() -> None:
    node = fresh(managed(memory=True), machine(2, 4))
    busy = admitted(node, MIXED)
    assert busy.memory.pods
    after, removal = busy.remove("pod")
    assert (after.cpu, after.memory.nodes, after.memory.assignments, after.memory.pods) == (
        node.cpu,
        node.memory.nodes,
        {},
        {},
    )
    assert len(removal.released) == 4


# Failing half way.

TOO_LARGE = whole("5", container("s", "2", kind=SIDECAR), container("i", "4", kind=INIT), container("a", "1"))
"""The init container does not fit beside the sidecar; API validation keeps such pods away."""


def failed(*fixed: str) -> tuple[Node, Decision]:
    node, decision = fresh(managed(), ONE_THREAD, *fixed).admit(TOO_LARGE)
    text = "not enough cpus available to satisfy request: requested=4, available=3"
    assert decision.message == f"Allocate failed due to {text}, which is unexpected"
    return node, decision


def test_an_allocation_that_fails_half_way_leaves_the_pods_cpus_to_nobody_for_ever() -> None:
    node, decision = failed()
    assert (str(decision.pod.cpus), str(decision.shared_pool)) == ("1-5", "0")
    assert cpus_of(node) == {"": "1-5"}
    removed, _ = node.remove("pod")
    assert cpus_of(removed) == {"": "1-5"}
    restarted = removed.restart()
    assert isinstance(restarted, tuple)
    assert cpus_of(restarted[0]) == {"": "1-5"}


def test_with_pod_restart_fixed_it_leaves_nothing() -> None:
    node, decision = failed("pod-restart")
    assert (str(decision.pod.cpus), str(decision.shared_pool)) == ("", "0-5")
    assert node.cpu == fresh(managed()).cpu


def test_with_pod_restart_fixed_what_was_left_before_is_given_back() -> None:
    left, _ = failed()
    sane = fresh(managed(), ONE_THREAD, "pod-restart").settings
    restarted = left.restart(sane)
    assert isinstance(restarted, tuple)
    node, _ = restarted[0].admit(Pod("other", "other"))
    assert node.cpu == fresh(managed()).cpu


def test_fractions_of_memory_are_no_requests_of_the_pod() -> None:
    pod = whole("4", container("own", "2"), shared("rest"), memory="0.5")
    assert pod.resources is not None
    assert pod.resources.requests["memory"] == Quantity.parse("500m")
    node = admitted(fresh(managed(memory=True)), pod)
    assert node.memory.assignments == {}


def test_devices_of_a_pod_in_pod_scope_are_not_taken_at_its_admission() -> None:
    """Two pods are admitted that want the only device: it is taken when a container is created."""
    node = fresh(managed("best-effort")).with_devices({"vendor.example/nic": (Device("only", (0,)),)})
    limits = {**amounts("1"), "vendor.example/nic": Quantity.parse("1")}
    for uid in ("first", "second"):
        node, decision = node.admit(whole("2", Container("c", limits=limits, requests=limits), uid=uid))
        assert decision.admitted
        assert decision.devices == {}
