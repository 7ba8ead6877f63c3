"""The nearest change knows other free devices, where CPUs and memory follow what was given first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods
from tests.planner.test_planner_changes_kinds import SINGLE

from mooring.answers.base.changes.change import Cost, PodRef, applied
from mooring.answers.base.changes.nearest import nearest_changes, understood
from mooring.answers.base.changes.requests import OtherDevices
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.trace import trace_of
from mooring.answers.compare.trial import run_trials
from mooring.answers.compare.variant import Variant
from mooring.engine.core.config import DEVICE_ALIGNMENT, FIXABLE_DEFECTS, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.compact import parse_compact

GPU, NIC, DRIVER = "vendor.example/gpu", "vendor.example/nic", "gpu.vendor.example"
FOLLOWING = MooringConfig(frozenset({DEVICE_ALIGNMENT}))
TWO_NODES = replace(parse_compact("sockets=2 cores=8 memory=32Gi"), findings=())


def wants(name: str, cpu: int, *containers: str, **devices: str) -> Pod:
    amounts = {"cpu": str(cpu), "memory": "64Mi", **{f"vendor.example/{kind}": one for kind, one in devices.items()}}
    limits = {resource: Quantity.parse(text) for resource, text in amounts.items()}
    made = tuple(Container(one, requests=limits, limits=limits) for one in containers or ("app",))
    return Pod(f"default_{name}", name, containers=made, qos=QoS.GUARANTEED)


def asked(pods: Sequence[Pod], mooring: MooringConfig = FOLLOWING, **devices: tuple[int, ...]) -> Question:
    config = replace(SINGLE, reserved_system_cpus="0")
    offered = {
        f"vendor.example/{kind}": tuple(Device(f"{kind}-{number}", (node,)) for number, node in enumerate(nodes))
        for kind, nodes in devices.items()
    }
    return Question(TWO_NODES, config, mooring, tuple(pods), devices=offered)


def held(question: Question, name: str) -> list[Proposal]:
    found = nearest_changes(question, f"default_{name}", limit=10)
    return [one for one in found if one.changes[0].kind == "devices"]


def ref(name: str) -> PodRef:
    return PodRef(f"default_{name}", f"default/{name}")


def test_a_free_device_beside_free_cpus_costs_nothing_and_is_nearest() -> None:
    question = asked([wants("big", 3), wants("train", 2, gpu="1")], gpu=(0, 0, 1))
    assert not make_plan(question).is_yes
    nearest = nearest_changes(question, "default_train")[0]
    assert nearest.changes == (OtherDevices(ref("train"), "app", GPU, ("gpu-2",)),)
    assert nearest.cost == Cost()
    assert nearest.text == "Let default/train/app hold gpu-2 of vendor.example/gpu on NUMA node 1 instead of gpu-0."
    assert make_plan(applied(question, nearest.changes)).is_yes


def test_the_option_that_is_printed_makes_the_change() -> None:
    question = asked([wants("big", 3), wants("train", 2, gpu="1", nic="1")], gpu=(0, 1), nic=(0, 1))
    [nearest] = held(question, "train")
    assert {change.option for change in nearest.changes} == {
        ("--hold", "default/train/app:vendor.example/gpu=gpu-1"),
        ("--hold", "default/train/app:vendor.example/nic=nic-1"),
    }
    read = [change for option in nearest.options for change in understood(question, *option)]
    assert tuple(read) == nearest.changes
    assert make_plan(applied(question, read)).is_yes


def test_what_others_hold_or_claim_is_not_free() -> None:
    busy = asked([wants("first", 1, gpu="1"), wants("big", 2), wants("train", 2, gpu="1")], gpu=(0, 0))
    assert held(busy, "train") == []
    claims = {
        "default_other": {"app": {DRIVER: frozenset({"pool/1"})}},
        "default_train": {"app": {DRIVER: frozenset({"pool/0"})}},
    }
    drivers = {DRIVER: (Device("pool/0", (0,)), Device("pool/1", (1,)))}
    question = replace(asked([wants("big", 3), wants("train", 2)]), devices=drivers, claimed=claims)
    assert not make_plan(question).is_yes
    assert held(question, "train") == []
    [nearest] = held(replace(question, devices={DRIVER: (*drivers[DRIVER], Device("pool/2", (1,)))}), "train")
    assert nearest.changes == (OtherDevices(ref("train"), "app", DRIVER, ("pool/2",)),)


def test_one_merge_of_all_needs_no_other_device() -> None:
    question = asked([wants("big", 3), wants("train", 2, gpu="1")], MooringConfig(), gpu=(0, 0, 1))
    assert make_plan(question).is_yes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train:vendor.example/gpu", "is incomplete; write POD"),
        ("train=gpu-0", "is incomplete; write POD"),
        ("train:vendor.example/gpu=gpu-7", "'gpu-7' is no device of vendor.example/gpu; known are gpu-0, gpu-1"),
        ("train:vendor.example/fpga=x", "'x' is no device of vendor.example/fpga; known are none"),
        ("nobody:vendor.example/gpu=gpu-0", "nobody"),
    ],
)
def test_what_cannot_be_held_is_refused_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        understood(asked([wants("train", 2, gpu="1")], gpu=(0, 1)), "--hold", text)


@given(hardware(), st.data())
def test_every_proposal_admits_the_pod_when_a_plan_makes_it(hard: Hardware, data: st.DataObject) -> None:
    mooring = replace(FOLLOWING, fixed_defects=FIXABLE_DEFECTS)
    found = tuple(data.draw(pods(f"p{number}")) for number in range(3))
    strict = replace(data.draw(configurations()), topology_manager_policy="single-numa-node")
    question = Question(Machine("drawn", hard.info), strict, mooring, found, devices=hard.devices)
    refused = [answer.pod.uid for answer in make_plan(question).answers if not answer.admitted]
    assume(refused)
    for one in nearest_changes(question, refused[0], limit=20):
        if one.changes[0].kind == "devices":
            after = make_plan(applied(question, one.changes))
            assert any(answer.pod.uid == refused[0] and answer.admitted for answer in after.answers)


def test_a_pod_that_comes_back_has_its_claims_still() -> None:
    drivers = {DRIVER: (Device("pool/1", (1,)),)}
    claims = {"default_infer": {"app": {DRIVER: frozenset({"pool/1"})}}}
    running = replace(asked([wants("infer", 2), wants("train", 3, gpu="1")], gpu=(1,)), claimed=claims)
    question = replace(running, devices={**running.devices, **drivers})
    moved = list(understood(question, "--move", "infer=train"))
    after = make_plan(applied(question, moved))
    back = next(answer for answer in after.answers if answer.pod.uid.endswith("_again"))
    assert [device.id for device in back.decision.devices["app"][DRIVER]] == ["pool/1"]


def test_compared_configurations_know_what_pods_claim() -> None:
    claims = {"default_infer": {"app": {DRIVER: frozenset({"pool/1"})}}}
    question = replace(asked([wants("infer", 2)]), claimed=claims, devices={DRIVER: (Device("pool/1", (1,)),)})
    variant = Variant("x", question.machine, question.config, question.mooring, question.devices)
    [trial] = run_trials(trace_of(question), {0: variant})
    [admission] = trial.admissions
    assert str(admission.decision.containers["app"].cpus) == "4-5"
