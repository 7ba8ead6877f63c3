"""Pods with resources of their own, in every scope (pod-level.md sections 1 to 4 and 7)."""

from __future__ import annotations

import pytest
from tests.cpumanager.pods import amounts
from tests.node.nodes import machine
from tests.node.podlevel_nodes import INIT, ONE_THREAD, SIDECAR, container, cpus_of, fresh, managed, shared, whole

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.engine.memorymanager.state import Block
from mooring.engine.node import Decision, Node, StartRefusedError
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hint, Hints

GIB = 2**30
MIXED = whole("4", container("own", "2"), shared("rest"))
NO_CPUS_LEFT = (
    "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
)


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


@pytest.mark.parametrize(("policy", "scope"), [("none", "pod"), ("none", "container"), ("restricted", "container")])
def test_elsewhere_than_in_pod_scope_containers_are_served_one_by_one(policy: str, scope: str) -> None:
    node = admitted(fresh(managed(policy, scope, memory=True)), MIXED)
    assert cpus_of(node) == {"own": "1-2"}
    assert node.memory.assignments == {"pod": {"own": (Block((0,), "memory", GIB),)}}
    assert node.memory.pods == {}


def test_the_pods_numbers_do_not_count_in_container_scope() -> None:
    # 1 CPU for the pod as a whole would not do; nobody looks.
    node = admitted(fresh(managed("restricted", "container")), whole("1", container("own", "2"), shared("rest")))
    assert cpus_of(node) == {"own": "1-2"}


def test_pods_that_are_not_guaranteed_share() -> None:
    node = admitted(fresh(managed(memory=True)), whole("4", container("own", "2"), qos=QoS.BURSTABLE))
    assert cpus_of(node) == {}
    assert node.memory.assignments == {}


# Allocation in pod scope.


@pytest.mark.parametrize(
    ("cpu", "containers", "expected"),
    [
        ("5", [container("c1", "3"), container("c2", "1"), container("c3", "1")], ["1-3", "4", "5"]),
        ("5", [container("c1", "3"), shared("c2"), shared("c3")], ["1-3", "4-5", "4-5"]),
        ("5", [shared("c1"), shared("c2")], ["1-5", "1-5"]),
        ("4", [container("c1", "2")], ["1-2"]),
        ("4", [container("c1", "500m"), container("c2", "2")], ["3-4", "1-2"]),
        ("5", [shared("c1", INIT), container("c2", "2", kind=SIDECAR), shared("c3")], ["1-5", "1-2", "3-5"]),
        ("5", [container("c1", "2", kind=SIDECAR), shared("c2", INIT), shared("c3")], ["1-2", "3-5", "3-5"]),
        ("5", [container("c1", "4", kind=INIT), container("c2", "3"), shared("c3")], ["1-4", "1-3", "4-5"]),
        ("5", [shared("c1", SIDECAR), container("c2", "2"), container("c3", "1")], ["4-5", "1-2", "3"]),
    ],
)
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_the_pods_cpus_are_divided(policy: str, cpu: str, containers: list[Container], expected: list[str]) -> None:
    node = admitted(fresh(managed(policy)), whole(cpu, *containers))
    found = cpus_of(node)
    assert found.pop("") == f"1-{cpu}"
    assert list(found.values()) == expected
    assert list(found) == [one.name for one in containers]


def test_a_pod_without_a_whole_number_gets_no_cpus_and_its_memory_all_the_same() -> None:
    node = admitted(fresh(managed(memory=True)), whole("2500m", container("own", "2"), shared("rest")))
    assert cpus_of(node) == {}
    assert node.memory.pods == {"pod": (Block((0,), "memory", 4 * GIB),)}
    assert node.memory.assignments["pod"] == {
        "own": (Block((0,), "memory", GIB),),
        "rest": (Block((0,), "memory", 3 * GIB),),
    }


@pytest.mark.parametrize(
    ("policy", "reason", "message"),
    [
        ("best-effort", "EmptyPodSharedPoolError", NO_CPUS_LEFT),
        (
            "restricted",
            "TopologyAffinityError",
            "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
        ),
    ],
)
def test_who_shares_nothing_is_refused_by_the_merge_or_by_the_allocation(
    policy: str, reason: str, message: str
) -> None:
    node = fresh(managed(policy))
    pod = whole("5", container("c1", "3"), container("c2", "2"), shared("c3"))
    assert refused(node, pod) == (reason, message)
    _, decision = node.admit(pod)
    assert decision.pod_hints == {"cpu": IMPOSSIBLE}


def test_shared_init_containers_need_cpus_too() -> None:
    pod = whole("2", container("s", "2", kind=SIDECAR), shared("i", INIT), container("a", "1"))
    text = "pod rejected, pod has shared init containers but no cpus available for them"
    assert refused(fresh(managed()), pod) == ("EmptyPodSharedPoolError", text)


def test_more_than_the_pod_has_is_not_refused_where_nobody_shares() -> None:
    # API validation keeps such pods away; the check does not.
    pod = whole("2", container("a", "2"), container("b", "1"))
    text = "not enough cpus available to satisfy request: requested=1, available=0"
    assert refused(fresh(managed()), pod) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {text}, which is unexpected",
    )


def test_whole_cores_are_asked_of_the_pod_and_not_of_its_containers() -> None:
    info = machine(1, 4)
    node = fresh(managed(options={"full-pcpus-only": "true"}, reserved="0,4"), info)
    after = admitted(node, whole("4", container("a", "1"), shared("b")))
    assert cpus_of(after) == {"a": "1", "b": "2,5-6", "": "1-2,5-6"}
    reason, message = refused(node, whole("3", container("a", "2"), shared("b")))
    assert (reason, message) == (
        "SMTAlignmentError",
        "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
    )


def test_the_hint_of_the_pod_holds_for_all_its_containers() -> None:
    node, decision = fresh(managed("restricted"), machine(2, 4)).admit(MIXED)
    assert decision.affinity == {"own": Hint(NUMAMask(0b01), True), "rest": Hint(NUMAMask(0b01), True)}
    assert decision.pod_hints == {"cpu": Hints((NUMAMask(0b01), NUMAMask(0b10)), (NUMAMask(0b11),))}
    assert node.stored_hints == {"pod": decision.affinity}


def test_a_refused_pod_gets_the_text_of_its_scope() -> None:
    info = machine(2, 4)
    prefix = "Pod Scope pod with pod-level resources failed admission "
    pod = whole("9", container("own", "9"))
    assert refused(fresh(managed("single-numa-node"), info), pod)[1] == f"{prefix}under pod-scope topology manager"
    assert refused(fresh(managed("single-numa-node", "container"), info), pod)[1] == (
        f"{prefix}with a container-level topology manager"
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
