"""``mooring resize -o json``: the answer as a versioned document."""

from __future__ import annotations

from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.pod import Pod, ResourceList
from mooring.manifest.steps import Amounts
from mooring.node.resize import Resize
from mooring.planner.outcome import placement_fields
from mooring.planner.plan_document import API_VERSION
from mooring.planner.resize.resize import Largest, Resized

KIND = "Resize"


def resize_document(resized: Resized) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers, flags and None."""
    plan, pod, answer, reason = resized.plan, resized.pod, resized.answer, resized.reason
    standing = resized.standing
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": KUBELET_VERSION,
        "machine": plan.machine.name,
        "startError": plan.refusal.message if plan.refusal is not None else "",
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "qos": pod.qos.value,
        "runs": answer is not None,
        "notRunning": standing.why if standing is not None and answer is None else "",
        "accepted": resized.is_yes,
        "condition": answer.condition if answer is not None else "",
        "reason": answer.reason if answer is not None else "",
        "message": answer.message if answer is not None else "",
        "refusedBy": answer.rejection.reason if answer is not None and answer.rejection is not None else "",
        "code": reason.code if reason is not None else "",
        "why": reason.sentence if reason is not None else "",
        "remedy": reason.remedy if reason is not None else "",
        "events": list(answer.events) if answer is not None else [],
        "containers": [_container_fields(resized, pod, one.name, answer) for one in pod.containers],
        "sharedPool": str(answer.shared_pool) if answer is not None else "",
        "findings": [finding.fields() for finding in plan.findings],
    }


def _container_fields(resized: Resized, pod: Pod, name: str, answer: Resize | None) -> dict[str, Any]:
    container = next(one for one in pod.containers if one.name == name)
    release = answer.releases.get(name) if answer is not None else None
    return {
        "name": name,
        "has": _amounts(container.requests),
        "asks": _asked(resized.asked.containers.get(name)),
        "before": placement_fields(resized.before[name]) if name in resized.before else None,
        "after": placement_fields(answer.containers[name]) if answer is not None else None,
        "baseline": str(answer.baseline[name]) if answer is not None and name in answer.baseline else "",
        "pending": None
        if release is None
        else {"cpus": str(release.cpus), "delayMilliseconds": release.left(_now(resized)) // 10**6},
        "largest": _largest_fields(resized.largest[name]) if name in resized.largest else None,
    }


def _now(resized: Resized) -> Any:
    if resized.after is None:
        raise AssertionError("what is pending was decided by a kubelet")
    return resized.after.node.moment


def _amounts(requests: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in requests.items() if name in ("cpu", "memory")}


def _asked(amounts: Amounts | None) -> dict[str, str]:
    return _amounts(amounts.requests) if amounts is not None else {}


def _largest_fields(largest: Largest) -> dict[str, Any]:
    return {"cpus": largest.cpus, "memoryBytes": largest.memory}
