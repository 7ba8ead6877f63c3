"""The pod whose replicas are counted: one after another is admitted until the kubelet refuses one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mooring.answers.base.pod_names import Named, called, enumerated, several, unknown
from mooring.answers.base.question import Question
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object

SHAPE = "--shape"
"""The option that a message about a described pod names."""

DESCRIBED = "mooring.shape"
"""Uid of a described pod, which no API server gives."""

_LITTLE_MEMORY = "1Mi"
_REMEDY = "write amounts such as cpu=4,memory=8Gi,hugepages-2Mi=1Gi,vendor.com/gpu=1"


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod to be counted, and the question about the node without it."""

    pod: Pod
    question: Question


def named_subject(question: Question, name: str) -> Subject:
    """Find the pod of a name, which then is not on the node but the first to be counted.

    The name of a Deployment or its like stands for the shape of its pods (``NAME-0`` and so on), which stay; so does a
    pod that runs already. A Deployment that is scaled to 0 has none.

    Args:
        question: what is given.
        name: ``[NAMESPACE/]NAME``; empty when exactly one pod, or the pods of one workload, are to be admitted.

    Raises:
        InputError: no pod has the name, or several have; or its claims ask for devices.
    """
    subject = _named(question, name)
    pod = subject.pod
    claims = (*pod.claims, *pod.unmade_claims)
    if claims:
        raise InputError(
            f"its claims ({enumerated(claims)}) ask for devices, which the scheduler allocates; they are not counted",
            source=Named(pod).full,
            field="spec.resourceClaims",
            remedy="count CPUs and memory with --shape, or leave the claims out",
        )
    return subject


def _named(question: Question, name: str) -> Subject:
    if not name:
        if len(question.pods) > 1 and _are_replicas(question.pods):
            first = question.pods[0]
            return _workload(question, f"{first.namespace}/{first.name.rpartition('-')[0]}")
        if not question.pods and len(question.scaled_down) == 1:
            return Subject(question.scaled_down[0], question)
        if len(question.pods) != 1:
            names = enumerated([Named(pod).full for pod in question.pods or question.scaled_down])
            remedy = f"name one of {names}" if names else "give a pod with -f, or use --shape"
            raise InputError("several pods are given" if names else "no pod is given", source="POD", remedy=remedy)
        return Subject(question.pods[0], replace(question, pods=()))
    given, running = called(question.pods, name), called(question.active, name)
    found = [*given, *running] or called(question.scaled_down, name)
    if not found:
        return _workload(question, name)
    if len(found) > 1:
        raise several([Named(pod) for pod in found], name)
    if not given:
        return Subject(found[0], question)
    return Subject(given[0], replace(question, pods=tuple(pod for pod in question.pods if pod is not given[0])))


def _are_replicas(pods: Sequence[Pod]) -> bool:
    """Return whether pods differ in nothing but uid and the number at the end of their names."""
    alike = [replace(pod, name=pod.name.rpartition("-")[0], uid="") for pod in pods]
    return all(pod.name.rpartition("-")[2].isdecimal() for pod in pods) and all(pod == alike[0] for pod in alike)


def _workload(question: Question, name: str) -> Subject:
    everyone = (*question.pods, *question.active)
    namespace, slash, short = name.rpartition("/")
    pods = [
        pod
        for pod in everyone
        if pod.name.startswith(f"{short}-")
        and pod.name.removeprefix(f"{short}-").isdecimal()
        and (not slash or pod.namespace == namespace)
    ]
    if not pods:
        raise unknown((*everyone, *question.scaled_down), name)
    if len({pod.namespace for pod in pods}) > 1:
        raise several([Named(pod) for pod in pods], name)
    return Subject(replace(pods[0], name=short, uid=f"{pods[0].namespace}_{short}"), question)


def described_pod(text: str, gates: PodGates) -> Pod:
    """Return a Guaranteed pod of one container with the amounts of a text; without memory it has as little as counts.

    Raises:
        InputError: a part is no amount, cpu is missing, or the API server would refuse the pod.

    >>> pod = described_pod("cpu=4,memory=8Gi", PodGates())
    >>> pod.qos.value, str(pod.containers[0].limits["memory"])
    ('Guaranteed', '8Gi')
    """
    amounts: dict[str, str] = {}
    for part in text.split(","):
        resource, equals, amount = (word.strip() for word in part.partition("="))
        if not (resource and equals and amount):
            raise InputError(f"{part.strip()!r:.60} is not an amount of a resource", field=SHAPE, remedy=_REMEDY)
        if resource in amounts:
            raise InputError(f"{resource} is given twice", field=SHAPE, remedy=_REMEDY)
        amounts[resource] = amount
    if "cpu" not in amounts:
        raise InputError("cpu must be given, or the pod would not be Guaranteed", field=SHAPE, remedy=_REMEDY)
    amounts.setdefault("memory", _LITTLE_MEMORY)
    spec = {"containers": [{"name": "app", "resources": {"limits": amounts}}]}
    try:
        pod = pod_from_object({"metadata": {"name": "shape", "uid": DESCRIBED}, "spec": spec}, source="", gates=gates)
    except InputError as error:
        field = f"{SHAPE}: {error.field.rpartition('limits.')[2] or error.field}"
        raise InputError(error.problem, field=field, remedy=error.remedy or _REMEDY) from None
    zero = [resource for resource in ("cpu", "memory") if pod.containers[0].limits[resource].is_zero]
    if zero:
        raise InputError(f"{' and '.join(zero)} must be more than 0", field=SHAPE, remedy=_REMEDY)
    return pod


def replica(pod: Pod, number: int, known: Collection[str]) -> Pod:
    """Return the replica of a number, with a name that no real pod can have and a uid outside ``known``.

    >>> replica(Pod("default_web", "web"), 3, ()).name
    'web+3'
    """
    uid = f"{pod.uid}+{number}"
    while uid in known:
        uid += "+"
    return replace(pod, uid=uid, name=f"{pod.name}+{number}")


MOST = 1000
"""Replicas that are counted when neither a limit nor maxPods nor the number of CPUs says more or less."""


def default_limit(kubelet: Kubelet) -> int:
    """Return how many replicas are counted at most unless told otherwise: one more than maxPods, but not without end.

    So the answer ends with a refusal. A node with more CPUs than :data:`MOST` can have a pod for each.
    """
    settings = kubelet.settings
    cpus = settings.topology.num_cpus if settings.topology is not None else 0
    return min(max(settings.max_pods, 0) + 1, max(MOST, cpus))
