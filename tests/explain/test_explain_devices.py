"""A rejection for devices says which kind it is, and help that was not run is marked as general."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.explain.situations import TWO_NODES, planned, pod, policy, simple, told, with_memory
from tests.plans import started_plan
from tests.values import cases

import mooring.explanations.codes as reason
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.pods import story_of
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.explanations.codes import all_codes, is_code, page
from mooring.inputs.machines.compact import parse_compact
from mooring.views.decision import SIGNS, Mark, decision_view
from mooring.views.svg.decision import decision_svg

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


def devices(gpu_nodes: Sequence[int], nic_nodes: Sequence[int]) -> dict[str, tuple[Device, ...]]:
    found = {GPU: tuple(Device(f"gpu-{number}", (node,)) for number, node in enumerate(gpu_nodes))}
    return found | {NIC: tuple(Device(f"nic-{number}", (node,)) for number, node in enumerate(nic_nodes))}


@pytest.mark.parametrize(
    ("pods", "gpus", "nics", "code", "said", "removes", "name"),
    cases(__file__, "shortages-of-devices.yaml", "pods", "gpus", "nics", "code", "says", "removes", "name"),
)
def test_a_shortage_of_devices_has_its_code_sentence_and_advice(
    pods: dict[str, list[Any]], gpus: list[int], nics: list[int], code: str, said: str, removes: str, name: str
) -> None:
    kinds = {False: ContainerKind.APP, True: ContainerKind.INIT}
    asked = [
        pod(called, *(container(one, gpu, nic, kinds[is_init]) for one, gpu, nic, is_init in held))
        for called, held in pods.items()
    ]
    why = told(planned(SINGLE, asked, devices=devices(gpus, nics))).why
    assert (why.code, why.sentence) == (code, said.replace("GPUS", "GPUs (vendor.example/gpu)")), name
    assert why.remedy.startswith(removes)
    assert ("remove a pod" in why.remedy.lower()) == bool(removes)


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


# Devices of a container that are farther from one another than as many others of the machine.


GPU_DEVICES = "nvidia.com/gpu"


def remarks_on(homes: dict[str, int], count: int, *, distances: bool = True) -> list[str]:
    """Return what is said about a pod that gets the first devices by name, whatever their nodes."""
    machine = parse_compact("sockets=2 numa=4 cores=16 threads=1 memory=64Gi")
    if not distances:
        bare = tuple(replace(node, distances=None) for node in machine.info.topology)
        machine = replace(machine, info=replace(machine.info, topology=bare))
    amount = {GPU_DEVICES: Quantity.parse(str(count))}
    pod = Pod("u", "d", "train", (Container("main", requests=amount, limits=amount),))
    devices = {GPU_DEVICES: tuple(Device(name, (node,)) for name, node in homes.items())}
    (answer,) = make_plan(Question(machine, KubeletConfig(), pods=(pod,), devices=devices)).answers
    return [remark.sentence for remark in story_of(answer).remarks]


@pytest.mark.parametrize(
    ("homes", "remark"),
    [
        ({"a": 0, "b": 2, "c": 3}, "0,2 (distance 32); on an empty machine NUMA nodes 2-3 (distance 12) have"),
        ({"a": 0, "b": 2, "c": 2}, "0,2 (distance 32); on an empty machine NUMA node 2 (distance 10) has"),
        ({"a": 0, "b": 1, "c": 2}, ""),
        ({"a": 0, "b": 0}, ""),
    ],
    ids=["other nodes are closer", "one node has them", "the closest pair", "one node"],
)
def test_devices_are_judged_by_the_distance_of_their_nodes(homes: dict[str, int], remark: str) -> None:
    sentences = [f"main has 2 GPUs (nvidia.com/gpu) on NUMA nodes {remark} as many"] if remark else []
    assert remarks_on(homes, 2) == sentences


def test_without_distances_only_the_number_of_nodes_counts() -> None:
    assert remarks_on({"a": 0, "b": 2, "c": 3}, 2, distances=False) == []
    (said,) = remarks_on({"a": 0, "b": 2, "c": 2}, 2, distances=False)
    assert said.endswith("on NUMA nodes 0,2; on an empty machine NUMA node 2 has as many")


def test_one_device_is_not_judged() -> None:
    assert remarks_on({"a": 0}, 1) == []


# Forms of an explanation: facts as documents, codes in the reference, marks of the picture, names.


def test_every_code_of_a_reason_is_given_once() -> None:
    codes = [value for value in vars(reason).values() if isinstance(value, str) and is_code(value)]
    assert sorted(codes) == sorted(set(codes)) == [code for code in all_codes() if code.startswith("MOOR-1")]


def test_the_picture_of_a_refusal_marks_the_best_that_could_be_reached() -> None:
    plan = planned(with_memory(policy("restricted")), [simple("wide", "2", "20Gi")])
    view = decision_view(told(plan), (0, 1), None, ["do something"])
    [panel] = view.panels
    assert [cell.mark for cell in panel.rows[-1].cells] == [Mark.REFUSED, Mark.REFUSED]
    assert panel.refused
    picture = decision_svg(view)
    assert "Help: do something" in picture
    assert all(SIGNS[mark] in picture for mark in (Mark.PREFERRED, Mark.WITH_OTHERS, Mark.REFUSED))


# Codes: each that is used has its page, and each page is about something that is used.


SOURCE = Path(__file__).resolve().parents[2] / "src" / "mooring"
CODE = re.compile(r'"(MOOR-\d{3})"')


def used() -> set[str]:
    return {code for file in SOURCE.rglob("*.py") for code in CODE.findall(file.read_text(encoding="utf-8"))}


def test_every_code_in_use_has_a_page_and_every_page_is_in_use() -> None:
    assert used() == set(all_codes())


@pytest.mark.parametrize("code", all_codes())
def test_a_page_names_its_code_and_says_what_it_means_what_to_do_and_from_where(code: str) -> None:
    found = page(code)
    assert found.title
    assert found.text.startswith(f"# {code}: {found.title}\n\n")
    for section in ("## What it means\n", "## What to do\n", "## Source\n"):
        assert section in found.text
    assert found.text.endswith(".\n")
    assert set(re.findall(r"MOOR-\d{3}", found.text)) <= set(all_codes())


def test_codes_are_found_in_either_case() -> None:
    assert page("moor-261") == page("MOOR-261")


def test_an_unknown_code_is_bad_input_that_names_a_near_one() -> None:
    with pytest.raises(InputError, match=r"MOOR-26[0-9]"):
        page("MOOR-269")


@given(st.text(max_size=12))
def test_no_other_text_is_a_code(text: str) -> None:
    assert is_code(text) == (re.fullmatch(r"(?i)moor-[0-9]{3}", text) is not None)
