"""Pods from files: what kubectl, Helm and Kustomize print, with workloads, templates and lists that stand for pods."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.pod import ContainerKind, Pod
from mooring.decoding.api_fields import UNKNOWN_POD_FIELD, UnknownField, unknown_fields, unknown_findings
from mooring.decoding.documents import load_documents, places_of
from mooring.decoding.fields import Document, Report, ignore, inside
from mooring.manifest.defaults import PodGates
from mooring.manifest.dynamic import objects as dynamic_objects
from mooring.manifest.large_quantities import large_quantities
from mooring.manifest.pods import DEFAULT_GATES, pod_from_object
from mooring.manifest.validation import LABEL, SUBDOMAIN, check_containers_fit, check_name
from mooring.manifest.workloads.objects import NO_PATHS, OtherObject, PodObject, TemplatePaths, pod_objects

MOST_PODS = 100_000
"""Pods that the files of one run may describe together; a node runs a few hundred."""
OTHER_PODS = "MOOR-513"
WITHOUT_PODS = "MOOR-503"
LAUNCHER = "MOOR-516"
_MOST_NAMED = 3
READ_ELSEWHERE = frozenset({"Node", *dynamic_objects.KINDS})
"""Nodes are read for their kubelet's release, claims and slices for devices."""
_NO_TEMPLATE = "no pod template found; --pod-template-path {}=PATH names one"
_HOOKS = "Helm hooks that do not run on installation"
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


def pods_of(
    documents: Iterable[Document],
    *,
    gates: PodGates = DEFAULT_GATES,
    report: Report = ignore,
    paths: TemplatePaths = NO_PATHS,
) -> list[Pod]:
    """Return the pods of documents; see :func:`load_pods`.

    Args:
        documents: with pods and other objects.
        gates: the feature gates under which the pods are created.
        report: receives what was left out.
        paths: of pod templates in kinds where they are not recognized.

    Raises:
        InputError: a pod is not valid, or two pods have the same uid.
    """
    return [pod for pod, _ in _described_pods(documents, "", gates, report, paths=paths)]


@dataclass(frozen=True, slots=True)
class PodOrigin:
    """Where a pod is described."""

    document: Document
    field: str
    """Where the pod, or its template, is in the document; empty for the document itself."""
    content: Mapping[str, Any]
    """A v1 Pod: the object itself, or one made of the template and the name of its workload."""

    @property
    def place(self) -> str:
        """File, line of the document and field, for messages."""
        return f"{self.document.source}: {self.field}" if self.field else self.document.source


def pods_with_origins(
    documents: Iterable[Document],
    *,
    gates: PodGates = DEFAULT_GATES,
    report: Report = ignore,
    paths: TemplatePaths = NO_PATHS,
) -> list[tuple[Pod, PodOrigin]]:
    """Return the pods of documents, each with what it is read from; see :func:`pods_of`.

    Raises:
        InputError: a pod is not valid, or two pods have the same uid.
    """
    return _described_pods(documents, "", gates, report, paths=paths)


def scaled_down_pods(
    documents: Iterable[Document], *, gates: PodGates = DEFAULT_GATES, paths: TemplatePaths = NO_PATHS
) -> list[tuple[Pod, PodOrigin]]:
    """Return the pod of each workload that is scaled to 0, under the workload's name; see :func:`pods_with_origins`.

    Raises:
        InputError: a pod is not valid.
    """
    found = []
    for document in documents:
        for one in _objects_of(document, "", paths, ignore)[0]:
            if one.replicas != 0:
                continue
            for pod in _pods(replace(one, replicas=1, first=0), document.source, gates, ignore):
                name = pod.name.removesuffix("-0")
                named = replace(pod, name=name, uid=f"{pod.namespace}_{name}")
                found.append((named, PodOrigin(document, one.field, one.content)))
    return found


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

    Node objects are no pods and not left out: they have the versions of the kubelets. Pods that are bound to another
    node are left out and counted in one finding. A pod with the phase ``Pending`` and
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
    pods = _described_pods(documents, node, gates, report, read_elsewhere={"Node"})
    found = ActivePods(
        tuple(pod for pod, one in pods if not _is_pending(one.content)),
        tuple(pod for pod, one in pods if _is_pending(one.content) and _node_of(one.content)),
        tuple(pod for pod, one in pods if _is_pending(one.content) and not _node_of(one.content)),
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
    documents: Iterable[Document],
    node: str,
    gates: PodGates,
    report: Report,
    *,
    paths: TemplatePaths = NO_PATHS,
    read_elsewhere: Collection[str] = (),
) -> list[tuple[Pod, PodOrigin]]:
    """Return pods, each with the object that it is read from; without those that are bound to another node."""
    pods: dict[str, tuple[Pod, PodOrigin]] = {}
    others: list[OtherObject] = []
    for document in documents:
        objects, left_out = _objects_of(document, node, paths, report)
        others += (one for one in left_out if one.kind not in read_elsewhere)
        for pod, origin in _pods_of(document, objects, gates, report):
            if pod.uid in pods:
                raise _twice(pod, pods[pod.uid][1].place, origin.place)
            if len(pods) == MOST_PODS:
                raise InputError(f"more than {MOST_PODS} pods", source=origin.place, remedy="lower the replicas")
            pods[pod.uid] = pod, origin
    for finding in _without_pods(others):
        report(finding)
    return list(pods.values())


def _objects_of(
    document: Document, node: str, paths: TemplatePaths, report: Report
) -> tuple[list[PodObject], list[OtherObject]]:
    """Return what describes pods of the node, and the other objects of a document."""
    pods: list[PodObject] = []
    others: list[OtherObject] = []
    try:
        for found in pod_objects(document.content, paths):
            if isinstance(found, OtherObject):
                others.append(found)
            elif not node or _node_of(found.content) in ("", node):
                pods.append(found)
    except InputError as error:
        raise _at_misspelt(error, document, pods, report) from None
    return pods, others


def _pods_of(
    document: Document, objects: Sequence[PodObject], gates: PodGates, report: Report
) -> Iterator[tuple[Pod, PodOrigin]]:
    try:
        for found in objects:
            origin = PodOrigin(document, found.field, found.content)
            for pod in _pods(found, document.source, gates, report):
                yield pod, origin
    except InputError as error:
        raise _at_misspelt(error, document, objects, report) from None
    for finding in filter(None, map(_launched, objects)):
        report(finding)
    for found in objects:
        for finding in large_quantities(found.content, found.field, partial(places_of, document)):
            report(finding)
    _report_unknown(_unknown(objects), document, report)


def _launched(found: PodObject) -> Finding | None:
    """Return what is said of a pod that is computed from a virtual machine."""
    if not found.launched or not found.replicas:
        return None
    resources = found.content["spec"]["containers"][0]["resources"]
    amounts = ", ".join(f"{name} {amount}" for name, amount in resources["requests"].items())
    message = f"planned as the pod of its launcher, which requests {amounts}; memory overhead as KubeVirt estimates it"
    name = found.content["metadata"]["name"].removeprefix("virt-launcher-")
    return Finding("info", f"{found.launched} {name}", message, LAUNCHER)


def _at_misspelt(error: InputError, document: Document, objects: Sequence[PodObject], report: Report) -> InputError:
    """Return the error with its place; what is missing may stand there under a misspelt name.

    Other unknown fields are reported: the error keeps its own remedy.
    """
    unknown = _unknown(objects)
    meant = [one for one in unknown if one.can_mean(error.field)]
    _report_unknown([one for one in unknown if one not in meant], document, report)
    remedy = _misspelt(meant[0]) if meant else error.remedy
    place = places_of(document, [error.field])[error.field]
    source = place if error.source in ("", document.source) else error.source
    return InputError(error.problem, source=source, field=error.field, remedy=remedy)


def _unknown(objects: Iterable[PodObject]) -> tuple[UnknownField, ...]:
    return unknown_fields((found.kind, found.described, found.place) for found in objects)


def _report_unknown(unknown: Sequence[UnknownField], document: Document, report: Report) -> None:
    for finding in unknown_findings(unknown, UNKNOWN_POD_FIELD, document.source, partial(places_of, document)):
        report(finding)


def _misspelt(field: UnknownField) -> str:
    return f"{field.type} has no field {field.name:.60} ({field.paths[0]:.200}); {field.hint}".removesuffix("; ")


def _pods(found: PodObject, source: str, gates: PodGates, report: Report) -> Iterator[Pod]:
    status = found.content.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    try:
        pod = pod_from_object(found.content, source=source, gates=gates)
        _check_fit(pod)
        check_identity(pod)
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
        base = f"{pod.name}-{found.role}" if found.role else pod.name
        for number in range(found.first, found.first + found.replicas):
            name = f"{base}-{number}"
            yield replace(pod, name=name, uid=f"{pod.namespace}_{name}")


def check_identity(pod: Pod) -> None:
    """Check the names of a pod and its containers, as :func:`check_name` does.

    Raises:
        InputError: no pod can have one of them.
    """
    check_name(pod.name, "metadata.name", SUBDOMAIN)
    check_name(pod.namespace, "metadata.namespace", LABEL)
    positions: Counter[str] = Counter()
    for container in pod.containers:
        kind = "containers" if container.kind is ContainerKind.APP else "initContainers"
        check_name(container.name, f"spec.{kind}[{positions[kind]}].name", LABEL)
        positions[kind] += 1


def _check_fit(pod: Pod) -> None:
    if pod.resources is None:
        return
    try:
        check_containers_fit(pod.resources, pod.containers)
    except InputError as error:
        raise inside(error, "spec.resources") from None


def _without_pods(others: Sequence[OtherObject]) -> Iterator[Finding]:
    """Yield a finding for objects without pods, for those that an operator may make pods of, and for Helm's hooks."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for one in (one for one in others if one.kind not in READ_ELSEWHERE):
        reason = _HOOKS if one.hook else "" if one.is_of_kubernetes else _NO_TEMPLATE
        kinds.setdefault(reason, {}).setdefault(one.kind, []).append(one.name)
    for reason, found in kinds.items():
        why = f": {reason.format(next(iter(found)))}" if reason else ""
        yield Finding("info", "objects without pods", f"{_listed(found)}{why}", WITHOUT_PODS)


def _listed(kinds: Mapping[str, Sequence[str]]) -> str:
    """Return kinds with the number of their objects and some names, such as ``2 ConfigMap (a, b), 1 Service (web)``."""
    parts = []
    for kind, names in kinds.items():
        named = [name for name in names if name][:_MOST_NAMED]
        if named and len(names) > len(named):
            named.append("...")
        parts.append(f"{len(names)} {kind}" + (f" ({', '.join(named)})" if named else ""))
    return ", ".join(parts)


def _twice(pod: Pod, first: str, second: str) -> InputError:
    return InputError(
        f"the pod {pod.namespace}/{pod.name} has the uid {pod.uid}, as has a pod in {first}",
        source=second,
        remedy="rename one of them or remove it",
    )
