"""The answer when a manifest is applied: whether any node admits its pods now, once others have ended, or never.

A validating webhook: the API server asks about each pod, and each object with templates of pods, that is created or
changed (admission.k8s.io/v1 AdmissionReview, v1.37), and kubectl prints the warning. Nothing is kept of a request, so
that dry runs are answered alike. Whatever goes wrong here, the object is allowed.

Nodes are asked as in filter, without the scheduler's own conditions, such as selectors and taints: that no node admits
a pod is true with them as well. Of an update only the templates count that it changes: otherwise a namespace that
denies could keep objects from being scaled, or from being deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec

from mooring.cluster.extender.answers import Answers
from mooring.cluster.extender.claims import asked_node
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.possible_nodes import PossibleNode
from mooring.documents.plan import learn
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.pod import Pod, PodLevelGates
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.kubelet.admit import Load, PodShape, decide, out_of, shape_of
from mooring.engine.kubelet.start import emptied
from mooring.explanations.codes import Reason
from mooring.explanations.probes import CPU
from mooring.explanations.why import reason_of, why_out_of
from mooring.inputs.decoding.fields import mapping_at
from mooring.inputs.pods.pods import pod_from_object
from mooring.inputs.pods.workloads import PodObject, pod_objects

_SOURCE: Final = "object"
_LONGEST: Final = 255
"""Characters of a warning: API servers may cut longer ones (k8s.io/apiserver v0.37, endpoints/filters/warning.go)."""
NOTHING, NOW, LATER, UNKNOWN, NEVER = _ANSWERS = ("nothing", "now", "later", "unknown", "never")
"""About a pod; of an object's pods the last one in this order is the object's.

``unknown``: no node admits it, and of some nodes nothing can be said.
"""
DENIED, UNREAD, UNANSWERED = "denied", "unread", "unanswered"
_Question: TypeAlias = tuple[PossibleNode, bytes]
"""All nodes with the same outlook and key of a shape are one question."""


class _AdmissionRequest(msgspec.Struct):
    uid: str
    object: Any = None
    oldObject: Any = None  # noqa: N815 - the field's name on the wire


class AdmissionReview(msgspec.Struct):
    """What an API server asks."""

    apiVersion: Literal["admission.k8s.io/v1"]  # noqa: N815 - as above
    request: _AdmissionRequest


learn(AdmissionReview)


def review_answer(asked: AdmissionReview, response: Mapping[str, object]) -> Mapping[str, object]:
    """Return the answer to a review; what the response does not say is allowed."""
    said = {"uid": asked.request.uid, "allowed": True, **response}
    return {"apiVersion": asked.apiVersion, "kind": "AdmissionReview", "response": said}


def reviewed(answers: Answers, asked: AdmissionReview, *, denies: bool) -> tuple[str, dict[str, object]] | None:
    """Return the answer of a review and what is responded; None when there was no time.

    Args:
        answers: of this extender.
        asked: by the API server.
        denies: whether objects are denied whose pods no node ever admits.
    """
    try:
        before = {shape_of(pod).key for _, pod in _pods(asked.request.oldObject)}
        found = [(place, pod) for place, pod in _pods(asked.request.object) if shape_of(pod).key not in before]
    except InputError:
        return UNREAD, {}
    answer, warnings = NOTHING, []
    for place, pod in found:
        said = _judged(answers, pod)
        if said is None:
            return None
        answer = max(answer, said[0], key=_ANSWERS.index)
        if said[1:]:
            # As short as it has to be: what helps goes first.
            parts = [f"mooring: {place if len(found) > 1 else 'pod'}: {said[1]}", *said[2:]]
            texts = [clean(" ".join(parts[:number])) for number in (3, 2)]
            text = next((text for text in texts if len(text) <= _LONGEST), texts[-1])
            warnings.append(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
    if denies and answer == NEVER:
        status = {"code": 403, "reason": "Forbidden", "message": "; ".join(warnings)}
        return DENIED, {"allowed": False, "status": status}
    return answer, {"warnings": warnings} if warnings else {}


def _pods(content: object) -> Iterator[tuple[str, Pod]]:
    """Yield the pods that an object describes and that are still to be placed, each with its place in the object."""
    for found in pod_objects(content) if content is not None else ():
        if isinstance(found, PodObject) and "deletionTimestamp" not in mapping_at(found.described, "metadata"):
            pod = pod_from_object(found.content, source=_SOURCE)
            if not mapping_at(found.content, "spec").get("nodeName"):
                yield found.field, pod


def _judged(answers: Answers, pod: Pod) -> tuple[str, ...] | None:
    """Return the answer about a pod, then what is warned of: that no node admits it, why, and what helps.

    None when there was no time.
    """
    plain, names, decider = shape_of(pod), answers.view.names(), answers.decider
    outlooks = [one for one in answers.view.outlooks(names, pod, answers.in_time) if one is not None]
    if len(outlooks) < len(names):
        return None
    shapes = [answers.shape_on(name, pod, plain) for name in names] if pod.claims else [plain] * len(names)
    questions = [(one, shape.key) for one, shape in zip(outlooks, shapes, strict=True)]
    nodes, asked = Counter(questions), dict(zip(questions, zip(names, shapes, strict=True), strict=True))

    def room(one: _Question) -> int:
        kind, load = one[0].kind, one[0].load
        return 0 if kind is None else kind.settings.reservation.allocatable(CPU) - dict(load.used).get(CPU, 0)

    judged: list[_Question] = []
    # What is known comes first, then nodes with more room.
    for one in sorted(asked, key=lambda one: (one[1] not in one[0].verdicts, -room(one))):
        if not answers.in_time():
            return None
        name, shape = asked[one]
        admits = answers.view.faults.guarded(name, partial(decider.admits, one[0], shape), lambda _error: None)
        if admits:
            return (NOW,)
        if admits is not None:
            judged.append(one)
    if not judged:
        return (UNKNOWN,)
    later = [one for one in judged if decider.ever_admits(one[0], asked[one][1])]
    nearest = max(later or judged, key=room)
    outlook, shape = nearest[0], asked[nearest][1]
    reason = _refusal(answers.decider, outlook, shape, alone=not later)
    most = _most_cpus(answers.decider, outlook, shape, alone=not later)
    total, now = sum(nodes[one] for one in judged), " now" if later else ""
    if later:
        answer, head = LATER, f"no node admits it now; {sum(nodes[one] for one in later)} of {total} would if empty"
    elif len(judged) == len(asked):
        answer, head = NEVER, f"no node ever admits it, not even if empty; {total} asked"
    else:
        answer, head = UNKNOWN, f"none of the {total} nodes whose state is known ever admits it"
    helps = f"With {most[1]} CPUs in {most[0]} it is admitted{now}." if most else reason.remedy
    return answer, f"{head} ({reason.code}).", reason.sentence, helps


def _most_cpus(decider: Decider, outlook: PossibleNode, shape: PodShape, *, alone: bool) -> tuple[str, int] | None:
    """Return its largest container, and with how many CPUs there a node would admit a pod that it refuses; or None.

    The number is halved down to: the engine admits it, and refuses the next larger one that it is asked about.

    Args:
        decider: of reviews.
        outlook: of the node.
        shape: of the pod.
        alone: whether the node has no other pods.
    """
    pod, none = shape.pod, Quantity.of_milli(0)
    largest = max(pod.containers, key=lambda one: one.requests.get(CPU, none).nano)
    count, step = exclusive_cpus(pod, largest, PodLevelGates(True, True)), 1
    if not outlook.views or pod.is_pod_level or shape.given or shape.asks_devices:
        return None
    policy = outlook.views[0].kubelet.settings.cpu
    if policy is not None and policy.rules.whole_cores:
        step = max(policy.group_size, 1)
    low, high = 0, -(-count // step)
    while high - low > 1:
        middle = (low + high) // 2
        amount = {CPU: Quantity.of_milli(1000 * middle * step)}
        less = replace(largest, requests={**largest.requests, **amount}, limits={**largest.limits, **amount})
        changed = shape_of(replace(pod, containers=tuple(less if one is largest else one for one in pod.containers)))
        is_admitted = decider.ever_admits(outlook, changed) if alone else decider.admits(outlook, changed)
        low, high = (middle, high) if is_admitted else (low, middle)
    return (largest.name, low * step) if low else None


def _refusal(decider: Decider, outlook: PossibleNode, shape: PodShape, *, alone: bool) -> Reason:
    """Return why a node refuses a pod, with amounts; arguments as for :func:`_most_cpus`."""
    for view in outlook.views:
        kubelet, facts = emptied(view.kubelet) if alone else view.kubelet, list[object]()
        if kubelet is not None:
            result = decide(asked_node(kubelet, shape), shape.pod, observer=facts.append)
            if not result.admitted:
                return reason_of(result, result.decided, facts)
    load = Load() if alone else outlook.load
    refused = outlook.kind and out_of(shape.requests, dict(load.used), load.pods, outlook.kind.settings)
    return why_out_of(refused) if refused else Reason(decider.answer(outlook, shape).code, "")
