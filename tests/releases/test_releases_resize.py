"""What can never be resized in each release: from the sources of the releases, because no recording resizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.nodes import GIB
from tests.node.resizable import SIXTEEN, config, container, pod, with_pods

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import Release
from mooring.engine.kubelet.events import Amounts, PodUpdate, Resizing, run
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node import Node
from mooring.engine.node.facts import ResizeRefused
from mooring.engine.node.resizing import resize
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.gates import known_gates
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import resized_pod

GATE = {"InPlacePodVerticalScaling": True}
EVERY = "Resize is infeasible for Guaranteed Pods alongside {} Manager static policy"
CHANGED = 'Resize is infeasible for Guaranteed Pods alongside {} Manager policy "{}"'
BY_MODE = "Resize is infeasible for Guaranteed Pods when {} allocation mode is exclusive"


def node(
    release: Release, *pods: Pod, gates: dict[str, bool] = GATE, memory: bool = False, cpu: str = "static"
) -> Node:
    kubelet = replace(config(memory=memory), cpu_manager_policy=cpu, feature_gates=known_gates_of(release, gates))
    return with_pods(started(release, kubelet), *pods)


def known_gates_of(release: Release, gates: dict[str, bool]) -> dict[str, bool]:
    return {name: value for name, value in gates.items() if name in known_gates(release.name)}


def started(release: Release, kubelet: KubeletConfig) -> Node:
    return Node.fresh(SIXTEEN, kubelet, MooringConfig(release=release))


def verdict(node: Node, asked: Pod) -> tuple[str, str]:
    answer = resize(node, asked)[1]
    return answer.reason, answer.message


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_each_release_refuses_guaranteed_pods_by_policy_in_its_own_way(release: Release) -> None:
    """Rules static-policies-refuse-every-resize, static-memory-policy-not-asked and static-cpu-policy-not-asked."""
    by_cpu = node(release, pod("1500m"))
    by_memory = node(release, pod("1500m"), cpu="none", memory=True)
    refused = {
        "cpu by cpu": verdict(by_cpu, pod("2500m")),
        "memory by cpu": verdict(by_cpu, pod("1500m", gib=2)),
        "cpu by memory": verdict(by_memory, pod("2500m")),
    }
    no = "", ""
    every_cpu, every_memory = (("Infeasible", EVERY.format(name)) for name in ("CPU", "Memory"))
    expected = {
        "1.31": (no, no, no),
        "1.32": (every_cpu, every_cpu, no),
        "1.33": (every_cpu, every_cpu, every_memory),
        "1.38": (("Infeasible", BY_MODE.format("CPU")), no, no),
    }.get(release.name, (("Infeasible", CHANGED.format("CPU", "static")), no, no))
    assert tuple(refused.values()) == expected


@pytest.mark.parametrize("name", ["1.32", "1.33"])
def test_up_to_1_33_the_gate_of_exclusive_cpus_speaks_for_memory_too(name: str) -> None:
    gates = {**GATE, "InPlacePodVerticalScalingExclusiveCPUs": True}
    free = node(RELEASES[name], pod("1500m"), gates=gates, memory=True)
    assert resize(free, pod("2500m"))[1].accepted


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_up_to_1_35_a_resize_beyond_the_whole_node_is_infeasible(release: Release) -> None:
    """Rules resize-beyond-node-refused and resize-leaves-eviction-threshold.

    The node has 15 CPUs and, beside the eviction threshold of 1 GiB, all memory.
    """
    kubelet = replace(
        config(), feature_gates=known_gates_of(release, GATE), eviction_hard={"memory.available": str(GIB)}
    )
    before = pod(2, qos=QoS.BURSTABLE)
    running = with_pods(started(release, kubelet), before)
    capacity = SIXTEEN.memory_capacity
    largest = capacity - GIB
    threshold = 0 if release.name >= "1.34" else GIB

    def with_memory(amount: int) -> Pod:
        part = {"cpu": Quantity.parse("2"), "memory": Quantity.of_bytes(amount)}
        return replace(before, containers=(replace(before.containers[0], requests=part, limits={}),))

    def expected(resource: str, asked: int, has: int) -> tuple[str, str]:
        return "Infeasible", f"Node didn't have enough capacity: {resource}, requested: {asked}, capacity: {has}"

    cpus, memory, between = (
        verdict(running, one) for one in (pod(20, qos=QoS.BURSTABLE), with_memory(capacity + 1), with_memory(capacity))
    )
    assert resize(running, with_memory(largest))[1].accepted
    if release.name <= "1.35":
        assert cpus == expected("cpu", 20000, 15000)
        assert memory == expected("memory", capacity + 1, capacity - threshold)
        assert between[0] == ("Infeasible" if threshold else "Deferred")
    else:
        assert (cpus[0], memory[0], between[0]) == ("Deferred", "Deferred", "Deferred")


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_up_to_1_33_sidecars_do_not_add_up_in_the_check_against_the_node(release: Release) -> None:
    """Rule resize-counts-sidecars-alone: 8 CPUs beside a sidecar of 8 do not fit on 15."""
    sidecar = container("s", "8", kind=ContainerKind.SIDECAR)
    before = Pod("p", "p", containers=(sidecar, container("a", "2")), qos=QoS.BURSTABLE)
    after = replace(before, containers=(sidecar, container("a", "8")))
    reason, message = verdict(node(release, before), after)
    assert reason == ("Infeasible" if release.name in ("1.34", "1.35") else "Deferred"), message


@pytest.mark.parametrize("release", list(RELEASES.values())[1:], ids=str)
def test_up_to_1_34_pods_with_resources_of_their_own_are_not_resized(release: Release) -> None:
    """Since 1.35 behind InPlacePodLevelResourcesVerticalScaling, which is on since 1.36."""
    two = {"cpu": Quantity.parse("2")}
    before = Pod("p", "p", containers=(container("a", "1"),), qos=QoS.BURSTABLE, resources=PodResources(two, {}))
    asked = Resizing("p", {"a": Amounts(two, two)})
    gates = PodGates.of({}, release=release)
    if release.name >= "1.36":
        assert resized_pod(before, asked, gates).containers[0].requests["cpu"] == two["cpu"]
    else:
        with pytest.raises(InputError, match="pods with pod-level resources cannot be resized"):
            resized_pod(before, asked, gates)


@pytest.mark.parametrize("name", ["1.37", "1.38"])
def test_since_1_38_an_update_that_asks_for_nothing_new_retries_a_resize(name: str) -> None:
    """Rule resize-retried-with-resources-only."""
    full = started_kubelet(RELEASES[name], pod(8, qos=QoS.BURSTABLE))
    larger = pod(20, qos=QoS.BURSTABLE)
    facts: list[object] = []
    first, again = run(full, [PodUpdate(larger)] * 2, observer=facts.append)
    assert [one.result.resize and one.result.resize.reason for one in (first, again)] == ["Deferred", "Deferred"]
    refused = [fact for fact in facts if isinstance(fact, ResizeRefused)]
    assert len(refused) == (1 if name == "1.37" else 2)


def started_kubelet(release: Release, *pods: Pod) -> Kubelet:
    sharing = replace(config(), cpu_manager_policy="none", feature_gates={})
    kubelet = start_kubelet(SIXTEEN, sharing, MooringConfig(release=release), StateTexts())
    assert isinstance(kubelet, Kubelet)
    for one in pods:
        kubelet, _ = kubelet.admit(one)
    return kubelet
