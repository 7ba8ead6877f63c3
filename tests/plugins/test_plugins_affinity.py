"""Plugins and NUMA nodes, restarts and CPUs that go offline: nobody is refused or loses a promise because of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.cpumanager.pods import container, guaranteed
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods
from tests.node.hotpluggable import TWO_NODES, cpus, offline, online, pod, set_of, told, with_pods
from tests.node.nodes import config, machine
from tests.plugins.hostile_plugins import hostile_plugins
from tests.plugins.made_plugins import answering, choice, plugin

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    FIXABLE_DEFECTS,
    PLUGINS,
    SAME_NODES,
    ChosenPlugin,
    KubeletConfig,
    MooringConfig,
    PluginPlacement,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import Device
from mooring.engine.node import Decision, Node
from mooring.engine.plugins import AffinityRequest, CPURequest
from mooring.engine.plugins.facts import PluginChoseAffinity, PluginFailed
from mooring.engine.topologymanager.hints import Hint

HINTS = PluginPlacement.HINT_PROVIDER


def on_node(number: int) -> ChosenPlugin:
    """Return a hint provider that wants the CPUs of one NUMA node."""

    def select(request: CPURequest, **_asked: object) -> CPUSet:
        return CPUSet.from_ids(list(request.machine.numa[number] & request.available)[: request.need])

    return plugin(f"node-{number}", placement=HINTS, select_cpus=select)


def first_node(*plugins: ChosenPlugin, info: MachineInfo, kubelet: KubeletConfig) -> Node:
    return Node.fresh(info, kubelet, MooringConfig(plugins=choice(*plugins)))


def asked(node: Node, cpus: str = "2", memory: str = "1Gi") -> tuple[Decision, list[object]]:
    facts: list[object] = []
    pod = guaranteed("uid", container("app", cpus, memory=memory))
    return node.admit(pod, facts.append)[1], facts


def test_hints_of_plugins_decide_between_equally_good_nodes() -> None:
    for policy in ("best-effort", "restricted", "single-numa-node"):
        decision, facts = asked(first_node(on_node(2), info=machine(4), kubelet=config(policy)))
        assert decision.affinity["app"] == Hint(NUMAMask(0b100), preferred=True), policy
        assert decision.containers["app"].cpus <= CPUSet.parse("8-11,24-27")
        (chose,) = [fact for fact in facts if isinstance(fact, PluginChoseAffinity)]
        assert (chose.plugin, chose.merged, chose.nodes) == ("node-2", 0b1, 0b100)


def test_without_a_topology_policy_there_are_no_hints_to_decide_between() -> None:
    decision, facts = asked(first_node(on_node(2), info=machine(4), kubelet=config("none")))
    assert decision.containers["app"].cpus <= CPUSet.parse("0-3,16-19")
    assert not [fact for fact in facts if isinstance(fact, PluginChoseAffinity)]


def test_a_hint_that_would_be_wider_or_not_preferred_does_not_count() -> None:
    everywhere = plugin(
        "wide", placement=HINTS, select_cpus=lambda request, **_asked: CPUSet.from_ids([1, 4][: request.need])
    )
    plain = asked(first_node(info=machine(4), kubelet=config("best-effort")))[0]
    decision, facts = asked(first_node(everywhere, info=machine(4), kubelet=config("best-effort")))
    assert decision == plain
    assert not [fact for fact in facts if isinstance(fact, PluginChoseAffinity | PluginFailed)]


def test_hints_work_on_machines_with_more_than_eight_numa_nodes() -> None:
    kubelet = replace(config("single-numa-node"), topology_manager_policy_options={"max-allowable-numa-nodes": "16"})
    kubelet = replace(kubelet, feature_gates={**kubelet.feature_gates, "TopologyManagerPolicyAlphaOptions": True})
    node = first_node(on_node(13), info=machine(16, 2), kubelet=kubelet)
    decision, _ = asked(node)
    assert decision.affinity["app"] == Hint(NUMAMask(1 << 13), preferred=True)
    assert decision.containers["app"].cpus <= CPUSet.parse("26-27,58-59")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), hard=hardware(), kubelet=configurations())
def test_nobody_is_refused_or_worse_off_because_of_hints(
    data: st.DataObject, hard: Hardware, kubelet: KubeletConfig
) -> None:
    made = data.draw(hostile_plugins(lies=False))
    plugins = choice(*(replace(one, placement=HINTS) for one in made if "choose_affinity" not in one.points))
    plain = Node.fresh(hard.info, kubelet, MooringConfig(fixed_defects=FIXABLE_DEFECTS)).with_devices(hard.devices)
    other = Node.fresh(hard.info, kubelet, MooringConfig(fixed_defects=FIXABLE_DEFECTS, plugins=plugins))
    for number in range(data.draw(st.integers(0, 3))):
        plain, _ = plain.admit(data.draw(pods(f"p{number}")))
    other = replace(
        other, providers=plain.providers, stored_hints=plain.stored_hints, active=plain.active, started=plain.started
    )
    pod = data.draw(pods("last"))
    if not plain.settings.pod_scope:
        # What follows a container depends on where it lies.
        pod = replace(pod, containers=pod.containers[:1], resources=None)
    _, before = plain.admit(pod)
    _, after = other.admit(pod)
    assert after.admitted or not before.admitted
    if not before.admitted or not after.admitted:
        return
    for name, hint in before.affinity.items():
        again = after.affinity[name]
        assert again.preferred == hint.preferred
        assert (again.mask is None) == (hint.mask is None)
        assert again.mask is None or hint.mask is None or again.mask.bit_count() == hint.mask.bit_count()
        event(f"other nodes: {again.mask != hint.mask}")


# choose_affinity


def cpus_first() -> ChosenPlugin:
    def choose(request: AffinityRequest) -> frozenset[int] | None:
        return request.of_cpus.nodes

    return plugin("cpus-first", choose_affinity=choose)


def conflicting(policy: str, *plugins: ChosenPlugin) -> tuple[Decision, list[object]]:
    """Ask for CPUs that only NUMA node 0 has, and for the device that hangs at node 1."""
    node = first_node(*plugins, info=machine(2), kubelet=config(policy))
    node = node.with_devices({"vendor.example/gpu": (Device("gpu", (1,)),)})
    node, _ = node.admit(guaranteed("full", container("app", "5")))
    node, _ = node.admit(guaranteed("more", container("app", "8")))
    app = container("app", "2")
    one = {**app.requests, "vendor.example/gpu": app.requests["cpu"].parse("1")}
    facts: list[object] = []
    return node.admit(guaranteed("uid", replace(app, requests=one, limits=one)), facts.append)[1], facts


def test_cpus_come_first_only_with_best_effort() -> None:
    plain, _ = conflicting("best-effort")
    assert not plain.affinity["app"].preferred
    first, facts = conflicting("best-effort", cpus_first())
    assert first.admitted
    assert first.affinity["app"] == Hint(NUMAMask(0b1), preferred=False)
    assert [fact.plugin for fact in facts if isinstance(fact, PluginChoseAffinity)] == ["cpus-first"]
    asked: list[object] = []
    asks = plugin("asks", choose_affinity=lambda **given: asked.append(given))
    for policy in ("restricted", "single-numa-node"):
        assert conflicting(policy, asks)[0] == conflicting(policy)[0]
    assert asked == []


def test_nodes_of_nobodys_preference_are_left_out_and_the_failure_is_reported() -> None:
    bad = plugin("bad", choose_affinity=answering(frozenset({1})))
    decision, _ = conflicting("best-effort", bad)
    plain, _ = conflicting("best-effort")
    assert decision.affinity == plain.affinity
    assert [(one.plugin, one.point) for one in decision.plugin_failures] == [("bad", "choose_affinity")]


def plugged(allowed: str, policy: str = "single-numa-node", scope: str = "container") -> Node:
    """Return a node whose CPUs may go offline, and whose plugin lets pods have some CPUs only."""

    def filter_cpus(request: CPURequest) -> CPUSet:
        return request.available - CPUSet(cpus(allowed))

    chosen = choice(plugin("odd", filter_cpus=filter_cpus))
    mooring = MooringConfig(frozenset({CPU_HOTPLUG, PLUGINS}), FIXABLE_DEFECTS, SAME_NODES, chosen)
    return Node.fresh(TWO_NODES, config(policy, scope), mooring)


def test_a_withheld_cpu_does_not_stand_in() -> None:
    node = with_pods(plugged("1,3,5,7,9,11"), pod(3))
    assert set_of(node, "p") == "1,3,5"
    after, _ = offline(node, "3")
    assert set_of(after, "p") == "1,5,7"
    assert online(after, "3")[0] == node


def test_a_set_stays_broken_when_all_that_is_free_is_withheld() -> None:
    node = with_pods(plugged("1,3,5,9"), pod(3))
    after, change = offline(node, "3")
    assert set_of(after, "p") == "1,3,5"
    assert told(change) == [("a", "3", "1 needed, 0 free on NUMA node 0")]


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_pod_keeps_nodes_that_are_the_fewest_only_for_its_plugins(scope: str) -> None:
    """Three CPUs of each node are within reach: four need both nodes, though one node has eight CPUs."""
    node, decision = plugged("1,3,5,9,11,13", "restricted", scope).admit(pod(4))
    assert decision.admitted, decision.message
    before = set_of(node, "p")
    restarted = node.restart()
    assert isinstance(restarted, tuple)
    node, readmission = restarted
    assert readmission.refused == ()
    assert set_of(node, "p") == before
