"""What an update of a container asks for, by the calls that a kubelet was seen to make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.small_node import guaranteed

from mooring.agent.nri.types import LinuxResources, PodSandbox
from mooring.agent.pods.resolve import pod_of_object, resized, wanted_pod
from mooring.agent.pods.source import PodSources
from mooring.agent.quota import quota_of, shares_of
from mooring.engine.core.pod import Container, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity

MIB = 2**20


def sizes(milli: int, mebibytes: int) -> LinuxResources:
    return LinuxResources(shares=shares_of(milli), quota=quota_of(milli), period=100_000, memory_limit=mebibytes * MIB)


def amounts(milli: int, mebibytes: int) -> dict[str, Quantity]:
    return {"cpu": Quantity.of_milli(milli), "memory": Quantity.of_bytes(mebibytes * MIB)}


def pod_of(**containers: tuple[int, int]) -> Pod:
    made = tuple(Container(name, requests=amounts(*of), limits=amounts(*of)) for name, of in containers.items())
    return Pod("u", "p", containers=made, qos=QoS.GUARANTEED)


def asked(pod: Pod | None, name: str) -> tuple[int, int]:
    assert pod is not None
    own = next(one for one in pod.containers if one.name == name)
    assert own.requests == own.limits
    return own.requests["cpu"].milli, own.requests["memory"].units // MIB


def test_one_resize_of_two_containers_arrives_as_three_calls_and_each_is_understood_alone() -> None:
    pod = pod_of(a=(300, 32), b=(100, 32))
    after = resized(pod, "b", sizes(100, 48))
    assert (asked(after, "a"), asked(after, "b")) == ((300, 32), (100, 48))
    assert after is not None
    after = resized(after, "a", sizes(200, 32))
    assert (asked(after, "a"), asked(after, "b")) == ((200, 32), (100, 48))
    assert after is not None
    after = resized(after, "b", sizes(200, 48))
    assert (asked(after, "a"), asked(after, "b")) == ((200, 32), (200, 48))


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([10_000, 100_000]))
@settings(deadline=None)
def test_whole_cpus_come_back_exactly(before: int, after: int, period: int) -> None:
    pod = pod_of(a=(1000 * before, 64))
    call = LinuxResources(
        shares=shares_of(1000 * after), quota=quota_of(1000 * after, period), period=period, memory_limit=64 * MIB
    )
    found = resized(pod, "a", call)
    assert (found is None) == (before == after)
    assert found is None or asked(found, "a") == (1000 * after, 64)


@pytest.mark.parametrize("quota", [None, 0, -1])
def test_without_a_quota_the_shares_say_it(quota: int | None) -> None:
    found = resized(pod_of(a=(2000, 64)), "a", replace(sizes(4000, 64), quota=quota))
    assert asked(found, "a") == (4000, 64)


def test_the_api_servers_words_are_taken_for_the_resource_with_which_they_agree() -> None:
    pod = pod_of(a=(2000, 64))
    wanted = guaranteed("u", "4000m")
    wanted = replace(wanted, containers=(replace(wanted.containers[0], name="a"),))
    found = resized(pod, "a", sizes(4000, 64), wanted)
    assert found is not None
    assert found.containers[0].requests["cpu"] is wanted.containers[0].requests["cpu"]
    assert asked(found, "a") == (4000, 64), "memory is not asked for by this call"
    assert asked(resized(pod, "a", sizes(3000, 64), wanted), "a") == (3000, 64)


def test_pods_with_resources_of_their_own_and_unknown_containers_are_left_alone() -> None:
    pod = pod_of(a=(2000, 64))
    assert resized(pod, "debugger", sizes(4000, 64)) is None
    assert resized(replace(pod, resources=PodResources(amounts(4000, 64))), "a", sizes(4000, 64)) is None


def test_a_memory_request_that_nobody_tells_stays() -> None:
    own = Container("a", requests=amounts(500, 16), limits={"memory": Quantity.of_bytes(64 * MIB)})
    pod = Pod("u", "p", containers=(own,), qos=QoS.BURSTABLE)
    call = LinuxResources(shares=shares_of(250), quota=0, period=100_000, memory_limit=96 * MIB)
    found = resized(pod, "a", call)
    assert found is not None
    assert found.containers[0].requests == amounts(250, 16)
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


def test_nobody_resizes_a_static_pod() -> None:
    class Source:
        def pod(self, sandbox: PodSandbox) -> Pod | None:
            return Pod(sandbox.uid, "p")

        def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
            return {one.uid: Pod(one.uid, "p") for one in sandboxes}

        wanted = pod

    place = PodSandbox("s", "u", "p", "n", annotations={"kubernetes.io/config.source": "file"})
    assert PodSources(api=Source()).wanted(place) is None
    assert PodSources(api=Source()).wanted(replace(place, annotations={})) is not None
    assert PodSources().wanted(place) is None
