"""Admission: scopes, stored hints, what stays behind, what is forgotten (topology-manager.md sections 4 and 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.pods import container, guaranteed, pod_level
from tests.node.nodes import machine, node

from mooring.engine.core.bits import CPUMask, mask_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Placement, Rejection
from mooring.engine.core.pod import Pod, PodResources, QoS
from mooring.engine.node import Decision, Node
from mooring.engine.node.facts import HintsGiven, PodRejected, StaleStateRemoved
from mooring.engine.topologymanager.hints import Hint

AFFINITY = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")


def one(uid: str, cpu: str) -> Pod:
    return guaranteed(uid, container("c", cpu))


def cpus(decision: Decision) -> dict[str, str]:
    return {name: str(placement.cpus) for name, placement in decision.containers.items()}


# Topology policy none.


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


def test_containers_that_a_pod_no_longer_has_lose_their_cpus() -> None:
    busy, _ = node().admit(guaranteed("u", container("a", "2"), container("b", "2")))
    after, decision = busy.admit(guaranteed("u", container("b", "2")))
    assert cpus(decision) == {"b": "2,10"}
    assert after.cpu.assignments == {"u": {"b": mask_of([2, 10])}}


def test_removing_a_pod_returns_its_cpus_and_forgets_its_hints() -> None:
    busy, _ = node("best-effort").admit(one("u", "2"))
    busy, _ = busy.admit(one("v", "2"))
    after, removal = busy.remove("u")
    assert (removal.uid, str(removal.released), str(removal.shared_pool)) == ("u", "1,9", "0-1,3-9,11-15")
    assert ([*after.active], [*after.stored_hints], [*after.started]) == (["v"], ["v"], ["v"])


def test_a_pod_that_something_else_refused_is_stale_later() -> None:
    busy, _ = node().admit(one("u", "2"))
    withdrawn = busy.withdraw("u")
    assert (withdrawn.cpu, withdrawn.active, withdrawn.started) == (busy.cpu, {}, {})
    assert [*withdrawn.admit(one("v", "2"))[0].cpu.assignments] == ["v"]


def test_adopted_pods_are_not_stale() -> None:
    busy, _ = node().admit(one("u", "2"))
    adopted = replace(busy, active={}, started={}).adopt([one("u", "2")])
    assert [*adopted.admit(one("v", "2"))[0].cpu.assignments] == ["u", "v"]


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
