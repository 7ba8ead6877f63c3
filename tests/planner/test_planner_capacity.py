"""Capacity against plans, largest requests against trying every amount, evictions against doing what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.documents.validation import complaints
from tests.laws.strategies_whole_node import UNIT, Hardware, configurations, hardware, pods
from tests.plans import started_plan
from tests.values import not_none

from mooring import CPUSet, Machine
from mooring.answers.base.plan import Plan, Question
from mooring.answers.capacity.answer import ADMITTED, ALIGNED, EMPTY_REFUSES, Capacity, capacity_of, largest_requests
from mooring.answers.capacity.eviction import Subject, evictions, named_subject, replica
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.pod import Container, Pod
from mooring.engine.kubelet.events import ended
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.claims import Claim, Share
from mooring.explanations.probes import CPU, led_elsewhere, place_of, placed, probe_anywhere, probe_on
from mooring.inputs.machines.compact import parse_compact

LAW = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def stories(draw: st.DrawFn) -> Subject:
    """Draw a node with pods, and the shape to be counted."""
    made: Hardware = draw(hardware())
    config = replace(draw(configurations()), max_pods=draw(st.sampled_from([4, 12])))
    others = tuple(draw(pods(f"other{number}")) for number in range(draw(st.integers(0, 4))))
    question = Question(Machine("drawn", made.info), config, pods=others, devices=made.devices)
    return Subject(draw(pods("shape")), question)


@st.composite
def stories_with_offline_cpus(draw: st.DrawFn) -> Subject:
    """Some of the pods run already when CPUs go offline."""
    story = draw(stories())
    question, cut = story.question, draw(st.integers(0, len(story.question.pods)))
    cpus = [cpu for node in question.machine.info.topology for core in node.cores for cpu in core.thread_ids]
    changed = replace(
        question,
        config=replace(question.config, cpu_manager_policy="static"),
        mooring=MooringConfig(extensions=frozenset({"cpu-hotplug"})),
        active=question.pods[:cut],
        pods=question.pods[cut:],
        offline=CPUSet.of(*draw(st.sets(st.sampled_from(cpus), max_size=len(cpus) // 2))),
    )
    return replace(story, question=changed)


def asked(story: Subject) -> Capacity:
    capacity = capacity_of(story)
    assume(capacity.can_be_asked)
    return capacity


@LAW
@given(stories() | stories_with_offline_cpus())
def test_a_plan_admits_as_many_replicas_as_were_counted_and_refuses_the_next(story: Subject) -> None:
    capacity = asked(story)
    fit = [one.pod for one in capacity.replicas]
    after = not_none(started_plan(story.question).kubelet)
    clones = [*fit, replica(story.pod, len(fit) + 1, after.node.active)]
    plan = started_plan(replace(story.question, pods=(*story.question.pods, *clones)))
    answers = plan.answers[-len(clones) :]
    assert [answer.admitted for answer in answers] == [True] * len(fit) + [False]
    places = [place_of(answer.decision, after.settings.topology) for answer in answers[:-1]]
    document = capacity.document
    assert [str(place.cpus) for place in places] == [one.cpus for one in document.replicas]
    assert [list(place.nodes) for place in places] == [one.numa_nodes for one in document.replicas]
    assert document.next is not None
    assert (document.next.reason, document.next.why) == (answers[-1].decision.reason, answers[-1].why)


@LAW
@given(stories() | stories_with_offline_cpus())
def test_whoever_follows_an_advice_gets_the_replica_in(story: Subject) -> None:
    capacity = asked(story)
    assert isinstance(capacity.plan, Plan)
    kubelet = capacity.plan.kubelet
    for advice in capacity.document.advice:
        assert bool(advice.evictions) is not bool(advice.remark)
        for eviction in advice.evictions:
            after = kubelet
            for one in capacity.replicas[: advice.replica - 1]:
                after, _ = after.admit(one.pod)
            for gone in eviction.pods:
                after = ended(after, gone.uid)
            place = not_none(placed(after, replica(story.pod, advice.replica, after.node.active)))
            if advice.goal == ALIGNED:
                assert len(place.nodes) < len(capacity.document.replicas[advice.replica - 1].numa_nodes)


@LAW
@given(stories())
def test_the_answer_is_a_document_whatever_the_node(story: Subject) -> None:
    capacity = capacity_of(story)
    document = capacity.document
    assert document.count == len(document.replicas) == len(capacity.replicas)
    assert document.enough is bool(capacity.replicas)
    assert complaints("Capacity", document) == []


def now_and_largest(question: Question) -> tuple[Kubelet, Sequence[Any]]:
    """Return the node now, and by resource the largest requests that it takes."""
    plan, found = largest_requests(question)
    assume(isinstance(plan, Plan) and found.resources)
    assert isinstance(plan, Plan)
    return plan.kubelet, found.resources


@LAW
@given(stories())
def test_no_larger_request_is_admitted_than_the_largest(story: Subject) -> None:
    now, resources = now_and_largest(story.question)
    for one in resources:
        step = one.step if is_counted(one, now.node) else max(one.step, UNIT // 4)
        anywhere = probe_anywhere(now, one.resource)
        most = sum(share.free for share in one.numa_nodes) + 2 * step
        assert by_scan(lambda amount, probe=anywhere: probe(amount) is not None, step, most) <= one.largest
        assert one.largest == 0 or anywhere(one.largest) is not None
        for share in one.numa_nodes:
            probe = probe_on(now, one.resource, share.node, anywhere)
            found = by_scan(lambda amount, probe=probe: probe(amount) is not None, step, most)
            assert found <= share.largest
            if is_counted(one, now.node):
                assert found == share.largest
            else:
                assert share.largest - found < step
            place = probe(share.largest) if share.largest else None
            assert share.largest == 0 or (place is not None and place.lies_on(share.node))
            assert probe(share.largest + one.step) is None
        assert one.largest_aligned <= one.largest <= one.free
        assert one.largest_aligned <= one.gathered <= one.free


@LAW
@given(stories(), st.sampled_from(["best-effort", "restricted"]))
def test_amounts_that_are_led_elsewhere_are_not_admitted_on_their_node(story: Subject, policy: str) -> None:
    config = replace(
        story.question.config,
        cpu_manager_policy="static",
        cpu_manager_policy_options={"align-by-socket": "true"},
        topology_manager_policy=policy,
        topology_manager_scope="container",
        reserved_system_cpus="0",
        feature_gates={**story.question.config.feature_gates, "CPUManagerPolicyAlphaOptions": True},
    )
    now, resources = now_and_largest(replace(story.question, config=config))
    elsewhere, anywhere = led_elsewhere(now), probe_anywhere(now, CPU)
    for one in resources:
        for share in one.numa_nodes if one.resource == CPU else ():
            probe = probe_on(now, CPU, share.node, anywhere)
            for amount in range(1, share.free + 1):
                assert not (elsewhere(share.node, amount) and probe(amount) is not None)
            assert share.largest == by_scan(lambda amount, probe=probe: probe(amount) is not None, 1, share.free)


def test_with_align_by_socket_a_pod_led_to_the_second_node_of_a_socket_gets_cpus_of_the_first() -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    config = with_policy("best-effort", cpu_manager_policy_options={"align-by-socket": "true"}, feature_gates=gates)
    now = not_none(started_plan(Question(MACHINE, config)).kubelet)
    cpus = largest_requests(Question(MACHINE, config))[1].resources[0]
    elsewhere = led_elsewhere(now)
    assert [elsewhere(node, 4) for node in range(4)] == [False, True, False, True]
    assert [share.largest for share in cpus.numa_nodes] == [7, 8, 8, 0]


def is_counted(one: Any, node: Node) -> bool:
    return one.resource == CPU or one.resource in node.providers.devices.devices


def by_scan(admits: object, step: int, most: int) -> int:
    """Return the largest admitted amount, every multiple of ``step`` tried."""
    assert callable(admits)
    return max((amount for amount in range(step, most + 1, step) if admits(amount)), default=0)


# A machine of four NUMA nodes with 8 CPUs each; CPU 0 is reserved.

MACHINE = replace(parse_compact("sockets=2 numa=4 cores=16 threads=2 memory=16Gi distances=10,12,20"), findings=())
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")


def with_policy(policy: str, **more: Any) -> KubeletConfig:
    return replace(STATIC, topology_manager_policy=policy, **more)


IDLE = Pod("idle", "idle", "ns", (Container("c"),))


def pod(name: str, cpu: int, memory: str = "64Mi") -> Pod:
    return replace(Pod.of(f"ns/{name}", cpu, memory), uid=name)


def counted(config: KubeletConfig, shape: Pod, *others: Pod, limit: int | None = None) -> Capacity:
    return capacity_of(Subject(shape, Question(MACHINE, config, pods=others)), limit)


def names(capacity: Capacity, goal: str) -> list[list[str]]:
    return [
        [gone.name for gone in eviction.pods]
        for advice in capacity.document.advice
        if advice.goal == goal
        for eviction in advice.evictions
    ]


@pytest.mark.parametrize(
    ("count", "cpus", "lengths"),
    [pytest.param(7, 4, [2, 2, 2], id="pairs"), pytest.param(15, 2, [4], id="a sequence of one NUMA node")],
)
def test_several_pods_go_when_one_does_not_suffice(count: int, cpus: int, lengths: list[int]) -> None:
    others = [pod(f"p{number}", cpus) for number in range(count)]
    capacity = counted(with_policy("single-numa-node"), pod("new", 8), *others)
    assert not capacity.replicas
    assert [len(eviction) for eviction in names(capacity, ADMITTED)] == lengths


def test_nobody_is_to_go_for_a_pod_that_an_empty_node_refuses() -> None:
    (advice,) = counted(with_policy("single-numa-node"), pod("new", 9), pod("a", 2)).document.advice
    assert (advice.evictions, advice.remark) == ([], EMPTY_REFUSES)


def test_a_replica_that_is_spread_is_reported_and_can_be_aligned() -> None:
    capacity = counted(with_policy("best-effort"), pod("new", 6), *(pod(name, 4) for name in "abcd"))
    assert [one.aligned for one in capacity.document.replicas] == [True, False]
    assert [advice.replica for advice in capacity.document.advice if advice.goal == ALIGNED] == [2]
    assert names(capacity, ALIGNED) == [["a"], ["d"]]


def test_max_pods_end_the_count_of_pods_that_ask_for_nothing_and_it_never_goes_on_forever() -> None:
    few = counted(replace(STATIC, max_pods=5), IDLE, pod("a", 2))
    assert (len(few.replicas), not_none(few.document.next).reason) == (4, "OutOfpods")
    endless = counted(replace(STATIC, max_pods=10**9), IDLE)
    assert len(endless.replicas) == endless.document.limit == 1000


def test_what_is_free_in_pieces_is_lost_for_one_numa_node() -> None:
    others = [pod("a", 4), pod("b", 5), pod("c", 5), pod("d", 5)]
    (cpus,) = counted(with_policy("restricted"), pod("new", 1), *others).document.fragmentation
    assert [(share.free, share.largest, share.empty) for share in cpus.numa_nodes] == [(3, 3, 7), *[(3, 3, 8)] * 3]
    assert (cpus.free, cpus.largest_aligned, cpus.gathered, cpus.lost) == (12, 3, 8, 5)
    # Twelve need two nodes on an empty machine and have four here; six would need one.
    assert cpus.largest == 3


def test_a_group_of_memory_keeps_its_numa_nodes_from_serving_alone() -> None:
    reserved = (ReservedMemory(0, {"memory": "100Mi"}),)
    config = with_policy("restricted", memory_manager_policy="Static", reserved_memory=reserved)
    cpus, memory = counted(config, pod("new", 1), pod("wide", 10, "6Gi")).document.fragmentation
    assert [share.largest > 0 for share in cpus.numa_nodes] == [False, False, True, True]
    assert [share.largest > 0 for share in memory.numa_nodes] == [False, False, True, True]
    assert memory.numa_nodes[0].free + memory.numa_nodes[1].free < memory.largest


def test_a_kubelet_that_does_not_start_is_asked_nothing() -> None:
    capacity = counted(replace(STATIC, cpu_manager_policy="bogus"), pod("new", 1))
    assert not capacity.can_be_asked
    assert capacity.document.start_error


def test_quantities_of_a_drawn_pod_are_what_the_document_counts() -> None:
    assert counted(STATIC, pod("s", 2, str(UNIT)), limit=1).document.shape.requests == {"cpu": 2000, "memory": UNIT}


def test_a_larger_pod_may_be_admitted_where_a_smaller_one_is_refused() -> None:
    config = with_policy("restricted")
    others = [pod(f"p{number}", cpus) for number, cpus in enumerate([7, 3, 5, 3, 5, 3, 5])]
    kubelet = not_none(started_plan(Question(MACHINE, config, pods=tuple(others))).kubelet)
    left = kubelet.without(["p2", "p4", "p6"])
    assert placed(left, pod("six", 6)) is None
    assert placed(left, pod("nine", 9)) is not None
    gone = Question(MACHINE, config, active=tuple(others), leaving={"": ("p2", "p4", "p6")})
    assert largest_requests(gone)[1].resources[0].largest == 10


@LAW
@given(stories() | stories_with_offline_cpus())
def test_evictions_that_release_too_few_cpus_would_be_found_not_to_help(story: Subject) -> None:
    after = asked(story).after
    assert isinstance(after, Plan)
    refused = after.kubelet
    wanted, modest = replace(story.pod, uid="another"), Pod("another", "modest")

    def fits(kubelet: Kubelet) -> bool:
        return placed(kubelet, wanted) is not None

    candidates = list(refused.node.active.values())
    # For a pod that requests no CPUs none are missing, and everything is tried.
    assert evictions(refused, candidates, wanted, fits) == evictions(refused, candidates, modest, fits)


@pytest.mark.parametrize(
    ("claims", "unmade", "held", "runs", "named", "count"),
    [
        (("cpus",), (), 0, False, "claims cpus: assumed to take no CPU", 3),
        ((), ("own",), 0, False, "claims own: assumed to take no CPU", 3),
        (("cpus",), (), 0, True, "claims cpus: assumed to take no CPU", 2),
        (("cpus",), (), 2, False, "", 2),
    ],
)
def test_claims_count_as_in_a_plan_and_those_of_which_nothing_is_known_are_named_once(
    claims: tuple[str, ...], unmade: tuple[str, ...], held: int, runs: bool, named: str, count: int
) -> None:
    machine = Machine("small", parse_compact("sockets=1 cores=8 threads=1 memory=8Gi").info)
    claiming = replace(pod("u", 2), namespace="default", claims=claims, unmade_claims=unmade)
    kubelet = not_none(started_plan(Question(machine, STATIC)).kubelet)
    if held:
        asked = Claim("claim", "default", "cpus", (Share("fast", "numa0", held, CPUMask(0b11111111)),))
        kubelet, _ = kubelet.claim(asked)
    pods, active = ((), (claiming,)) if runs else ((claiming,), ())
    question = Question(machine, STATIC, files=kubelet.files, pods=pods, active=active)
    found = capacity_of(named_subject(question, "default/u")).document
    assert found.count == count
    assert [one.message.partition(";")[0] for one in found.findings if one.code == "MOOR-549"] == [named][: bool(named)]
