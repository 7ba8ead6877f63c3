"""Each kind of change is found where it is the way out, and does to a question what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import to_builtins
from tests.planner.change_questions import guaranteed
from tests.plans import refused_plan

from mooring.answers.base.changes.change import Cost, PlannedChange, PodRef, applied, sentence
from mooring.answers.base.changes.configuration import ConfigField, FreshState, config_field
from mooring.answers.base.changes.nearest import nearest_changes, understood
from mooring.answers.base.changes.order import EarlierTurn, PodRemoval
from mooring.answers.base.changes.requests import Amount, MoreDevices
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.plan_document import plan_document
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.compact import parse_compact

GIB = 2**30
GPU = "vendor.example/gpu"
SINGLE = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="single-numa-node"
)


def machine(text: str) -> Machine:
    return replace(parse_compact(text), findings=())


TWO_NODES = machine("sockets=2 numa=2 cores=8 threads=1 memory=32Gi distances=10,20")
"""Nodes 0-3 and 4-7; CPU 0 is reserved."""
THREADS = machine("sockets=1 cores=4 threads=2 memory=16Gi")


def asked(pods: Sequence[Pod], config: KubeletConfig = SINGLE, on: Machine = TWO_NODES) -> Question:
    return Question(on, config, pods=tuple(pods))


def with_resources(name: str, *amounts: tuple[str, ContainerKind, dict[str, str]]) -> Pod:
    containers = []
    for container, kind, texts in amounts:
        quantities = {resource: Quantity.parse(text) for resource, text in texts.items()}
        containers.append(Container(container, kind, quantities, quantities))
    return Pod(f"default_{name}", name, containers=tuple(containers), qos=QoS.GUARANTEED)


def ref(name: str) -> PodRef:
    return PodRef(f"default_{name}", f"default/{name}")


def found(question: Question, name: str, limit: int = 100) -> tuple[Proposal, ...]:
    return nearest_changes(question, f"default_{name}", limit)


def texts(proposals: Sequence[Proposal]) -> list[str]:
    return [proposal.text for proposal in proposals]


def test_the_largest_smaller_number_of_cpus_is_proposed_first() -> None:
    proposals = found(asked([guaranteed("wide", 6)]), "wide")
    assert proposals[0].text == "Let container app of default/wide request 4 CPUs instead of 6."
    assert proposals[0].cost == Cost(cpus=2000)
    assert proposals[0].options == (("--ask", "default/wide/app:cpu=4"),)


def test_an_odd_number_of_cpus_is_rounded_up_before_it_is_rounded_down() -> None:
    config = replace(SINGLE, cpu_manager_policy_options={"full-pcpus-only": "true"}, reserved_system_cpus="0,4")
    proposals = found(asked([guaranteed("odd", 3)], config, THREADS), "odd")
    assert [(proposal.changes, proposal.cost) for proposal in proposals[:2]] == [
        ((Amount(ref("odd"), "app", "cpu", Quantity.parse("4")),), Cost()),
        ((Amount(ref("odd"), "app", "cpu", Quantity.parse("2")),), Cost(cpus=1000)),
    ]
    assert (ConfigField("cpuManagerPolicyOptions.full-pcpus-only", "false"),) in [one.changes for one in proposals]


def test_a_container_without_anything_to_share_gets_one_cpu_more_for_its_pod() -> None:
    config = replace(
        SINGLE,
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    amounts = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}
    pod = Pod(
        "default_full",
        "full",
        containers=(Container("server", requests=amounts, limits=amounts), Container("helper")),
        qos=QoS.GUARANTEED,
        resources=PodResources(amounts, amounts),
    )
    question = asked([pod], config)
    assert make_plan(question).answers[0].decision.reason == "EmptyPodSharedPoolError"
    assert found(question, "full")[0].text == "Let default/full as a whole request 3 CPUs instead of 2."


def test_a_container_leaves_memory_of_its_pod_to_those_that_share() -> None:
    config = replace(
        SINGLE,
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),),
        eviction_hard={"memory.available": "1Gi"},
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    amounts = {"cpu": Quantity.parse("1"), "memory": Quantity.parse("1Gi")}
    whole = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}
    pod = Pod(
        "default_full",
        "full",
        containers=(Container("server", requests=amounts, limits=amounts), Container("helper")),
        qos=QoS.GUARANTEED,
        resources=PodResources(whole, whole),
    )
    question = asked([pod], config)
    assert not make_plan(question).is_yes
    assert texts(found(question, "full"))[:2] == [
        "Let default/full as a whole request 1025Mi of memory instead of 1Gi.",
        "Let container server of default/full request 1023Mi of memory instead of 1Gi.",
    ]


def test_an_init_container_that_binds_its_app_to_a_full_node_asks_for_what_the_app_asks_for() -> None:
    init = ("init", ContainerKind.INIT, {"cpu": "1", "memory": "1Gi"})
    app = ("app", ContainerKind.APP, {"cpu": "4", "memory": "1Gi"})
    proposals = found(asked([with_resources("pinned", init, app)]), "pinned")
    assert proposals[0].changes == (Amount(ref("pinned"), "init", "cpu", Quantity.parse("4")),)
    assert proposals[0].cost == Cost()


def test_the_amount_of_memory_that_is_proposed_is_exactly_what_a_node_has() -> None:
    config = replace(
        SINGLE,
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),),
        eviction_hard={"memory.available": "1Gi"},
    )
    question = asked([guaranteed("first", 1, "2Gi"), guaranteed("large", 1, "20Gi")], config)
    change = found(question, "large")[0].changes[0]
    assert isinstance(change, Amount)
    assert change.amount.units == 16 * GIB
    more = applied(question, [replace(change, amount=Quantity.of_bytes(16 * GIB + 1))])
    assert not make_plan(more).answers[1].admitted


def test_a_burstable_pod_asks_for_what_is_left_of_the_node() -> None:
    request = {"cpu": Quantity.parse("9500m")}
    pod = Pod("default_b", "b", containers=(Container("app", requests=request),), qos=QoS.BURSTABLE)
    proposal = found(asked([pod]), "b")[0]
    change = proposal.changes[0]
    assert isinstance(change, Amount)
    assert (str(change.amount), proposal.cost) == ("7", Cost(cpus=2500))
    assert applied(asked([pod]), proposal.changes).pods[0].containers[0].limits == {}


def test_what_is_proposed_leaves_room_for_pods_behind() -> None:
    quantities = {"cpu": Quantity.parse("7500m"), "memory": Quantity.parse("1Gi")}
    wide = Pod("default_wide", "wide", containers=(Container("app", requests=quantities),), qos=QoS.BURSTABLE)
    question = asked([wide, guaranteed("behind", 2)])
    first = found(question, "wide")[0]
    assert first.changes == (Amount(ref("wide"), "app", "cpu", Quantity.parse("5")),)
    assert make_plan(applied(question, first.changes)).is_yes


def test_memory_that_is_proposed_leaves_a_numa_node_for_pods_behind() -> None:
    three = machine("sockets=3 numa=3 cores=12 threads=1 memory=48Gi distances=10,20")
    config = replace(SINGLE, memory_manager_policy="Static", reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),))
    behind = [guaranteed(name, 1, memory) for name, memory in (("b", "10Gi"), ("c", "10Gi"), ("d", "7Gi"))]
    question = asked([guaranteed("wide", 1, "17Gi"), *behind], config, three)
    amounts = [one for one in found(question, "wide") if isinstance(one.changes[0], Amount)]
    assert amounts[0].changes == (Amount(ref("wide"), "app", "memory", Quantity.parse("9116Mi")),)
    assert make_plan(applied(question, amounts[0].changes)).is_yes


def test_pod_level_resources_are_an_amount_of_their_own() -> None:
    config = replace(SINGLE, topology_manager_scope="pod", feature_gates={"PodLevelResourceManagers": True})
    amounts = {"cpu": Quantity.parse("6"), "memory": Quantity.parse("1Gi")}
    pod = Pod(
        "default_whole",
        "whole",
        containers=(Container("app"),),
        qos=QoS.GUARANTEED,
        resources=PodResources(amounts, amounts),
    )
    proposal = found(asked([pod], config), "whole")[0]
    assert proposal.text == "Let default/whole as a whole request 4 CPUs instead of 6."
    assert proposal.options == (("--ask", "default/whole:cpu=4"),)


def test_a_pod_that_comes_first_finds_its_node() -> None:
    question = asked([guaranteed("one", 1), guaranteed("three", 3), guaranteed("late", 3)])
    turns = [one for one in found(question, "late") if isinstance(one.changes[0], EarlierTurn)]
    assert texts(turns) == ["Ask default/late before default/one."]
    assert turns[0].cost == Cost(touched=2)


def test_a_small_pod_that_moves_makes_room_and_finds_another_place() -> None:
    question = asked([guaranteed("one", 1), guaranteed("three", 3), guaranteed("late", 3)])
    moves = [one for one in found(question, "late") if one.changes[0].kind == "move"]
    assert texts(moves) == ["Remove default/one before default/late is asked and admit it again last."]
    assert moves[0].cost == Cost(touched=1)
    after = make_plan(applied(question, moves[0].changes))
    assert after.is_yes
    assert after.left == {"default_one"}
    assert [answer.pod.uid for answer in after.answers][-1] == "default_one_again"
    assert [pod.get("left", False) for pod in to_builtins(plan_document(after))["pods"]] == [True, False, False, False]


def test_the_cheapest_removal_wins() -> None:
    question = asked([guaranteed("two", 2), guaranteed("four", 4), guaranteed("late", 3)])
    removals = [one for one in found(question, "late") if one.changes[0].kind == "removal"]
    assert removals[0].changes == (PodRemoval(ref("two"), ref("late")),)
    assert removals[0].cost == Cost(touched=1, cpus=2000, bytes=16 * 2**20)


def test_two_pods_go_where_one_is_not_enough() -> None:
    pods = [*(guaranteed(f"p{number}", 1) for number in range(7)), guaranteed("late", 4)]
    pairs = [one for one in found(asked(pods), "late") if len(one.changes) == 2]
    assert pairs == []
    pods = [guaranteed("a", 3), guaranteed("b", 2), guaranteed("c", 2), guaranteed("late", 4)]
    pairs = [one for one in found(asked(pods), "late") if len(one.changes) == 2]
    assert pairs[0].changes == (PodRemoval(ref("b"), ref("late")), PodRemoval(ref("c"), ref("late")))
    assert pairs[0].cost.touched == 2


def test_one_more_device_where_the_cpus_are() -> None:
    devices = {GPU: (Device("gpu-0", (0,)),)}
    pod = with_resources("train", ("app", ContainerKind.APP, {"cpu": "4", "memory": "1Gi", GPU: "1"}))
    question = replace(asked([pod]), devices=devices)
    changes = {one.changes: one.cost for one in found(question, "train")}
    assert changes[(MoreDevices(GPU, 1),)] == Cost(devices_added=1)


def test_one_more_device_for_an_earlier_pod_leaves_the_pod_its_node() -> None:
    devices = {GPU: (Device("gpu-0", (1,)),)}
    first = with_resources("first", ("app", ContainerKind.APP, {"cpu": "2", "memory": "1Gi", GPU: "1"}))
    question = replace(asked([first, guaranteed("late", 4)]), devices=devices)
    changes = {one.changes: one.cost for one in found(question, "late")}
    assert changes[(MoreDevices(GPU, 0),)] == Cost(touched=1, devices_added=1)
    assert make_plan(applied(question, (MoreDevices(GPU, 0),))).is_yes


def test_another_policy_with_its_state_file_deleted() -> None:
    config = replace(SINGLE, cpu_manager_policy_options={"full-pcpus-only": "true"}, reserved_system_cpus="0,4")
    ran = asked([guaranteed("two", 2)], config, THREADS)
    question = replace(ran, active=ran.pods, pods=(guaranteed("odd", 3),), files=make_plan(ran).files)
    none = next(one for one in found(question, "odd") if ConfigField("cpuManagerPolicy", "none") in one.changes)
    assert FreshState("cpu") in none.changes
    assert (none.cost.restarts, none.cost.state_files, none.cost.touched) == (1, 1, 1)


def test_a_kubelet_that_does_not_start_on_its_state_file_is_started_without_it() -> None:
    ran = asked([guaranteed("two", 2)])
    strict = replace(SINGLE, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    question = replace(ran, config=strict, files=make_plan(ran).files)
    refused_plan(question)
    proposals = found(question, "two")
    option = (ConfigField("cpuManagerPolicyOptions.strict-cpu-reservation", "false"),)
    assert proposals[0].changes == (FreshState("cpu"),)
    assert option in [one.changes for one in proposals]
    assert (FreshState("cpu"),) in [one.changes for one in proposals]


def test_nobody_who_was_admitted_pays_for_a_proposal() -> None:
    question = asked([guaranteed("wide", 4), guaranteed("wider", 4), guaranteed("small", 3)])
    before = make_plan(question)
    assert [answer.admitted for answer in before.answers] == [True, False, True]
    for proposal in found(question, "wider"):
        after = make_plan(applied(question, proposal.changes))
        assert after.answers[-1].admitted, proposal.text


def test_a_running_pod_that_is_refused_gets_proposals_that_disturb_no_start() -> None:
    question = replace(asked([guaranteed("new", 1)]), active=(guaranteed("wide", 6),))
    kinds = {type(change) for proposal in found(question, "wide") for change in proposal.changes}
    assert Amount in kinds
    assert not kinds & {PodRemoval, EarlierTurn}


QUESTION = replace(
    asked([guaranteed("a", 1), guaranteed("b", 1)]),
    active=(guaranteed("runs", 1),),
    devices={GPU: (Device("gpu-0", (0,)),)},
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--ask a:cpu=2", "--ask default/a/app:cpu=3"], "cpu of default/a/app is changed twice"),
        (["--set topologyManagerScope=pod", "--set topologyManagerScope=container"], "topologyManagerScope is chan"),
        (["--remove a", "--move a"], "what becomes of default/a is changed twice"),
        (["--remove b=a"], "default/b is not admitted yet when default/a is asked; swap the two"),
        (["--remove a=runs"], "default/runs is not asked: it runs already, or was removed; name a pod of -f"),
        (["--remove a", "--remove runs=a"], "default/a is not asked: it runs already, or was removed"),
        (["--first runs"], "default/runs is not asked"),
        (["--first a=a"], "default/a cannot come before itself"),
        (["--device other.example/x=0"], "no devices of other.example/x are declared"),
        ([f"--device {GPU}=7"], "has no NUMA node 7; it has 0, 1"),
        (["--ask a:hugepages-2Mi=3Mi"], "is not a whole number of 2Mi pages"),
    ],
)
def test_changes_that_cannot_be_made_are_reported_in_one_line(given: list[str], text: str) -> None:
    changes: list[PlannedChange] = []
    for words in given:
        option, value = words.split(" ")
        changes += understood(QUESTION, option, value)
    with pytest.raises(InputError) as caught:
        applied(QUESTION, changes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--ask", "a", "--ask: 'a' is incomplete; write POD[/CONTAINER]:RESOURCE=AMOUNT"),
        ("--ask", "a=2", "--ask: 'a=2' is incomplete"),
        ("--ask", "a/web:cpu=2", "--ask: default/a has no container 'web'; it has app"),
        ("--ask", "nobody:cpu=2", "--ask: there is no pod 'nobody'; there are default/runs, default/a, default/b"),
        ("--ask", "run:cpu=2", "--ask: there is no pod 'run'; did you mean default/runs?"),
        ("--ask", "a:cpu=many", "--ask: cpu: 'many' is not a quantity"),
        ("--set", "topologyManagerScop=pod", "--set: 'topologyManagerScop' cannot be set; did you mean topologyMana"),
        ("--set", "full-pcpus-only=true", "did you mean cpuManagerPolicyOptions.full-pcpus-only?"),
        ("--set", "maxPods=3", "--set: 'maxPods' cannot be set"),
        ("--set", "cpuManagerPolicyOptions.full-pcpu=true", "there is no option 'full-pcpu'; did you mean full-pcpus"),
        ("--set", "featureGates.Nothing=true", "there is no feature gate 'Nothing'"),
        ("--set", "featureGates.MemoryQoS=1", "--set: featureGates.MemoryQoS: '1' is neither true nor false"),
        ("--remove", "a=", "--remove: 'a=' is incomplete; write POD or POD=OTHER"),
        ("--device", f"{GPU}=first", "'first' is not a NUMA node; write RESOURCE=NODE"),
        ("--fresh-state", "device", "--fresh-state: there is no state file of 'device'; write cpu or memory"),
    ],
)
def test_a_change_that_cannot_be_understood_is_reported_in_one_line(option: str, value: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        understood(QUESTION, option, value)
    assert text in str(caught.value)


def test_a_gate_of_another_release_is_no_misspelling() -> None:
    with pytest.raises(InputError, match="there is no feature gate 'PodLevelResourceManagers'") as caught:
        config_field("featureGates.PodLevelResourceManagers=true", "1.34")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--ask", "*:cpu=2", ("runs", "a", "b")),
        ("--ask", "a:cpu=2", ("a",)),
        ("--ask", "default/a/*:memory=1Gi", ("a",)),
        ("--remove", "default_b", ("b",)),
    ],
)
def test_a_name_means_all_that_it_fits(option: str, value: str, text: tuple[str, ...]) -> None:
    changes = understood(QUESTION, option, value)
    assert [change.pod.shown for change in changes if isinstance(change, Amount | PodRemoval)] == [
        f"default/{name}" for name in text
    ]


def test_a_running_pod_ends_before_the_first_is_asked_and_another_is_not_asked_at_all() -> None:
    runs = applied(QUESTION, [PodRemoval(ref("runs"))])
    assert runs.leaving == {"default_a": ("default_runs",)}
    assert [pod.name for pod in applied(QUESTION, [PodRemoval(ref("a"))]).pods] == ["b"]
    assert [pod.name for pod in applied(QUESTION, [PodRemoval(ref("a"), comes_back=True)]).pods] == ["b", "a"]
    assert [pod.name for pod in applied(QUESTION, [EarlierTurn(ref("b"))]).pods] == ["b", "a"]


def test_limits_follow_requests() -> None:
    equal = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}
    room = {"cpu": Quantity.parse("3")}
    pod = Pod("default_l", "l", containers=(Container("same", requests=equal, limits=equal),), qos=QoS.GUARANTEED)
    wide = Pod("default_w", "w", containers=(Container("room", requests=equal, limits=room),), qos=QoS.BURSTABLE)
    question = asked([pod, wide])
    after = applied(question, understood(question, "--ask", "*:cpu=4"))
    assert [pod.containers[0].limits["cpu"].units for pod in after.pods] == [4, 4]
    after = applied(question, understood(question, "--ask", "*:cpu=1"))
    assert [pod.containers[0].limits["cpu"].units for pod in after.pods] == [1, 3]
    assert [pod.qos for pod in after.pods] == [QoS.GUARANTEED, QoS.BURSTABLE]


def test_a_pod_becomes_guaranteed_when_it_asks_for_what_it_lacked() -> None:
    memory = {"memory": Quantity.parse("1Gi")}
    pod = Pod("default_g", "g", containers=(Container("app", requests=memory, limits=memory),), qos=QoS.BURSTABLE)
    question = asked([pod])
    after = make_plan(applied(question, understood(question, "--ask", "g:cpu=2")))
    assert after.answers[0].pod.qos is QoS.GUARANTEED
    assert len(after.answers[0].decision.containers["app"].cpus) == 2


def test_a_sentence_names_every_change() -> None:
    changes: list[PlannedChange] = [
        ConfigField("topologyManagerScope", "pod"),
        FreshState("cpu"),
        EarlierTurn(ref("b")),
    ]
    assert sentence(changes, QUESTION) == (
        "Set topologyManagerScope to pod, delete the state file cpu_manager_state and ask default/b first."
    )
