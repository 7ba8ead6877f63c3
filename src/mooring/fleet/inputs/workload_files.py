"""Workloads of manifests: Deployments, ReplicaSets, StatefulSets and Jobs as controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.fleet.inputs.kinds import Kinds
from mooring.fleet.work import ControllerKind, Workload
from mooring.inputs.decoding.fields import Document, count_at, inside, mapping_at, text_at
from mooring.inputs.pods.pod_files import pods_with_origins, scaled_down_pods

_KINDS: Final = {
    "Deployment": ControllerKind.DEPLOYMENT,
    "ReplicaSet": ControllerKind.DEPLOYMENT,
    "ReplicationController": ControllerKind.DEPLOYMENT,
    "StatefulSet": ControllerKind.STATEFUL_SET,
    "Job": ControllerKind.JOB,
}
_BACKOFF_LIMIT: Final = 6
"""The API server's default."""


def is_workload(content: object) -> bool:
    """Tell whether an object is a controller that is simulated as one."""
    return isinstance(content, dict) and content.get("kind") in _KINDS


def workload_of(
    document: Document,
    kinds: Kinds,
    report: Callable[[Finding], object],
    at: float = 0.0,
    runs: float | None = None,
    *,
    scaled_down: bool = False,
) -> Workload | None:
    """Return the controller of a document; None where it wants no pod.

    Args:
        document: of one object.
        kinds: what pods ask, once for all.
        report: receives what was left out.
        at: when it is created, in seconds.
        runs: seconds from the admission of a pod to its end.
        scaled_down: whether it is returned even if it wants no pod.

    Raises:
        InputError: it is not valid.
    """
    pods = pods_with_origins([document], report=report)
    wanted = len(pods)
    if scaled_down and not pods:
        pods = scaled_down_pods([document])
    if not pods:
        return None
    content: Mapping[str, Any] = document.content  # type: ignore[assignment]
    spec, kind = mapping_at(content, "spec"), _KINDS[text_at(content, "kind")]
    pod, origin = pods[0]
    name = f"{pod.namespace}/{text_at(mapping_at(origin.content, 'metadata'), 'name')}"
    owner = None if kind is ControllerKind.JOB else _selector(content, spec)
    asked = kinds.described(pod, origin, owner)
    if kind is not ControllerKind.JOB:
        ordered = kind is ControllerKind.STATEFUL_SET and text_at(spec, "podManagementPolicy") != "Parallel"
        ordinals = mapping_at(spec, "ordinals") if kind is ControllerKind.STATEFUL_SET else {}
        first = count_at(ordinals, "start", 0, least=0)
        return Workload(name, kind, asked, at, wanted, ordered=ordered, first=first, runs=runs)
    try:
        parallelism = count_at(spec, "parallelism", 1, least=0)
        completions = count_at(spec, "completions", parallelism, least=0)
        limit = count_at(spec, "backoffLimit", _BACKOFF_LIMIT, least=0)
    except InputError as error:
        raise inside(error, "spec") from None
    return Workload(name, kind, asked, at, completions, parallelism, limit, runs=runs)


def _selector(content: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the label selector by which the scheduler spreads the pods of a controller."""
    selector = mapping_at(spec, "selector")
    return {"matchLabels": selector} if content.get("kind") == "ReplicationController" else selector
