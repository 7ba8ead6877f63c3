"""The doctor and claims to CPUs: owners beside pods, in order without any pod, and kept in repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.planner.doctor_nodes import CONFIG, MACHINE

from mooring.answers.base.plan import Question
from mooring.answers.doctor.answer import DiagnosisDocument, ProblemPart
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.checkpoint.cpu_file import cpu_state_text, load_cpu_state
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.kubelet.kubelet import StateTexts

NODE: KubeletConfig = replace(CONFIG, memory_manager_policy="None", reserved_memory=())
"""Four CPUs, of which 0 is reserved."""
THREADS = MachineInfo(4, 1, 2**31, (NUMANode(0, 2**31, (), (Core(0, (0, 1), 0), Core(1, (2, 3), 0))),))
WHOLE = replace(NODE, reserved_system_cpus="0-1", cpu_manager_policy_options={"full-pcpus-only": "true"})


def looked_at(
    pool: int,
    entries: Mapping[str, Mapping[str, int]],
    *active: Pod,
    config: KubeletConfig = NODE,
    machine: MachineInfo = MACHINE,
) -> DiagnosisDocument:
    held = {uid: {name: CPUMask(cpus) for name, cpus in sets.items()} for uid, sets in entries.items()}
    text = cpu_state_text(CPUState("static", CPUMask(pool), held), pod_level=False, baselines=False)
    return diagnose(Question(Machine("small", machine), config, active=active, files=StateTexts(text)))


def pod(uid: str, cpus: int) -> Pod:
    amounts = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse("64Mi")}
    return Pod(uid, f"pod-{uid}", containers=(Container("a", requests=amounts, limits=amounts),), qos=QoS.GUARANTEED)


def about_claims(found: DiagnosisDocument) -> list[ProblemPart]:
    return [problem for problem in found.all_problems if problem.code == "MOOR-323"]


def test_a_claim_whose_pods_are_gone_is_in_order() -> None:
    found = looked_at(
        0b1001, {"claim:u": {"shop/cpus/numa0/fast": CPUMask(0b0010), "shop/cpus/numa1/slow": CPUMask(0b0100)}}
    )
    assert found.sound
    assert not found.all_problems
    with_others = looked_at(
        0b0101, {"claim:u": {"shop/cpus/numa0/fast": CPUMask(0b0010)}, "p": {"a": CPUMask(0b1000)}}, pod("p", 1)
    )
    assert not with_others.all_problems


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"shop/cpus/numa0/fast": 0}, "Claim shop/cpus has no CPU for request fast of numa0"),
        ({"app": 0b0010}, "Claim u has an entry whose name has no device (app)"),
        ({"a/one/numa0/r": 0b0010, "a/two/numa0/r": 0b0100}, "Claim u has entries of more than one name"),
        (
            {"shop/cpus/numa0/fast": 0b0110, "shop/cpus/numa0/slow": 0b0100},
            "Claim shop/cpus has CPU 2 for more than one of its requests",
        ),
    ],
)
def test_an_entry_that_no_claim_is_given_is_reported(entries: dict[str, int], words: str) -> None:
    held = 0
    for cpus in entries.values():
        held |= cpus
    found = looked_at(0b1111 & ~held, {"claim:u": entries})
    [problem] = about_claims(found)
    assert problem.message.startswith(words)
    assert problem.severity == "warning"
    assert {holder.container for holder in problem.containers} == set(entries)


def test_parts_of_cores_are_told_only_where_whole_cores_are_given() -> None:
    entries = {"claim:u": {"shop/cpus/numa0/fast": 0b0100}}
    [problem] = about_claims(looked_at(0b1011, entries, config=WHOLE, machine=THREADS))
    assert "parts of cores for request fast of numa0 (2) under full-pcpus-only" in problem.message
    whole = {"claim:u": {"shop/cpus/numa0/fast": 0b1100}}
    assert not about_claims(looked_at(0b0011, whole, config=WHOLE, machine=THREADS))
    loose = replace(WHOLE, cpu_manager_policy_options={})
    assert not about_claims(looked_at(0b1011, entries, config=loose, machine=THREADS))


def test_a_cpu_of_a_pod_and_a_claim_is_damage_and_the_repair_keeps_the_claim_before_a_pod_that_is_gone() -> None:
    entries = {"claim:u": {"shop/cpus/numa0/fast": 0b0010}, "gone": {"a": 0b0110}, "p": {"a": 0b1000}}
    found = looked_at(0b0001, entries, pod("p", 1))
    [problem] = [one for one in found.all_problems if one.code == "MOOR-312"]
    assert problem.message.startswith("More than one pod or claim holds CPU 1.")
    [repair] = found.repairs
    assert repair.action == "replace"
    repaired = load_cpu_state(repair.text, policy="static", pod_level=False, baselines=False)
    assert isinstance(repaired, CPUState)
    assert repaired.assignments == {"claim:u": {"shop/cpus/numa0/fast": 0b0010}, "p": {"a": 0b1000}}
    [dropped] = repair.dropped
    assert dropped.why == "claim shop/cpus (fast) holds CPU 1 too"


def test_claims_are_not_counted_as_containers() -> None:
    entries = {"claim:u": {"shop/cpus/numa0/fast": 0b0010}, "p": {"a": 0b1000}}
    assert looked_at(0b0101, entries).files[0].containers == 1
