"""The plugin numa-strategy: the fullest or the emptiest of NUMA nodes that serve equally well (KEP-6007)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.plugged_nodes import STATIC, breaks, cpus_of, machine_named, named, node_on, pod

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.settings import Settings
from mooring.inputs.configuration.mooring_config import plugin_choice

MACHINES = (
    "sockets=2 numa=2 cores=16 threads=2 memory=32Gi",
    "epyc-7763-2s-nps4",
    "qemu-b-2s16c2t-8n",
    "fakecpuid1f-64intel64-2p4d2n2c2t",
)
SINGLE = replace(STATIC, topology_manager_policy="single-numa-node")
WIDE = {"max-allowable-numa-nodes": "16"}


def nodes_of(kubelet: Kubelet, cpus: int) -> tuple[int, ...]:
    topology = kubelet.settings.topology
    assert topology is not None
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
    topology = kubelet.settings.topology
    assert topology is not None
    _, found = placed(kubelet, *[2] * len(topology.numa))
    assert len(set(found)) == len(topology.numa)


@pytest.mark.parametrize("config", [STATIC, SINGLE])
@pytest.mark.parametrize("machine", MACHINES[:3])
def test_most_allocated_stays_where_somebody_is(machine: str, config: KubeletConfig) -> None:
    """The second pod does not fit beside the first; the third does, and yet the second's node is fuller."""
    kubelet = plugged_in(machine, "most-allocated", config)
    topology, policy = kubelet.settings.topology, kubelet.settings.cpu
    assert topology is not None
    assert policy is not None
    room = (topology.numa[min(topology.numa)] & ~policy.reserved).bit_count()
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


def test_a_wrong_strategy_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"settings\.strategy: 'balanced' is not known; write most-allocated or"):
        plugin_choice({"plugins": [named("numa-strategy", strategy="balanced")]})
