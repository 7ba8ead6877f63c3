"""Pods with resources of their own, in every scope and across a restart (pod-level.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.cpumanager.pods import amounts
from tests.node.nodes import machine, settings_of
from tests.node.podlevel_nodes import INIT, ONE_THREAD, SIDECAR, container, cpus_of, fresh, managed, shared, whole

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.engine.memorymanager.start import DIFFERENT
from mooring.engine.node import Decision, Node, StartRefusedError
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hints

MIXED = whole("4", container("own", "2"), shared("rest"))


def admitted(node: Node, pod: Pod) -> Node:
    node, decision = node.admit(pod)
    assert decision.admitted, decision.message
    return node


def refused(node: Node, pod: Pod) -> tuple[str, str]:
    _, decision = node.admit(pod)
    assert not decision.admitted
    return decision.reason, decision.message


# Who is affected.


def test_without_pod_level_resources_the_managers_gate_is_not_accepted() -> None:
    with pytest.raises(StartRefusedError, match="PodLevelResource"):
        fresh(managed(gates={"PodLevelResourceManagers": True, "PodLevelResources": False}))


# Allocation in pod scope.


def test_more_than_the_pod_has_is_not_refused_where_nobody_shares() -> None:
    # API validation keeps such pods away; the check does not.
    pod = whole("2", container("a", "2"), container("b", "1"))
    text = "not enough cpus available to satisfy request: requested=1, available=0"
    assert refused(fresh(managed()), pod) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {text}, which is unexpected",
    )


def test_nothing_is_reused_from_init_containers_in_pod_scope() -> None:
    pod = whole("5", container("i", "4", kind=INIT), container("a", "4"), container("b", "1"))
    assert cpus_of(admitted(fresh(managed()), pod)) == {"i": "1-4", "a": "1-4", "b": "5", "": "1-5"}


# Failing half way.

TOO_LARGE = whole("5", container("s", "2", kind=SIDECAR), container("i", "4", kind=INIT), container("a", "1"))
"""The init container does not fit beside the sidecar; API validation keeps such pods away."""


def failed(*fixed: str) -> tuple[Node, Decision]:
    node, decision = fresh(managed(), ONE_THREAD, *fixed).admit(TOO_LARGE)
    text = "not enough cpus available to satisfy request: requested=4, available=3"
    assert decision.message == f"Allocate failed due to {text}, which is unexpected"
    return node, decision


def test_an_allocation_that_fails_half_way_leaves_the_pods_cpus_to_nobody_for_ever() -> None:
    node, decision = failed()
    assert (str(decision.pod.cpus), str(decision.shared_pool)) == ("1-5", "0")
    assert cpus_of(node) == {"": "1-5"}
    removed, _ = node.remove("pod")
    assert cpus_of(removed) == {"": "1-5"}
    restarted = removed.restart()
    assert isinstance(restarted, tuple)
    assert cpus_of(restarted[0]) == {"": "1-5"}


def test_with_pod_restart_fixed_it_leaves_nothing() -> None:
    node, decision = failed("pod-restart")
    assert (str(decision.pod.cpus), str(decision.shared_pool)) == ("", "0-5")
    assert node.cpu == fresh(managed()).cpu


def test_with_pod_restart_fixed_what_was_left_before_is_given_back() -> None:
    left, _ = failed()
    sane = fresh(managed(), ONE_THREAD, "pod-restart").settings
    restarted = left.restart(sane)
    assert isinstance(restarted, tuple)
    node, _ = restarted[0].admit(Pod("other", "other"))
    assert node.cpu == fresh(managed()).cpu


def test_fractions_of_memory_are_no_requests_of_the_pod() -> None:
    pod = whole("4", container("own", "2"), shared("rest"), memory="0.5")
    assert pod.resources is not None
    assert pod.resources.requests["memory"] == Quantity.parse("500m")
    node = admitted(fresh(managed(memory=True)), pod)
    assert node.memory.assignments == {}


def test_devices_of_a_pod_in_pod_scope_are_not_taken_at_its_admission() -> None:
    """Two pods are admitted that want the only device: it is taken when a container is created."""
    node = fresh(managed("best-effort")).with_devices({"vendor.example/nic": (Device("only", (0,)),)})
    limits = {**amounts("1"), "vendor.example/nic": Quantity.parse("1")}
    for uid in ("first", "second"):
        node, decision = node.admit(whole("2", Container("c", limits=limits, requests=limits), uid=uid))
        assert decision.admitted
        assert decision.devices == {}


TWO = machine(2, 4)
EIGHT = machine(1, 8, threads=1)
"""CPUs 0 to 7 of one node, the machine of the later kubelet's own cases."""
THREE = whole("3", container("own", "2"), shared("rest"))
POLICIES = ("best-effort", "restricted", "single-numa-node")


def running(kubelet: KubeletConfig, *pods: Pod, info: MachineInfo = TWO, fixed: tuple[str, ...] = ()) -> Node:
    node = fresh(kubelet, info, *fixed)
    for pod in pods:
        node = admitted(node, pod)
    return node


def restarted(node: Node, other: Settings | None = None) -> tuple[Node, tuple[Decision, ...]]:
    found = node.restart(other)
    assert isinstance(found, tuple), found
    return found[0], found[1].decisions


# The defect.


def test_the_kubelet_charges_memory_twice_and_then_refuses_its_own_file() -> None:
    kubelet = replace(managed(memory=True), cpu_manager_policy="none", reserved_system_cpus="")
    pod = whole("3", container("own", "2"), shared("rest"), memory="3Gi")
    node, (decision,) = restarted(running(kubelet, pod, info=EIGHT))
    assert decision.pod_hints == {}  # 1 GiB of the first container against 3 GiB of the pod: no opinion
    assert decision.admitted
    assert node.memory.nodes[0].memory["memory"].reserved == 6 * 2**30
    refused = node.restart()
    assert isinstance(refused, StartRefusal)
    assert refused.message == f"start memory manager error: {DIFFERENT}"
    removed, _ = node.remove("pod")
    assert removed.memory.nodes[0].memory["memory"].reserved == 3 * 2**30


# Fixed.

FIX = ("pod-restart",)
FIXED = MooringConfig(fixed_defects=frozenset(FIX))
OWN = whole("3", container("a", "2"), container("b", "1"))
WITH_INIT = whole("4", container("i", "3", kind=INIT), shared("j", INIT), container("a", "1"), shared("b"))


def test_fixed_hints_come_from_what_the_pod_has() -> None:
    pods = [whole("6", container("a", "6"), uid="first"), THREE]
    node = running(managed(), *pods, fixed=FIX)
    _, decisions = restarted(node)
    # Node 0 has one CPU left: THREE lies on node 1.
    assert decisions[1].pod_hints == {"cpu": Hints((NUMAMask(0b10),), (NUMAMask(0b11),))}


def torn(pod: Pod, cpus: str, **sets: str) -> Node:
    """Return a node on which a write was cut short: the pod has its CPUs, and only some containers have theirs."""
    node = fresh(managed(), EIGHT, *FIX)
    bubble = CPUSet.parse(cpus).mask
    held = {name: CPUSet.parse(text).mask for name, text in sets.items()}
    state = replace(
        node.cpu,
        default=node.cpu.default & ~bubble,
        assignments={pod.uid: held} if held else {},
        pods={pod.uid: bubble},
    )
    return replace(node, providers=replace(node.providers, cpu=state)).adopt([pod])


PAIR = whole("3", container("c1", "2"), shared("c2"))
SIDECARS = whole("6", container("s1", "2", kind=SIDECAR), container("s2", "2", kind=SIDECAR), container("c1", "2"))


@pytest.mark.parametrize(
    ("pod", "cpus", "kept", "expected"),
    [
        # The later kubelet's own cases (spec: pod-level.md section 6).
        (PAIR, "1-3", {"c1": "1-2"}, {"c1": "1-2", "c2": "3"}),
        (SIDECARS, "1-6", {"s1": "1-2"}, {"s1": "1-2", "s2": "3-4", "c1": "5-6"}),
        (SIDECARS, "1-6", {"s1": "3-4"}, {"s1": "3-4", "s2": "1-2", "c1": "5-6"}),
        (PAIR, "1-3", {}, {"c1": "1-2", "c2": "3"}),
        (PAIR, "5-7", {}, {"c1": "5-6", "c2": "7"}),
        (PAIR, "5-7", {"c1": "6-7", "c2": "5"}, {"c1": "6-7", "c2": "5"}),
    ],
)
def test_fixed_what_is_stored_is_kept_and_completed(
    pod: Pod, cpus: str, kept: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    node, (decision,) = restarted(torn(pod, cpus, **kept))
    assert decision.admitted
    assert cpus_of(node) == {**expected, "": cpus}
    assert node.shared_pool == CPUSet.parse("0-7") - CPUSet.parse(cpus)


@pytest.mark.parametrize(
    ("pod", "cpus", "kept"),
    [
        (PAIR, "5-7", {"c2": "7"}),  # the first one is missing
        (PAIR, "5-7", {"c1": "5-7"}),  # another number than it asks for
        (PAIR, "5-7", {"c1": "5-6", "c2": "6-7"}),  # a sharer with CPUs of its neighbour
        (PAIR, "4-7", {"c1": "4-5", "c2": "6-7"}),  # the pod has another number than it asks for
        (SIDECARS, "2-7", {"s1": "2-3", "s2": "3-4"}),  # two owners
    ],
)
def test_fixed_everything_else_begins_anew(pod: Pod, cpus: str, kept: Mapping[str, str]) -> None:
    node, (decision,) = restarted(torn(pod, cpus, **kept))
    assert decision.admitted
    assert cpus_of(node) == cpus_of(running(managed(), pod, info=EIGHT))
    assert node.cpu == running(managed(), pod, info=EIGHT).cpu
    assert decision.pod_hints == {"cpu": Hints((NUMAMask(1),))}


def test_fixed_a_pod_that_grew_gets_its_new_number() -> None:
    node = running(managed("restricted", memory=True), THREE, info=TWO, fixed=FIX)
    grown = whole("5", container("own", "2"), shared("rest"), memory="6Gi")
    after, (decision,) = restarted(replace(node, active={"pod": grown}))
    assert decision.admitted
    assert after.cpu == running(managed("restricted"), grown).cpu
    assert after.memory == running(managed("restricted", memory=True), grown).memory


def test_fixed_a_pod_that_finds_no_room_again_keeps_what_it_has_until_it_goes() -> None:
    node = running(managed("restricted"), THREE, info=EIGHT, fixed=FIX)
    grown = whole("9", container("own", "2"), shared("rest"))
    after, (decision,) = restarted(replace(node, active={"pod": grown}))
    assert not decision.admitted
    assert after.cpu == node.cpu
    assert after.remove("pod")[0].cpu == fresh(managed(), EIGHT).cpu


# Scopes.


@pytest.mark.parametrize("policy", POLICIES)
def test_from_pod_scope_to_container_scope_everybody_keeps_everything(policy: str) -> None:
    node = running(managed(policy, memory=True), WITH_INIT, fixed=FIX)
    other = settings_of(managed(policy, "container", memory=True), TWO, FIXED)
    after, decisions = restarted(node, other)
    assert [decision.admitted for decision in decisions] == [True]
    assert (after.cpu, after.memory) == (node.cpu, node.memory)
    back, _ = restarted(after, node.settings)
    assert (back.cpu, back.memory) == (node.cpu, node.memory)


def test_from_container_scope_to_pod_scope_the_pod_begins_anew() -> None:
    node = running(managed("restricted", "container", memory=True), OWN, fixed=FIX)
    assert "" not in cpus_of(node)
    after, (decision,) = restarted(node, settings_of(managed("restricted", memory=True), TWO, FIXED))
    assert decision.admitted
    fresh_one = running(managed("restricted", memory=True), OWN)
    assert (after.cpu, after.memory) == (fresh_one.cpu, fresh_one.memory)
    removed, _ = after.remove("pod")
    assert removed.cpu == fresh(managed(), TWO).cpu


# The gate.


def gate_off(policy: str = "restricted", scope: str = "pod", **more: bool) -> KubeletConfig:
    return managed(policy, scope, gates={"PodLevelResourceManagers": False}, **more)


@pytest.mark.parametrize("fixed", [(), FIX])
def test_switched_off_the_pods_own_set_is_forgotten(fixed: tuple[str, ...]) -> None:
    divided = running(managed("restricted"), OWN, fixed=fixed)
    after, (decision,) = restarted(divided, settings_of(gate_off(), TWO, MooringConfig(fixed_defects=frozenset(fixed))))
    assert decision.admitted
    assert after.cpu.assignments == divided.cpu.assignments
    assert after.cpu.pods == {}
    assert after.remove("pod")[0].cpu == fresh(gate_off(), TWO).cpu
