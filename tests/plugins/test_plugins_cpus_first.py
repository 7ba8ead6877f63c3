"""The plugin cpus-first: with best-effort the CPUs' own nodes win over a merge that nobody prefers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.plugins.plugged_nodes import STATIC, breaks, cpus_of, machine_named, node_on, plugged, pod

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.pods import explain
from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.plugins.facts import PluginChoseAffinity
from mooring.explanations.lines import story_lines
from mooring.explanations.story import walk
from mooring.inputs.configuration.mooring_config import plugin_choice

NIC = "example.com/nic"
MACHINE = "sockets=2 cores=8 memory=16Gi"
BEST_EFFORT = replace(STATIC, topology_manager_policy="best-effort")
WITH_MEMORY = replace(
    BEST_EFFORT,
    memory_manager_policy="Static",
    kube_reserved={"cpu": "1", "memory": "100Mi"},
    reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
)
ON_NODE_1 = {NIC: (Device("nic-0", (1,)),)}


def with_nic(name: str, cpus: int) -> Pod:
    limits = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse("1Mi"), NIC: Quantity.parse("1")}
    return replace(pod(name, cpus), containers=(Container("c0", requests=limits, limits=limits),))


def crowded(plugin: str) -> Kubelet:
    """Return a node whose NUMA node 1, the one with the device, has one CPU left."""
    kubelet = node_on(MACHINE, plugin, config=BEST_EFFORT).with_devices(DeviceState(ON_NODE_1))
    kubelet, _ = kubelet.admit(pod("zero", 3))
    kubelet, _ = kubelet.admit(pod("one", 3))
    kubelet, _ = kubelet.remove("zero")
    return kubelet


def test_cpus_stay_together_when_the_device_is_elsewhere() -> None:
    _, without = crowded("kubelet-rules").admit(with_nic("web", 3))
    assert {cpu // 4 for cpu in cpus_of(without)} == {0, 1}
    facts: list[object] = []
    _, decision = crowded("cpus-first").admit(with_nic("web", 3), facts.append)
    assert {cpu // 4 for cpu in cpus_of(decision)} == {0}
    assert decision.devices["c0"][NIC][0].id == "nic-0"
    chosen = next(fact for fact in facts if isinstance(fact, PluginChoseAffinity))
    assert chosen.plugin == "cpus-first"


def test_where_a_preferred_merge_exists_nothing_changes() -> None:
    kubelet = node_on(MACHINE, "cpus-first", config=BEST_EFFORT).with_devices(DeviceState(ON_NODE_1))
    _, decision = kubelet.admit(with_nic("web", 3))
    assert {cpu // 4 for cpu in cpus_of(decision)} == {1}
    assert decision.affinity["c0"].preferred


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_other_policies_are_left_alone(policy: str) -> None:
    strict = replace(BEST_EFFORT, topology_manager_policy=policy)
    kubelet = node_on(MACHINE, "cpus-first", config=strict).with_devices(DeviceState(ON_NODE_1))
    kubelet, _ = kubelet.admit(pod("zero", 3))
    kubelet, _ = kubelet.admit(pod("one", 3))
    kubelet, _ = kubelet.remove("zero")
    _, decision = kubelet.admit(with_nic("web", 3))
    assert decision.reason == "TopologyAffinityError"


def test_explain_names_the_plugin() -> None:
    pods = [pod("zero", 3), pod("one", 3), with_nic("web", 3)]
    plan = make_plan(
        Question(
            machine_named(MACHINE),
            BEST_EFFORT,
            plugged("cpus-first"),
            tuple(pods),
            devices=ON_NODE_1,
            leaving={"web": ("zero",)},
        )
    )
    told = [line.text for line in walk(story_lines(explain(plan, pods[2]), None))]
    assert any(line.startswith("cpus-first replaces ") and line.endswith(" by NUMA node 0") for line in told)


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["1Mi", "2Gi", "5Gi"]), st.booleans()), max_size=8))
@example([(1, "1Mi", False)] * 3 + [(1, "5Gi", False)] * 2)
@settings(max_examples=60, deadline=None)
def test_nothing_is_refused_because_of_it(requests: list[tuple[int, str, bool]]) -> None:
    """Law: with memory pinned too, whatever is admitted on a state without the plugin is admitted with it."""
    kubelet = node_on(MACHINE, "cpus-first", config=WITH_MEMORY)
    policy = kubelet.settings.cpu
    assert policy is not None
    for index, (cpus, memory, leaves) in enumerate(requests):
        limits = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse(memory)}
        one = replace(pod(f"pod-{index}", cpus), containers=(Container("c0", requests=limits, limits=limits),))
        bare = replace(kubelet.settings, plugins=None, cpu=replace(policy, chooser=None))
        _, without = replace(kubelet.node, settings=bare).decide(one)
        kubelet, decision = kubelet.admit(one)
        assert decision.admitted or not without.admitted, decision.message
        assert not list(breaks(kubelet.node.settled()))
        if leaves and one.uid in kubelet.node.active:
            kubelet, _ = kubelet.remove(one.uid)


def test_it_takes_no_settings() -> None:
    with pytest.raises(InputError, match=r"settings\.strict: 'strict' is not known; the plugin takes no settings"):
        plugin_choice({"plugins": [{"name": "cpus-first", "settings": {"strict": True}}]})
