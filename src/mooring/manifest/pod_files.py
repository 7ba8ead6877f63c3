"""Pods from files: whatever kubectl prints, and the workload controllers, templates and lists that stand for pods.

Source: Kubernetes v1.37 API. A controller's pods are named NAME-0, NAME-1 and so on; in a cluster only StatefulSets do
that, but stable names let two plans be compared. A DaemonSet gives the one pod that it would run on this node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.pod import Pod
from mooring.decoding.api_fields import UNKNOWN_POD_FIELD, UnknownField, unknown_fields, unknown_findings
from mooring.decoding.documents import load_documents, places_of
from mooring.decoding.fields import (
    Document,
    Report,
    as_mapping,
    count_at,
    ignore,
    inside,
    list_at,
    mapping_at,
    text_at,
    wrong_kind,
)
from mooring.manifest.defaults import PodGates
from mooring.manifest.pods import DEFAULT_GATES, pod_from_object
from mooring.manifest.validation import LABEL, SUBDOMAIN, check_containers_fit, check_name

MOST_PODS = 100_000
"""Pods that the files of one run may describe together; a node runs a few hundred."""
OTHER_PODS = "MOOR-513"
FINISHED = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing any more."""


def load_pods(
    sources: Iterable[str | os.PathLike[str]], *, gates: PodGates = DEFAULT_GATES, report: Report = ignore
) -> list[Pod]:
    """Read the pods of files, folders and standard input (``-``), in the order in which they stand there.

    Deployments and their like give their pods; objects that have none, and pods that have finished, are left
    out and reported.

    Args:
        sources: paths, or ``-``.
        gates: the feature gates under which the pods are created.
        report: receives what was left out.

    Raises:
        InputError: a file cannot be used, a pod is not valid, or two pods have the same uid.
    """
    documents = (document for source in sources for document in load_documents(source))
    return pods_of(documents, gates=gates, report=report)


def pods_of(documents: Iterable[Document], *, gates: PodGates = DEFAULT_GATES, report: Report = ignore) -> list[Pod]:
    """Return the pods of documents; see :func:`load_pods`.

    Raises:
        InputError: a pod is not valid, or two pods have the same uid.
    """
    return [pod for pod, _ in _described_pods(documents, "", gates, report)]


@dataclass(frozen=True, slots=True)
class ActivePods:
    """The pods that a cluster lists, as one node has them."""

    running: tuple[Pod, ...] = ()
    bound: tuple[Pod, ...] = ()
    """Bound to the node; its kubelet has not admitted them yet."""
    pending: tuple[Pod, ...] = ()
    """Bound to no node."""


def active_pods(
    documents: Sequence[Document],
    *,
    choose: Callable[[frozenset[str]], str],
    gates: PodGates = DEFAULT_GATES,
    report: Report = ignore,
) -> ActivePods:
    """Return the pods of a node that documents list, for example all pods of a cluster as kubectl prints them.

    Pods that are bound to another node are left out and counted in one finding. A pod with the phase ``Pending`` and
    without ``status.startTime`` is not running yet: the kubelet sets both when it admits the pod.

    Args:
        documents: of ``--active``.
        choose: returns the name of the node, given the names that pods are bound to; empty for any.
        gates: the feature gates under which the pods were created.
        report: receives what was left out.

    Raises:
        InputError: a pod is not valid, or two pods have the same uid.
    """
    bound = [name for document in documents for name in _node_names(document)]
    node = choose(frozenset(bound))
    pods = _described_pods(documents, node, gates, report)
    found = ActivePods(
        tuple(pod for pod, content in pods if not _is_pending(content)),
        tuple(pod for pod, content in pods if _is_pending(content) and _node_of(content)),
        tuple(pod for pod, content in pods if _is_pending(content) and not _node_of(content)),
    )
    elsewhere = sum(name != node for name in bound) if node else 0
    asked = len(found.bound) + len(found.pending)
    if elsewhere or asked:
        report(_standing_finding(node, elsewhere, asked))
    return found


def _standing_finding(node: str, elsewhere: int, asked: int) -> Finding:
    parts = []
    if elsewhere:
        parts.append(f"{elsewhere} {'pod is' if elsewhere == 1 else 'pods are'} bound to other nodes and left out")
    if asked:
        parts.append(f"{asked} {'pod is' if asked == 1 else 'pods are'} pending and not counted as running")
    return Finding("warning", f"node {node}" if node else "active pods", "; ".join(parts), OTHER_PODS)


def bound_nodes(documents: Iterable[Document]) -> frozenset[str]:
    """Return the names of the nodes that pods are bound to."""
    return frozenset(name for document in documents for name in _node_names(document))


def _node_names(document: Document) -> list[str]:
    names: list[str] = []
    # What is wrong with the document is reported where its pods are read.
    with suppress(InputError):
        names.extend(_node_of(found.content) for found in pod_objects(document.content) if isinstance(found, PodObject))
    return [name for name in names if name]


def _node_of(content: Mapping[str, Any]) -> str:
    spec = content.get("spec")
    name = spec.get("nodeName") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""


def _is_pending(content: Mapping[str, Any]) -> bool:
    status = content.get("status")
    return isinstance(status, dict) and status.get("phase") == "Pending" and not status.get("startTime")


def _described_pods(
    documents: Iterable[Document], node: str, gates: PodGates, report: Report
) -> list[tuple[Pod, Mapping[str, Any]]]:
    """Return pods, each with the object that it is read from; without those that are bound to another node."""
    pods: dict[str, tuple[Pod, Mapping[str, Any]]] = {}
    places: dict[str, str] = {}
    for document in documents:
        for pod, content, place in _pods_of(document, node, gates, report):
            if pod.uid in pods:
                raise _twice(pod, places[pod.uid], place)
            if len(pods) == MOST_PODS:
                raise InputError(f"more than {MOST_PODS} pods", source=place, remedy="lower the replicas")
            pods[pod.uid] = pod, content
            places[pod.uid] = place
    return list(pods.values())


def _pods_of(
    document: Document, node: str, gates: PodGates, report: Report
) -> Iterator[tuple[Pod, Mapping[str, Any], str]]:
    objects = []
    try:
        for found in pod_objects(document.content):
            if isinstance(found, OtherObject):
                report(_skipped(document, found))
                continue
            if node and _node_of(found.content) not in ("", node):
                continue
            objects.append(found)
            place = f"{document.source}: {found.field}" if found.field else document.source
            for pod in _pods(found, document.source, gates, report):
                yield pod, found.content, place
    except InputError as error:
        # What is missing may stand there under a misspelt name.
        for one in _unknown(objects):
            raise InputError(
                error.problem, source=error.source or document.source, field=error.field, remedy=_misspelt(one)
            ) from None
        raise error.at(document.source) from None
    unknown = _unknown(objects)
    for finding in unknown_findings(unknown, UNKNOWN_POD_FIELD, document.source, partial(places_of, document)):
        report(finding)


def _unknown(objects: Iterable[PodObject]) -> tuple[UnknownField, ...]:
    return unknown_fields((found.kind, found.described, found.place) for found in objects)


def _misspelt(field: UnknownField) -> str:
    return f"{field.type} has no field {field.name:.60} ({field.paths[0]:.200}); {field.hint}".removesuffix("; ")


def _pods(found: PodObject, source: str, gates: PodGates, report: Report) -> Iterator[Pod]:
    status = found.content.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    try:
        pod = pod_from_object(found.content, source=source, gates=gates)
        _check_fit(pod)
        _check_identity(pod)
    except InputError as error:
        raise inside(error, found.field) if found.field else error from None
    if phase in FINISHED:
        report(
            Finding(
                "info",
                f"{pod.namespace}/{pod.name}",
                f"{source}: the pod has {phase.lower()} and is left out",
                "MOOR-502",
            )
        )
    elif found.replicas is None:
        yield pod
    else:
        for number in range(found.replicas):
            name = f"{pod.name}-{number}"
            yield replace(pod, name=name, uid=f"{pod.namespace}_{name}")


def _check_identity(pod: Pod) -> None:
    check_name(pod.name, "metadata.name", SUBDOMAIN)
    check_name(pod.namespace, "metadata.namespace", LABEL)
    for container in pod.containers:
        check_name(container.name, f"the container {container.name!r:.80}", LABEL)


def _check_fit(pod: Pod) -> None:
    if pod.resources is None:
        return
    try:
        check_containers_fit(pod.resources, pod.containers)
    except InputError as error:
        raise inside(error, "spec.resources") from None


def _skipped(document: Document, found: OtherObject) -> Finding:
    name = f"{found.kind} {found.name}".rstrip()
    return Finding("info", name, f"{document.source}: a {found.kind} has no pods and is left out", "MOOR-503")


def _twice(pod: Pod, first: str, second: str) -> InputError:
    return InputError(
        f"the pod {pod.namespace}/{pod.name} has the uid {pod.uid}, as has a pod in {first}",
        source=second,
        remedy="rename one of them or remove it",
    )


_GROUPS = {
    "Pod": "v1",
    "PodTemplate": "v1",
    "ReplicationController": "v1",
    "Deployment": "apps/",
    "ReplicaSet": "apps/",
    "StatefulSet": "apps/",
    "DaemonSet": "apps/",
    "Job": "batch/",
    "CronJob": "batch/",
}
"""Kind -> API version, or the beginning of it."""
_DEEPEST_LIST = 10


@dataclass(frozen=True, slots=True)
class PodObject:
    """One object that describes a pod, or several that are alike."""

    kind: str
    """Of what describes it, such as ``Deployment``."""
    described: Mapping[str, Any]
    """The whole object that describes it."""
    place: str
    """Where that object is in the document; empty for the document itself."""
    content: Mapping[str, Any]
    """A v1 Pod: the object itself, or one made of the controller's template and name."""
    field: str
    """Where pod or template is in the document; empty for the document itself."""
    replicas: int | None = None
    """How many pods; None for a plain pod, which keeps its own name."""


@dataclass(frozen=True, slots=True)
class OtherObject:
    """An object that has nothing to do with pods."""

    kind: str
    name: str
    content: Mapping[str, Any]


def pod_objects(content: object) -> Iterator[PodObject | OtherObject]:
    """Yield the pods, templates and other objects of a document, in the order in which they stand there.

    Raises:
        InputError: something in it is no object.

    >>> [type(found).__name__ for found in pod_objects({"kind": "List", "items": [{"kind": "Service"}]})]
    ['OtherObject']
    """
    return _walk(content, "", "", 0)


def _walk(content: object, field: str, kind: str, depth: int) -> Iterator[PodObject | OtherObject]:
    try:
        fields = as_mapping(content)
        kind = text_at(fields, "kind") or kind or _no_kind()
        if not kind.endswith("List"):
            yield _object(fields, field, kind)
            return
        items = _items(fields, depth)
    except InputError as error:
        raise inside(error, field) if field else error from None
    for index, item in enumerate(items):
        # The items of a PodList and its like need not name their kind.
        yield from _walk(item, _join(field, f"items[{index}]"), kind.removesuffix("List"), depth + 1)


def _items(content: Mapping[str, Any], depth: int) -> list[Any]:
    if depth == _DEEPEST_LIST:
        raise InputError("lists inside lists without end")
    return list_at(content, "items")


def _no_kind() -> NoReturn:
    raise InputError("must not be empty", field="kind", remedy="write kind: Pod or the kind of a workload")


def _object(content: Mapping[str, Any], field: str, kind: str) -> PodObject | OtherObject:
    metadata = mapping_at(content, "metadata")
    if not text_at(content, "apiVersion", _GROUPS.get(kind, "")).startswith(_GROUPS.get(kind, "/")):
        return OtherObject(kind, str(metadata.get("name", "")), content)
    if kind == "Pod":
        return PodObject(kind, content, field, content, field)
    if kind == "PodTemplate":
        return _templated(kind, content, content, field, "", 1)
    spec = mapping_at(content, "spec")
    try:
        if kind == "CronJob":
            inner = mapping_at(mapping_at(spec, "jobTemplate"), "spec")
            return _templated(kind, content, inner, field, "spec.jobTemplate.spec", _job_pods(inner))
        pods = _job_pods(spec) if kind == "Job" else 1 if kind == "DaemonSet" else _replicas(spec)
    except InputError as error:
        raise inside(error, "spec") from None
    return _templated(kind, content, spec, field, "spec", pods)


def _templated(
    kind: str, owner: Mapping[str, Any], holder: Mapping[str, Any], field: str, path: str, replicas: int
) -> PodObject:
    """Return the pod of a template, under its owner's name and namespace."""
    path = _join(path, "template")
    template = holder.get("template")
    if not isinstance(template, dict):
        raise wrong_kind(template, "a mapping", path)
    named = mapping_at(owner, "metadata")
    metadata = dict(mapping_at(template, "metadata"))
    metadata.pop("uid", None)
    for key in ("name", "namespace", "generateName"):
        metadata[key] = named.get(key)
    content = {"metadata": metadata, "spec": template.get("spec")}
    return PodObject(kind, owner, field, content, _join(field, path), replicas)


def _replicas(spec: Mapping[str, Any]) -> int:
    return _count(spec, "replicas", 1)


def _job_pods(spec: Mapping[str, Any]) -> int:
    """Return how many pods of a job run at the same time."""
    parallelism = _count(spec, "parallelism", 1)
    return min(parallelism, _count(spec, "completions", parallelism))


def _count(spec: Mapping[str, Any], field: str, default: int) -> int:
    count = count_at(spec, field, default)
    if count < 0:
        raise InputError("must not be negative", field=field)
    return count


def _join(field: str, part: str) -> str:
    return f"{field}.{part}" if field else part
