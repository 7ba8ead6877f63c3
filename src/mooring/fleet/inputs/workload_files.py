"""Workloads of manifests: Deployments, ReplicaSets, StatefulSets and Jobs as controllers.

What the pods of a work ask, with equal pods as one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.fleet.work import ControllerKind, PodDemand, Workload, asked_of
from mooring.inputs.decoding.documents import located
from mooring.inputs.decoding.fields import Document, count_at, inside, mapping_at, text_at
from mooring.inputs.pods.pod_files import PodOrigin, pods_with_origins, scaled_down_pods
from mooring.inputs.pods.pod_relations import NO_RELATIONS, pod_relations
from mooring.inputs.pods.scheduling_fields import scheduling_fields_of


class Kinds:
    """Pods that ask the same, as one object."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[object, PodDemand] = {}
        self.ignored: set[str] = set()
        """Fields of pods that the simulation does not read."""

    def of(self, pod: Pod, content: Mapping[str, Any], owner: Mapping[str, Any] | None = None) -> PodDemand:
        """Return what a pod asks.

        Args:
            pod: the pod.
            content: the v1 Pod that it is read from.
            owner: selector of the controller by which the scheduler spreads its pods; None for other pods.

        Raises:
            InputError: a field that the scheduler reads is not valid.
        """
        spec = mapping_at(content, "spec")
        fields, relations = scheduling_fields_of(content), pod_relations(content, owner)
        self.ignored.update(fields.ignored, relations.ignored, _not_read(spec))
        preempts = text_at(spec, "preemptionPolicy") != "Never"
        found = asked_of(pod, fields, relations, preempts=preempts)
        return self._known.setdefault(found.key, found)

    def described(self, pod: Pod, origin: PodOrigin, owner: Mapping[str, Any] | None = None) -> PodDemand:
        """Return what a pod of a manifest asks.

        Raises:
            InputError: as :meth:`of`, with the place in the manifest.
        """
        with located(origin.document):
            try:
                return self.of(pod, origin.content, owner)
            except InputError as error:
                raise (inside(error, origin.field) if origin.field else error) from None

    def unrelated(self) -> dict[int, PodDemand]:
        """Return the identity of each demand -> the one that replaces it where no pod asks anything of others.

        Labels and namespaces then decide nothing, and pods that differ in these alone are equal.
        """
        if any(one.relations.has_terms for one in self._known.values()):
            return {}
        bare: dict[object, PodDemand] = {}
        return {
            id(one): bare.setdefault(plain.key, plain)
            for one in self._known.values()
            for plain in (replace(one, relations=NO_RELATIONS),)
        }

    def findings(self) -> list[str]:
        """Return what was not read."""
        return [f"pods have {name}, which is not simulated" for name in sorted(self.ignored)]


def _not_read(spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("resourceClaims"):
        yield "resourceClaims"
    # The API server sets the number; manifests have the name of the class alone.
    if spec.get("priorityClassName") and spec.get("priority") is None:
        yield "priorityClassName without priority"


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
