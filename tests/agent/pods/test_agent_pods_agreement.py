"""Pod and runtime agree when both come from one kubelet, and every difference is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods.runtime_view import container_of, recorded, sandbox_of
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level

from mooring.agent.nri.types import PodSandbox, RuntimeContainer
from mooring.agent.pods.resolve import differences
from mooring.agent.quota import asked_of
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS

PODS = {
    "guaranteed": (("a", "1", "1", "64Mi"),),
    "besteffort": (("a", "", "", ""),),
    "burstable": (("a", "250m", "", "64Mi"),),
    "static-pod-burstable": (("a", "400m", "1", "64Mi"),),
    "static-pod-guaranteed": (("a", "1", "1", "64Mi"),),
    "init": (("i", "500m", "500m", "32Mi"), ("s", "100m", "100m", "16Mi"), ("a", "100m", "100m", "64Mi")),
    "sidecar": (("i", "500m", "500m", "32Mi"), ("s", "100m", "100m", "16Mi"), ("a", "100m", "100m", "64Mi")),
    "app-after-sidecar": (("i", "500m", "500m", "32Mi"), ("s", "100m", "100m", "16Mi"), ("a", "100m", "100m", "64Mi")),
    "pod-level-member": (("a", "100m", "100m", "16Mi"), ("b", "", "", "")),
    "pod-level-shared": (("a", "100m", "100m", "16Mi"), ("b", "", "", "")),
}
"""Recorded message -> containers of the pod from which it was made: name, CPU request and limit, memory limit."""


def recorded_pod(name: str) -> tuple[Pod, PodSandbox, RuntimeContainer]:
    sandbox, told = recorded(name)
    made = tuple(
        Container(own, requests=amounts(request, memory if limit else ""), limits=amounts(limit, memory))
        for own, request, limit, memory in PODS[name]
    )
    qos = QoS.BEST_EFFORT if "best" in name else QoS.BURSTABLE if "burst" in name else QoS.GUARANTEED
    whole = amounts("300m", "64Mi")
    resources = PodResources(whole, whole) if name.startswith("pod-level") else None
    pod = Pod(sandbox.uid, sandbox.name, containers=made, qos=qos, resources=resources)
    return pod, sandbox, told


@pytest.mark.parametrize("name", sorted(PODS))
def test_recorded_containers_agree_with_the_pods_from_which_they_were_made(name: str) -> None:
    assert differences(*recorded_pod(name)) == []


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["1", "2", "500m", "1m", ""]), min_size=1, max_size=3),
    st.sampled_from(list(QoS)),
    st.booleans(),
    st.sampled_from([100_000, 10_000]),
)
def test_what_the_kubelet_makes_of_a_pod_agrees_with_it(sizes: list[str], qos: QoS, whole: bool, period: int) -> None:
    kinds = [ContainerKind.SIDECAR] * (len(sizes) - 1) + [ContainerKind.APP]
    containers = [
        container(f"c{index}", cpu, kind=kind) for index, (cpu, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    pod = pod_level("u", "9", *containers, qos=qos) if whole else guaranteed("u", *containers, qos=qos)
    sandbox = sandbox_of(pod, period=period)
    for one in pod.containers:
        assert differences(pod, sandbox, container_of(pod, one, period=period)) == []


def test_every_difference_is_named_with_both_values() -> None:
    pod, sandbox, told = recorded_pod("guaranteed")
    other = replace(
        guaranteed("other", container("a", "2", memory="32Mi"), qos=QoS.BURSTABLE), name="web", namespace="shop"
    )
    assert differences(other, sandbox, told) == [
        f"pod: the uid is other in the pod and {sandbox.uid} in the runtime",
        "pod: the namespace is shop in the pod and default in the runtime",
        "pod: the name is web in the pod and guar in the runtime",
        "pod: the QoS class is Burstable in the pod and Guaranteed in the runtime",
        "container a: the CPU shares is 2048 in the pod and 1024 in the runtime",
        "container a: the CFS quota is 200000 in the pod and 100000 in the runtime",
        "container a: the memory limit is 33554432 in the pod and 67108864 in the runtime",
    ]
    unlimited = replace(pod, containers=(Container("a", requests=amounts("1", "")),))
    assert differences(unlimited, sandbox, told) == [
        "container a: the CFS quota is not set in the pod and 100000 in the runtime",
        "container a: the memory limit is not set in the pod and 67108864 in the runtime",
    ]


def test_a_container_that_the_pod_does_not_have_is_a_difference() -> None:
    pod, sandbox, told = recorded_pod("guaranteed")
    found = differences(pod, sandbox, replace(told, name="intruder"))
    assert found == ["container intruder: the name is one of a in the pod and intruder in the runtime"]


@pytest.mark.parametrize("name", ["guaranteed", "pod-level-member"])
def test_an_ephemeral_container_is_no_difference(name: str) -> None:
    pod, sandbox, _ = recorded_pod(name)
    asked = asked_of(pod, Container("debugger"))
    debugger = RuntimeContainer("x", sandbox.id, "debugger", resources=replace(asked, quota=asked.quota or None))
    assert differences(pod, sandbox, debugger) == []


@pytest.mark.parametrize("quota", [None, 0, -1])
def test_a_missing_quota_is_no_difference(quota: int | None) -> None:
    pod, sandbox, told = recorded_pod("guaranteed")
    assert differences(pod, sandbox, replace(told, resources=replace(told.resources, quota=quota))) == []


def test_a_cgroup_that_is_none_of_the_kubelets_tells_no_class() -> None:
    pod, sandbox, _ = recorded_pod("guaranteed")
    other = replace(pod, qos=QoS.BURSTABLE)
    assert differences(other, replace(sandbox, cgroup_parent="/mytest")) == []
