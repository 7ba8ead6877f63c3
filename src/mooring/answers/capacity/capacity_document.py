"""``mooring capacity -o json``: the answer as a document."""

from __future__ import annotations

from mooring.answers.base.answering import Answer
from mooring.answers.base.outcome import held_devices, placement_part
from mooring.answers.capacity.capacity import Advice, Capacity, LargestRequests
from mooring.answers.capacity.eviction import Evicted
from mooring.answers.capacity.fragmentation import Fragmentation
from mooring.answers.capacity.replicas import Replica
from mooring.documents.capacity import (
    AdvicePart,
    CapacityDocument,
    EvictedPodPart,
    EvictionPart,
    FragmentationPart,
    LargestRequestsDocument,
    NextReplicaPart,
    NodeSharePart,
    ReplicaPart,
    ShapePart,
)
from mooring.documents.parts import finding_parts
from mooring.engine.core.pod import Pod
from mooring.engine.node.resources import pod_requests


def capacity_document(capacity: Capacity, at_least: int) -> CapacityDocument:
    """Return the document.

    Args:
        capacity: the answer.
        at_least: how many had to fit.
    """
    plan = capacity.plan
    return CapacityDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=plan.refusal.message if plan.refusal is not None else "",
        shape=_shape(capacity.shape),
        count=len(capacity.replicas),
        at_least=at_least,
        enough=len(capacity.replicas) >= at_least,
        limit=capacity.limit,
        limited=capacity.is_limited,
        replicas=[_replica(replica) for replica in capacity.replicas],
        next=_next(capacity.next) if capacity.next is not None else None,
        fragmentation=[_fragmentation(one) for one in capacity.fragmentation],
        advice=[_advice(one) for one in capacity.advice],
        findings=finding_parts(capacity.findings),
    )


def largest_document(largest: LargestRequests) -> LargestRequestsDocument:
    """Return the document of an answer without a shape."""
    plan = largest.plan
    return LargestRequestsDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=plan.refusal.message if plan.refusal is not None else "",
        resources=[_fragmentation(one) for one in largest.resources],
        findings=finding_parts(plan.findings),
    )


def _shape(pod: Pod) -> ShapePart:
    return ShapePart(pod.namespace, pod.name, pod.qos.value, pod_requests(pod))


def _replica(replica: Replica) -> ReplicaPart:
    place, decision = replica.place, replica.decision
    return ReplicaPart(
        name=replica.pod.name,
        cpus=str(place.cpus),
        cpu_nodes=list(place.cpu_nodes),
        memory_nodes=list(place.memory_nodes),
        numa_nodes=list(place.nodes),
        aligned=replica.aligned,
        containers={name: placement_part(placement) for name, placement in decision.containers.items()},
        devices=held_devices(decision),
    )


def _next(answer: Answer) -> NextReplicaPart:
    endless = answer.decision.endless
    return NextReplicaPart(
        name=answer.pod.name,
        reason=answer.decision.reason,
        message=answer.decision.message,
        why=answer.why,
        code=answer.code,
        endless=endless.defect if endless is not None else "",
        crash=answer.crash,
    )


def _fragmentation(one: Fragmentation) -> FragmentationPart:
    return FragmentationPart(
        resource=one.resource,
        step=one.step,
        free=one.free,
        largest=one.largest,
        largest_aligned=one.aligned,
        gathered=one.gathered,
        lost=one.lost,
        numa_nodes=[NodeSharePart(share.node, share.free, share.largest, share.empty) for share in one.nodes],
    )


def _advice(advice: Advice) -> AdvicePart:
    evictions = [EvictionPart([_evicted(pod) for pod in one.pods]) for one in advice.evictions]
    return AdvicePart(advice.goal, advice.replica, evictions, advice.remark)


def _evicted(pod: Evicted) -> EvictedPodPart:
    return EvictedPodPart(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        milli_cpu=pod.milli,
        bytes=pod.bytes,
        exclusive_cpus=pod.cpus,
        numa_nodes=list(pod.nodes),
    )
