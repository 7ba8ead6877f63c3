"""``mooring plan -o json``: a plan as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from mooring.answers.base.answering import Answer
from mooring.answers.base.outcome import (
    broken_parts,
    displaced_parts,
    has_offline,
    held_devices,
    placement_part,
    usable_pool,
)
from mooring.answers.base.plan import Plan
from mooring.documents.hints import affinity_parts, hint_lists
from mooring.documents.of_kubelet import numa_parts
from mooring.documents.parts import PodPart, finding_parts
from mooring.documents.plan import PlanDocument, PlannedPodPart
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import read, reserved_cpus
from mooring.engine.node.isolation import mixed_containers

if TYPE_CHECKING:
    from mooring.documents.explanation import ExplanationListDocument


def plan_document(plan: Plan) -> PlanDocument:
    """Return the document of a plan.

    Each pod has the members of an admit result of the recordings (docs/reference/scenarios.md).
    """
    document = PlanDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        pods=[_planned_pod(plan, answer) for answer in plan.answers],
        shared_pool=str(plan.kubelet.node.shared_pool) if plan.kubelet else "",
        findings=finding_parts(plan.findings),
    )
    if plan.refusal is not None:
        document.start_error = plan.refusal.message
        document.start_error_stage = plan.refusal.stage
        document.start_error_code = plan.refusal_code
        document.remedy = plan.remedy
    if plan.kubelet is None:
        return document
    document.reserved = str(reserved_cpus(plan.kubelet))
    document.numa_nodes = numa_parts(plan.kubelet)
    if has_offline(plan.kubelet.node):
        document.offline = str(CPUSet(plan.kubelet.node.cpu.offline))
        document.usable_pool = usable_pool(plan.kubelet.node)
        document.broken = broken_parts(plan.kubelet.node)
        document.displaced = displaced_parts(plan.kubelet.node)
    if plan.unasked:
        document.unasked = [pod_part(pod) for pod in plan.unasked]
    return document


def pod_part(pod: Pod) -> PodPart:
    """Return the name of a pod."""
    return PodPart(pod.uid, pod.namespace, pod.name)


def _planned_pod(plan: Plan, answer: Answer) -> PlannedPodPart:
    decision = answer.decision
    return PlannedPodPart(
        uid=decision.uid,
        namespace=decision.namespace,
        name=decision.name,
        why=answer.why,
        code=answer.code,
        remedy=answer.remedy,
        assumed=list(answer.assumed) or UNSET,
        running=answer.running or UNSET,
        left=answer.pod.uid in plan.left or UNSET,
        endless=UNSET if decision.endless is None else decision.endless.defect,
        crash=answer.crash or UNSET,
        admitted=decision.admitted,
        reason=decision.reason,
        message=decision.message,
        containers={name: placement_part(placement) for name, placement in decision.containers.items()},
        pod=placement_part(decision.pod),
        affinity=affinity_parts(decision),
        shared_pool=str(decision.shared_pool),
        hints=UNSET
        if decision.hints is None
        else {name: hint_lists(hints, (decision.asked or {}).get(name)) for name, hints in decision.hints.items()},
        pod_hints=UNSET
        if decision.pod_hints is None
        else hint_lists(decision.pod_hints, (decision.asked or {}).get("")),
        hidden={name: str(cpus) for name, cpus in decision.hidden.items()} or UNSET,
        devices=held_devices(decision) or UNSET,
        cpu_manager_state=read(answer.cpu_file) or "",
        memory_manager_state=(memory := read(answer.memory_file)) or "",
        memory_manager_state_admitted=UNSET
        if (decided := read(answer.memory_file_decided)) == memory
        else decided or "",
        mixed=_mixed(plan, answer),
    )


def _mixed(plan: Plan, answer: Answer) -> list[str] | UnsetType:
    """Return which containers run in the shared pool too; nothing where none does, as without the extension."""
    found = (
        mixed_containers(plan.kubelet.settings, plan.kubelet.node.providers, answer.pod)
        if plan.kubelet is not None and answer.admitted
        else ()
    )
    return list(found) or UNSET


def explanation_list(plan: Plan) -> ExplanationListDocument:
    """Return what can be explained of a plan (``mooring explain -o json`` when every pod runs)."""
    # The documents of explanations are not needed for plans.
    from mooring.documents.explanation import ExplainablePodPart, ExplanationListDocument  # noqa: PLC0415

    return ExplanationListDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        pods=[
            ExplainablePodPart(
                uid=answer.pod.uid,
                namespace=answer.pod.namespace,
                name=answer.pod.name,
                admitted=answer.admitted,
                code=answer.code,
                why=answer.why,
            )
            for answer in plan.answers
        ],
    )
