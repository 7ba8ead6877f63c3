"""A rejection for devices says which kind it is, and help that was not run is marked as general."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.explain.situations import TWO_NODES, planned, pod, policy, told
from tests.plans import started_plan

from mooring.answers.base.plan import Question
from mooring.answers.explain.document import explanation_document
from mooring.answers.explain.text import helps_of
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.explanations.story import Story

GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
SINGLE = policy("single-numa-node")


def container(name: str, gpus: int, nics: int = 0, kind: ContainerKind = ContainerKind.APP) -> Container:
    amounts = {
        "cpu": "500m",
        "memory": "64Mi",
        **({GPU: str(gpus)} if gpus else {}),
        **({NIC: str(nics)} if nics else {}),
    }
    quantities = {resource: Quantity.parse(text) for resource, text in amounts.items()}
    return Container(name, kind, quantities, quantities)


def gpus(name: str, count: int) -> Pod:
    return pod(name, container("app", count))


def devices(gpu_nodes: tuple[int, ...], nic_nodes: tuple[int, ...] = ()) -> dict[str, tuple[Device, ...]]:
    found = {GPU: tuple(Device(f"gpu-{number}", (node,)) for number, node in enumerate(gpu_nodes))}
    return found | {NIC: tuple(Device(f"nic-{number}", (node,)) for number, node in enumerate(nic_nodes))}


def story(pods: list[Pod], gpu_nodes: tuple[int, ...], nic_nodes: tuple[int, ...] = ()) -> Story:
    return told(planned(SINGLE, pods, devices=devices(gpu_nodes, nic_nodes)))


def test_no_node_has_that_many_devices() -> None:
    found = story([gpus("train", 2)], (0, 1))
    assert found.why.code == "MOOR-133"
    assert found.why.sentence == "Container app needs 2 GPUs (vendor.example/gpu) on one NUMA node; each node has 1."
    assert "remove a pod" not in found.why.remedy.lower()


def test_no_node_has_that_many_devices_free() -> None:
    found = story([gpus("one", 1), gpus("train", 2)], (0, 0, 1))
    assert found.why.code == "MOOR-132"
    assert found.why.sentence == (
        "Container app needs 2 GPUs (vendor.example/gpu) on one NUMA node; each node has 1 free "
        "(of 2 on NUMA node 0, 1 on NUMA node 1)."
    )
    assert found.why.remedy.startswith("Remove a pod that holds some")


def test_the_node_has_fewer_devices_than_are_requested() -> None:
    found = story([gpus("one", 1), gpus("train", 3)], (0, 1))
    assert found.why.code == "MOOR-131"
    assert found.why.sentence == "Container app requests 3 GPUs (vendor.example/gpu), but the node has 2."
    assert "remove" not in found.why.remedy.lower()


def test_devices_of_an_init_container_tie_the_app() -> None:
    warm = container("warm", 1, kind=ContainerKind.INIT)
    found = story([pod("tied", warm, container("app", 2))], (0, 1, 1))
    assert found.why.code == "MOOR-134"
    assert "init container warm got its devices" in found.why.sentence
    assert "including those, 1 is available there" in found.why.sentence


def test_devices_of_two_resources_on_different_numa_nodes() -> None:
    found = story([pod("far", container("app", 2, 1))], (0, 1, 1), (0,))
    assert found.why.code == "MOOR-135"
    assert "no NUMA node has both" in found.why.sentence


def test_what_was_run_is_printed_without_general_advice() -> None:
    found = story([gpus("train", 2)], (0, 1))
    assert helps_of(explanation_document(found, "machine", None), ["Request 1."]) == ["help: Request 1."]


def test_general_advice_is_marked_where_nothing_was_found() -> None:
    found = story([gpus("train", 2)], (0, 1))
    document = explanation_document(found, "machine", None)
    assert helps_of(document, []) == [f"help (general, not run): {found.why.remedy}"]
    without = explanation_document(replace(found, why=replace(found.why, remedy="")), "machine", None)
    assert helps_of(without, []) == []


NICS_WITHOUT_NODE = {NIC: (Device("nic-0", (0,)), Device("nic-1"), Device("nic-2", (7,)))}


@pytest.mark.parametrize("topology", ["single-numa-node", "restricted"])
def test_devices_without_a_numa_node_of_the_machine_are_free_but_do_not_count(topology: str) -> None:
    found = told(planned(policy(topology), [pod("both", container("app", 0, 2))], devices=NICS_WITHOUT_NODE))
    assert found.why.code == "MOOR-138"
    assert found.why.sentence == (
        "Container app requests 2 NICs (vendor.example/nic); 3 are free, but only 1 is on a known NUMA node, "
        f"which {topology} requires."
    )
    assert "remove a pod" not in found.why.remedy


def test_devices_without_a_numa_node_that_a_pod_holds_are_not_another_number() -> None:
    taken = planned(policy("best-effort"), [pod("both", container("app", 0, 2))], devices=NICS_WITHOUT_NODE)
    assert taken.is_yes
    question = Question(TWO_NODES, SINGLE, active=(taken.answers[0].pod,), devices=NICS_WITHOUT_NODE)
    held = {"both": {"app": {NIC: frozenset({"nic-0", "nic-1"})}}}
    found = told(started_plan(replace(question, held=held)))
    assert found.why.code == "MOOR-138"
    assert "it holds 2, but only 1 is on a known NUMA node" in found.why.sentence
