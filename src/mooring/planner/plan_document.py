"""``mooring plan -o json``: a plan as a versioned document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.cpuset import CPUSet
from mooring.core.machineinfo import Node as NUMANode
from mooring.kubelet.kubelet import Kubelet
from mooring.planner.answering import Answer
from mooring.planner.hotplug_fields import offline_fields
from mooring.planner.mixed import mixed_containers
from mooring.planner.outcome import decision_fields, device_fields, state_fields
from mooring.planner.plan import Plan, free_cpus, reserved_cpus

API_VERSION = "mooring/v1alpha1"
KIND = "Plan"


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers, flags and None.

    Each pod has the fields of an admit result of the recordings (docs/reference/scenarios.md).
    """
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": KUBELET_VERSION,
        "machine": plan.machine.name,
    }
    if plan.refusal is not None:
        document["startError"] = plan.refusal.message
        document["startErrorStage"] = plan.refusal.stage
        document["startErrorCode"] = plan.refusal_code
        document["remedy"] = plan.remedy
    document["pods"] = [
        {**_pod_fields(answer, left=answer.pod.uid in plan.left), **_mixed(plan, answer)} for answer in plan.answers
    ]
    document["sharedPool"] = str(plan.kubelet.node.shared_pool) if plan.kubelet else ""
    if plan.kubelet:
        document["reservedCPUs"] = str(reserved_cpus(plan.kubelet))
        document["numaNodes"] = numa_fields(plan.kubelet)
        document |= offline_fields(plan.kubelet.node)
    if plan.kubelet and plan.unasked:
        document["unasked"] = [{"uid": pod.uid, "namespace": pod.namespace, "name": pod.name} for pod in plan.unasked]
    document["findings"] = [finding.fields() for finding in plan.findings]
    return document


def _mixed(plan: Plan, answer: Answer) -> dict[str, Any]:
    """Return which containers run in the shared pool too; nothing where none does, as without the extension."""
    found = mixed_containers(plan.kubelet, answer.pod) if plan.kubelet is not None and answer.admitted else ()
    return {"mixed": list(found)} if found else {}


def _pod_fields(answer: Answer, *, left: bool) -> dict[str, Any]:
    decision = answer.decision
    fields: dict[str, Any] = {
        "uid": decision.uid,
        "namespace": decision.namespace,
        "name": decision.name,
        "why": answer.why,
        "code": answer.code,
        "remedy": answer.remedy,
    }
    if answer.running:
        fields["running"] = True
    if left:
        fields["left"] = True
    if decision.endless is not None:
        fields["endless"] = decision.endless.defect
    if answer.crash:
        fields["crash"] = answer.crash
    fields |= decision_fields(decision)
    if decision.hidden:
        fields["hidden"] = {name: str(cpus) for name, cpus in decision.hidden.items()}
    if decision.devices:
        fields["devices"] = device_fields(decision)
    return {**fields, **state_fields(answer.files, answer.before_start)}


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
                **_memory_fields(kubelet, node),
            }
        )
    return rows


def _memory_fields(kubelet: Kubelet, node: NUMANode) -> Mapping[str, Any]:
    """Return the memory manager's account of a node; nothing under its policy ``None``."""
    account = kubelet.node.memory.nodes.get(node.node_id)
    if account is None:
        return {}
    return {
        "group": list(account.cells),
        "memory": {
            name: {"allocatable": table.allocatable, "assigned": table.reserved, "free": table.free}
            for name, table in account.memory.items()
        },
    }
