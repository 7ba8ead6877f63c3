"""Admission: scopes, stored hints, what stays behind, what is forgotten (topology-manager.md sections 4 and 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.pods import container, guaranteed, pod_level
from tests.node.nodes import config, machine, node

from mooring.engine.core.bits import CPUMask, NUMAMask, mask_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Placement, Rejection
from mooring.engine.core.pod import ContainerKind, Pod, PodResources, QoS
from mooring.engine.node import Decision, Node
from mooring.engine.node.decision import NO_AFFINITY
from mooring.engine.node.facts import HintsGiven, PodRejected, StaleStateRemoved
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hint, Hints

AFFINITY = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
INIT = ContainerKind.INIT


def one(uid: str, cpu: str) -> Pod:
    return guaranteed(uid, container("c", cpu))


def cpus(decision: Decision) -> dict[str, str]:
    return {name: str(placement.cpus) for name, placement in decision.containers.items()}


# Topology policy none.


def test_without_a_topology_policy_containers_are_served_in_order_and_nothing_is_stored() -> None:
    after, decision = node().admit(guaranteed("u", container("a", "2"), container("b", "500m"), container("c", "1")))
    assert decision.admitted
    assert cpus(decision) == {"a": "1,9", "b": "", "c": "8"}
    assert decision.affinity == dict.fromkeys("abc", NO_AFFINITY)
    assert (decision.hints, decision.pod_hints, after.stored_hints) == (None, None, {})
    assert str(decision.shared_pool) == "0,2-7,10-15"


def test_pod_scope_means_nothing_without_a_topology_policy() -> None:
    pod = guaranteed("u", container("a", "2"), container("b", "1"))
    assert node("none", "pod").admit(pod)[1] == node("none", "container").admit(pod)[1]


def test_an_error_is_wrapped_and_what_was_given_stays() -> None:
    fresh = node()
    after, decision = fresh.admit(guaranteed("u", container("a", "9"), container("b", "9")))
    message = "not enough cpus available to satisfy request: requested=9, available=6"
    assert decision.rejection == Rejection(
        "UnexpectedAdmissionError", f"Allocate failed due to {message}, which is unexpected"
    )
    assert (decision.reason, decision.message) == (decision.rejection.reason, decision.rejection.message)
    assert cpus(decision) == {"a": "4-8,12-15", "b": ""}
    assert "u" not in after.active
    assert "u" in after.cpu.assignments


def test_a_typed_error_keeps_its_own_text() -> None:
    _, decision = node(options={"full-pcpus-only": "true"}).admit(one("u", "3"))
    text = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert decision.rejection == Rejection("SMTAlignmentError", text)


# Container scope.


def test_each_container_gets_its_own_hint() -> None:
    pod = guaranteed("u", container("a", "6"), container("b", "6"), container("c", "500m"))
    after, decision = node("best-effort").admit(pod)
    assert cpus(decision) == {"a": "1-3,9-11", "b": "4-6,12-14", "c": ""}
    assert decision.affinity == {
        "a": Hint(NUMAMask(0b1), True),
        "b": Hint(NUMAMask(0b10), True),
        "c": Hint(NUMAMask(0b11), True),
    }
    assert after.stored_hints == {"u": decision.affinity}
    assert decision.hints is not None
    assert decision.hints["a"] == {"cpu": Hints((NUMAMask(0b1), NUMAMask(0b10)), (NUMAMask(0b11),))}
    assert decision.hints["b"] == {"cpu": Hints((NUMAMask(0b10),), (NUMAMask(0b11),))}
    assert decision.hints["c"] == {}


def test_containers_behind_the_rejected_one_are_not_reached() -> None:
    pod = guaranteed("u", container("a", "6"), container("b", "9"), container("c", "1"))
    after, decision = node("single-numa-node").admit(pod)
    assert decision.rejection == AFFINITY
    assert [*(decision.hints or {})] == ["a", "b"]
    assert decision.affinity == {"a": Hint(NUMAMask(0b1), True), "b": NO_AFFINITY, "c": NO_AFFINITY}
    assert cpus(decision) == {"a": "1-3,9-11", "b": "", "c": ""}
    assert after.stored_hints == {"u": {"a": Hint(NUMAMask(0b1), True)}}


@pytest.mark.parametrize(
    ("policy", "admitted", "affinity"),
    [
        ("best-effort", True, Hint(NUMAMask(0b11), False)),
        ("restricted", False, NO_AFFINITY),
        ("single-numa-node", False, NO_AFFINITY),
    ],
)
def test_policies_decide_about_requests_that_a_free_node_would_hold(
    policy: str, admitted: bool, affinity: Hint
) -> None:
    busy, _ = node(policy).admit(one("a", "6"))
    busy, _ = busy.admit(one("b", "6"))
    _, decision = busy.admit(one("u", "3"))
    assert (decision.admitted, decision.affinity["c"]) == (admitted, affinity)


def test_a_request_larger_than_a_node_is_preferred_on_two_and_refused_by_single_numa_node_only() -> None:
    assert node("restricted").admit(one("u", "9"))[1].affinity == {"c": Hint(NUMAMask(0b11), True)}
    assert not node("single-numa-node").admit(one("u", "9"))[1].admitted


# Pod scope.


def test_one_hint_serves_the_whole_pod() -> None:
    pod = guaranteed("u", container("a", "3"), container("b", "4"), container("c", "500m"))
    after, decision = node("single-numa-node", "pod").admit(pod)
    assert decision.affinity == dict.fromkeys("abc", Hint(NUMAMask(0b1), True))
    assert cpus(decision) == {"a": "1,8-9", "b": "2-3,10-11", "c": ""}
    assert decision.hints is None
    assert decision.pod_hints == {"cpu": Hints((NUMAMask(0b1), NUMAMask(0b10)), (NUMAMask(0b11),))}
    assert after.stored_hints["u"] == decision.affinity


def test_a_pod_that_does_not_fit_one_node_is_refused_as_a_whole() -> None:
    pod = guaranteed("u", container("a", "6"), container("b", "6"))
    assert node("single-numa-node", "container").admit(pod)[1].admitted
    after, decision = node("single-numa-node", "pod").admit(pod)
    assert decision.rejection == AFFINITY
    assert cpus(decision) == {"a": "", "b": ""}
    assert (after.cpu.assignments, after.stored_hints) == ({}, {})


def test_containers_before_the_one_that_fails_keep_the_hint_of_the_pod() -> None:
    pod = guaranteed("u", container("a", "2"), container("b", "1"))
    after, decision = node("best-effort", "pod", options={"full-pcpus-only": "true"}).admit(pod)
    assert decision.reason == "SMTAlignmentError"
    assert [*after.stored_hints["u"]] == ["a", "b"]
    assert cpus(decision) == {"a": "1,9", "b": ""}


# Pods that the managers leave alone.


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_other_pods_are_admitted_without_cpus(policy: str, scope: str) -> None:
    fresh = node(policy, scope)
    for pod in (
        guaranteed("u", container("c", "3"), qos=QoS.BURSTABLE),
        guaranteed("u", container("c", "")),
        pod_level("u", "3", container("c", "3")),
        Pod("u", "u"),
    ):
        after, decision = fresh.admit(pod)
        assert decision.admitted
        assert after.cpu == fresh.cpu
        assert not any(placement.cpus for placement in decision.containers.values())


def test_empty_resources_of_a_pod_do_not_make_it_one_with_its_own() -> None:
    pod = replace(one("u", "2"), resources=PodResources())
    assert cpus(node().admit(pod)[1]) == {"c": "1,9"}


def test_a_kubelet_without_the_static_policy_admits_everything() -> None:
    plain = Node.fresh(machine(), KubeletConfig(topology_manager_policy="single-numa-node"))
    _, decision = plain.admit(one("u", "99"))
    assert (decision.admitted, cpus(decision), decision.shared_pool) == (True, {"c": ""}, CPUSet())
    assert decision.affinity == {"c": Hint(None, True)}


# What is stale, what is forgotten.


def test_leftovers_of_a_rejected_pod_go_before_the_next_pod_is_served() -> None:
    busy, _ = node("single-numa-node").admit(guaranteed("u", container("a", "6"), container("b", "9")))
    facts: list[object] = []
    after, decision = busy.admit(one("v", "6"), facts.append)
    assert cpus(decision) == {"c": "1-3,9-11"}
    assert [*after.cpu.assignments] == ["v"]
    assert StaleStateRemoved(("u",)) in facts


def test_a_pod_without_containers_cleans_nothing_up() -> None:
    busy, _ = node("single-numa-node").admit(guaranteed("u", container("a", "6"), container("b", "9")))
    assert busy.admit(Pod("v", "v"))[0].cpu is busy.cpu


def test_leftovers_do_not_stand_in_the_way_of_the_same_pod() -> None:
    """The pod is active again while it is admitted: its set is found and kept."""
    busy, _ = node("single-numa-node").admit(guaranteed("u", container("a", "6"), container("b", "9")))
    after, decision = busy.admit(guaranteed("u", container("a", "6")))
    assert cpus(decision) == {"a": "1-3,9-11"}
    assert after.cpu == busy.cpu


def test_containers_that_a_pod_no_longer_has_lose_their_cpus() -> None:
    busy, _ = node().admit(guaranteed("u", container("a", "2"), container("b", "2")))
    after, decision = busy.admit(guaranteed("u", container("b", "2")))
    assert cpus(decision) == {"b": "2,10"}
    assert after.cpu.assignments == {"u": {"b": mask_of([2, 10])}}


def test_hints_of_rejected_pods_stay_in_the_store_and_are_seen_again() -> None:
    rejected = guaranteed("u", container("a", "6"), container("b", "9"))
    busy, _ = node("single-numa-node").admit(rejected)
    busy, _ = busy.admit(one("v", "1"))
    busy, _ = busy.admit(one("w", "8"))
    assert busy.stored_hints["u"] == {"a": Hint(NUMAMask(0b1), True)}
    _, decision = busy.admit(guaranteed("u", container("b", "9"), container("a", "6")))
    assert (decision.rejection, decision.affinity["a"]) == (AFFINITY, Hint(NUMAMask(0b1), True))


def test_removing_a_pod_returns_its_cpus_and_forgets_its_hints() -> None:
    busy, _ = node("best-effort").admit(one("u", "2"))
    busy, _ = busy.admit(one("v", "2"))
    after, removal = busy.remove("u")
    assert (removal.uid, str(removal.released), str(removal.shared_pool)) == ("u", "1,9", "0-1,3-9,11-15")
    assert ([*after.active], [*after.stored_hints], [*after.started]) == (["v"], ["v"], ["v"])


def test_removing_also_drops_what_was_stale_before() -> None:
    busy, _ = node("single-numa-node").admit(guaranteed("x", container("a", "6"), container("b", "9")))
    _, removal = busy.remove("unknown")
    assert str(removal.released) == "1-3,9-11"


def test_a_pod_that_something_else_refused_is_stale_later() -> None:
    busy, _ = node().admit(one("u", "2"))
    withdrawn = busy.withdraw("u")
    assert (withdrawn.cpu, withdrawn.active, withdrawn.started) == (busy.cpu, {}, {})
    assert [*withdrawn.admit(one("v", "2"))[0].cpu.assignments] == ["v"]


def test_adopted_pods_are_not_stale() -> None:
    busy, _ = node().admit(one("u", "2"))
    adopted = replace(busy, active={}, started={}).adopt([one("u", "2")])
    assert [*adopted.admit(one("v", "2"))[0].cpu.assignments] == ["u", "v"]


# Reuse of init containers' CPUs.


def test_init_containers_leave_their_cpus_to_the_app_and_another_pod_ends_that() -> None:
    first = guaranteed("u", container("i", "4", kind=INIT), container("a", "2"))
    busy, decision = node("best-effort").admit(first)
    assert cpus(decision) == {"i": "1-2,9-10", "a": "1,9"}
    assert str(decision.shared_pool) == "0,3-8,11-15"
    _, other = busy.admit(one("v", "4"))
    assert cpus(other) == {"c": "4-5,12-13"}
    after, _ = busy.remove("u")
    assert str(after.shared_pool) == "0-15"


def test_the_hint_of_the_app_holds_the_nodes_of_the_init_containers_cpus() -> None:
    pod = guaranteed("u", container("i", "9", kind=INIT), container("a", "2"))
    _, decision = node("restricted").admit(pod)
    assert decision.rejection == AFFINITY
    assert decision.hints is not None
    assert decision.hints["a"] == {"cpu": Hints((), (NUMAMask(0b11),))}


# Endless loops.


def test_an_endless_admission_changes_nothing() -> None:
    info = machine(4, 10, sockets=2)
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    fresh = node(info=info, options=options, reserved="79")
    kept = mask_of([*range(5), *range(10, 15), *range(20, 25), *range(30, 35), 79])
    held = {"x": {"c": fresh.cpu.default & ~kept}}
    providers = replace(fresh.providers, cpu=replace(fresh.cpu, default=CPUMask(kept), assignments=held))
    busy = replace(fresh, providers=providers, active={"x": one("x", "1")})
    facts: list[object] = []
    after, decision = busy.admit(one("u", "14"), facts.append)
    assert after is busy
    assert (decision.admitted, decision.endless, decision.rejection) == (False, Endless("group-loop"), None)
    assert (decision.reason, decision.message) == ("", "")
    assert decision.containers == {"c": Placement()}
    assert not any(isinstance(fact, PodRejected) for fact in facts)


# Observers.


def test_an_observer_receives_hints_and_rejections_and_changes_nothing() -> None:
    fresh = node("single-numa-node")
    facts: list[object] = []
    assert fresh.admit(one("u", "9"), facts.append) == fresh.admit(one("u", "9"))
    (given,) = [fact for fact in facts if isinstance(fact, HintsGiven)]
    assert (given.pod, given.container) == ("u", "c")
    assert [fact for fact in facts if isinstance(fact, PodRejected)] == [
        PodRejected("u", AFFINITY.reason, AFFINITY.message)
    ]
    facts.clear()
    node("best-effort", "pod").admit(one("u", "2"), facts.append)
    (given,) = [fact for fact in facts if isinstance(fact, HintsGiven)]
    assert (given.pod, given.container) == ("u", "")


def test_impossible_hints_are_handed_on() -> None:
    busy, _ = node("best-effort").admit(one("u", "2"))
    _, decision = busy.admit(one("u", "3"))
    assert decision.hints == {"c": {"cpu": IMPOSSIBLE}}
    assert (decision.admitted, decision.affinity["c"]) == (True, Hint(NUMAMask(0b11), False))
    assert cpus(decision) == {"c": "1,9"}


def test_whole_configurations_reach_the_node() -> None:
    assert Node.fresh(machine(), config("best-effort")).settings.topology_policy == "best-effort"
