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
from mooring.answers.base.plan import Plan, free_cpus, reserved_cpus
from mooring.documents.hints import hint_lists, hint_part
from mooring.documents.parts import PodPart, finding_parts
from mooring.documents.plan import MemoryAccountPart, NUMANodePart, PlanDocument, PlannedPodPart
from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import NUMANode
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet, read
from mooring.engine.node.mixed import mixed_containers

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
        affinity={name: hint_part(hint) for name, hint in decision.affinity.items()},
        shared_pool=str(decision.shared_pool),
        hints=UNSET if decision.hints is None else {name: hint_lists(hints) for name, hints in decision.hints.items()},
        pod_hints=UNSET if decision.pod_hints is None else hint_lists(decision.pod_hints),
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


def numa_parts(kubelet: Kubelet) -> list[NUMANodePart]:
    """Return what is free on each NUMA node of the kubelet's view, ascending by id."""
    topology = kubelet.settings.topology
    free, reserved = free_cpus(kubelet), reserved_cpus(kubelet)
    owned = CPUSet()
    for containers in kubelet.node.cpu.assignments.values():
        for mask in containers.values():
            owned |= CPUSet(mask)
    parts = []
    for node in sorted(kubelet.info.topology, key=lambda node: node.node_id):
        cpus = CPUSet(topology.numa.get(node.node_id, NO_CPUS)) if topology is not None else CPUSet()
        part = NUMANodePart(
            node=node.node_id,
            cpus=str(cpus),
            free=str(cpus & free),
            free_count=len(cpus & free),
            reserved=str(cpus & reserved),
            exclusive=str(cpus & owned),
            memory_bytes=node.memory,
        )
        parts.append(_with_memory(part, kubelet, node))
    return parts


def _with_memory(part: NUMANodePart, kubelet: Kubelet, node: NUMANode) -> NUMANodePart:
    """Return a node with the memory manager's account of it; without under its policy ``None``."""
    account = kubelet.node.memory.nodes.get(node.node_id)
    if account is not None:
        part.group = list(account.cells)
        part.memory = {
            name: MemoryAccountPart(table.allocatable, table.reserved, table.free)
            for name, table in account.memory.items()
        }
    return part


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
