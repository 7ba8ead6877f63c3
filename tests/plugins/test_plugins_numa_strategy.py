"""The plugins numa-strategy, cpus-first and spread: which NUMA nodes and caches serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.plugins.plugged_nodes import (
    STATIC,
    breaks,
    cpus_of,
    machine_named,
    named,
    node_on,
    plugged,
    pod,
    reserved_of,
    topology_of,
)

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.pods import explain
from mooring.engine.core.bits import mask_of
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.topology import Topology
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision
from mooring.engine.node.settings import Settings
from mooring.engine.plugins.facts import PluginChoseAffinity, PluginFiltered
from mooring.explanations.lines import story_lines
from mooring.explanations.story import walk

MACHINES = (
    "sockets=2 numa=2 cores=16 threads=2 memory=32Gi",
    "epyc-7763-2s-nps4",
    "qemu-b-2s16c2t-8n",
    "fakecpuid1f-64intel64-2p4d2n2c2t",
)
SINGLE = replace(STATIC, topology_manager_policy="single-numa-node")
WIDE = {"max-allowable-numa-nodes": "16"}


def nodes_of(kubelet: Kubelet, cpus: int) -> tuple[int, ...]:
    topology = topology_of(kubelet)
    return tuple(node for node, mask in topology.numa.items() if mask & cpus)


def placed(kubelet: Kubelet, *counts: int) -> tuple[Kubelet, list[tuple[int, ...]]]:
    found = []
    for index, count in enumerate(counts):
        kubelet, decision = kubelet.admit(pod(f"{index}-of-{len(counts)}", count))
        found.append(nodes_of(kubelet, cpus_of(decision).mask))
    assert not list(breaks(kubelet.node.settled()))
    return kubelet, found


def plugged_in(machine: str, strategy: str, config: KubeletConfig) -> Kubelet:
    placement = "cpu-manager" if config.topology_manager_policy == "none" else "hint-provider"
    if config.topology_manager_policy != "none":
        config = replace(config, topology_manager_policy_options=WIDE)
    return node_on(machine_named(machine), named("numa-strategy", placement, strategy=strategy), config=config)


@pytest.mark.parametrize("config", [STATIC, SINGLE])
@pytest.mark.parametrize("machine", MACHINES)
def test_least_allocated_fills_evenly(machine: str, config: KubeletConfig) -> None:
    kubelet = plugged_in(machine, "least-allocated", config)
    topology = topology_of(kubelet)
    _, found = placed(kubelet, *[2] * len(topology.numa))
    assert len(set(found)) == len(topology.numa)


@pytest.mark.parametrize("config", [STATIC, SINGLE])
@pytest.mark.parametrize("machine", MACHINES[:3])
def test_most_allocated_stays_where_somebody_is(machine: str, config: KubeletConfig) -> None:
    """The second pod does not fit beside the first; the third does, and yet the second's node is fuller."""
    kubelet = plugged_in(machine, "most-allocated", config)
    topology = topology_of(kubelet)
    room = (topology.numa[min(topology.numa)] & ~reserved_of(kubelet).mask).bit_count()
    kubelet, found = placed(kubelet, 2, room - 1, 1)
    assert found[1] == found[2]
    assert found[1] != found[0]


def test_between_two_of_equal_room_the_kubelet_takes_the_lowest_and_the_plugin_the_fullest() -> None:
    kubelet = plugged_in(MACHINES[0], "most-allocated", SINGLE)
    # Node 1 gets somebody, because node 0 is full; then node 0 is empty again.
    kubelet, found = placed(kubelet, 15, 4)
    assert found == [(0,), (1,)]
    kubelet, _ = kubelet.remove("0-of-2")
    _, after = placed(kubelet, 3)
    assert after == [(1,)]


def test_a_request_wider_than_a_node_takes_as_few_nodes_as_possible() -> None:
    kubelet = plugged_in("epyc-7763-2s-nps4", "least-allocated", STATIC)
    _, found = placed(kubelet, 4, 40)
    assert len(found[1]) == 2
    assert not set(found[0]) & set(found[1])


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
@given(counts=st.lists(st.integers(1, 14), max_size=8), strategy=st.sampled_from(["most-allocated", "least-allocated"]))
@settings(max_examples=30, deadline=None)
def test_nothing_gets_worse_by_it(policy: str, counts: list[int], strategy: str) -> None:
    """Law: on the same state whatever the kubelet admits is admitted, as preferred and on as few NUMA nodes."""
    config = replace(STATIC, topology_manager_policy=policy)
    kubelet = plugged_in("qemu-b-2s16c2t-8n", strategy, config)
    for index, count in enumerate(counts):
        one = pod(f"pod-{index}", count)
        plain = replace(kubelet.node, settings=_without_plugins(kubelet))
        _, expected = plain.decide(one)
        kubelet, decision = kubelet.admit(one)
        assert decision.admitted == expected.admitted
        if decision.admitted:
            ours, theirs = decision.affinity["c0"], expected.affinity["c0"]
            assert ours.preferred == theirs.preferred
            assert len(ours.numa or ()) == len(theirs.numa or ())
        assert not list(breaks(kubelet.node.settled()))


def _without_plugins(kubelet: Kubelet) -> Settings:
    found = kubelet.settings
    assert found.cpu is not None
    return replace(found, plugins=None, cpu=replace(found.cpu, chooser=None))


NIC = "example.com/nic"
TWO_SOCKETS = "sockets=2 cores=8 memory=16Gi"
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
    kubelet = node_on(TWO_SOCKETS, plugin, config=BEST_EFFORT).with_devices(DeviceState(ON_NODE_1))
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
    kubelet = node_on(TWO_SOCKETS, "cpus-first", config=BEST_EFFORT).with_devices(DeviceState(ON_NODE_1))
    _, decision = kubelet.admit(with_nic("web", 3))
    assert {cpu // 4 for cpu in cpus_of(decision)} == {1}
    assert decision.affinity["c0"].preferred


def test_explain_names_the_plugin() -> None:
    pods = [pod("zero", 3), pod("one", 3), with_nic("web", 3)]
    plan = make_plan(
        Question(
            machine_named(TWO_SOCKETS),
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
    kubelet = node_on(TWO_SOCKETS, "cpus-first", config=WITH_MEMORY)
    for index, (cpus, memory, leaves) in enumerate(requests):
        limits = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse(memory)}
        one = replace(pod(f"pod-{index}", cpus), containers=(Container("c0", requests=limits, limits=limits),))
        _, without = replace(kubelet.node, settings=_without_plugins(kubelet)).decide(one)
        kubelet, decision = kubelet.admit(one)
        assert decision.admitted or not without.admitted, decision.message
        assert not list(breaks(kubelet.node.settled()))
        if leaves and one.uid in kubelet.node.active:
            kubelet, _ = kubelet.remove(one.uid)


EPYC = ("epyc-7763-2s-nps4", "synth-epyc7763-2s-nps1")


def domains(topology: Topology, domain: str, cpus: CPUSet) -> frozenset[int]:
    elements = {"cache": topology.uncores, "numa": topology.numa, "socket": topology.sockets}[domain]
    return frozenset(element for element, mask in elements.items() if mask & cpus.mask)


def admitted(kubelet: Kubelet, count: int, cpus: int, group: str = "db") -> tuple[Kubelet, list[Decision]]:
    found = []
    for index in range(count):
        kubelet, decision = kubelet.admit(pod(f"{group}-{index}", cpus, spread_group=group))
        found.append(decision)
    assert not list(breaks(kubelet.node.settled()))
    return kubelet, found


@pytest.mark.parametrize("domain", ["cache", "numa", "socket"])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("machine", EPYC)
def test_pods_of_a_group_have_domains_of_their_own(machine: str, domain: str, *, strict: bool) -> None:
    kubelet = node_on(machine, named("spread", domain=domain, strict=strict))
    topology = topology_of(kubelet)
    elements = {"cache": topology.uncores, "numa": topology.numa, "socket": topology.sockets}[domain]
    kubelet, found = admitted(kubelet, len(elements), 4)
    where = [domains(topology, domain, cpus_of(decision)) for decision in found]
    assert all(len(one) == 1 for one in where)
    assert len(set(where)) == len(elements)
    facts: list[object] = []
    _, more = kubelet.admit(pod("db-more", 4, spread_group="db"), facts.append)
    assert more.admitted is not strict
    if strict:
        filtered = next(fact for fact in facts if isinstance(fact, PluginFiltered))
        assert filtered.because == f"others of the group db are on the same {domain}"


def test_without_the_plugin_they_share_a_cache() -> None:
    """What the plugin is for: the kubelet packs."""
    kubelet = node_on("epyc-7763-2s-nps4", "kubelet-rules")
    topology = topology_of(kubelet)
    _, found = admitted(kubelet, 2, 4)
    assert len({domains(topology, "cache", cpus_of(decision)) for decision in found}) == 1


def test_when_all_caches_have_one_the_least_crowded_is_next() -> None:
    kubelet = node_on(machine_named("cores=16 l3=4 memory=16Gi"), "spread", config=SINGLE)
    topology = topology_of(kubelet)
    kubelet, found = admitted(kubelet, 6, 1)
    caches = [domains(topology, "cache", cpus_of(decision)) for decision in found]
    assert len(set(caches[:4])) == 4
    assert all(len(cache) == 1 for cache in caches)
    assert max(caches.count(cache) for cache in caches) == 2


def test_strict_hints_lead_to_a_free_node() -> None:
    kubelet = node_on("epyc-7763-2s-nps4", named("spread", domain="numa", strict=True), config=SINGLE)
    topology = topology_of(kubelet)
    kubelet, found = admitted(kubelet, 8, 2)
    assert len({domains(topology, "numa", cpus_of(decision)) for decision in found}) == 8
    _, more = kubelet.admit(pod("more", 2, spread_group="db"))
    assert more.reason == "TopologyAffinityError"


def test_groups_namespaces_and_containers_of_a_pod_do_not_count_for_each_other() -> None:
    kubelet = node_on(machine_named("cores=8 l3=2 memory=16Gi"), named("spread", strict=True))
    kubelet, first = kubelet.admit(pod("one", 1, 1, spread_group="db"))
    assert first.admitted
    kubelet, other = kubelet.admit(pod("two", 2, namespace="shop", spread_group="db"))
    assert other.admitted
    kubelet, third = kubelet.admit(pod("three", 1, spread_group="web"))
    assert third.admitted
    assert not list(breaks(kubelet.node))


def test_a_pod_that_left_frees_its_domain() -> None:
    kubelet = node_on(machine_named("cores=8 l3=2 memory=16Gi"), named("spread", strict=True))
    kubelet, found = admitted(kubelet, 2, 2)
    kubelet, _ = kubelet.remove("db-0")
    _, again = kubelet.admit(pod("again", 2, spread_group="db"))
    assert cpus_of(again).mask & mask_of(cpus_of(found[1])) == 0
    assert again.admitted
