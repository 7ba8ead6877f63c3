"""Planning: a list of pods on a node, in order, with every answer and its reason.

After the managers the kubelet's node resources check is applied, so that a plan never promises what the node does not
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.cpuset import CPUSet
from mooring.core.decision import StartRefusal
from mooring.core.machine import Finding, Machine
from mooring.core.pod import Container, Pod
from mooring.node import Decision
from mooring.node.resources import check_fit
from mooring.planner.outcome import decision_fields
from mooring.planner.simulation import Kubelet, StateTexts, start_kubelet
from mooring.planner.why import Circumstances, why

API_VERSION = "mooring/v1alpha1"
KUBELET = "v1.37.1"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one pod of the plan."""

    pod: Pod
    decision: Decision
    why: str
    """One sentence in plain words."""
    running: bool = False
    """Whether the pod ran already and was admitted again."""

    @property
    def admitted(self) -> bool:
        """Tell whether the pod runs on the node."""
        return self.decision.admitted


@dataclass(frozen=True, slots=True)
class Plan:
    """What a node does with the pods."""

    machine: Machine
    refusal: StartRefusal | None
    """Set when the kubelet would not start; then nothing was asked."""
    answers: tuple[Answer, ...]
    kubelet: Kubelet | None
    """The kubelet afterwards."""
    files: StateTexts
    """The state files afterwards."""
    findings: tuple[Finding, ...]
    strangers: Mapping[str, Mapping[str, CPUSet]]
    """State entries without a given pod: uid -> container -> CPUs."""

    @property
    def is_yes(self) -> bool:
        """Tell whether the kubelet starts and every pod is admitted."""
        return self.refusal is None and all(answer.admitted for answer in self.answers)


def make_plan(
    machine: Machine,
    config: KubeletConfig,
    mooring: MooringConfig,
    pods: Sequence[Pod],
    *,
    files: StateTexts | None = None,
    active: Sequence[Pod] = (),
    findings: Iterable[Finding] = (),
) -> Plan:
    """Admit the pods in order on a node, fresh or continuing from state files.

    Args:
        machine: decisions use the kubelet's view of it.
        config: of the kubelet.
        mooring: which defects are fixed.
        pods: to be admitted, in order.
        files: texts of existing state files.
        active: pods that run already; they are admitted again at the start.
        findings: what was noticed while reading the input.
    """
    noticed = [*findings, *machine.findings]
    start = start_kubelet(machine.info, config, mooring, files or StateTexts())
    if start.kubelet is None:
        return Plan(machine, start.refusal, (), None, start.files, tuple(noticed), {})
    kubelet = start.kubelet
    known = {pod.uid for pod in active}
    strangers = _strangers(kubelet, known)
    if strangers:
        noticed.append(_stranger_finding(strangers))
        kubelet = replace(kubelet, node=kubelet.node.adopt(_stranger_pods(strangers)))
    answers: list[Answer] = []
    for pod in active:
        kubelet, answer = _answered(kubelet, pod, running=True)
        answers.append(answer)
        if answer.decision.endless:
            return Plan(machine, None, tuple(answers), kubelet, kubelet.files, tuple(noticed), strangers)
    for pod in pods:
        kubelet, answer = _answered(kubelet, pod, running=False)
        answers.append(answer)
        if answer.decision.endless:
            break
    return Plan(machine, None, tuple(answers), kubelet, kubelet.files, tuple(noticed), strangers)


def _answered(kubelet: Kubelet, pod: Pod, *, running: bool) -> tuple[Kubelet, Answer]:
    facts: list[object] = []
    before = kubelet.node
    if running:
        kubelet, readmission = kubelet.readmit([pod], facts.append)
        decision = readmission.decisions[0]
    else:
        kubelet, decision = kubelet.admit(pod, facts.append)
    sentence = why(decision, Circumstances(before.settings, pod, facts))
    if decision.admitted:
        others = [other for uid, other in kubelet.node.active.items() if uid != pod.uid]
        settings = kubelet.settings
        refused = check_fit(pod, others, settings.reservation, settings.config.max_pods)
        if refused is not None:
            decision = replace(decision, admitted=False, rejection=refused)
            kubelet = replace(kubelet, node=kubelet.node.withdraw(pod.uid))
            sentence = (
                "The resource managers accepted it, but the node's allocatable does not suffice "
                f"({refused.message.partition(': ')[2]})."
            )
    return kubelet, Answer(pod, decision, sentence, running)


def _strangers(kubelet: Kubelet, known: set[str]) -> dict[str, dict[str, CPUSet]]:
    return {
        uid: {name: CPUSet(cpus) for name, cpus in containers.items()}
        for uid, containers in kubelet.node.cpu.assignments.items()
        if uid not in known
    }


def _stranger_pods(strangers: Mapping[str, Mapping[str, CPUSet]]) -> list[Pod]:
    return [
        Pod(uid=uid, name=uid, namespace="", containers=tuple(Container(name) for name in containers))
        for uid, containers in strangers.items()
    ]


def _stranger_finding(strangers: Mapping[str, Mapping[str, CPUSet]]) -> Finding:
    count = len(strangers)
    named = ", ".join(sorted(strangers)[:3]) + (", ..." if count > 3 else "")
    return Finding(
        "warning",
        "state",
        f"the state file has CPUs of {count} pod{'s' if count > 1 else ''} that no --active file describes ({named}); "
        "they count as running and keep their CPUs, and their requests are not counted",
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the document of ``mooring plan -o json``."""
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "kubelet": KUBELET,
        "machine": plan.machine.name,
    }
    if plan.refusal is not None:
        document["startError"] = plan.refusal.message
        document["startErrorStage"] = plan.refusal.stage
    document["pods"] = [_pod_fields(answer) for answer in plan.answers]
    document["sharedPool"] = str(plan.kubelet.node.shared_pool) if plan.kubelet else ""
    if plan.kubelet:
        document["reservedCPUs"] = str(reserved_cpus(plan.kubelet))
        document["numaNodes"] = numa_fields(plan.kubelet)
    document["findings"] = [
        {"severity": finding.severity, "subject": finding.subject, "message": finding.message}
        for finding in plan.findings
    ]
    return document


def _pod_fields(answer: Answer) -> dict[str, Any]:
    decision = answer.decision
    fields: dict[str, Any] = {
        "uid": decision.uid,
        "namespace": decision.namespace,
        "name": decision.name,
        "why": answer.why,
    }
    if decision.endless is not None:
        fields["endless"] = decision.endless.defect
    if answer.running:
        fields["running"] = True
    return {**fields, **decision_fields(decision)}


def reserved_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs kept for the system; with policy ``none`` only those that are named."""
    policy = kubelet.settings.cpu
    return CPUSet(policy.reserved) if policy is not None else kubelet.settings.reservation.cpus


def free_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs that a container could still get exclusively."""
    policy = kubelet.settings.cpu
    return CPUSet(kubelet.node.cpu.default & ~policy.reserved) if policy is not None else CPUSet()


def numa_fields(kubelet: Kubelet) -> list[dict[str, Any]]:
    """Return what is left on each NUMA node of the kubelet's view, ascending by id."""
    topology = kubelet.settings.topology
    free, reserved = free_cpus(kubelet), reserved_cpus(kubelet)
    owned = CPUSet()
    for containers in kubelet.node.cpu.assignments.values():
        for mask in containers.values():
            owned |= CPUSet(mask)
    rows = []
    for node in sorted(kubelet.info.topology, key=lambda node: node.node_id):
        cpus = CPUSet(topology.numa.get(node.node_id, 0)) if topology is not None else CPUSet()
        rows.append(
            {
                "node": node.node_id,
                "cpus": str(cpus),
                "free": str(cpus & free),
                "freeCount": len(cpus & free),
                "reserved": str(cpus & reserved),
                "exclusive": str(cpus & owned),
                "memoryBytes": node.memory,
            }
        )
    return rows
