"""A proposal says what it costs: guarantees, alignment, pods that move, and what has to be bought."""

from __future__ import annotations

from dataclasses import replace

from tests.planner.change_questions import guaranteed

from mooring.answers.base.changes.change import Cost, applied
from mooring.answers.base.changes.configuration import ConfigField, Guarantee
from mooring.answers.base.changes.nearest import alignment_words, given_up_words, nearest_changes, price_words
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.whatif.answer import differences
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.explanations.alignment import AlignmentLevel, Extent
from mooring.inputs.machines.compact import parse_compact

GPU = "vendor.example/gpu"
SINGLE = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="single-numa-node"
)
BEST_EFFORT = (ConfigField("topologyManagerPolicy", "best-effort"),)
RESTRICTED = (ConfigField("topologyManagerPolicy", "restricted"),)


def on_two_nodes(*pods: Pod, config: KubeletConfig = SINGLE, gpus: tuple[int, ...] = ()) -> Question:
    """Return a question about nodes of CPUs 0-3 and 4-7, of which CPU 0 is reserved, with a GPU on each of some."""
    machine = parse_compact("sockets=2 numa=2 cores=8 threads=1 memory=32Gi distances=10,20")
    devices = {GPU: tuple(Device(f"gpu-{number}", (node,)) for number, node in enumerate(gpus))} if gpus else {}
    return Question(replace(machine, findings=()), config, pods=pods, devices=devices)


def trainer(cpus: str, gpus: str) -> Pod:
    amounts = {"cpu": Quantity.parse(cpus), "memory": Quantity.parse("1Gi"), GPU: Quantity.parse(gpus)}
    containers = (Container("app", requests=amounts, limits=amounts),)
    return Pod("default_train", "train", containers=containers, qos=QoS.GUARANTEED)


def proposals(question: Question, name: str) -> list[Proposal]:
    return list(nearest_changes(question, f"default_{name}", 100))


def with_policy(question: Question, name: str) -> Proposal:
    return next(one for one in proposals(question, name) if one.changes == BEST_EFFORT)


def test_a_guarantee_given_up_ranks_behind_a_pod_that_moves() -> None:
    found = proposals(on_two_nodes(guaranteed("one", 1), guaranteed("three", 3), guaranteed("late", 3)), "late")
    kinds = [one.changes[0].kind for one in found]
    policy = next(place for place, one in enumerate(found) if one.changes == BEST_EFFORT)
    assert kinds.index("move") < policy
    assert kinds.index("removal") < policy
    assert max(place for place, one in enumerate(found) if not one.guarantees) < policy


def test_best_effort_names_the_guarantee_and_the_alignment_that_are_lost() -> None:
    proposal = with_policy(on_two_nodes(guaranteed("a", 2), guaranteed("b", 3), guaranteed("late", 2)), "late")
    assert Guarantee.ALIGNED in proposal.guarantees
    assert proposal.alignment_lost == {AlignmentLevel.NUMA: 1, AlignmentLevel.SOCKET: 1}
    assert given_up_words(proposal) == ["guarantee of NUMA alignment"]
    assert alignment_words(proposal) == ["1 NUMA node", "1 socket"]
    assert price_words(proposal) == (
        "This gives up the guarantee of NUMA alignment and spreads containers over 1 NUMA node and 1 socket more than "
        "needed."
    )


def test_devices_far_from_the_cpus_are_alignment_that_is_lost() -> None:
    question = on_two_nodes(guaranteed("a", 4), trainer("2", "1"), gpus=(1,))
    assert with_policy(question, "train").alignment_lost == {AlignmentLevel.DEVICES: 1}


def test_devices_that_no_numa_node_has_together_need_several() -> None:
    question = on_two_nodes(trainer("1", "2"), gpus=(0, 1))
    found = proposals(question, "train")
    policy = next(one for one in found if one.changes == BEST_EFFORT)
    assert policy.alignment_lost == {}
    assert given_up_words(policy) == ["guarantee of NUMA alignment", "GPUs on 2 NUMA nodes"]
    assert price_words(policy) == ("This gives up the guarantee of NUMA alignment and places GPUs on 2 NUMA nodes.")
    assert found[0].text == "Let container app of default/train request 1 vendor.example/gpu instead of 2."


def test_cpus_and_devices_that_need_several_numa_nodes_are_not_aligned() -> None:
    question = on_two_nodes(trainer("6", "2"), gpus=(0, 1))
    policy = next(one for one in proposals(question, "train") if one.changes == RESTRICTED)
    assert given_up_words(policy) == [
        "guarantee of one NUMA node",
        "CPUs on 2 NUMA nodes",
        "GPUs on 2 NUMA nodes",
    ]
    (train,) = differences(make_plan(question), make_plan(applied(question, RESTRICTED)))
    extents = [
        Extent(AlignmentLevel[one.level.upper()], one.held, one.needed)
        for one in next(iter(train.after.containers.values())).alignment
    ]
    assert [(str(one), one.is_aligned) for one in extents] == [
        ("2 NUMA nodes, 2 needed", False),
        ("2 sockets, 2 needed", True),
        ("2 NUMA nodes with its devices, 2 needed", False),
    ]


def test_a_pod_that_is_aligned_costs_no_alignment() -> None:
    question = on_two_nodes(guaranteed("one", 1), guaranteed("three", 3), guaranteed("late", 3))
    move = next(one for one in proposals(question, "late") if one.changes[0].kind == "move")
    assert (move.guarantees, move.alignment_lost) == ((), {})


def test_a_device_to_buy_is_not_given_up() -> None:
    question = on_two_nodes(trainer("4", "1"), gpus=(0,))
    more = next(one for one in proposals(question, "train") if one.changes[0].kind == "device")
    assert more.cost == Cost(devices_added=1)
    assert given_up_words(more) == []


def test_before_and_after_say_how_a_container_is_aligned() -> None:
    question = on_two_nodes(guaranteed("a", 2), guaranteed("b", 3), guaranteed("late", 2))
    after = make_plan(applied(question, BEST_EFFORT))
    late = next(one for one in differences(make_plan(question), after) if one.name == "late")
    (placed,) = late.after.containers.values()
    assert [(one.level, one.held, one.needed) for one in placed.alignment] == [("numa", 2, 1), ("socket", 2, 1)]
