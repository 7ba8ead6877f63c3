"""A migration to the agent: checks, the steps in order with what each does, and the way back.

Every outcome is an answer of the engine, the doctor or the agent's reactor about this node; nothing is executed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from mooring.agent.migration.takeover import Takeover, TakeoverOutcome, take_over
from mooring.answers.base.plan import Plan, make_plan
from mooring.answers.base.question import Question
from mooring.answers.doctor.diagnosis import Diagnosis, diagnose
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet


class Way(Enum):
    """What becomes of the pods of the node meanwhile."""

    IN_PLACE = "in place"
    """They run on."""
    DRAIN = "drain"
    """They are evicted, and pods that come afterwards are placed anew."""


@dataclass(frozen=True, slots=True)
class MigrationCheck:
    """Something that must hold before the first step."""

    name: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class Migration:
    """What happens on a node on its way from its kubelet's managers to the agent."""

    question: Question
    """The node as it is."""
    way: Way
    diagnosis: Diagnosis
    without_managers: Plan
    """The kubelet with policy none and no state files."""
    with_files: str
    """What that kubelet reports when the state files are not removed; empty if it starts."""
    takeover: Takeover | None
    """What the agent does with the pods; None where it does not start."""
    rollback: Plan
    """The old kubelet on a copy of its own state files."""
    checks: tuple[MigrationCheck, ...]

    @property
    def passed(self) -> bool:
        """Tell whether every check has passed."""
        return all(check.passed for check in self.checks)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the answer should know."""
        return self.diagnosis.findings


def without_managers(config: KubeletConfig) -> KubeletConfig:
    """Return the configuration of the kubelet beside the agent."""
    return replace(config, cpu_manager_policy="none", cpu_manager_policy_options={}, memory_manager_policy="None")


def migration_of(question: Question, way: Way, devices: DeviceRecord | None = None) -> Migration:
    """Migrate a node on paper.

    Args:
        question: the node with its running pods.
        way: what becomes of them.
        devices: the device manager's record; None where it is not known.

    Raises:
        InputError: its kubelet manages neither CPUs nor memory.
    """
    question = replace(question, mooring=MooringConfig(release=question.mooring.release), pods=())
    config = question.config
    if config.cpu_manager_policy == "none" and config.memory_manager_policy == "None":
        problem = "the kubelet of this node manages neither CPUs nor memory: there is nothing to migrate"
        raise InputError(problem, remedy="start the agent (docs/how-to/run-the-agent.md)")
    running = make_plan(question)
    diagnosis = diagnose(question, devices=devices)
    beside = replace(question, config=without_managers(config), files=StateTexts())
    plan = make_plan(beside)
    refusal = refusal_of(start_kubelet(question.machine.info, beside.config, question.mooring, question.files))
    before = _before(question, running)
    taken, problem = _taken_over(question, before, way)
    checks = (
        MigrationCheck("state files", diagnosis.is_sound, _doctor_text(diagnosis)),
        _kubelet_check(plan),
        MigrationCheck("agent", taken is not None, problem or "its engine starts with the kubelet's policies"),
        *([_pods_check(taken)] if taken is not None else []),
        _rollback_check(running),
    )
    with_files = refusal.message if refusal is not None else ""
    return Migration(question, way, diagnosis, plan, with_files, taken, running, checks)


def _before(question: Question, running: Plan) -> Kubelet | None:
    """Return the kubelet with what the pods have: by its files, or by its decisions where there are none."""
    if question.files == StateTexts():
        return running.kubelet
    return running.trace[0] if running.trace else running.kubelet


def _taken_over(question: Question, before: Kubelet | None, way: Way) -> tuple[Takeover | None, str]:
    if before is None:
        return None, "not asked: what the running pods have is not known"
    try:
        return take_over(question, before, recreated=way is Way.DRAIN), ""
    except InputError as error:
        return None, str(error)


def _doctor_text(diagnosis: Diagnosis) -> str:
    if diagnosis.is_sound:
        return "mooring doctor finds nothing wrong"
    problems = [problem.message for problem in diagnosis.all_problems if problem.severity == "error"]
    return "; ".join(problems) or (diagnosis.refusal.message if diagnosis.refusal is not None else "")


def _kubelet_check(plan: Plan) -> MigrationCheck:
    rejected = [f"{one.pod.namespace}/{one.pod.name}" for one in plan.answers if not one.admitted]
    if plan.refusal is not None:
        return MigrationCheck(
            "kubelet", passed=False, message=f"does not start without its managers: {plan.refusal.message}"
        )
    if rejected:
        return MigrationCheck("kubelet", passed=False, message=f"rejects {', '.join(rejected)} at its restart")
    return MigrationCheck("kubelet", passed=True, message="starts without its managers and readmits every running pod")


def _pods_check(taken: Takeover) -> MigrationCheck:
    waiting, moved = taken.with_outcome(TakeoverOutcome.WAITS), taken.with_outcome(TakeoverOutcome.MOVED)
    kept = taken.with_outcome(TakeoverOutcome.KEPT)
    if waiting:
        names = ", ".join(dict.fromkeys(f"{one.pod.namespace}/{one.pod.name} ({one.reason})" for one in waiting))
        return MigrationCheck("pods", passed=False, message=f"the agent cannot place {names}")
    return MigrationCheck(
        "pods", passed=True, message=f"{len(kept)} containers keep their CPUs and memory, {len(moved)} move"
    )


def _rollback_check(running: Plan) -> MigrationCheck:
    rejected = [f"{one.pod.namespace}/{one.pod.name}" for one in running.answers if not one.admitted]
    if running.refusal is not None:
        return MigrationCheck(
            "rollback", passed=False, message=f"the kubelet does not start again: {running.refusal.message}"
        )
    if rejected:
        return MigrationCheck(
            "rollback", passed=False, message=f"a restart of the kubelet rejects {', '.join(rejected)}"
        )
    return MigrationCheck("rollback", passed=True, message="the kubelet starts again on a copy of its state files")
