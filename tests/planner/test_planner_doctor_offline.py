"""State files with CPUs that went offline since they were written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mooring.answers.base.plan import Question
from mooring.answers.doctor.answer import DiagnosisDocument
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.machines.compact import parse_compact

CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")


def machine(offline: str) -> Machine:
    """Return a machine with CPUs 0 to 3 online."""
    found = parse_compact("cores=4 threads=1")
    assert found.hardware is not None
    return replace(found, hardware=replace(found.hardware, offline=CPUSet.parse(offline)))


def looked_at(offline: str) -> DiagnosisDocument:
    """Look at the file of a machine that had CPUs 0 to 7: one container has 1 and 4, one 5, one 2."""
    held = {"a": {"app": CPUMask(0b010010)}, "b": {"app": CPUMask(0b100000)}, "c": {"app": CPUMask(0b100)}}
    text = cpu_state_text(CPUState("static", CPUMask(0b11001001), held), pod_level=False, baselines=False)
    return diagnose(Question(machine(offline), CONFIG, files=StateTexts(cpu=text)))


def test_offline_cpus_are_named_with_whom_they_concern_and_what_comes_of_it() -> None:
    found = looked_at("4-7")
    (problem,) = found.all_problems
    assert (problem.code, problem.severity, problem.cpus) == ("MOOR-319", "error", "4-7")
    assert [holder.uid for holder in problem.containers] == ["a", "b"]
    assert problem.message == (
        "This machine has CPUs 4-7 offline; the file gives them to 2 containers and the shared pool. The kubelet "
        "refuses it at its next start, unless they are online by then."
    )
    assert not found.starts
    assert "doesn't match with CPUs in state" in found.start_error
    assert found.repairs[0].kept == 1


@pytest.mark.parametrize(("offline", "codes"), [("", ["MOOR-316"]), ("4-5", ["MOOR-319", "MOOR-316"])])
def test_cpus_that_the_machine_never_had_are_another_cause(offline: str, codes: list[str]) -> None:
    found = looked_at(offline)
    assert [problem.code for problem in found.all_problems] == codes
    everything = CPUSet()
    for problem in found.all_problems:
        everything |= CPUSet.parse(problem.cpus)
    assert str(everything) == "4-7"
