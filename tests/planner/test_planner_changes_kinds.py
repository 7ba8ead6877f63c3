"""Each kind of change is found where it is the way out, and does to a question what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods
from tests.planner.change_questions import guaranteed
from tests.plans import refused_plan

from mooring.answers.base.changes.change import Cost, applied, sentence
from mooring.answers.base.changes.nearest import (
    alignment_words,
    given_up_words,
    nearest_changes,
    price_words,
)
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.plan_document import plan_document
from mooring.answers.whatif.answer import understood
from mooring.engine.core.config import DEVICE_ALIGNMENT, FIXABLE_DEFECTS, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.compact import parse_compact

GPU, DRIVER = "vendor.example/gpu", "gpu.vendor.example"
FOLLOWING = MooringConfig(frozenset({DEVICE_ALIGNMENT}))
SINGLE = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="single-numa-node"
)


def machine(text: str) -> Machine:
    return replace(parse_compact(text), findings=())


TWO_NODES = machine("sockets=2 numa=2 cores=8 threads=1 memory=32Gi distances=10,20")
"""Nodes 0-3 and 4-7; CPU 0 is reserved."""


def asked(
    pods: Sequence[Pod],
    config: KubeletConfig = SINGLE,
    on: Machine = TWO_NODES,
    mooring: MooringConfig | None = None,
    **devices: tuple[int, ...],
) -> Question:
    """Return a question about pods on a node with devices, of each kind one on each of these NUMA nodes."""
    offered = {
        f"vendor.example/{kind}": tuple(Device(f"{kind}-{number}", (node,)) for number, node in enumerate(nodes))
        for kind, nodes in devices.items()
    }
    return Question(on, config, mooring or MooringConfig(), tuple(pods), devices=offered)


def wants(name: str, cpu: int | str, memory: str = "64Mi", **devices: int) -> Pod:
    made = Pod.of(name, cpu, memory, {f"vendor.example/{kind}": count for kind, count in devices.items()})
    return replace(made, uid=f"default_{name}", containers=(replace(made.containers[0], name="app"),))


def burstable(pod: Pod) -> Pod:
    """Return the pod with requests alone."""
    return replace(pod, containers=tuple(replace(one, limits={}) for one in pod.containers), qos=QoS.BURSTABLE)


def whole(server: Pod, cpu: str) -> Pod:
    """Return a pod with resources of its own, one container with its own share, and one that shares the rest."""
    amounts = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("1Gi")}
    held = (replace(server.containers[0], name="server"), Container("helper"))
    return replace(server, containers=held, resources=PodResources(amounts, amounts))


def changed(question: Question, *options: tuple[str, str]) -> Question:
    """Return the question after the changes that options ask for."""
    return applied(question, [change for option in options for change in understood(question, *option)])


def found(question: Question, name: str, limit: int = 100) -> tuple[Proposal, ...]:
    return nearest_changes(question, f"default_{name}", limit)


def texts(proposals: Sequence[Proposal]) -> list[str]:
    return [proposal.text for proposal in proposals]


def of_kind(question: Question, name: str, kind: str) -> list[Proposal]:
    return [one for one in found(question, name) if one.changes[0].kind == kind]


POD_MANAGERS = replace(
    SINGLE,
    topology_manager_policy="best-effort",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)
WITH_MEMORY: dict[str, Any] = {
    "memory_manager_policy": "Static",
    "reserved_memory": (ReservedMemory(0, {"memory": "1Gi"}),),
    "eviction_hard": {"memory.available": "1Gi"},
}


def test_a_container_without_anything_to_share_gets_one_cpu_more_for_its_pod() -> None:
    question = asked([whole(wants("full", 2, "1Gi"), "2")], POD_MANAGERS)
    assert make_plan(question).answers[0].decision.reason == "EmptyPodSharedPoolError"
    assert found(question, "full")[0].text == "Let default/full as a whole request 3 CPUs instead of 2."


def test_a_container_leaves_memory_of_its_pod_to_those_that_share() -> None:
    question = asked([whole(wants("full", 1, "1Gi"), "2")], replace(POD_MANAGERS, **WITH_MEMORY))
    assert not make_plan(question).is_yes
    assert texts(found(question, "full"))[:2] == [
        "Let default/full as a whole request 1025Mi of memory instead of 1Gi.",
        "Let container server of default/full request 1023Mi of memory instead of 1Gi.",
    ]


def test_what_is_proposed_leaves_room_for_pods_behind() -> None:
    question = asked([burstable(wants("wide", "7500m", "1Gi")), guaranteed("behind", 2)])
    first = found(question, "wide")[0]
    assert [*first.options] == [("--ask", "default/wide/app:cpu=5")]
    assert make_plan(applied(question, first.changes)).is_yes


def test_memory_that_is_proposed_leaves_a_numa_node_for_pods_behind() -> None:
    three = machine("sockets=3 numa=3 cores=12 threads=1 memory=48Gi distances=10,20")
    config = replace(SINGLE, memory_manager_policy="Static", reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),))
    behind = [guaranteed(name, 1, memory) for name, memory in (("b", "10Gi"), ("c", "10Gi"), ("d", "7Gi"))]
    question = asked([guaranteed("wide", 1, "17Gi"), *behind], config, three)
    amounts = [one for one in found(question, "wide") if one.options[0][0] == "--ask"]
    assert [*amounts[0].options] == [("--ask", "default/wide/app:memory=9116Mi")]
    assert make_plan(applied(question, amounts[0].changes)).is_yes


def test_a_pod_that_comes_first_finds_its_node_and_a_small_one_that_moves_finds_another_place() -> None:
    question = asked([guaranteed("one", 1), guaranteed("three", 3), guaranteed("late", 3)])
    [turn], [move] = of_kind(question, "late", "turn"), of_kind(question, "late", "move")
    assert (turn.text, turn.cost) == ("Ask default/late before default/one.", Cost(touched=2))
    assert move.text == "Remove default/one before default/late is asked and admit it again last."
    assert (move.cost, move.guarantees, move.alignment_lost) == (Cost(touched=1), (), {})
    after = make_plan(applied(question, move.changes))
    assert after.is_yes
    assert after.left == {"default_one"}
    assert [answer.pod.uid for answer in after.answers][-1] == "default_one_again"
    assert [pod.get("left", False) for pod in to_builtins(plan_document(after))["pods"]] == [True, False, False, False]


def test_the_cheapest_removal_wins() -> None:
    question = asked([guaranteed("two", 2), guaranteed("four", 4), guaranteed("late", 3)])
    removals = of_kind(question, "late", "removal")
    assert [*removals[0].options] == [("--remove", "default/two=default/late")]
    assert removals[0].cost == Cost(touched=1, cpus=2000, bytes=16 * 2**20)


def test_two_pods_go_where_one_is_not_enough() -> None:
    pods = [*(guaranteed(f"p{number}", 1) for number in range(7)), guaranteed("late", 4)]
    pairs = [one for one in found(asked(pods), "late") if len(one.changes) == 2]
    assert pairs == []
    pods = [guaranteed("a", 3), guaranteed("b", 2), guaranteed("c", 2), guaranteed("late", 4)]
    pairs = [one for one in found(asked(pods), "late") if len(one.changes) == 2]
    assert [*pairs[0].options] == [("--remove", f"default/{name}=default/late") for name in "bc"]
    assert pairs[0].cost.touched == 2


def test_one_more_device_for_an_earlier_pod_leaves_the_pod_its_node() -> None:
    question = asked([wants("first", 2, "1Gi", gpu=1), guaranteed("late", 4)], gpu=(1,))
    more = ("--device", f"{GPU}=0")
    [cost] = [one.cost for one in found(question, "late") if [*one.options] == [more]]
    assert cost == Cost(touched=1, devices_added=1)
    assert make_plan(changed(question, more)).is_yes


def test_a_kubelet_that_does_not_start_on_its_state_file_is_started_without_it() -> None:
    ran = asked([guaranteed("two", 2)])
    strict = replace(SINGLE, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    question = replace(ran, config=strict, files=make_plan(ran).files)
    refused_plan(question)
    first, *others = [[*one.options] for one in found(question, "two")]
    assert first == [("--fresh-state", "cpu")]
    assert [("--set", "cpuManagerPolicyOptions.strict-cpu-reservation=false")] in others


def test_a_running_pod_that_is_refused_gets_proposals_that_disturb_no_start() -> None:
    question = replace(asked([guaranteed("new", 1)]), active=(guaranteed("wide", 6),))
    kinds = {option for proposal in found(question, "wide") for option, _ in proposal.options}
    assert "--ask" in kinds
    assert not kinds & {"--remove", "--move", "--first"}


QUESTION = replace(asked([guaranteed("a", 1), guaranteed("b", 1)], gpu=(0,)), active=(guaranteed("runs", 1),))


def test_a_running_pod_ends_before_the_first_is_asked_and_another_is_not_asked_at_all() -> None:
    assert changed(QUESTION, ("--remove", "runs")).leaving == {"default_a": ("default_runs",)}
    after = [changed(QUESTION, change) for change in (("--remove", "a"), ("--move", "a"), ("--first", "b"))]
    assert [[pod.name for pod in one.pods] for one in after] == [["b"], ["b", "a"], ["b", "a"]]


def test_limits_follow_requests() -> None:
    wide = burstable(wants("w", 2))
    room = replace(wide.containers[0], limits={"cpu": Quantity.parse("3")})
    question = asked([wants("l", 2), replace(wide, containers=(room,))])
    after = changed(question, ("--ask", "*:cpu=4"))
    assert [pod.containers[0].limits["cpu"].units for pod in after.pods] == [4, 4]
    after = changed(question, ("--ask", "*:cpu=1"))
    assert [pod.containers[0].limits["cpu"].units for pod in after.pods] == [1, 3]
    assert [pod.qos for pod in after.pods] == [QoS.GUARANTEED, QoS.BURSTABLE]


def test_a_sentence_names_every_change() -> None:
    options = ("--set", "topologyManagerScope=pod"), ("--fresh-state", "cpu"), ("--first", "b")
    changes = [change for option in options for change in understood(QUESTION, *option)]
    assert sentence(changes, QUESTION) == (
        "Set topologyManagerScope to pod, delete the state file cpu_manager_state and ask default/b first."
    )


# The nearest change knows other free devices, where CPUs and memory follow what was given first.


def asked_devices(pods: Sequence[Pod], **devices: tuple[int, ...]) -> Question:
    return asked(pods, SINGLE, TWO_NODES, FOLLOWING, **devices)


def test_a_free_device_beside_free_cpus_costs_nothing_and_is_nearest() -> None:
    question = asked_devices([wants("big", 3), wants("train", 2, gpu=1)], gpu=(0, 0, 1))
    assert not make_plan(question).is_yes
    nearest = found(question, "train")[0]
    assert [*nearest.options] == [("--hold", f"default/train/app:{GPU}=gpu-2")]
    assert nearest.cost == Cost()
    assert nearest.text == "Let default/train/app hold gpu-2 of vendor.example/gpu on NUMA node 1 instead of gpu-0."
    assert make_plan(applied(question, nearest.changes)).is_yes


def test_the_option_that_is_printed_makes_the_change() -> None:
    question = asked_devices([wants("big", 3), wants("train", 2, gpu=1, nic=1)], gpu=(0, 1), nic=(0, 1))
    [nearest] = of_kind(question, "train", "devices")
    assert {change.option for change in nearest.changes} == {
        ("--hold", "default/train/app:vendor.example/gpu=gpu-1"),
        ("--hold", "default/train/app:vendor.example/nic=nic-1"),
    }
    read = [change for option in nearest.options for change in understood(question, *option)]
    assert tuple(read) == nearest.changes
    assert make_plan(applied(question, read)).is_yes


def test_what_others_hold_or_claim_is_not_free() -> None:
    busy = asked_devices([wants("first", 1, gpu=1), wants("big", 2), wants("train", 2, gpu=1)], gpu=(0, 0))
    assert of_kind(busy, "train", "devices") == []
    claims = {
        "default_other": {"app": {DRIVER: frozenset({"pool/1"})}},
        "default_train": {"app": {DRIVER: frozenset({"pool/0"})}},
    }
    drivers = {DRIVER: (Device("pool/0", (0,)), Device("pool/1", (1,)))}
    question = replace(asked_devices([wants("big", 3), wants("train", 2)]), devices=drivers, claimed=claims)
    assert not make_plan(question).is_yes
    assert of_kind(question, "train", "devices") == []
    [nearest] = of_kind(
        replace(question, devices={DRIVER: (*drivers[DRIVER], Device("pool/2", (1,)))}), "train", "devices"
    )
    assert [*nearest.options] == [("--hold", f"default/train/app:{DRIVER}=pool/2")]


def test_one_merge_of_all_needs_no_other_device() -> None:
    assert make_plan(asked([wants("big", 3), wants("train", 2, gpu=1)], gpu=(0, 0, 1))).is_yes


@given(hardware(), st.data())
def test_every_proposal_admits_the_pod_when_a_plan_makes_it(hard: Hardware, data: st.DataObject) -> None:
    mooring = replace(FOLLOWING, fixed_defects=FIXABLE_DEFECTS)
    drawn = tuple(data.draw(pods(f"p{number}")) for number in range(3))
    strict = replace(data.draw(configurations()), topology_manager_policy="single-numa-node")
    question = Question(Machine("drawn", hard.info), strict, mooring, drawn, devices=hard.devices)
    refused = [answer.pod.uid for answer in make_plan(question).answers if not answer.admitted]
    assume(refused)
    for one in nearest_changes(question, refused[0], limit=20):
        if one.changes[0].kind == "devices":
            after = make_plan(applied(question, one.changes))
            assert any(answer.pod.uid == refused[0] and answer.admitted for answer in after.answers)


def test_a_pod_that_comes_back_has_its_claims_still() -> None:
    drivers = {DRIVER: (Device("pool/1", (1,)),)}
    claims = {"default_infer": {"app": {DRIVER: frozenset({"pool/1"})}}}
    running = replace(asked_devices([wants("infer", 2), wants("train", 3, gpu=1)], gpu=(1,)), claimed=claims)
    question = replace(running, devices={**running.devices, **drivers})
    after = make_plan(changed(question, ("--move", "infer=train")))
    back = next(answer for answer in after.answers if answer.pod.uid.endswith("_again"))
    assert [device.id for device in back.decision.devices["app"][DRIVER]] == ["pool/1"]


# A proposal says what it costs: guarantees, alignment, pods that move, and what has to be bought.


def lost_by(proposal: Proposal) -> dict[str, int]:
    return {level.value: count for level, count in proposal.alignment_lost.items()}


def with_policy(question: Question, name: str) -> Proposal:
    return next(
        one for one in found(question, name) if [*one.options] == [("--set", "topologyManagerPolicy=best-effort")]
    )


def test_best_effort_names_the_guarantee_and_the_alignment_that_are_lost() -> None:
    proposal = with_policy(asked([guaranteed("a", 2), guaranteed("b", 3), guaranteed("late", 2)]), "late")
    assert lost_by(proposal) == {"NUMA node": 1, "socket": 1}
    assert given_up_words(proposal) == ["guarantee of NUMA alignment"]
    assert alignment_words(proposal) == ["1 NUMA node", "1 socket"]
    assert price_words(proposal) == (
        "This gives up the guarantee of NUMA alignment and spreads containers over 1 NUMA node and 1 socket more than "
        "needed."
    )


def test_devices_far_from_the_cpus_are_alignment_that_is_lost() -> None:
    question = asked([guaranteed("a", 4), wants("train", 2, "1Gi", gpu=1)], gpu=(1,))
    assert lost_by(with_policy(question, "train")) == {"NUMA node with its devices": 1}


def test_devices_that_no_numa_node_has_together_need_several() -> None:
    question = asked([wants("train", 1, "1Gi", gpu=2)], gpu=(0, 1))
    policy = with_policy(question, "train")
    assert policy.alignment_lost == {}
    assert given_up_words(policy) == ["guarantee of NUMA alignment", "GPUs on 2 NUMA nodes"]
    assert price_words(policy) == ("This gives up the guarantee of NUMA alignment and places GPUs on 2 NUMA nodes.")
    assert (
        found(question, "train")[0].text
        == "Let container app of default/train request 1 vendor.example/gpu instead of 2."
    )
