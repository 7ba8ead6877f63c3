"""Pods made of what the runtime tells decide as the pods themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods.runtime_view import container_of, containers_of, recorded, sandbox_of
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level
from tests.node.nodes import machine

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.source import pod_of
from mooring.agent.quota import PERIOD
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet

GATES = PodLevelGates()
SIZES = ("1", "2", "3", "500m", "1500m", "10m", "1m", "64", "255", "300")
MEMORY = ("1Gi", "64Mi", "100M", "123456789")
LOOKS = {
    "app-after-sidecar": (QoS.GUARANTEED, "100m", "100m", "64Mi"),
    "besteffort": (QoS.BEST_EFFORT, "", "", ""),
    "burstable": (QoS.BURSTABLE, "250m", "", "64Mi"),
    "guaranteed": (QoS.GUARANTEED, "1", "1", "64Mi"),
    "init": (QoS.GUARANTEED, "500m", "500m", "32Mi"),
    "pod-level-member": (QoS.GUARANTEED, "100m", "100m", "16Mi"),
    "pod-level-shared": (QoS.GUARANTEED, "300m", "300m", "64Mi"),
    "sidecar": (QoS.GUARANTEED, "100m", "100m", "16Mi"),
    "static-pod-burstable": (QoS.BURSTABLE, "400m", "1", "64Mi"),
    "static-pod-guaranteed": (QoS.GUARANTEED, "1", "1", "64Mi"),
}
"""Recorded message -> QoS class, CPU request, CPU limit and memory limit of the pod from which it was made."""


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_recorded_containers_come_back_with_the_sizes_of_their_manifests(name: str) -> None:
    qos, request, limit, memory = LOOKS[name]
    sandbox, told = recorded(name)
    pod = pod_of(sandbox, [told])
    assert (pod.uid, pod.name, pod.namespace, pod.qos) == (sandbox.uid, sandbox.name, "default", qos)
    (made,) = pod.containers
    assert made.name == told.name
    assert made.requests.get("cpu") == (Quantity.parse(request) if request else None)
    assert made.limits == amounts(limit, memory)
    assert (made.requests.get("memory") == made.limits.get("memory")) is (qos is not QoS.BURSTABLE)


def test_a_recorded_pod_with_resources_of_its_own_is_known_once_its_containers_exceed_it() -> None:
    sandbox, member = recorded("pod-level-member")
    _, shared = recorded("pod-level-shared")
    found = pod_of(sandbox, [member, shared])
    assert found.resources is not None
    assert found.resources.limits == amounts("300m", "64Mi")
    own, without = found.containers
    assert own.requests == amounts("100m", "16Mi")
    assert (without.requests, without.limits) == ({}, {})


def test_recorded_sidecar_and_app_do_not_exceed_their_pod() -> None:
    sandbox, sidecar = recorded("sidecar")
    _, app = recorded("app-after-sidecar")
    found = pod_of(sandbox, [sidecar, app])
    assert found.resources is None


def guaranteed_containers() -> st.SearchStrategy[tuple[Container, ...]]:
    sizes = st.tuples(st.sampled_from(SIZES), st.sampled_from(MEMORY))
    return st.lists(sizes, min_size=1, max_size=4).map(
        lambda made: tuple(container(f"c{index}", cpu, memory=memory) for index, (cpu, memory) in enumerate(made))
    )


@settings(max_examples=200)
@given(guaranteed_containers(), st.sampled_from([PERIOD, 10_000, 50_000, 1_000_000]), st.booleans(), st.booleans())
def test_a_guaranteed_pod_comes_back_with_equal_amounts(
    containers: tuple[Container, ...], period: int, systemd: bool, enforced: bool
) -> None:
    """Quotas at the least quota need the shares beside them, and without quotas the shares must do alone."""
    small = all(one.requests["cpu"].milli < 256_000 for one in containers)
    pod = guaranteed("u", *containers)
    told = containers_of(pod, containers, period=period)
    if not enforced:
        told = [replace(one, resources=replace(one.resources, quota=None)) for one in told]
    made = pod_of(sandbox_of(pod, period=period, systemd=systemd), told)
    assert made.qos is QoS.GUARANTEED
    assert made.resources is None
    for own, theirs in zip(containers, made.containers, strict=True):
        assert theirs.limits["memory"] == own.limits["memory"] == theirs.requests["memory"]
        if own.requests["cpu"].milli < 3:
            continue  # at most two thousandths have the shares of nothing
        if small or enforced:
            assert theirs.requests.get("cpu") == own.requests["cpu"]
            assert theirs.limits["cpu"] == own.limits["cpu"]
            assert exclusive_cpus(made, theirs, GATES) == exclusive_cpus(pod, own, GATES)


@settings(max_examples=60)
@given(st.lists(guaranteed_containers(), min_size=1, max_size=3), st.sampled_from(["none", "restricted"]))
def test_the_engine_decides_alike_for_derived_pods(pods: list[tuple[Container, ...]], policy: str) -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy=policy,
        reserved_system_cpus="0",
        system_reserved={"cpu": "1", "memory": "1Gi"},
    )
    start = start_kubelet(machine(cores=8), config, MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet)
    mine = theirs = start
    for number, containers in enumerate(pods):
        pod = guaranteed(f"u{number}", *containers)
        mine, decision = mine.decide(pod)
        theirs, other = theirs.decide(pod_of(sandbox_of(pod), containers_of(pod, containers)))
        assert other.admitted is decision.admitted
    assert theirs.node.providers.cpu == mine.node.providers.cpu


@settings(max_examples=100)
@given(guaranteed_containers(), st.data())
def test_no_container_of_another_class_ever_gets_exclusive_cpus(
    containers: tuple[Container, ...], data: st.DataObject
) -> None:
    pod = guaranteed("u", *containers, qos=data.draw(st.sampled_from([QoS.BURSTABLE, QoS.BEST_EFFORT])))
    made = pod_of(sandbox_of(pod), containers_of(pod, containers))
    assert made.qos is pod.qos
    assert [exclusive_cpus(made, one, GATES) for one in made.containers] == [0] * len(containers)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["1", "2", "500m"]), min_size=1, max_size=3), st.sampled_from(["4Gi", "64Mi"]))
def test_a_pod_with_resources_of_its_own_comes_back_once_a_member_shows(sizes: list[str], memory: str) -> None:
    """Containers with sizes of their own first, then one without: together they exceed the pod."""
    own = [container(f"c{index}", cpu, memory="16Mi") for index, cpu in enumerate(sizes)]
    pod = pod_level("u", "8", *own, Container("rest"))
    assert pod.resources is not None
    pod = replace(pod, resources=replace(pod.resources, limits=amounts("8", memory), requests=amounts("8", memory)))
    made = pod_of(sandbox_of(pod), containers_of(pod, pod.containers))
    assert made.resources == pod.resources
    assert [(one.requests, one.limits) for one in made.containers] == [
        (one.requests, one.limits) for one in pod.containers
    ]


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["1", "2", "3", "500m"]), min_size=2, max_size=4), st.integers(0, 2))
def test_init_containers_that_ended_do_not_make_a_pod_look_as_if_it_had_resources_of_its_own(
    sizes: list[str], ended: int
) -> None:
    kinds = [ContainerKind.INIT] * min(ended, len(sizes) - 1)
    kinds += [ContainerKind.APP] * (len(sizes) - len(kinds))
    containers = [
        container(f"c{index}", cpu, kind=kind) for index, (cpu, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]
    pod = guaranteed("u", *containers)
    told = [
        container_of(
            pod, one, state=ContainerState.STOPPED if one.kind is ContainerKind.INIT else ContainerState.RUNNING
        )
        for one in containers
    ]
    found = pod_of(sandbox_of(pod), told)
    assert found.resources is None
    assert [one.name for one in found.containers] == [one.name for one in containers if one.kind is ContainerKind.APP]


def test_of_two_containers_with_one_name_the_later_counts_in_the_place_of_the_first() -> None:
    first, second = container("a", "2"), container("b", "1")
    pod = guaranteed("u", first, second)
    old, other, new = (container_of(pod, one) for one in (first, second, container("a", "3")))
    made = pod_of(sandbox_of(pod), [replace(old, state=ContainerState.STOPPED), other, replace(new, id="newer")])
    assert [(one.name, str(one.requests["cpu"])) for one in made.containers] == [("a", "3"), ("b", "1")]


def test_a_quota_that_the_agent_has_lifted_does_not_change_the_request() -> None:
    pod = guaranteed("u", container("a", "3"))
    told = container_of(pod, pod.containers[0])
    lifted = replace(told, resources=replace(told.resources, quota=-1))
    found = pod_of(sandbox_of(pod), [lifted])
    assert found.containers[0].requests == found.containers[0].limits == amounts("3")


def test_more_than_256_cpus_are_known_by_their_quota_only() -> None:
    pod = guaranteed("u", container("a", "300"))
    told = container_of(pod, pod.containers[0])
    assert str(pod_of(sandbox_of(pod), [told]).containers[0].requests["cpu"]) == "300"
    without = replace(told, resources=replace(told.resources, quota=None))
    found = pod_of(sandbox_of(pod), [without])
    assert str(found.containers[0].requests["cpu"]) == "256"


def test_the_overhead_comes_back() -> None:
    pod = replace(guaranteed("u", container("a", "1")), overhead=amounts("250m", "120Mi"))
    assert pod_of(sandbox_of(pod), []).overhead == amounts("250m", "120Mi")


@pytest.mark.parametrize(
    ("shares", "quota", "memory", "qos"),
    [
        (2, None, None, QoS.BEST_EFFORT),
        (2048, 200_000, 2**30, QoS.GUARANTEED),
        (1024, 200_000, 2**30, QoS.BURSTABLE),
        (2048, 200_000, None, QoS.BURSTABLE),
        (2048, -1, 2**30, QoS.GUARANTEED),
        (2048, 0, 2**30, QoS.BURSTABLE),
    ],
)
def test_outside_the_cgroups_of_a_kubelet_the_sizes_suggest_the_class(
    shares: int, quota: int | None, memory: int | None, qos: QoS
) -> None:
    told = RuntimeContainer("c", "s", "a", resources=LinuxResources(shares=shares, quota=quota, memory_limit=memory))
    found = pod_of(PodSandbox("s", "u", "p", "", cgroup_parent="/mytest"), [told])
    assert (found.qos, found.uid, found.namespace) == (qos, "u", "default")


def test_annotations_of_the_runtime_are_not_kept() -> None:
    sandbox, told = recorded("static-pod-guaranteed")
    sandbox = replace(sandbox, annotations={**sandbox.annotations, "mooring/opt-out": "true"})
    made: Pod = pod_of(sandbox, [told])
    assert made.annotations == {
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.hash": sandbox.uid,
        "kubernetes.io/config.seen": sandbox.annotations["kubernetes.io/config.seen"],
        "mooring/opt-out": "true",
    }
