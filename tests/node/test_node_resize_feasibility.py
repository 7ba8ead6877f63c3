"""What can never be resized, letter for letter (resize.md sections 2 and 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.resizable import (
    CPUS_GATE,
    MEMORY_GATE,
    SIXTEEN,
    config,
    cpus,
    pod,
    refused_with,
    resized,
    started,
    with_pods,
)

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.node.resizing import resize
from mooring.engine.node.resources import INFEASIBLE

STATIC_CPUS = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
STATIC_MEMORY = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
NONE = frozenset[str]()


def without(kubelet: KubeletConfig, *gates: str) -> KubeletConfig:
    return replace(kubelet, feature_gates={**kubelet.feature_gates, **dict.fromkeys(gates, False)})


# Kubelet v1.37.1.


@pytest.mark.parametrize("before", ["2", "1500m"], ids=["exclusive", "shared pool"])
def test_the_static_cpu_policy_refuses_guaranteed_pods(before: str) -> None:
    node = with_pods(started(SIXTEEN, without(config(), CPUS_GATE), NONE), pod(before))
    expected = INFEASIBLE, "guaranteed_pod_cpu_manager_static_policy", STATIC_CPUS
    assert refused_with(node, pod(4)) == expected
    assert refused_with(node, pod(4, gib=2)) == expected
    resized(node, pod(before, gib=2))


def test_the_static_memory_policy_refuses_guaranteed_pods() -> None:
    node = with_pods(started(SIXTEEN, without(config(memory=True), MEMORY_GATE), NONE), pod(2))
    expected = INFEASIBLE, "guaranteed_pod_memory_manager_static_policy", STATIC_MEMORY
    assert refused_with(node, pod(2, gib=2)) == expected
    assert refused_with(node, pod(4, gib=2)) == expected
    resized(node, pod(4))


def test_cpus_are_looked_at_before_memory() -> None:
    node = with_pods(started(SIXTEEN, without(config(memory=True), CPUS_GATE, MEMORY_GATE), NONE), pod(2))
    assert refused_with(node, pod(4, gib=2))[2] == STATIC_CPUS


def test_burstable_pods_and_other_policies_are_free() -> None:
    strict = without(config(), CPUS_GATE)
    node = with_pods(started(SIXTEEN, strict, NONE), pod(2, qos=QoS.BURSTABLE))
    resized(node, pod(4, qos=QoS.BURSTABLE))
    node = with_pods(started(SIXTEEN, replace(strict, cpu_manager_policy="none"), NONE), pod(2))
    resized(node, pod(4))


def test_the_policies_look_at_requests_of_containers_only() -> None:
    def level(cpu: str) -> PodResources:
        whole = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("4Gi")}
        return PodResources(whole, whole)

    strict = without(config(), CPUS_GATE)
    before = replace(pod(2), resources=level("4"))
    node = with_pods(started(SIXTEEN, strict, NONE), before)
    resized(node, replace(before, resources=level("6")))
    gate = "InPlacePodLevelResourcesVerticalScaling"
    node = with_pods(started(SIXTEEN, without(strict, gate), NONE), before)
    expected = INFEASIBLE, "plr_feature_gate_off", "InPlacePodLevelResourcesVerticalScaling is disabled"
    assert refused_with(node, replace(pod(4), resources=level("6"))) == expected


def test_the_same_amount_in_other_words_is_no_change() -> None:
    node = with_pods(started(SIXTEEN, without(config(), CPUS_GATE), NONE), pod(2))
    resize_of_nothing = pod("2000m")
    assert resize(node, resize_of_nothing)[1].rejection is None


# KEP-5554.


@pytest.fixture
def node() -> Node:
    return with_pods(started(SIXTEEN, config()), pod(2))


def test_exclusive_cpus_do_not_become_shared(node: Node) -> None:
    message = (
        "inconsistentCPUAllocation Error: Skip resize, Not allowed to move a container from exclusively allocated pool "
        "to shared pool, not allowed (requested CPUs = 1500m, allocated CPUs = 2)"
    )
    assert refused_with(node, pod("1500m")) == (INFEASIBLE, "inconsistentCPUAllocationError", message)


def test_shared_cpus_do_not_become_exclusive(node: Node) -> None:
    node = with_pods(node, pod("1500m", uid="q"))
    message = (
        "inconsistentCPUAllocation Error: Skip resize, Not allowed to move a container from shared pool to exclusively "
        "allocated pool, (requested CPUs = 2, allocated CPUs = 1500m)"
    )
    assert refused_with(node, pod(2, uid="q")) == (INFEASIBLE, "inconsistentCPUAllocationError", message)
    resized(node, pod("2500m", uid="q"))


def test_nothing_goes_below_the_baseline(node: Node) -> None:
    node, _ = resized(node, pod(4))
    message = (
        "prohibitedCPUAllocation Error: Skip resize, Not allowed to reduce container exclusively allocated pool below "
        "original, (requested CPUs = 1, allocated CPUs = 4, original CPUs = 2, guaranteed CPUs = 1)"
    )
    assert refused_with(node, pod(1)) == (INFEASIBLE, "prohibitedCPUAllocationError", message)
    assert cpus(node) == "1-4"


def test_a_container_without_a_baseline_is_left_alone(node: Node) -> None:
    """A state file that a kubelet without the gate wrote."""
    node = replace(node, providers=replace(node.providers, cpu=replace(node.cpu, baselines={})))
    message = (
        "getOriginalCPUSet Error: Skip resize, unable to get PromisedCPUSet, nothing to be done, "
        "(podUID = p, containerName a)"
    )
    assert refused_with(node, pod(4)) == (INFEASIBLE, "getOriginalCPUSetError", message)


def test_containers_that_stay_as_they_are_refuse_nothing(node: Node) -> None:
    """The proposal's text for an equal number would forbid every resize of a pod with two containers."""
    node = with_pods(node, pod(2, 3, uid="q"))
    node, _ = resized(node, pod(2, 4, uid="q"))
    assert (cpus(node, "q"), cpus(node, "q", "b")) == ("3-4", "5-8")
