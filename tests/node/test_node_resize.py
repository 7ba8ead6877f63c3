"""Resizing pinned containers: which CPUs and memory nodes come of it (resize.md sections 1, 3 and 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.nodes import GIB, machine
from tests.node.resizable import SIXTEEN, TEN_CORES, config, cpus, pod, refused_with, resized, started, with_pods

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.node.resizing import reconcile, resize, resize_state, retry
from mooring.engine.node.resources import DEFERRED, IN_PROGRESS, INFEASIBLE, PENDING, Waiting, retry_order


def test_two_four_two() -> None:
    """The example of resize.md section 4."""
    node = with_pods(started(SIXTEEN, config()), pod(2))
    seen = [(cpus(node), str(node.shared_pool))]
    for number in (4, 2):
        node, _ = resized(node, pod(number))
        seen.append((cpus(node), str(node.shared_pool)))
    assert seen == [("1-2", "0,3-15"), ("1-4", "0,5-15"), ("1-2", "0,3-15")]


def test_whole_cores_stay_whole_and_half_ones_are_refused() -> None:
    node = with_pods(started(TEN_CORES, config(full_pcpus_only="true")), pod(2))
    message = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert refused_with(node, pod(3)) == (INFEASIBLE, "SMTAlignmentError", message)
    node, _ = resized(node, pod(4))
    assert cpus(node) == "1-2,11-12"
    message = (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 18, requested CPUs = 20, "
        "CPUs per core = 2"
    )
    assert refused_with(node, pod(20))[2] == message


def test_growth_without_room_is_infeasible_and_what_was_there_stays() -> None:
    node = with_pods(started(SIXTEEN, config()), pod(2))
    message = (
        "ResizeAllocateCPUs Error: Skip resize, unable to resize container exclusively allocated pool, (podUID = p, "
        "containerName = a, topologyError = not enough cpus available to satisfy request: requested=14, available=13)"
    )
    assert refused_with(node, pod(16)) == (INFEASIBLE, "resizeAllocateCPUsError", message)


TWO_NODES = machine(2, 4, threads=1)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_strict_policy_refuses_growth_beyond_the_node_in_use(scope: str) -> None:
    node = with_pods(started(TWO_NODES, config(policy="single-numa-node", scope=scope)), pod(2))
    node, _ = resized(node, pod(3))
    expected = INFEASIBLE, "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
    assert cpus(node) == "1-3"
    assert refused_with(node, pod(4)) == expected


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_cpus_that_go_back_later_are_no_room_under_a_strict_policy(policy: str, scope: str) -> None:
    """Node 0 is full: the second container could grow only into what the first keeps for five seconds."""

    def grown(delay: str) -> Node:
        kubelet = config(policy=policy, scope=scope, scale_delay_time=delay)
        return resized(with_pods(started(machine(2, 8, threads=1), kubelet), pod(2, 2)), pod(5, 2))[0]

    node = grown("5s")
    assert refused_with(node, pod(3, 4))[1] == "TopologyAffinityError"
    node = reconcile(resized(node, pod(3, 2))[0].at(Moment(5 * SECOND)))
    node, _ = resized(node, pod(3, 4))
    assert (cpus(node), cpus(node, name="b")) == ("1-2,5", "3-4,6-7")
    node, _ = resized(grown("0s"), pod(3, 4))
    assert (cpus(node), cpus(node, name="b")) == ("1-2,5", "3-4,6-7")


def test_memory_grows_where_it_is_and_then_onto_further_nodes() -> None:
    node = with_pods(started(TWO_NODES, config(memory=True, policy="best-effort")), pod(1, gib=2))
    for gib, numa in ((6, (0,)), (9, (0, 1))):
        node, answer = resized(node, pod(1, gib=gib))
        (block,) = node.memory.assignments["p"]["a"]
        assert (block.numa, block.size) == (numa, gib * GIB)
        assert answer.containers["a"].mems == numa
    message = (
        "prohibitedMemoryAllocation Error: Skip resize, Not allowed to reduce container exclusively allocated memory, "
        f"(requested memory = {8 * GIB}, allocated memory = {9 * GIB})"
    )
    assert refused_with(node, pod(1, gib=8)) == (INFEASIBLE, "prohibitedMemoryAllocationError", message)


def test_memory_does_not_grow_into_a_group_of_others() -> None:
    node = started(TWO_NODES, config(memory=True, policy="restricted"))
    node = with_pods(node, pod(1, gib=2), pod(1, uid="q", gib=2))
    assert refused_with(node, pod(1, gib=9))[:2] == (INFEASIBLE, "TopologyAffinityError")


# Conditions and events.


def test_conditions_and_events_of_one_pod() -> None:
    node = with_pods(started(SIXTEEN, config()), pod(2))
    node, answer = resized(node, pod(4))
    assert (answer.condition, answer.reason, answer.events) == ("", "", ("ResizeStarted", "ResizeCompleted"))
    node, answer = resize(node, pod(20))
    assert (answer.condition, answer.reason, answer.events) == (PENDING, INFEASIBLE, ("ResizeInfeasible",))
    node, answer = resize(node, pod(20))
    assert (answer.condition, answer.events) == (PENDING, ())
    node, answer = resize(node, pod(19))
    assert (answer.condition, answer.events) == (PENDING, ("ResizeInfeasible",))
    node, answer = resize(node, pod(4))
    assert (answer.accepted, answer.condition, answer.events) == (False, "", ())
    assert resize_state(node, "p").condition == ""


def test_a_delay_keeps_the_resize_in_progress() -> None:
    node = with_pods(started(SIXTEEN, config(scale_delay_time="5s")), pod(2))
    node, _ = resized(node, pod(4))
    node, answer = resized(node, pod(3))
    assert (answer.condition, answer.reason, answer.events) == (IN_PROGRESS, "", ("ResizeStarted",))
    assert str(CPUSet(answer.releases["a"].cpus)) == "1-3"
    assert str(answer.containers["a"].cpus) == "1-4"


def test_the_condition_is_as_old_as_its_reason() -> None:
    node = with_pods(started(SIXTEEN, config()), pod(2))
    for seconds, asked in ((1, 20), (2, 21), (3, 20)):
        node, _ = resize(node.at(Moment(seconds * SECOND)), pod(asked))
    assert node.waiting["p"].since == Moment(SECOND)
    node, _ = resized(node, pod(3))
    node, _ = resize(node.at(Moment(4 * SECOND)), pod(20))
    assert node.waiting["p"].since == Moment(4 * SECOND)


# Deferred resizes.


def shared(uid: str, millicores: int, qos: QoS = QoS.GUARANTEED) -> Pod:
    return pod(f"{millicores}m", uid=uid, qos=qos)


def test_what_the_node_lacks_is_waited_for() -> None:
    node = with_pods(started(SIXTEEN, config()), pod(8), shared("q", 1500), shared("r", 4500))
    message = "Node didn't have enough resource: cpu, requested: 3500, used: 12500, capacity: 15000"
    assert refused_with(node, shared("q", 3500)) == (DEFERRED, "OutOfcpu", message)
    node, _ = resize(node, shared("q", 3500))
    node, answers = retry(node)
    assert [(one.uid, one.accepted) for one in answers] == [("q", False)]
    node, _ = node.remove("r")
    node, answers = retry(node)
    assert [(one.uid, one.accepted) for one in answers] == [("q", True)]
    assert retry(node) == (node, ())


def test_an_infeasible_resize_is_not_tried_again_and_goes_with_its_pod() -> None:
    node = with_pods(started(SIXTEEN, config()), pod(2))
    node, _ = resize(node, pod(20))
    assert retry(node) == (node, ())
    assert node.remove("p")[0].waiting == {}
    assert node.withdraw("p").waiting == {}


def test_the_order_of_retries() -> None:
    """Nothing raised first, then priority, then Guaranteed, then the longest wait."""
    before = {uid: shared(uid, 1500, qos=QoS.BURSTABLE) for uid in "abcdef"}
    before["c"] = replace(before["c"], qos=QoS.GUARANTEED)
    before = {uid: replace(one, priority=5 if uid == "e" else 0) for uid, one in before.items()}

    def waits(uid: str, millicores: int, second: int, reason: str = DEFERRED) -> Waiting:
        asked = replace(before[uid], containers=shared(uid, millicores).containers)
        return Waiting(asked, Rejection("OutOfcpu", ""), reason, Moment(second))

    waiting = [
        waits("a", 2500, 2),
        waits("b", 2500, 1),
        waits("c", 2500, 3),
        waits("d", 500, 9),
        waits("e", 2500, 4),
        waits("f", 500, 0, INFEASIBLE),
    ]
    assert [one.pod.uid for one in retry_order(waiting, before)] == ["d", "e", "c", "b", "a"]


# Without the extension.


def test_with_the_gate_alone_a_resize_is_accepted_and_the_cpus_stay() -> None:
    node = with_pods(started(SIXTEEN, config(), frozenset()), pod(2))
    after, answer = resized(node, pod(4))
    assert (after.cpu, after.memory) == (node.cpu, node.memory)
    assert str(answer.containers["a"].cpus) == "1-2"
    restarted = after.at(Moment()).restart()
    assert isinstance(restarted, tuple)
    assert restarted[1].refused == ()
    strict = with_pods(started(SIXTEEN, config(policy="restricted"), frozenset()), pod(2))
    restarted = resized(strict, pod(4))[0].restart()
    assert isinstance(restarted, tuple)
    assert [one.rejection.reason for one in restarted[1].refused if one.rejection] == ["TopologyAffinityError"]


def test_with_the_extension_a_restart_takes_up_what_the_gate_alone_left() -> None:
    node, _ = resized(with_pods(started(SIXTEEN, config(policy="restricted"), frozenset()), pod(2)), pod(4))
    restarted = node.restart(started(SIXTEEN, config(policy="restricted")).settings)
    assert isinstance(restarted, tuple)
    assert restarted[1].refused == ()
    assert cpus(restarted[0]) == "1-4"


def test_pods_with_resources_of_their_own_keep_their_cpus() -> None:
    whole = {"cpu": Quantity.parse("8"), "memory": Quantity.parse("4Gi")}
    kubelet = config()
    kubelet = replace(kubelet, feature_gates={**kubelet.feature_gates, "PodLevelResourceManagers": True})
    level = replace(pod(2), resources=PodResources(whole, whole))
    node: Node = with_pods(started(SIXTEEN, kubelet), level)
    held = node.cpu
    node, _ = resized(node, replace(pod(4), resources=level.resources))
    assert node.cpu == held
