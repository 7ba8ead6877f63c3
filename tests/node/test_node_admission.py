"""Admission: scopes, stored hints, what stays, what is forgotten; starts and restarts (topology-manager.md 4 and 5)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from tests.cpumanager.pods import container, guaranteed
from tests.node.nodes import config, machine, node, settings_of

from mooring.engine.core.bits import CPUMask, mask_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Placement, Rejection, StartRefusal
from mooring.engine.core.pod import Pod, PodResources
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node import Decision, Node, Readmission, StartRefusedError
from mooring.engine.node.facts import HintsGiven, PodRejected
from mooring.engine.node.settings import RestoredStates, start_managers
from mooring.engine.topologymanager.hints import Hint

AFFINITY = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")


def one(uid: str, cpu: str) -> Pod:
    return guaranteed(uid, container("c", cpu))


def cpus(decision: Decision) -> dict[str, str]:
    return {name: str(placement.cpus) for name, placement in decision.containers.items()}


# Topology policy none.


# Pods that the managers leave alone.


def test_empty_resources_of_a_pod_do_not_make_it_one_with_its_own() -> None:
    pod = replace(one("u", "2"), resources=PodResources())
    assert cpus(node().admit(pod)[1]) == {"c": "1,9"}


def test_a_kubelet_without_the_static_policy_admits_everything() -> None:
    plain = Node.fresh(machine(), KubeletConfig(topology_manager_policy="single-numa-node"))
    _, decision = plain.admit(one("u", "99"))
    assert (decision.admitted, cpus(decision), decision.shared_pool) == (True, {"c": ""}, CPUSet())
    assert decision.affinity == {"c": Hint(None, True)}


# What is stale, what is forgotten.


def test_a_pod_without_containers_cleans_nothing_up() -> None:
    busy, _ = node("single-numa-node").admit(guaranteed("u", container("a", "6"), container("b", "9")))
    assert busy.admit(Pod("v", "v"))[0].cpu is busy.cpu


def test_containers_that_a_pod_no_longer_has_lose_their_cpus() -> None:
    busy, _ = node().admit(guaranteed("u", container("a", "2"), container("b", "2")))
    after, decision = busy.admit(guaranteed("u", container("b", "2")))
    assert cpus(decision) == {"b": "2,10"}
    assert after.cpu.assignments == {"u": {"b": mask_of([2, 10])}}


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


def endless_at_14_cpus() -> Node:
    """Return a node of which a pod ``x`` has so much that an admission with 14 CPUs never ends (defect group-loop)."""
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    fresh = node(info=machine(4, 10, sockets=2), options=options, reserved="79")
    kept = mask_of([*range(5), *range(10, 15), *range(20, 25), *range(30, 35), 79])
    held = {"x": {"c": fresh.cpu.default & ~kept}}
    state = replace(fresh.cpu, default=CPUMask(kept), assignments=held)
    return replace(fresh, providers=replace(fresh.providers, cpu=state), active={"x": one("x", "1")})


def test_an_endless_admission_changes_nothing() -> None:
    busy = endless_at_14_cpus()
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


def restarted(busy: Node, kubelet: KubeletConfig | None = None) -> tuple[Node, Readmission]:
    answer = busy.restart(settings_of(kubelet) if kubelet else None)
    assert not isinstance(answer, StartRefusal), answer
    return answer


# Start.


def test_a_refused_start_raises_with_the_kubelets_text() -> None:
    with pytest.raises(StartRefusedError) as error:
        node(options={"fast": "true"})
    text = 'new static policy error: unknown CPU Manager Policy option: "fast"'
    assert error.value.refusal == StartRefusal("cpuManager", text)
    assert str(error.value) == text


def test_policy_none_looks_at_nothing_but_the_name() -> None:
    state = CPUState("none", CPUMask(0b1), {"u": {"c": CPUMask(0b1)}})
    found = Node.start(settings_of(KubeletConfig()), RestoredStates(state))
    assert isinstance(found, Node)
    assert found.cpu is state


def test_the_memory_manager_is_not_reached_behind_a_cpu_manager_that_fails() -> None:
    bad_cpu, bad_memory = StartRefusal("start", "cpu"), StartRefusal("start", "memory")
    settings = settings_of(config())
    assert start_managers(settings, RestoredStates(bad_cpu, bad_memory)) == (None, None, bad_cpu)
    cpu, *rest = start_managers(settings, RestoredStates(None, bad_memory))
    assert (cpu is None, *rest) == (False, None, bad_memory)


# Restart.


def test_another_configuration_can_keep_the_kubelet_from_starting() -> None:
    busy, _ = node().admit(one("u", "2"))
    strict = busy.restart(settings_of(config(options={"strict-cpu-reservation": "true"})))
    text = 'start cpu manager error: some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,2-8,10-15"'
    assert strict == StartRefusal("start", text)
    other = busy.restart(settings_of(KubeletConfig()))
    assert isinstance(other, StartRefusal)
    bad = StartRefusal("validation", "bad")
    assert busy.restart(bad) is bad


def test_a_restart_ends_at_an_endless_admission() -> None:
    fresh = endless_at_14_cpus()
    providers = fresh.providers
    busy = fresh.adopt([one("x", "2"), one("u", "14"), one("v", "2")])
    after, readmission = restarted(busy)
    assert [(decision.uid, decision.endless) for decision in readmission.decisions] == [
        ("x", None),
        ("u", Endless("group-loop")),
    ]
    assert after.cpu == providers.cpu


def test_a_node_cannot_be_changed() -> None:
    node = Node.fresh(machine(), config())
    with pytest.raises(FrozenInstanceError):
        node.started = {}  # type: ignore[misc]
