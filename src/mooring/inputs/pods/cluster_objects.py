"""What the objects of a cluster say of pods besides what they request: their node, phase and recorded rejection.

Source: v1 Pod, ``spec.nodeName`` and ``status``; kubelet v1.37.1, pkg/kubelet/kubelet.go (rejectPod); spec: metrics.md
section 3.

LimitRange: what the API server's LimitRanger adds to the containers of a new pod, and the pods that it refuses.
Source: API server v1.37.1, plugin/pkg/admission/limitranger/admission.go (PodMutateLimitFunc, PodValidateLimitFunc)
and SetDefaults_LimitRangeItem. Limits have become requests before (SetDefaults_Pod). The API server takes several
LimitRanges of a namespace, and the resources of one, in random order; here they are taken as the files have them, and
resources by name.

Amounts that do not fit into 64 bits: the API server takes them, and the kubelet computes with what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final, TypeAlias

from mooring.engine.core.decision import Rejection, is_admission_reason
from mooring.engine.core.errors import InputError
from mooring.engine.core.gotext import INT64_MAX
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod, ResourceClaim, ResourceList, is_supported
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.decoding.api_fields import Places
from mooring.inputs.decoding.documents import located
from mooring.inputs.decoding.fields import Document, as_mapping, list_at, mapping_at, part_at, text_at, within
from mooring.inputs.decoding.quantities import resource_list
from mooring.inputs.pods.claims import CLAIM, KINDS, ResourceSlice, claim_of, objects_of, slice_of
from mooring.inputs.pods.defaults import total_limits, total_requests
from mooring.inputs.pods.pods import identity_of
from mooring.inputs.pods.workloads import PodObject, pod_objects
from mooring.lazy import dataclass

OTHER_PODS: Final = "MOOR-513"
LEFT_OUT: Final = "MOOR-502"
REJECTED: Final = "Pod was rejected: "
"""Before the message of a rejection in the status of a pod."""
FINISHED: Final = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing any more."""
_PREFIXES: Final = (REJECTED, "Pod ")
"""Before the message: of older releases it is shorter."""
_MOST_NAMED: Final = 3


class Standing(Enum):
    """How far a pod has come; the value is the words for pods that are left out."""

    NEW = "new"
    """Nothing is known of it, as of a pod that is not created yet."""
    RUNNING = "running"
    ARRIVING = "pending"
    """Bound to a node whose kubelet has not admitted it yet."""
    UNBOUND = "waiting"
    """Bound to no node."""
    REJECTED = "rejected by the kubelet"
    ENDED = "ended"


HOLDS_NOTHING: Final = frozenset({Standing.ENDED, Standing.REJECTED})


def standing_of(content: Mapping[str, Any]) -> Standing:
    """Return how far a v1 Pod has come; the kubelet sets ``startTime`` when it admits or rejects a pod."""
    status = part_at(content, "status")
    phase, reason = status.get("phase"), status.get("reason")
    if phase in FINISHED:
        rejected = phase == "Failed" and isinstance(reason, str) and is_admission_reason(reason)
        return Standing.REJECTED if rejected else Standing.ENDED
    if phase == "Pending" and not status.get("startTime"):
        return Standing.ARRIVING if node_of(content) else Standing.UNBOUND
    return Standing.RUNNING if phase else Standing.NEW


def holds_nothing(content: Mapping[str, Any]) -> bool:
    """Tell whether a v1 Pod has ended, or was rejected."""
    return standing_of(content) in HOLDS_NOTHING


def recorded_failure(content: Mapping[str, Any]) -> Rejection | None:
    """Return the reason and message of the status of a pod that has failed, as the kubelet's check gave them.

    >>> recorded_failure({"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Too much"}})
    Rejection(reason='OutOfcpu', message='Too much', shortage=None)
    """
    status = part_at(content, "status")
    if status.get("phase") != "Failed":
        return None
    reason, message = (value if isinstance(value := status.get(name), str) else "" for name in ("reason", "message"))
    prefix = next((one for one in _PREFIXES if message.startswith(one)), "") if is_admission_reason(reason) else ""
    return Rejection(reason, message.removeprefix(prefix)) if reason else None


def node_of(content: Mapping[str, Any]) -> str:
    """Return the name of the node that a pod is bound to; empty for none."""
    name = part_at(content, "spec").get("nodeName")
    return name if isinstance(name, str) else ""


def bound_nodes(documents: Iterable[Document]) -> frozenset[str]:
    """Return the names of the nodes that pods are bound to."""
    names = {node_of(found.content) for document in documents for found in _pod_objects(document)}
    return frozenset(names - {""})


def listed_pods(documents: Iterable[Document]) -> list[tuple[Pod, Mapping[str, Any]]]:
    """Return the pods of documents as they are named, without containers, each with its object; none of workloads."""
    found = []
    for one in (one for document in documents for one in _pod_objects(document) if one.replicas is None):
        # What is wrong with a pod is reported where it is read.
        with suppress(InputError):
            name, namespace, uid, _ = identity_of(mapping_at(one.content, "metadata"))
            found.append((Pod(uid, name, namespace), one.content))
    return found


def uids_that_run(documents: Iterable[Document]) -> frozenset[str]:
    """Return the uids of the pods of documents of which the cluster says that they run."""
    return frozenset(pod.uid for pod, content in listed_pods(documents) if standing_of(content) is Standing.RUNNING)


def _pod_objects(document: Document) -> list[PodObject]:
    found: list[PodObject] = []
    # What is wrong with the document is reported where its pods are read.
    with suppress(InputError):
        found.extend(one for one in pod_objects(document.content) if isinstance(one, PodObject))
    return found


def standing_finding(node: str, elsewhere: int, asked: int = 0) -> Finding:
    """Return what is said of pods that do not run on the node.

    Args:
        node: name of the node; empty for any.
        elsewhere: how many pods are bound to others.
        asked: how many of the pods that are given as running are pending.
    """
    left_out = ((elsewhere, "bound to other nodes and left out"), (asked, "pending and not counted as running"))
    parts = [f"{count} {'pod is' if count == 1 else 'pods are'} {why}" for count, why in left_out if count]
    return Finding("warning", f"node {node}" if node else "active pods", "; ".join(parts), OTHER_PODS)


def left_out_finding(pods: Sequence[tuple[Pod, Mapping[str, Any]]], kinds: Collection[Standing]) -> Finding | None:
    """Return what is said of pods that hold nothing any more; None where there are none.

    Args:
        pods: each with its object.
        kinds: how the pods stand that are left out.
    """
    if not pods:
        return None
    parts = []
    for standing in (one for one in Standing if one in kinds):
        found = [(pod, content) for pod, content in pods if standing_of(content) is standing]
        if found:
            named = [
                f"{pod.namespace}/{pod.name}{f': {failure.reason}' if (failure := recorded_failure(content)) else ''}"
                for pod, content in found[:_MOST_NAMED]
            ]
            more = ", ..." if len(found) > len(named) else ""
            parts.append(f"{len(found)} {standing.value} ({', '.join(named)}{more})")
    what = "1 pod is" if len(pods) == 1 else f"{len(pods)} pods are"
    return Finding(
        "info", "pods", f"{what} left out: {', '.join(parts)}; mooring explain NAMESPACE/POD asks about one", LEFT_OUT
    )


LIMIT_RANGE: Final = "LimitRange"
_ZERO: Final = Quantity.of_bytes(0)
_CONTAINER: Final = "Container"
_LISTS: Final = (("containers", "container"), ("initContainers", "init container"))
"""Field of a pod's spec -> what the LimitRanger calls the containers in it, in its order."""


LimitItem: TypeAlias = tuple[str, ResourceList, ResourceList, ResourceList]
"""One item of ``spec.limits``: ``Container`` or ``Pod`` (others do not concern pods), ``min``, ``max``,
``maxLimitRequestRatio``."""


@dataclass(frozen=True, slots=True)
class LimitRange:
    """One LimitRange."""

    name: str
    namespace: str
    source: str
    items: tuple[LimitItem, ...]
    requests: Mapping[str, str]
    """What a container gets that requests nothing of a resource."""
    limits: Mapping[str, str]


def limit_ranges(documents: Iterable[Document]) -> dict[str, list[LimitRange]]:
    """Return the LimitRanges of documents by namespace.

    Raises:
        InputError: one of them cannot be understood.
    """
    found: dict[str, list[LimitRange]] = {}
    for document in documents:
        with located(document):
            for place, content in objects_of(document.content, {LIMIT_RANGE}):
                with within(place):
                    one = _limit_range(content, document.source)
                found.setdefault(one.namespace, []).append(one)
    return found


def _limit_range(content: Mapping[str, Any], source: str) -> LimitRange:
    metadata = mapping_at(content, "metadata")
    items = []
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for index, given in enumerate(list_at(mapping_at(content, "spec"), "limits")):
        with within(f"spec.limits[{index}]"):
            item = as_mapping(given)
            kind, least, most = text_at(item, "type"), resource_list(item, "min"), resource_list(item, "max")
            items.append((kind, least, most, resource_list(item, "maxLimitRequestRatio")))
            if kind == _CONTAINER:
                default = {**most, **resource_list(item, "default")}
                asked = {**least, **default, **resource_list(item, "defaultRequest")}
                limits.update((name, str(amount)) for name, amount in default.items())
                requests.update((name, str(amount)) for name, amount in asked.items())
    namespace = text_at(metadata, "namespace") or "default"
    return LimitRange(text_at(metadata, "name"), namespace, source, tuple(items), requests, limits)


def with_defaults(spec: Mapping[str, Any], one: LimitRange) -> tuple[dict[str, Any], str]:
    """Return a pod's spec with the defaults of a LimitRange, and what the API server's annotation says of them."""
    completed, said = dict(spec), []
    for field, called in _LISTS:
        if not isinstance(spec.get(field), list):
            continue
        completed[field] = containers = list(spec[field])
        for index, container in enumerate(containers):
            resources = container.get("resources") or {} if isinstance(container, dict) else None
            if not isinstance(resources, dict):
                continue
            given = {part: resources.get(part) or {} for part in ("requests", "limits")}
            if not all(isinstance(amounts, dict) for amounts in given.values()):
                continue
            given["requests"] = {**given["limits"], **given["requests"]}
            for part, defaults in (("requests", one.requests), ("limits", one.limits)):
                added = sorted(defaults.keys() - given[part].keys())
                if added:
                    given[part] = {**defaults, **given[part]}
                    said.append(f"{', '.join(added)} {part[:-1]} for {called} {container.get('name')}")
            containers[index] = {**container, "resources": {**resources, **given}}
    return completed, "; ".join(said)


def check_limits(pod: Pod, ranges: Iterable[LimitRange]) -> None:
    """Check a new pod against the LimitRanges of its namespace.

    Raises:
        InputError: the API server would refuse it, with its words.
    """
    for one in ranges:
        wrong = list(dict.fromkeys(message for item in one.items for message in _violations(pod, item)))
        if wrong:
            words = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
            remedy = f"change the pod, or the LimitRange {one.namespace}/{one.name} ({one.source})"
            raise InputError(f'the API server refuses it: pods "{pod.name}" is forbidden: {words}', remedy=remedy)


def _violations(pod: Pod, item: LimitItem) -> Iterator[str]:
    if item[0] == _CONTAINER:
        # Apps are checked before init containers.
        for container in sorted(pod.containers, key=lambda one: one.kind.value != "app"):
            yield from _outside(item, container.requests, container.limits)
    elif item[0] == "Pod":
        requests, limits = total_requests(pod.containers), total_limits(pod.containers)
        for total, whole in ((requests, "requests"), (limits, "limits")):
            given: ResourceList = getattr(pod.resources, whole) if pod.resources else {}
            total.update((name, amount) for name, amount in given.items() if is_supported(name))
        yield from _outside(item, requests, limits)


def _outside(item: LimitItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    kind, minimum, maximum, ratios = item
    for name, least in sorted(minimum.items()):
        begin = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{begin}. No request is specified"
        elif requests[name] < least:
            yield f"{begin}, but request is {requests[name]}"
        elif name in limits and limits[name] < least:
            yield f"{begin}, but limit is {limits[name]}"
    for name, most in sorted(maximum.items()):
        begin = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{begin}. No limit is specified"
        elif limits[name] > most:
            yield f"{begin}, but limit is {limits[name]}"
        elif name in requests and requests[name] > most:
            yield f"{begin}, but request is {requests[name]}"
    for name, most in sorted(ratios.items()):
        begin = f"{name} max limit to request ratio per {kind} is {most}"
        request, limit = requests.get(name, _ZERO), limits.get(name, _ZERO)
        if request.is_zero or limit.is_zero:
            what = "request" if request.is_zero else "limit"
            yield f"{begin}, but no {what} is specified or {what} is 0"
        elif limit.nano * 10**9 > most.nano * request.nano:
            yield f"{begin}, but provided ratio is {limit.nano / request.nano:f}"


TOO_LARGE: Final = "MOOR-518"
_CONTAINERS: Final = ("containers", "initContainers")
_SHORT: Final = 15
"""Characters of a quantity that can only be too large with a suffix that caps it (``Ei``)."""


def large_quantities(content: Mapping[str, Any], place: str, places: Places) -> Iterator[Finding]:
    """Yield a warning for each request or limit of a pod that does not fit into 64 bits.

    Args:
        content: a v1 Pod that was read without an error.
        place: where it is in its document; empty for the document itself.
        places: names the lines and columns of fields.
    """
    found: dict[str, str] = {}
    spec, of_spec = content["spec"], f"{place}.spec" if place else "spec"
    holders = [(of_spec, spec)]
    for kind in _CONTAINERS:
        holders += [(f"{of_spec}.{kind}[{index}]", one) for index, one in enumerate(spec.get(kind) or ())]
    for where, holder in holders:
        resources = holder.get("resources") or {}
        for amounts in ("requests", "limits"):
            for name, value in (resources.get(amounts) or {}).items():
                if len(text := str(value)) > _SHORT and (problem := _problem(name, text)):
                    found[f"{where}.resources.{amounts}.{name}"] = problem
    lines = places(list(found)) if found else {}
    for path, problem in found.items():
        yield Finding("warning", path, f"{lines[path]}: {problem}", TOO_LARGE, lines[path])


def _problem(name: str, text: str) -> str:
    try:
        quantity = Quantity.parse(text)
    except QuantitySyntaxError:
        return ""
    unit, scale = ("thousandths", 10**6) if name == "cpu" else ("units", 10**9)
    if abs(quantity.nano) // scale <= INT64_MAX:
        return ""
    left = quantity.milli if name == "cpu" else quantity.units
    return (
        f"an amount of {len(text)} characters does not fit into 64 bits: the API server takes it, and the kubelet "
        f"computes with {left} {unit}"
    )


def dynamic_objects(
    documents: Iterable[Document],
) -> tuple[tuple[ResourceClaim, ...], tuple[ResourceSlice, ...]]:
    """Return the claims and slices of documents; other objects are passed over.

    Raises:
        InputError: one of them cannot be understood.
    """
    claims: list[ResourceClaim] = []
    slices: list[ResourceSlice] = []
    for document in documents:
        with located(document):
            for place, content in objects_of(document.content, KINDS):
                with within(place):
                    if content.get("kind") == CLAIM:
                        claims.append(claim_of(content, source=document.source))
                    else:
                        slices.append(slice_of(content, source=document.source))
    return tuple(claims), tuple(slices)
