"""What a plan reports of starts that are left to chance, that crash, and of numbers that wrap around."""

from __future__ import annotations

from dataclasses import replace

from tests.node.nodes import machine
from tests.node.podlevel_nodes import container, managed
from tests.plans import refused_plan, started_plan

from mooring.answers.base.plan import Plan, Question
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.checkpoint.memory_file import memory_state_text
from mooring.engine.core.config import MooringConfig, ReservedMemory
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import HugePages, MachineInfo
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.memorymanager.state import Block, MemoryState, charge

CONFIG = managed("best-effort", "container", memory=True)
MEMORY = 1 << 30


def question(info: MachineInfo, blocks: dict[str, Block], *pods: Pod) -> Question:
    """Return what is asked on a memory file whose assignments came in the order of ``blocks``, by pod uid."""
    kubelet = start_kubelet(info, CONFIG, MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    nodes = kubelet.node.memory.nodes
    for block in blocks.values():
        nodes = charge(nodes, block.numa, block.type, block.size)
    state = MemoryState("Static", nodes, {uid: {"c": (block,)} for uid, block in blocks.items()})
    files = replace(kubelet.files, memory=memory_state_text(state, pod_level=True))
    return Question(Machine("two", info), CONFIG, MooringConfig(), tuple(pods), files=files)


def about_the_file(plan: Plan) -> list[str]:
    return [finding.message for finding in plan.findings if finding.subject == "memory_manager_state"]


def test_a_start_that_is_left_to_chance_is_said() -> None:
    group, single = Block((0, 1), "memory", MEMORY), Block((0,), "memory", MEMORY)
    plan = started_plan(question(machine(), {"b": group, "a": single}))
    (message,) = about_the_file(plan)
    assert message.startswith("the kubelet starts on this file only by chance")
    assert "NUMA node 0 may end in another group" in message


def test_a_start_that_is_not_left_to_chance_is_not_talked_about() -> None:
    group, other = Block((0, 1), "memory", MEMORY), Block((0, 1), "memory", MEMORY)
    plan = started_plan(question(machine(), {"b": group, "a": other}))
    assert about_the_file(plan) == []


def uneven() -> MachineInfo:
    """Return two nodes of which only the first lists huge pages."""
    info = machine()
    first, second = info.topology
    return replace(info, topology=(replace(first, hugepages=(HugePages(2048, 16),)), second))


def test_a_group_of_uneven_nodes_crashes_the_kubelet() -> None:
    plan = refused_plan(question(uneven(), {"a": Block((0, 1), "memory", MEMORY)}))
    assert plan.refusal.message == (
        "the kubelet crashes: NUMA node 1 does not list hugepages-2Mi and node 0 of its group does: the kubelet "
        "crashes when it starts on such a group"
    )


def test_a_pod_that_asks_for_pages_of_which_some_node_knows_nothing_crashes_the_kubelet() -> None:
    asked = container("c", "1")
    amounts = {**asked.limits, "hugepages-2Mi": Quantity.parse("2Mi")}
    pod = Pod("u", "u", containers=(replace(asked, requests=amounts, limits=amounts),), qos=QoS.GUARANTEED)
    plan = started_plan(question(uneven(), {}, pod))
    (answer,) = plan.answers
    assert "NUMA node 1 does not list hugepages-2Mi" in answer.crash
    assert not plan.is_yes


def test_a_node_with_more_reserved_than_it_has_is_reported_and_the_kubelet_goes_on() -> None:
    first, second = machine().topology
    info = replace(machine(), topology=(first, replace(second, memory=0)))
    config = replace(CONFIG, reserved_memory=(ReservedMemory(1, {"memory": "100Mi"}),))
    pod = Pod("u", "u", containers=(container("c", "1"),), qos=QoS.GUARANTEED)
    asked = Question(Machine("two", info), config, pods=(pod,))
    plan = started_plan(asked)
    assert plan.is_yes
    (found,) = [finding for finding in plan.findings if finding.code == "MOOR-511"]
    assert found.message in [one.message for one in diagnose(asked).findings if one.code == found.code]
    assert found.subject == "NUMA node 1"
    assert found.message.startswith("has 0 bytes of memory, of which 104857600 are reserved and 0 are huge pages: ")
