"""Pods from files: whatever kubectl prints, and whatever it would create pods from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.pod import Pod
from mooring.manifest.document import Document
from mooring.manifest.documents import load_documents
from mooring.manifest.fields import inside
from mooring.manifest.findings import Report, ignore
from mooring.manifest.gates import PodGates
from mooring.manifest.pods import DEFAULT_GATES, pod_from_object
from mooring.manifest.validation import check_containers_fit
from mooring.manifest.workloads import OtherObject, PodObject, pod_objects

MOST_PODS = 100_000
"""Pods that the files of one run may describe together; a node runs a few hundred."""
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
    pods: dict[str, Pod] = {}
    places: dict[str, str] = {}
    for document in documents:
        for pod, place in _pods_of(document, gates, report):
            if pod.uid in pods:
                raise _twice(pod, places[pod.uid], place)
            if len(pods) == MOST_PODS:
                raise InputError(f"more than {MOST_PODS} pods", source=place, remedy="lower the replicas")
            pods[pod.uid] = pod
            places[pod.uid] = place
    return list(pods.values())


def _pods_of(document: Document, gates: PodGates, report: Report) -> Iterator[tuple[Pod, str]]:
    try:
        for found in pod_objects(document.content):
            if isinstance(found, OtherObject):
                report(_skipped(document, found))
                continue
            place = f"{document.source}: {found.field}" if found.field else document.source
            for pod in _pods(found, document.source, gates, report):
                yield pod, place
    except InputError as error:
        raise error.at(document.source) from None


def _pods(found: PodObject, source: str, gates: PodGates, report: Report) -> Iterator[Pod]:
    status = found.content.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    try:
        pod = pod_from_object(found.content, source=source, gates=gates)
        _check_fit(pod)
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
