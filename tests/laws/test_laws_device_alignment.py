"""With the extension device-alignment CPUs and memory follow devices, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.laws.laws_whole_node import CONTESTED, WIDER, weaknesses
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods
from tests.laws.test_laws_whole_node import WholeNode

from mooring.engine.core.bits import mask_of
from mooring.engine.core.config import (
    DEVICE_ALIGNMENT,
    FIXABLE_DEFECTS,
    DeviceAlignment,
    DeviceAlignments,
    KubeletConfig,
    MooringConfig,
)
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.device_alignment import ANNOTATION
from mooring.engine.node import Decision, Node

FOLLOWS = frozenset({DEVICE_ALIGNMENT})
PLAIN = MooringConfig(fixed_defects=FIXABLE_DEFECTS)
FOLLOWING = replace(PLAIN, extensions=FOLLOWS)
SINGLE = "single-numa-node"


class FollowingNode(WholeNode):
    """All laws of a whole node hold with the extension, too: restarts, removals, one owner for each thing."""

    extensions = FOLLOWS


FollowingNode.TestCase.settings = settings(max_examples=40, stateful_step_count=15)
TestFollowingNode = FollowingNode.TestCase


def without_devices(pod: Pod) -> Pod:
    """Return a pod as the agent sees it: its devices were given before."""

    def stripped(resources: Mapping[str, object]) -> dict[str, object]:
        return {name: amount for name, amount in resources.items() if "/" not in name}

    made = tuple(
        replace(one, requests=stripped(one.requests), limits=stripped(one.limits))  # type: ignore[arg-type]
        for one in pod.containers
    )
    return replace(pod, containers=made)


def beside(config: KubeletConfig) -> KubeletConfig:
    """Return the configuration of the kubelet beside an agent: devices only."""
    return replace(
        config,
        cpu_manager_policy="none",
        cpu_manager_policy_options={},
        memory_manager_policy="None",
        reserved_memory=(),
        feature_gates={},
    )


def following(hard: Hardware, config: KubeletConfig, default: DeviceAlignment = DeviceAlignment.FOLLOW) -> Node:
    rules = DeviceAlignments(default)
    return Node.fresh(hard.info, config, replace(FOLLOWING, device_alignments=rules)).with_devices(hard.devices)


def placed(decision: Decision) -> object:
    return decision.admitted, decision.reason, decision.containers, decision.pod, decision.shared_pool


@given(hardware(), configurations(), st.data())
def test_pods_without_devices_are_decided_as_by_the_kubelet(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    extended, plain = following(hard, config), Node.fresh(hard.info, config, PLAIN).with_devices(hard.devices)
    for number in range(3):
        pod = without_devices(data.draw(pods(f"p{number}")))
        told: list[object] = []
        heard: list[object] = []
        extended, decision = extended.admit(pod, told.append)
        plain, other = plain.admit(pod, heard.append)
        assert decision == other
        assert told == heard


@given(hardware(), configurations(), st.data())
def test_devices_that_are_ignored_change_nothing_of_what_cpus_and_memory_get_without_them(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    pod = data.draw(pods("p"))
    given_devices = Node.fresh(hard.info, beside(config), PLAIN).with_devices(hard.devices).admit(pod)[1].admitted
    _, decision = following(hard, config, DeviceAlignment.IGNORE).admit(pod)
    if given_devices:
        plain = Node.fresh(hard.info, config, PLAIN).admit(without_devices(pod))[1]
        assert placed(decision) == placed(plain)
    else:
        assert not decision.admitted


@given(hardware(), configurations(), st.sampled_from(DeviceAlignment), st.data())
@settings(max_examples=80)
def test_a_plan_is_the_kubelet_beside_and_then_the_agent_with_what_it_gave(
    hard: Hardware, config: KubeletConfig, default: DeviceAlignment, data: st.DataObject
) -> None:
    """The agent is told of devices that are held; its pods do not request any."""
    plan = following(hard, config, default)
    kubelet = Node.fresh(hard.info, beside(config), PLAIN).with_devices(hard.devices)
    agent = following(replace(hard, devices={}), config, default)
    for number in range(4):
        pod = data.draw(pods(f"p{number}"))
        plan, decision = plan.admit(pod)
        kubelet, devices = kubelet.admit(pod)
        if not devices.admitted:
            assert (decision.admitted, decision.reason) == (False, devices.reason)
            event("refused by the kubelet")
            agent = agent.settled()
            plan = plan.settled()
            continue
        known = agent.providers.devices.holding(pod.uid, devices.devices)
        agent = replace(agent, providers=replace(agent.providers, devices=known))
        agent, answer = agent.admit(without_devices(pod))
        assert placed(answer) == placed(decision)
        assert decision.devices == devices.devices == answer.devices
        if not answer.admitted:
            event("refused by the agent")
            kubelet = kubelet.withdraw(pod.uid)
        else:
            event("admitted")


@given(hardware(), configurations(), st.data())
@settings(max_examples=120)
def test_under_single_numa_node_everything_of_a_container_is_on_one_node_or_the_pod_is_refused(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    node = following(hard, replace(config, topology_manager_policy=SINGLE))
    for number in range(3):
        pod = data.draw(pods(f"p{number}"))
        node, decision = node.admit(pod)
        if weaknesses(node) & {CONTESTED, WIDER}:
            return
        for container in decision.containers if decision.admitted else ():
            assert on_one_node(node, decision, container)


def on_one_node(node: Node, decision: Decision, container: str) -> bool:
    topology, placement = node.settings.topology, decision.containers[container]
    assert topology is not None
    known = mask_of(node.settings.numa_ids)
    found = decision.devices.get(container, {}).values()
    near = [device.mask & known for devices in found for device in devices if device.mask & known]
    return any(
        not placement.cpus.mask & ~cpus and set(placement.mems) <= {number} and all(mask >> number & 1 for mask in near)
        for number, cpus in topology.numa.items()
    ) or not (placement.cpus or placement.mems)


@given(hardware(), configurations(), st.data())
def test_what_is_required_has_a_preferred_hint_under_every_topology_policy(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    node = following(hard, config)
    for number in range(2):
        pod = replace(data.draw(pods(f"p{number}")), annotations={ANNOTATION: "require"})
        node, decision = node.admit(pod)
        if not decision.admitted:
            continue
        for container, resources in decision.devices.items():
            known = mask_of(node.settings.numa_ids)
            if any(device.mask & known for devices in resources.values() for device in devices):
                assert decision.affinity[container].preferred
                event("tied")


@given(hardware(), configurations(), st.data())
def test_to_require_is_to_follow_where_the_policy_is_strict_already(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    strict = replace(config, topology_manager_policy=data.draw(st.sampled_from(["restricted", SINGLE])))
    pod = data.draw(pods("p"))
    required = following(hard, strict, DeviceAlignment.REQUIRE).admit(pod)[1]
    assert required == following(hard, strict).admit(pod)[1]
