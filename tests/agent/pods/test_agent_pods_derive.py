"""Pods made of what the runtime tells decide as the pods themselves."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods.runtime_view import container_of, containers_of, recorded, sandbox_of
from tests.agent.small_node import guaranteed as resizable_pod
from tests.cpumanager.pods import amounts, container, guaranteed, pod_level
from tests.node.nodes import machine
from tests.values import not_none

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.api import MOST_REMEMBERED, KnownPods
from mooring.agent.pods.cluster import PodSources
from mooring.agent.pods.resolve import differences, pod_of_object, resized, resolved, wanted_pod
from mooring.agent.pods.source import (
    MOST_ANNOTATIONS,
    MOST_SHARES,
    PERIOD,
    asked_of,
    kept_annotations,
    milli_of_quota,
    milli_of_shares,
    pod_of,
    quota_of,
    quota_of_pod,
    shares_of,
)
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet

GATES = PodLevelGates()
SIZES = ("1", "2", "3", "500m", "1500m", "10m", "1m", "64", "255", "300")
MEMORY = ("1Gi", "64Mi", "100M", "123456789")
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
SIZES_OF = {(message, name): sizes for message, made in PODS.items() for name, *sizes in made}
SHARED = ("300m", "300m", "64Mi")
"""Of a container without sizes of its own: those of its pod."""


def recorded_pod(name: str) -> tuple[Pod, PodSandbox, RuntimeContainer]:
    sandbox, told = recorded(name)
    made = tuple(
        Container(own, requests=amounts(request, memory if limit else ""), limits=amounts(limit, memory))
        for own, request, limit, memory in PODS[name]
    )
    qos = QoS.BEST_EFFORT if "best" in name else QoS.BURSTABLE if "burst" in name else QoS.GUARANTEED
    whole = amounts("300m", "64Mi")
    resources = PodResources(whole, whole) if name.startswith("pod-level") else None
    return Pod(sandbox.uid, sandbox.name, containers=made, qos=qos, resources=resources), sandbox, told


@pytest.mark.parametrize("name", sorted(PODS))
def test_recorded_containers_come_back_with_the_sizes_of_their_manifests_and_agree_with_these(name: str) -> None:
    known, sandbox, told = recorded_pod(name)
    assert differences(known, sandbox, told) == []
    pod = pod_of(sandbox, [told])
    assert (pod.uid, pod.name, pod.namespace, pod.qos) == (sandbox.uid, sandbox.name, "default", known.qos)
    (made,) = pod.containers
    request, limit, memory = SHARED if name == "pod-level-shared" else SIZES_OF[name, told.name]
    assert made.name == told.name
    assert made.requests.get("cpu") == (Quantity.parse(request) if request else None)
    assert made.limits == amounts(limit, memory)
    assert (made.requests.get("memory") == made.limits.get("memory")) is (known.qos is not QoS.BURSTABLE)


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
    assert pod_of(sandbox, [sidecar, app]).resources is None


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
def test_no_other_class_ever_gets_exclusive_cpus(containers: tuple[Container, ...], data: st.DataObject) -> None:
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
def test_ended_init_containers_do_not_give_a_pod_resources_of_its_own(sizes: list[str], ended: int) -> None:
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


def test_more_than_256_cpus_are_known_by_their_quota_only() -> None:
    pod = guaranteed("u", container("a", "300"))
    told = container_of(pod, pod.containers[0])
    assert str(pod_of(sandbox_of(pod), [told]).containers[0].requests["cpu"]) == "300"
    without = replace(told, resources=replace(told.resources, quota=None))
    assert str(pod_of(sandbox_of(pod), [without]).containers[0].requests["cpu"]) == "256"


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
def test_outside_a_kubelets_cgroups_sizes_suggest_the_class(
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


# What an update of a container asks for, by the calls that a kubelet was seen to make.


MIB = 2**20


def sizes(milli: int, mebibytes: int) -> LinuxResources:
    return LinuxResources(shares=shares_of(milli), quota=quota_of(milli), period=100_000, memory_limit=mebibytes * MIB)


def cpu_and_memory(milli: int, mebibytes: int) -> dict[str, Quantity]:
    return {"cpu": Quantity.of_milli(milli), "memory": Quantity.of_bytes(mebibytes * MIB)}


def pod_after(**containers: tuple[int, int]) -> Pod:
    made = tuple(
        Container(name, requests=cpu_and_memory(*of), limits=cpu_and_memory(*of)) for name, of in containers.items()
    )
    return Pod("u", "p", containers=made, qos=QoS.GUARANTEED)


def asked(pod: Pod | None, name: str) -> tuple[int, int]:
    assert pod is not None
    own = next(one for one in pod.containers if one.name == name)
    assert own.requests == own.limits
    return own.requests["cpu"].milli, own.requests["memory"].units // MIB


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([10_000, 100_000]))
@settings(deadline=None)
def test_whole_cpus_come_back_exactly(before: int, after: int, period: int) -> None:
    pod = pod_after(a=(1000 * before, 64))
    call = LinuxResources(
        shares=shares_of(1000 * after), quota=quota_of(1000 * after, period), period=period, memory_limit=64 * MIB
    )
    found = resized(pod, "a", call)
    assert (found is None) == (before == after)
    assert found is None or asked(found, "a") == (1000 * after, 64)


def test_the_api_servers_words_are_taken_for_the_resource_with_which_they_agree() -> None:
    pod = pod_after(a=(2000, 64))
    wanted = resizable_pod("u", "4000m")
    wanted = replace(wanted, containers=(replace(wanted.containers[0], name="a"),))
    found = not_none(resized(pod, "a", sizes(4000, 64), wanted))
    assert found.containers[0].requests["cpu"] is wanted.containers[0].requests["cpu"]
    assert asked(found, "a") == (4000, 64), "memory is not asked for by this call"
    assert asked(resized(pod, "a", sizes(3000, 64), wanted), "a") == (3000, 64)


def test_pods_with_resources_of_their_own_and_unknown_containers_are_left_alone() -> None:
    pod = pod_after(a=(2000, 64))
    assert resized(pod, "debugger", sizes(4000, 64)) is None
    assert resized(replace(pod, resources=PodResources(cpu_and_memory(4000, 64))), "a", sizes(4000, 64)) is None


def test_a_memory_request_that_nobody_tells_stays() -> None:
    own = Container("a", requests=cpu_and_memory(500, 16), limits={"memory": Quantity.of_bytes(64 * MIB)})
    pod = Pod("u", "p", containers=(own,), qos=QoS.BURSTABLE)
    call = LinuxResources(shares=shares_of(250), quota=0, period=100_000, memory_limit=96 * MIB)
    found = not_none(resized(pod, "a", call))
    assert found.containers[0].requests == cpu_and_memory(250, 16)
    assert found.containers[0].limits == {"memory": Quantity.of_bytes(96 * MIB)}


def test_a_pod_of_the_api_server_is_wanted_and_allocated_until_both_are_one() -> None:
    def obj(cpu: str) -> dict[str, object]:
        resources = {name: {"cpu": cpu, "memory": "64Mi"} for name in ("requests", "limits")}
        status = {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2", "memory": "64Mi"}}]}
        return {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "a", "resources": resources}]},
            "status": status,
        }

    assert asked(pod_of_object(obj("4"), source="s"), "a") == (2000, 64)
    assert asked(wanted_pod(obj("4"), source="s"), "a") == (4000, 64)
    assert wanted_pod(obj("2"), source="s") is None


# CPU amounts through shares and quotas and back, and the quota of a pod's cgroup: rule by rule, and as a real kubelet
# writes it.


MILLI = st.integers(0, 300_000)
PERIODS = st.integers(1000, 1_000_000)
RECORDED = ("guaranteed", "static-pod-guaranteed", "besteffort", "init sidecar app-after-sidecar")
"""Messages about all containers of a pod, in the order of its specification."""


@settings(max_examples=300)
@given(st.integers(3, 255_999))
def test_a_request_comes_back_exactly_from_its_shares(milli: int) -> None:
    assert milli_of_shares(shares_of(milli)) == milli


def test_requests_beyond_what_shares_can_tell_are_unknown() -> None:
    assert [milli_of_shares(shares_of(milli)) for milli in (0, 1, 2, 256_000, 999_999)] == [0, 0, 0, None, None]


@settings(max_examples=200)
@given(st.integers(0, MOST_SHARES - 1))
def test_shares_that_no_request_has_count_as_the_next_smaller_request(shares: int) -> None:
    milli = not_none(milli_of_shares(shares))
    assert shares_of(milli) <= max(shares, 2) < shares_of(max(milli, 2) + 1)


@settings(max_examples=300)
@given(MILLI.filter(bool), PERIODS)
def test_a_limit_lies_between_the_bounds_of_its_quota(milli: int, period: int) -> None:
    quota = quota_of(milli, period)
    least, greatest = milli_of_quota(quota, period)
    assert least <= milli <= greatest
    assert quota_of(greatest + 1, period) > quota
    assert least == 1 or quota_of(least - 1, period) < quota


@settings(max_examples=200)
@given(st.integers(11, 300_000))
def test_at_the_usual_period_the_bounds_are_one(milli: int) -> None:
    assert milli_of_quota(quota_of(milli)) == (milli, milli)


def cpu(amount: str) -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(amount)} if amount else {}


def of(*limits: str, qos: QoS = QoS.GUARANTEED, whole: str = "", overhead: str = "") -> Pod:
    """Return a pod; a limit's container is an init container after ``i:`` and a sidecar after ``s:``."""
    kinds = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR, "": ContainerKind.APP}
    made = []
    for number, text in enumerate(limits):
        kind, _, amount = text.rpartition(":")
        made.append(Container(f"c{number}", kinds[kind], limits=cpu(amount)))
    resources = PodResources(limits=cpu(whole)) if whole else None
    return Pod("u", "n", containers=tuple(made), qos=qos, resources=resources, overhead=cpu(overhead))


@pytest.mark.parametrize("names", RECORDED)
def test_it_is_what_a_real_kubelet_said(names: str) -> None:
    messages = [recorded(name) for name in names.split()]
    sandbox = messages[0][0]
    pod = pod_of(sandbox, [container for _, container in messages])
    kinds = {"i": ContainerKind.INIT, "s": ContainerKind.SIDECAR} if len(messages) > 1 else {}
    made = [replace(one, kind=kinds.get(one.name, ContainerKind.APP)) for one in pod.containers]
    quota = sandbox.pod_resources.quota or 0
    assert quota_of_pod(replace(pod, containers=tuple(made))) == max(quota, 0)


@pytest.mark.parametrize(
    ("pod", "quota"),
    [
        (of("2", "1500m"), 350_000),
        (of("2", "i:5"), 500_000),
        (of("s:1", "2"), 300_000),
        (of("s:1", "i:3", "2"), 400_000),
        (of("i:3", "s:1", "2"), 300_000),
        (of("1", "", whole="4"), 400_000),
        (of("2", overhead="250m"), 225_000),
        (of("5m"), 1_000),
        (of("2", "", qos=QoS.BURSTABLE), 0),
        (of("2", "1", qos=QoS.BURSTABLE), 300_000),
        (of("2", "", qos=QoS.BURSTABLE, whole="3"), 300_000),
        (of("", qos=QoS.BEST_EFFORT, overhead="1"), 0),
        (of("", qos=QoS.BURSTABLE, overhead="1"), 0),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "pod",
)
def test_each_rule_of_the_kubelet(pod: Pod, quota: int) -> None:
    assert quota_of_pod(pod) == quota


def test_another_period_gives_another_quota() -> None:
    assert quota_of_pod(of("2"), 10_000) == 20_000


# Pod and runtime agree when both come from one kubelet, and every difference is named.


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


def test_a_cgroup_that_is_none_of_the_kubelets_tells_no_class() -> None:
    pod, sandbox, _ = recorded_pod("guaranteed")
    assert differences(replace(pod, qos=QoS.BURSTABLE), replace(sandbox, cgroup_parent="/mytest")) == []


# The choice between pod sources, and pods that wait to become known.


@dataclass
class Source:
    """Knows some uids and remembers what it was asked."""

    name: str
    uids: tuple[str, ...]
    asked: list[str] = field(default_factory=list)

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        self.asked.append(sandbox.uid)
        return Pod(sandbox.uid, self.name) if sandbox.uid in self.uids else None

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        return {one.uid: pod for one in sandboxes if (pod := self.pod(one)) is not None}

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        return self.pod(sandbox)


def pod_sources(static: Source | None = None, api: Source | None = None) -> PodSources:
    return PodSources(cast("Any", static), cast("Any", api))


def named(uid: str, source: str) -> PodSandbox:
    return PodSandbox("s", uid, "p", "n", annotations={"kubernetes.io/config.source": source})


def name(sources: PodSources, uid: str, source: str) -> str:
    found = sources.pod(named(uid, source))
    return found.name if found else "unknown"


def test_nobody_resizes_a_static_pod() -> None:
    sources = pod_sources(api=Source("api", ("u",)))
    assert (sources.wanted(named("u", "file")), pod_sources().wanted(named("u", "api"))) == (None, None)
    assert sources.wanted(named("u", "api")) is not None


def test_static_pods_come_from_the_folder_and_all_others_from_the_api_server() -> None:
    static, api = Source("folder", ("1", "2")), Source("api", ("2", "3"))
    sources = pod_sources(static, api)
    assert [name(sources, uid, "file") for uid in "1234"] == ["folder", "folder", "api", "unknown"]
    static.asked.clear()
    assert [name(sources, uid, "api") for uid in "1234"] == ["unknown", "api", "api", "unknown"]
    assert static.asked == []
    assert name(sources, "1", "http") == "folder"


def test_many_pods_are_asked_for_in_the_same_order_of_sources() -> None:
    sources = pod_sources(Source("folder", ("1", "2")), Source("api", ("2", "3")))
    for source in ("file", "api"):
        asked = [named(uid, source) for uid in "1234"]
        one_by_one = {uid: found for uid in "1234" if (found := name(sources, uid, source)) != "unknown"}
        assert {uid: pod.name for uid, pod in sources.known(asked).items()} == one_by_one
    assert pod_sources().known(asked) == {}


def test_who_asked_without_patience_takes_nothing_from_the_one_who_waits() -> None:
    known, found = KnownPods(), list[Pod | None]()
    known.replace_all({})
    assert known.find("u") is None
    asking = threading.Thread(target=lambda: found.append(known.find("u", patience=10_000)))
    asking.start()
    known.put(Pod("u", "web"))
    asking.join(60)
    assert [one.name for one in found if one] == ["web"]


def test_a_pod_that_no_source_knows_is_derived_from_all_its_containers() -> None:
    pod = guaranteed("u", container("a", "2"), container("b", "1"))
    first, second = containers_of(pod, pod.containers)
    found = resolved(None, sandbox_of(pod), second, [first])
    assert found.is_derived
    assert [one.name for one in found.pod.containers] == ["a", "b"]


def test_a_pod_of_a_source_is_used_and_held_against_the_runtime() -> None:
    pod = guaranteed("u", container("a", "2"))
    (told,) = containers_of(pod, pod.containers)
    found = resolved(Pod("u", "api"), sandbox_of(pod), told)
    assert not found.is_derived
    assert [re.findall("the (.*) is ", one) for one in found.problems] == [["name"], ["QoS class"], ["name"]]


def test_of_a_pod_with_many_annotations_the_agents_own_are_kept() -> None:
    annotations = {f"example.com/{number}": "x" for number in range(1000)} | {"mooring/opt-out": "true"}
    kept = kept_annotations(annotations)
    assert len(kept) == MOST_ANNOTATIONS
    assert kept["mooring/opt-out"] == "true"


def test_one_who_waits_is_let_go_when_the_source_goes_quiet() -> None:
    known = KnownPods()
    known.replace_all({})
    asking = threading.Thread(target=known.find, args=("u", 10_000))
    asking.start()
    known.stale()
    asking.join(60)
    assert not asking.is_alive()


def test_a_uid_that_was_missed_is_not_waited_for_again_until_it_was_found() -> None:
    known = KnownPods()
    known.replace_all({})
    assert known.find("u", patience=0.001) is None
    assert known.find("u", patience=10_000) is None
    known.put(Pod("u", "web"))
    assert known.find("u") is not None


def test_what_was_missed_is_remembered_up_to_a_bound() -> None:
    known = KnownPods()
    for number in range(2 * MOST_REMEMBERED):
        known.find(str(number), patience=10_000)
    known.replace_all({})
    last, found = str(2 * MOST_REMEMBERED - 1), list[Pod | None]()
    assert known.find(last, patience=10_000) is None, "it is not waited for again"
    asking = threading.Thread(target=lambda: found.append(known.find("0", patience=10_000)))
    asking.start()
    known.put(Pod("0", "web"))
    asking.join(60)
    assert [one.name for one in found if one] == ["web"]
