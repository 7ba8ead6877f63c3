"""``mooring capacity -o json``: the answer as a versioned document."""

from __future__ import annotations

from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.pod import Pod
from mooring.node.resources import pod_requests
from mooring.planner.answering import Answer
from mooring.planner.capacity.capacity import Advice, Capacity
from mooring.planner.capacity.eviction import Evicted
from mooring.planner.capacity.fragmentation import Fragmentation
from mooring.planner.capacity.replicas import Replica
from mooring.planner.outcome import device_fields, placement_fields
from mooring.planner.plan_document import API_VERSION

KIND = "Capacity"


def capacity_document(capacity: Capacity, at_least: int) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers, flags and None.

    Args:
        capacity: the answer.
        at_least: how many were to fit.
    """
    plan = capacity.plan
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": KUBELET_VERSION,
        "machine": plan.machine.name,
        "startError": plan.refusal.message if plan.refusal is not None else "",
        "shape": _shape_fields(capacity.shape),
        "count": len(capacity.replicas),
        "atLeast": at_least,
        "enough": len(capacity.replicas) >= at_least,
        "limit": capacity.limit,
        "limited": capacity.is_limited,
        "replicas": [_replica_fields(replica) for replica in capacity.replicas],
        "next": _next_fields(capacity.next) if capacity.next is not None else None,
        "fragmentation": [_fragmentation_fields(one) for one in capacity.fragmentation],
        "advice": [_advice_fields(one) for one in capacity.advice],
        "findings": [finding.fields() for finding in plan.findings],
    }


def _shape_fields(pod: Pod) -> dict[str, Any]:
    return {"namespace": pod.namespace, "name": pod.name, "qos": pod.qos.value, "requests": pod_requests(pod)}


def _replica_fields(replica: Replica) -> dict[str, Any]:
    place, decision = replica.place, replica.decision
    return {
        "name": replica.pod.name,
        "cpus": str(place.cpus),
        "cpuNodes": list(place.cpu_nodes),
        "memoryNodes": list(place.memory_nodes),
        "numaNodes": list(place.nodes),
        "aligned": replica.aligned,
        "containers": {name: placement_fields(placement) for name, placement in decision.containers.items()},
        "devices": device_fields(decision),
    }


def _next_fields(answer: Answer) -> dict[str, Any]:
    endless = answer.decision.endless
    return {
        "name": answer.pod.name,
        "reason": answer.decision.reason,
        "message": answer.decision.message,
        "why": answer.why,
        "code": answer.code,
        "endless": endless.defect if endless is not None else "",
        "crash": answer.crash,
    }


def _fragmentation_fields(one: Fragmentation) -> dict[str, Any]:
    return {
        "resource": one.resource,
        "step": one.step,
        "free": one.free,
        "largest": one.largest,
        "largestAligned": one.aligned,
        "gathered": one.gathered,
        "lost": one.lost,
        "numaNodes": [
            {"node": share.node, "free": share.free, "largest": share.largest, "empty": share.empty}
            for share in one.nodes
        ],
    }


def _advice_fields(advice: Advice) -> dict[str, Any]:
    return {
        "goal": advice.goal,
        "replica": advice.replica,
        "evictions": [{"pods": [_evicted_fields(pod) for pod in one.pods]} for one in advice.evictions],
        "remark": advice.remark,
    }


def _evicted_fields(pod: Evicted) -> dict[str, Any]:
    return {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "milliCPU": pod.milli,
        "bytes": pod.bytes,
        "exclusiveCPUs": pod.cpus,
        "numaNodes": list(pod.nodes),
    }
