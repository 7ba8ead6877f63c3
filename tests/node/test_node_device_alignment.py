"""The extension device-alignment: what is held ties CPUs and memory to NUMA nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Any

import pytest
from tests.cpumanager.pods import container, guaranteed
from tests.node.nodes import config, machine

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.config import (
    DEVICE_ALIGNMENT,
    DeviceAlignment,
    DeviceAlignments,
    DeviceClass,
    MooringConfig,
)
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.extensions.device_alignment import ANNOTATION, alignment_of, check_annotation, held_hints
from mooring.engine.node import Decision, Node
from mooring.engine.node.facts import ContainerAdmitted
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import Hint, Hints

GPU, NIC, DRIVER = "nvidia.com/gpu", "rdma/hca", "gpu.nvidia.com"
FOLLOW, REQUIRE, IGNORE = DeviceAlignment.FOLLOW, DeviceAlignment.REQUIRE, DeviceAlignment.IGNORE
ALL = DeviceAlignments()


def node(policy: str = "none", rules: DeviceAlignments = ALL, scope: str = "container") -> Node:
    extended = MooringConfig(frozenset({DEVICE_ALIGNMENT}), device_alignments=rules)
    return Node.fresh(machine(), config(policy, scope), extended)


def with_held(on: Node, uid: str, held: Mapping[str, Mapping[str, tuple[Device, ...]]]) -> Node:
    devices = on.providers.devices.holding(uid, held)
    return replace(on, providers=replace(on.providers, devices=devices))


def admitted(on: Node, pod: Pod, **numa: tuple[int, ...] | None) -> Decision:
    """Ask about a pod of which containers hold a GPU with these NUMA nodes."""
    held = {name: {GPU: (Device(f"gpu-{name}", near),)} for name, near in numa.items()}
    return with_held(on, pod.uid, held).admit(pod)[1]


def cpus(decision: Decision) -> str:
    return ";".join(str(placement.cpus) for placement in decision.containers.values())


def test_cpus_follow_a_device_under_every_topology_policy() -> None:
    pod = guaranteed("u", container("c", "2"))
    for policy in ("none", "best-effort", "restricted", "single-numa-node"):
        for scope in ("container", "pod"):
            on = node(policy, scope=scope)
            assert [cpus(admitted(on, pod, c=(near,))) for near in (0, 1)] == ["1,9", "4,12"]


def test_without_devices_or_without_their_nodes_nothing_is_tied() -> None:
    pod = guaranteed("u", container("c", "2"))
    for decision in (node().admit(pod)[1], admitted(node(), pod, c=None), admitted(node(), pod, c=(7,))):
        assert cpus(decision) == "1,9"
        assert decision.hints is None


def test_policy_none_is_best_effort_for_containers_with_devices_only() -> None:
    pod = guaranteed("u", container("a", "2"), container("b", "2"))
    decision = admitted(node(), pod, b=(1,))
    assert cpus(decision) == "1,9;4,12"
    assert decision.affinity["a"] == Hint(None, preferred=False)
    assert decision.affinity["b"] == Hint(NUMAMask(0b10), preferred=True)


@pytest.mark.parametrize(
    ("policy", "default", "is_admitted"),
    [
        ("none", FOLLOW, True),
        ("best-effort", FOLLOW, True),
        ("none", REQUIRE, False),
        ("best-effort", REQUIRE, False),
        ("restricted", FOLLOW, False),
        ("single-numa-node", FOLLOW, False),
        ("restricted", IGNORE, True),
    ],
)
def test_what_cannot_be_aligned_is_placed_or_refused_as_policy_and_alignment_say(
    policy: str, default: DeviceAlignment, is_admitted: bool
) -> None:
    on, first = node(policy, DeviceAlignments(default)).admit(guaranteed("v", container("c", "6")))
    assert cpus(first) == "1-3,9-11"
    decision = admitted(on, guaranteed("u", container("c", "4")), c=(0,))
    assert decision.admitted is is_admitted
    if not is_admitted:
        assert decision.reason == "TopologyAffinityError"
        assert decision.message == "Resources cannot be allocated with Topology locality"


def test_in_pod_scope_the_devices_of_all_containers_tie_all_of_them() -> None:
    pod = guaranteed("u", container("a", "2"), container("b", "2"))
    assert cpus(admitted(node("restricted", scope="pod"), pod, b=(1,))) == "4,12;5,13"


def test_a_device_near_several_nodes_is_a_hint_for_each_way_to_touch_it() -> None:
    state = DeviceState().holding("u", {"c": {GPU: (Device("g0", (0, 1)), Device("g1", (1,)))}})
    told: list[Any] = []
    hints = held_hints(ALL, state, (0, 1), guaranteed("u", container("c", "1")), "c", told.append)
    assert hints == {GPU: Hints(preferred=(NUMAMask(0b10),), others=(NUMAMask(0b11),))}
    assert [astuple(one) for one in told] == [("u", "c", GPU, 2, {"g0": 0b11, "g1": 0b10}, 2, True)]


def test_a_device_can_be_held_by_two_containers_and_by_two_pods() -> None:
    on, pod = node("restricted"), guaranteed("u", container("a", "2"), container("b", "2"))
    shared = {DRIVER: (Device("pool/gpu-0", (1,)),)}
    on = with_held(on, "u", {"a": shared, "b": shared})
    on, decision = on.admit(pod)
    assert cpus(decision) == "4,12;5,13"
    assert cpus(with_held(on, "v", {"c": shared}).admit(guaranteed("v", container("c", "2")))[1]) == "6,14"


def test_what_a_pod_has_by_claims_it_holds_from_when_it_is_asked_about() -> None:
    claims = {"u": {"c": {DRIVER: frozenset({"pool/gpu-1"})}}}
    on = node("restricted")
    known = replace(on.providers.devices, devices={DRIVER: (Device("pool/gpu-1", (1,)),)}, claimed=claims)
    on = replace(on, providers=replace(on.providers, devices=known))
    other = on.admit(guaranteed("v", container("c", "2")))[0]
    assert other.providers.devices.held == {}
    after, decision = other.admit(guaranteed("u", container("c", "2")))
    assert cpus(decision) == "4,12"
    assert after.providers.devices.held == claims
    assert after.remove("u")[0].settled().providers.devices.held == {}


def test_what_a_pod_held_before_is_replaced() -> None:
    state = DeviceState().holding("u", {"c": {GPU: (Device("g0", (0,)),)}}).holding("v", {"c": {GPU: ()}})
    state = state.holding("u", {"c": {GPU: (Device("g0", (1,)), Device("g1", (1,)))}})
    assert [device.numa for device in state.devices[GPU]] == [(1,), (1,)]
    assert state.held_by("u", "c", GPU) == {"g0", "g1"}
    assert "u" not in state.holding("u", {}).held


def with_gpu(pod: Pod, count: int = 1) -> Pod:
    one = pod.containers[0]
    more = {GPU: Quantity.parse(str(count))} if count else {}
    return replace(pod, containers=(replace(one, requests={**one.requests, **more}, limits={**one.limits, **more}),))


# Who decides what a device means.


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, (FOLLOW, REQUIRE, IGNORE)),
        ("require", (REQUIRE, REQUIRE, REQUIRE)),
        ("gpus=ignore", (IGNORE, REQUIRE, IGNORE)),
        (" gpus = Require , nics=follow", (REQUIRE, FOLLOW, IGNORE)),
        ("ignore, fpgas=follow", (IGNORE, IGNORE, FOLLOW)),
        ("always", (FOLLOW, REQUIRE, IGNORE)),
    ],
)
def test_the_annotation_wins_over_the_node_and_a_class_over_the_default(
    annotation: str | None, expected: tuple[DeviceAlignment, ...]
) -> None:
    rules = DeviceAlignments(
        FOLLOW, {"nics": DeviceClass(REQUIRE), "fpgas": DeviceClass(IGNORE, ("vendor.example/fpga-*",))}
    )
    annotations = {} if annotation is None else {ANNOTATION: annotation}
    found = tuple(alignment_of(rules, annotations, name) for name in (GPU, NIC, "vendor.example/fpga-x"))
    assert found == expected


@pytest.mark.parametrize("text", ["always", "gpus=", "=follow", "gpus=follow,", "gpus"])
def test_an_annotation_that_says_nothing_is_refused_with_its_name_and_a_remedy(text: str) -> None:
    with pytest.raises(InputError, match=r"^metadata\.annotations\.mooring/device-alignment: '.*; write follow"):
        check_annotation({ANNOTATION: text})


def test_without_the_extension_nothing_is_held_against_cpus() -> None:
    plain = Node.fresh(machine(), config("restricted"), MooringConfig(device_alignments=DeviceAlignments(REQUIRE)))
    assert plain.settings.device_alignments is None
    assert cpus(admitted(plain, guaranteed("u", container("c", "2")), c=(1,))) == "1,9"


def test_a_container_counts_once_as_aligned_although_two_decide_about_it() -> None:
    on = node("single-numa-node").with_devices({GPU: (Device("g0", (1,)),)})
    told: list[object] = []
    assert on.admit(with_gpu(guaranteed("u", container("c", "2"))), told.append)[1].admitted
    assert [fact for fact in told if isinstance(fact, ContainerAdmitted)] == [ContainerAdmitted("u", "c")]
    assert len([fact for fact in told if isinstance(fact, HintsMerged)]) == 2
