"""Pods from files: what kubectl, Helm and Kustomize print, with workloads, templates and lists that stand for pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.inputs.decoding.api_fields import UNKNOWN_POD_FIELD, UnknownField, unknown_fields, unknown_findings
from mooring.inputs.decoding.documents import load_documents, places_of
from mooring.inputs.decoding.fields import Document, Report, ignore, within
from mooring.inputs.decoding.files import Paths, paths_of
from mooring.inputs.pods import admission as admitting
from mooring.inputs.pods import claims, cluster_objects
from mooring.inputs.pods.admission import APIServerAdmission
from mooring.inputs.pods.cluster_objects import HOLDS_NOTHING, Standing, large_quantities, node_of, standing_of
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.launched_pods import with_instance_types
from mooring.inputs.pods.pod_fields import LABEL, SUBDOMAIN, check_containers_fit, check_name
from mooring.inputs.pods.pods import DEFAULT_GATES
from mooring.inputs.pods.workloads import NO_PATHS, OtherObject, PodObject, TemplatePaths, is_of_kubernetes, pod_objects
from mooring.lazy import dataclass, replace

MOST_PODS = 100_000
"""Pods that the files of one run may describe together; a node runs a few hundred."""
WITHOUT_PODS = "MOOR-503"
LAUNCHER = "MOOR-516"
_MOST_NAMED = 3
READ_ELSEWHERE = frozenset({"Node", *claims.KINDS, *admitting.READ})
"""Nodes are read for their kubelet's release, claims and slices for devices, others for what admission does."""
_NO_TEMPLATE = "no pod template found; --pod-template-path {}=PATH names one"
_HOOKS = "Helm hooks that do not run on installation"
_ENDED = frozenset({Standing.ENDED})


def load_pods(sources: Paths, *, gates: PodGates = DEFAULT_GATES, report: Report = ignore) -> list[Pod]:
    """Read the pods of files, folders and standard input (``-``), in the order in which they stand there.

    Deployments and their like give their pods; objects that have none, and pods that have ended, are left
    out and reported. A pod that a kubelet rejected is one of the pods.

    Args:
        sources: paths, or ``-``; or one of them.
        gates: the feature gates under which the pods are created.
        report: receives what was left out.

    Raises:
        InputError: a file cannot be used, a pod is not valid, or two pods have the same uid.
    """
    documents = [document for source in paths_of(sources) for document in load_documents(source)]
    return pods_of(with_instance_types(documents), gates=gates, report=report)


def pods_of(
    documents: Iterable[Document],
    *,
    gates: PodGates = DEFAULT_GATES,
    report: Report = ignore,
    paths: TemplatePaths = NO_PATHS,
    node: str = "",
    named: Collection[str] = (),
    admission: APIServerAdmission | None = None,
) -> list[Pod]:
    """Return the pods of documents; see :func:`load_pods`.

    Args:
        documents: with pods and other objects.
        gates: the feature gates under which the pods are created.
        report: receives what was left out.
        paths: of pod templates in kinds where they are not recognized.
        node: whose pods are taken, besides those that are bound to none; pods of other nodes are counted in one
            finding. Empty for the pods of all nodes.
        named: uids of pods that are taken even if they have ended; then other rejected pods are left out, too.
        admission: what the API server does to new pods; by default as the documents say.

    Raises:
        InputError: a pod is not valid, or two pods have the same uid.
    """
    # What comes has no status yet, whatever the object was before (spec: releases.md section 7, rule 1).
    gates = replace(gates, reads_statuses=False)
    # Beside one that is named, others that were rejected are no question.
    left_out = HOLDS_NOTHING if named else _ENDED
    pods, elsewhere = _described_pods(
        documents, node, gates, report, paths=paths, left_out=left_out, named=named, admission=admission
    )
    if elsewhere:
        report(cluster_objects.standing_finding(node, elsewhere))
    come = [(pod, standing_of(one.content)) for pod, one in pods]
    if any(standing in HOLDS_NOTHING for _, standing in come):
        # The others run, or will: what was rejected is asked about beside them.
        come.sort(key=lambda one: (one[1] is Standing.UNBOUND, one[1] in HOLDS_NOTHING))
    return [pod for pod, _ in come]


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
    return _described_pods(documents, "", gates, report, paths=paths)[0]


def scaled_down_pods(
    documents: Sequence[Document],
    *,
    gates: PodGates = DEFAULT_GATES,
    paths: TemplatePaths = NO_PATHS,
    admission: APIServerAdmission | None = None,
) -> list[tuple[Pod, PodOrigin]]:
    """Return the pod of each workload that is scaled to 0, under the workload's name; see :func:`pods_with_origins`.

    Raises:
        InputError: a pod is not valid.
    """
    found = []
    admission = admission or APIServerAdmission.of(documents)
    for document in documents:
        for one in _objects_of(document, "", paths, ignore)[0]:
            if one.replicas != 0:
                continue
            for pod in _pods(replace(one, replicas=1, first=0), document.source, gates, admission):
                name = pod.name.removesuffix("-0")
                named = replace(pod, name=name, uid=f"{pod.namespace}_{name}")
                found.append((named, PodOrigin(document, one.field, one.content)))
    return found


@dataclass(frozen=True, slots=True)
class ActivePods:
    """The pods that a cluster lists, as one node has them."""

    running: tuple[Pod, ...] = ()
    bound: tuple[Pod, ...] = ()
    """Bound to the node; its kubelet has not admitted them yet. Then pods that are named and hold nothing any more."""
    pending: tuple[Pod, ...] = ()
    """Bound to no node."""


def active_pods(
    documents: Sequence[Document],
    node: str = "",
    *,
    gates: PodGates = DEFAULT_GATES,
    report: Report = ignore,
    named: Collection[str] = (),
) -> ActivePods:
    """Return the pods of a node that documents list, for example all pods of a cluster as kubectl prints them.

    Node objects are no pods and not left out: they have the versions of the kubelets. Pods that are bound to another
    node are left out and counted in one finding. A pod with the phase ``Pending`` and
    without ``status.startTime`` is not running yet: the kubelet sets both when it admits the pod.

    Args:
        documents: of ``--active``.
        node: its name; empty for any.
        gates: the feature gates under which the pods were created.
        report: receives what was left out.
        named: uids of pods that are asked about even if they have ended or were rejected.

    Raises:
        InputError: a pod is not valid, or two pods have the same uid.
    """
    pods, elsewhere = _described_pods(documents, node, gates, report, left_out=HOLDS_NOTHING, named=named)
    stand: dict[Standing, list[Pod]] = {standing: [] for standing in Standing}
    for pod, one in pods:
        stand[standing_of(one.content)].append(pod)
    arriving, pending = stand[Standing.ARRIVING], stand[Standing.UNBOUND]
    if elsewhere or arriving or pending:
        report(cluster_objects.standing_finding(node, elsewhere, len(arriving) + len(pending)))
    bound = (*arriving, *stand[Standing.REJECTED], *stand[Standing.ENDED])
    running = [pod for pod, one in pods if standing_of(one.content) in (Standing.NEW, Standing.RUNNING)]
    return ActivePods(tuple(running), bound, tuple(pending))


def _described_pods(
    documents: Iterable[Document],
    node: str,
    gates: PodGates,
    report: Report,
    *,
    paths: TemplatePaths = NO_PATHS,
    left_out: Collection[Standing] = _ENDED,
    named: Collection[str] = (),
    admission: APIServerAdmission | None = None,
) -> tuple[list[tuple[Pod, PodOrigin]], int]:
    """Return pods, each with the object that it is read from, and how many are bound to another node and left out.

    Those that stand as ``left_out`` says are only taken if their uids are among ``named``.
    """
    documents = list(documents)
    admission = admission or APIServerAdmission.of(documents)
    pods: dict[str, tuple[Pod, PodOrigin]] = {}
    ended: list[tuple[Pod, Mapping[str, Any]]] = []
    others: list[OtherObject] = []
    elsewhere = 0
    for document in documents:
        objects, without_pods, left = _objects_of(document, node, paths, report)
        elsewhere += left
        others += without_pods
        for pod, origin in _pods_of(document, objects, gates, report, admission):
            if standing_of(origin.content) in left_out and pod.uid not in named:
                ended.append((pod, origin.content))
                continue
            if pod.uid in pods:
                first = pods[pod.uid][1].place
                problem = f"the pod {pod.namespace}/{pod.name} has the uid {pod.uid}, as has a pod in {first}"
                raise InputError(problem, source=origin.place, remedy="rename one of them or remove it")
            if len(pods) == MOST_PODS:
                raise InputError(f"more than {MOST_PODS} pods", source=origin.place, remedy="lower the replicas")
            pods[pod.uid] = pod, origin
    for finding in (cluster_objects.left_out_finding(ended, left_out), *_without_pods(others), *admission.findings()):
        if finding is not None:
            report(finding)
    return list(pods.values()), elsewhere


def _objects_of(
    document: Document, node: str, paths: TemplatePaths, report: Report
) -> tuple[list[PodObject], list[OtherObject], int]:
    """Return what describes pods of the node, the other objects of a document, and how much is bound elsewhere."""
    pods: list[PodObject] = []
    others: list[OtherObject] = []
    elsewhere = 0
    try:
        for found in pod_objects(document.content, paths):
            if isinstance(found, OtherObject):
                others.append(found)
            elif not node or node_of(found.content) in ("", node):
                pods.append(found)
            else:
                elsewhere += 1
    except InputError as error:
        raise _at_misspelt(error, document, pods, report) from None
    return pods, others, elsewhere


def _pods_of(
    document: Document, objects: Sequence[PodObject], gates: PodGates, report: Report, admission: APIServerAdmission
) -> Iterator[tuple[Pod, PodOrigin]]:
    try:
        for found in objects:
            origin = PodOrigin(document, found.field, found.content)
            for pod in _pods(found, document.source, gates, admission):
                yield pod, origin
    except InputError as error:
        raise _at_misspelt(error, document, objects, report) from None
    for found in objects:
        if found.launched and found.replicas:
            # The pod is computed from fields of another kind.
            requests = found.content["spec"]["containers"][0]["resources"]["requests"]
            amounts = ", ".join(f"{name} {amount}" for name, amount in requests.items())
            what, by = "the pod of its launcher", "KubeVirt estimates it"
            if found.role:
                what, by = f"its {found.role}", "Spark adds it"
            message = f"planned as {what}, which requests {amounts}; memory overhead as {by}"
            name = found.content["metadata"]["name"].removeprefix("virt-launcher-")
            report(Finding("info", f"{found.launched} {name}", message, LAUNCHER))
    for found in objects:
        for finding in large_quantities(found.content, found.field, partial(places_of, document)):
            report(finding)
    _report_unknown(_unknown(objects), document, report)


def _at_misspelt(error: InputError, document: Document, objects: Sequence[PodObject], report: Report) -> InputError:
    """Return the error with its place; what is missing may stand there under a misspelt name.

    Other unknown fields are reported: the error keeps its own remedy.
    """
    unknown = _unknown(objects)
    meant = [one for one in unknown if one.can_mean(error.field)]
    _report_unknown([one for one in unknown if one not in meant], document, report)
    remedy = error.remedy
    for one in meant[:1]:
        named = f"{one.type} has no field {one.name:.60} ({one.paths[0]:.200}); {one.hint}"
        remedy = named.removesuffix("; ")
    place = places_of(document, [error.field])[error.field]
    source = str(place) if error.source in ("", document.source) else error.source
    return InputError(error.problem, source=source, field=error.field, remedy=remedy)


def _unknown(objects: Iterable[PodObject]) -> tuple[UnknownField, ...]:
    return unknown_fields((found.kind, found.described, found.place) for found in objects)


def _report_unknown(unknown: Sequence[UnknownField], document: Document, report: Report) -> None:
    for finding in unknown_findings(unknown, UNKNOWN_POD_FIELD, document.place, partial(places_of, document)):
        report(finding)


def _pods(found: PodObject, source: str, gates: PodGates, admission: APIServerAdmission) -> Iterator[Pod]:
    with within(found.field):
        pod = admission.new_pod(found, source, gates)
        if pod.resources is not None:
            with within("spec.resources"):
                check_containers_fit(pod.resources, pod.containers)
        check_identity(pod)
    if found.replicas is None:
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


def _without_pods(others: Sequence[OtherObject]) -> Iterator[Finding]:
    """Yield a finding for objects without pods, for those that an operator may make pods of, and for Helm's hooks."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for one in (one for one in others if one.kind not in READ_ELSEWHERE):
        reason = _HOOKS if one.hook else "" if is_of_kubernetes(one.content) else _NO_TEMPLATE
        kinds.setdefault(reason, {}).setdefault(one.kind, []).append(one.name)
    for reason, found in kinds.items():
        why = f": {reason.format(next(iter(found)))}" if reason else ""
        # Kinds with the number of their objects and some names, such as ``2 ConfigMap (a, b), 1 Service (web)``
        parts = []
        for kind, names in found.items():
            named = [name for name in names if name][:_MOST_NAMED]
            if named and len(names) > len(named):
                named.append("...")
            parts.append(f"{len(names)} {kind}" + (f" ({', '.join(named)})" if named else ""))
        yield Finding("info", "objects without pods", f"{', '.join(parts)}{why}", WITHOUT_PODS)
