"""The plugin spread: pods of one group get different caches, NUMA nodes or sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.plugins.plugged_nodes import STATIC, breaks, cpus_of, machine_named, named, node_on, pod

from mooring.engine.core.bits import mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.topology import Topology
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision
from mooring.engine.plugins.facts import PluginFiltered

EPYC = ("epyc-7763-2s-nps4", "synth-epyc7763-2s-nps1")
SINGLE = replace(STATIC, topology_manager_policy="single-numa-node")


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
    topology = kubelet.settings.topology
    assert topology is not None
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
    topology = kubelet.settings.topology
    assert topology is not None
    _, found = admitted(kubelet, 2, 4)
    assert len({domains(topology, "cache", cpus_of(decision)) for decision in found}) == 1


def test_when_all_caches_have_one_the_least_crowded_is_next() -> None:
    kubelet = node_on(machine_named("cores=16 l3=4 memory=16Gi"), "spread", config=SINGLE)
    topology = kubelet.settings.topology
    assert topology is not None
    kubelet, found = admitted(kubelet, 6, 1)
    caches = [domains(topology, "cache", cpus_of(decision)) for decision in found]
    assert len(set(caches[:4])) == 4
    assert all(len(cache) == 1 for cache in caches)
    assert max(caches.count(cache) for cache in caches) == 2


def test_strict_hints_lead_to_a_free_node() -> None:
    kubelet = node_on("epyc-7763-2s-nps4", named("spread", domain="numa", strict=True), config=SINGLE)
    topology = kubelet.settings.topology
    assert topology is not None
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
