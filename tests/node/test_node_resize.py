"""Resizing pinned containers: which CPUs and memory nodes come of it (resize.md sections 1, 3 and 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.nodes import GIB, machine
from tests.node.resizable import (
    CPUS_GATE,
    EXTENDED,
    MEMORY_GATE,
    SIXTEEN,
    TEN_CORES,
    config,
    cpus,
    pod,
    refused_with,
    resized,
    retry,
    started,
    with_pods,
)

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.node.resizing import reconcile, resize, resize_state
from mooring.engine.node.resources import DEFERRED, IN_PROGRESS, INFEASIBLE, PENDING, Waiting, retry_order


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


def test_whole_cores_without_a_core_size_crash_the_kubelet() -> None:
    """A machine that declares fewer CPUs than cores."""
    node = with_pods(started(TEN_CORES, config(full_pcpus_only="true")), pod(2))
    policy = node.settings.cpu
    assert policy is not None
    settings = replace(node.settings, cpu=replace(policy, topology=replace(policy.topology, cpus_per_core=0)))
    with pytest.raises(KubeletCrashError, match="divides by zero"):
        resize(replace(node, settings=settings), pod(4))


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


STATIC_CPUS = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
STATIC_MEMORY = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
NONE = frozenset[str]()


def without(kubelet: KubeletConfig, *gates: str) -> KubeletConfig:
    return replace(kubelet, feature_gates={**kubelet.feature_gates, **dict.fromkeys(gates, False)})


def level(pod: Pod, cpu: str) -> Pod:
    """Return a pod with resources of its own."""
    whole = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("4Gi")}
    return replace(pod, resources=PodResources(whole, whole))


BY_CPUS = ("guaranteed_pod_cpu_manager_static_policy", STATIC_CPUS)
BY_MEMORY = ("guaranteed_pod_memory_manager_static_policy", STATIC_MEMORY)
SKIPPED = "inconsistentCPUAllocation Error: Skip resize, Not allowed to move a container from"
INTO_THE_POOL = (
    "inconsistentCPUAllocationError",
    f"{SKIPPED} exclusively allocated pool to shared pool, not allowed (requested CPUs = 1500m, allocated CPUs = 2)",
)
OUT_OF_THE_POOL = (
    "inconsistentCPUAllocationError",
    f"{SKIPPED} shared pool to exclusively allocated pool, (requested CPUs = 2, allocated CPUs = 1500m)",
)
NO_ROOM = (
    "resizeAllocateCPUsError",
    (
        "ResizeAllocateCPUs Error: Skip resize, unable to resize container exclusively allocated pool, (podUID = p, "
        "containerName = a, topologyError = not enough cpus available to satisfy request: requested=14, available=13)"
    ),
)
LEVEL_GATE = "InPlacePodLevelResourcesVerticalScaling"
NO_CPUS, NO_MEMORY = without(config(), CPUS_GATE), without(config(memory=True), MEMORY_GATE)
REFUSED: dict[str, tuple[KubeletConfig, Pod, Pod, tuple[str, str]]] = {
    # Kubelet v1.37.1.
    "exclusive CPUs": (NO_CPUS, pod(2), pod(4), BY_CPUS),
    "exclusive CPUs and memory": (NO_CPUS, pod(2), pod(4, gib=2), BY_CPUS),
    "shared CPUs": (NO_CPUS, pod("1500m"), pod(4), BY_CPUS),
    "shared CPUs and memory": (NO_CPUS, pod("1500m"), pod(4, gib=2), BY_CPUS),
    "memory": (NO_MEMORY, pod(2), pod(2, gib=2), BY_MEMORY),
    "memory and CPUs": (NO_MEMORY, pod(2), pod(4, gib=2), BY_MEMORY),
    "CPUs are looked at before memory": (without(NO_MEMORY, CPUS_GATE), pod(2), pod(4, gib=2), BY_CPUS),
    "pod-level resources": (
        without(NO_CPUS, LEVEL_GATE),
        level(pod(2), "4"),
        level(pod(4), "6"),
        ("plr_feature_gate_off", f"{LEVEL_GATE} is disabled"),
    ),
    # KEP-5554.
    "exclusive CPUs do not become shared": (config(), pod(2), pod("1500m"), INTO_THE_POOL),
    "shared CPUs do not become exclusive": (config(), pod("1500m"), pod(2), OUT_OF_THE_POOL),
    "growth without room": (config(), pod(2), pod(16), NO_ROOM),
}


@pytest.mark.parametrize(("kubelet", "before", "asked", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_can_never_be_resized(kubelet: KubeletConfig, before: Pod, asked: Pod, expected: tuple[str, str]) -> None:
    node = with_pods(started(SIXTEEN, kubelet, EXTENDED if kubelet == config() else NONE), before)
    assert refused_with(node, asked) == (INFEASIBLE, *expected)


STRICT_POD = level(pod(2), "4")
FREE: dict[str, tuple[KubeletConfig, Pod, Pod]] = {
    "memory of exclusive CPUs": (NO_CPUS, pod(2), pod(2, gib=2)),
    "memory of shared CPUs": (NO_CPUS, pod("1500m"), pod("1500m", gib=2)),
    "CPUs beside memory": (NO_MEMORY, pod(2), pod(4)),
    "Burstable": (NO_CPUS, pod(2, qos=QoS.BURSTABLE), pod(4, qos=QoS.BURSTABLE)),
    "another policy": (replace(NO_CPUS, cpu_manager_policy="none"), pod(2), pod(4)),
    "the pod's own amounts alone": (NO_CPUS, STRICT_POD, level(STRICT_POD, "6")),
    "shared CPUs stay shared": (config(), pod("1500m"), pod("2500m")),
}


@pytest.mark.parametrize(("kubelet", "before", "asked"), FREE.values(), ids=FREE)
def test_what_the_policies_do_not_look_at_is_free(kubelet: KubeletConfig, before: Pod, asked: Pod) -> None:
    resized(with_pods(started(SIXTEEN, kubelet, EXTENDED if kubelet == config() else NONE), before), asked)


def test_the_same_amount_in_other_words_is_no_change() -> None:
    node = with_pods(started(SIXTEEN, NO_CPUS, NONE), pod(2))
    assert resize(node, pod("2000m"))[1].rejection is None


def test_nothing_goes_below_the_baseline() -> None:
    node, _ = resized(with_pods(started(SIXTEEN, config()), pod(2)), pod(4))
    message = (
        "prohibitedCPUAllocation Error: Skip resize, Not allowed to reduce container exclusively allocated pool below "
        "original, (requested CPUs = 1, allocated CPUs = 4, original CPUs = 2, guaranteed CPUs = 1)"
    )
    assert refused_with(node, pod(1)) == (INFEASIBLE, "prohibitedCPUAllocationError", message)
    assert cpus(node) == "1-4"


def test_a_container_without_a_baseline_is_left_alone() -> None:
    """A state file that a kubelet without the gate wrote."""
    node = with_pods(started(SIXTEEN, config()), pod(2))
    node = replace(node, providers=replace(node.providers, cpu=replace(node.cpu, baselines={})))
    message = (
        "getOriginalCPUSet Error: Skip resize, unable to get PromisedCPUSet, nothing to be done, "
        "(podUID = p, containerName a)"
    )
    assert refused_with(node, pod(4)) == (INFEASIBLE, "getOriginalCPUSetError", message)


def test_pods_with_resources_of_their_own_keep_their_cpus() -> None:
    kubelet = config()
    kubelet = replace(kubelet, feature_gates={**kubelet.feature_gates, "PodLevelResourceManagers": True})
    node = with_pods(started(SIXTEEN, kubelet), level(pod(2), "8"))
    assert resized(node, level(pod(4), "8"))[0].cpu == node.cpu
