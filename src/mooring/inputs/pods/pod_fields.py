"""Single fields of a pod: priority, scale-down grace period, statuses of containers, allocated resources.

Sources:
    priority, which of several waiting resizes is tried first: API server v1.37.1, admission plugin Priority. Classes
        of the cluster itself are known, all others only by the number that the API server has put into the pod.
    grace period, for how long containers keep CPUs that a resize takes from them (extension scale-down-delay):
        KEP-6122, draft of September 2026; spec: resize.md section 5.2. The annotation is this project's, for API
        servers that do not know the field.
    statuses of containers, whose ``allocatedResources`` the managers count in place of the requests up to v1.34, while
        InPlacePodVerticalScaling is on (rules status-resources-decide-size and status-of-init-containers-ignored):
        kubelet v1.34.4, cpumanager and memorymanager policy_static.go; spec: releases.md sections 7 and 8.
    allocated resources: Kubernetes API v1.37, ``containerStatuses[].allocatedResources`` (requests),
        ``containerStatuses[].resources`` (what is set up) and the same two fields of the status for pod-level
        resources. After a resize ``spec`` has what is wanted, and the kubelet continues with what it allocated until it
        accepts the resize: that is what it counts when another pod comes.

What the API server refuses in a pod, as far as it keeps nonsense away from the resource managers.

Source: API server v1.37.1, pkg/apis/core/validation. Each check names the field and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, PodResources, ResourceList, is_supported
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.decoding.fields import count_at, each_at, list_at, mapping_at, name_at, nearest, text_at, within
from mooring.inputs.decoding.quantities import HUGE_PAGES, resource_list
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates, total_limits, total_requests
from mooring.lazy import replace

STATUSES: Final = {ContainerKind.APP: "containerStatuses", ContainerKind.SIDECAR: "initContainerStatuses"}
"""Fields of a pod's status with the statuses of its containers that last."""

CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has."""


def priority_of(spec: Mapping[str, Any]) -> int:
    """Return the priority of a pod's ``spec``; 0 when nothing tells it.

    Raises:
        InputError: a field has the wrong type.

    >>> priority_of({"priorityClassName": "system-node-critical"}), priority_of({"priority": 7}), priority_of({})
    (2000001000, 7, 0)
    """
    if "priority" not in spec and "priorityClassName" not in spec:
        return 0
    with within("spec"):
        return count_at(spec, "priority", CLASSES.get(text_at(spec, "priorityClassName"), 0))


SCALE_DOWN_FIELD = "scaleDownGracePeriodSeconds"
SCALE_DOWN_ANNOTATION = "mooring/scale-down-grace-period-seconds"
LONGEST_SCALE_DOWN = 10
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_REMEDY = f"write a whole number of seconds from 0 to {LONGEST_SCALE_DOWN}"


def scale_down_grace(
    spec: Mapping[str, Any], annotations: Mapping[str, str], gates: PodGates, *, stored: bool
) -> int | None:
    """Return the seconds that a pod requests; None when it says nothing. The field comes before the annotation.

    Args:
        spec: of the pod.
        annotations: of the pod.
        gates: without the extension neither is read.
        stored: whether the API server has taken the pod already: it refuses the field of new pods only.

    Raises:
        InputError: no such number, or the gate of the field is off.

    >>> scale_down_grace({}, {SCALE_DOWN_ANNOTATION: "5"}, PodGates(knows_delay=True), stored=False)
    5
    """
    if not gates.knows_delay:
        return None
    if spec.get(SCALE_DOWN_FIELD) is not None:
        with within("spec"):
            seconds = count_at(spec, SCALE_DOWN_FIELD, 0)
            if not 0 <= seconds <= LONGEST_SCALE_DOWN:
                problem = f"must be between 0 and {LONGEST_SCALE_DOWN}, but is {seconds}"
                raise InputError(problem, field=SCALE_DOWN_FIELD, remedy=_REMEDY)
            if not gates.delay and not stored:
                remedy = f"switch on the feature gate {DELAY_GATE}, or use the annotation {SCALE_DOWN_ANNOTATION}"
                problem = f"is forbidden while the feature gate {DELAY_GATE} is off"
                raise InputError(problem, field=SCALE_DOWN_FIELD, remedy=remedy)
            return seconds
    text = annotations.get(SCALE_DOWN_ANNOTATION)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text) or int(text) > LONGEST_SCALE_DOWN:
        problem = f"{text!r:.40} is not a delay"
        raise InputError(problem, field=f"metadata.annotations.{SCALE_DOWN_ANNOTATION}", remedy=_REMEDY)
    return int(text)


def with_statuses(obj: Mapping[str, Any], containers: Iterable[Container]) -> list[Container]:
    """Return the containers with what their statuses allocate; a status without it allocates nothing.

    Raises:
        InputError: a status is of the wrong type.
    """
    status = mapping_at(obj, "status")
    sizes: dict[ContainerKind, dict[str, ResourceList]] = {}
    for kind, field in STATUSES.items() if status else ():
        with within("status"):
            told = each_at(status, field, lambda one: (name_at(one, "name"), resource_list(one, "allocatedResources")))
        sizes[kind] = dict(told)
    return [
        replace(container, allocated=sizes[container.kind][container.name])
        if container.name in sizes.get(container.kind, ())
        else container
        for container in containers
    ]


_RESIZABLE: Final = ("cpu", "memory")


def with_allocated(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with allocated resources in the place of wanted ones; the same object when they are equal.

    Raises:
        InputError: a part of it is of the wrong type.

    >>> resources = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    >>> status = {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"}}]}
    >>> made = with_allocated({"spec": {"containers": [{"name": "a", "resources": resources}]}, "status": status})
    >>> made["spec"]["containers"][0]["resources"]
    {'requests': {'cpu': '2'}, 'limits': {'cpu': '2'}}
    """
    spec, status = mapping_at(obj, "spec"), mapping_at(obj, "status")
    changed: dict[str, Any] = {}
    for field, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        told = {text_at(one, "name"): one for one in list_at(status, statuses) if isinstance(one, dict)}
        items = list_at(spec, field)
        for at, item in enumerate(items):
            status_of = told.get(text_at(item, "name")) if isinstance(item, dict) else None
            if status_of is None:
                continue
            asked = mapping_at(item, "resources")
            if (given := _resources(asked, status_of)) is not asked:
                changed.setdefault(field, list(items))[at] = {**item, "resources": given}
    wanted = spec.get("resources")
    if isinstance(wanted, dict) and wanted:
        allocated = _resources(wanted, status)
        if allocated is not wanted:
            changed["resources"] = allocated
    return {**obj, "spec": {**spec, **changed}} if changed else obj


def _resources(wanted: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return resources with the requests that are allocated.

    A limit that equals its request goes with it, because a resize does not change the QoS class; another limit is what
    the runtime has.
    """
    allocated = mapping_at(status, "allocatedResources")
    requests, limits = dict(mapping_at(wanted, "requests")), dict(mapping_at(wanted, "limits"))
    set_up = mapping_at(mapping_at(status, "resources"), "limits")
    changed = False
    for name in _RESIZABLE:
        # A request that the API server has filled in from the limit is in the object too.
        if name not in allocated or name not in requests or _equal(allocated[name], requests[name]):
            continue
        changed = True
        if name in limits:
            tied = _equal(limits[name], requests[name])
            limits[name] = allocated[name] if tied else set_up.get(name, limits[name])
        requests[name] = allocated[name]
    return {**wanted, "requests": requests, "limits": limits} if changed else wanted


def _equal(one: object, other: object) -> bool:
    try:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    except QuantitySyntaxError:
        return one == other


_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_KNOWN = (
    "known are cpu, memory, ephemeral-storage and hugepages-SIZE; extended resources need a domain, such as "
    "nvidia.com/gpu"
)
_NANO = 10**9
LABEL, SUBDOMAIN = 63, 253
"""Characters that names may have: RFC 1123, as apimachinery v0.37.1 checks them."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN_FORM = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


def check_resources(requests: ResourceList, limits: ResourceList) -> None:
    """Check one set of requests and limits, requests filled in from limits already.

    Raises:
        InputError: a negative or indivisible amount, an unknown name, or a request that contradicts its
        limit.
    """
    for name, limit in limits.items():
        if limit.nano < 0:
            raise InputError(f"must not be negative, but is {limit}", field=f"limits.{name}")
        if name not in _NATIVE:
            _check_special(name, limit, "limits")
    for name, request in requests.items():
        if request.nano < 0:
            raise InputError(f"must not be negative, but is {request}", field=f"requests.{name}")
        if name in _NATIVE and name not in limits:
            continue
        if name not in limits:
            _check_special(name, Quantity.of_bytes(0), "requests")
            if not _overcommits(name):
                raise InputError("needs a limit", field=f"requests.{name}", remedy="set limits to the same amount")
        elif request.nano > limits[name].nano:
            problem = f"the request of {request} is above the limit of {limits[name]}"
            raise InputError(problem, field=f"requests.{name}")
        elif name not in _NATIVE and request.nano != limits[name].nano and not _overcommits(name):
            raise InputError(f"must equal the limit of {limits[name]}, but is {request}", field=f"requests.{name}")
    if any(name.startswith(HUGE_PAGES) for name in limits) and not {"cpu", "memory"} & {*requests, *limits}:
        raise InputError("huge pages need cpu or memory beside them", field="limits")


def check_pod_resources(resources: PodResources) -> None:
    """Check pod-level resources against themselves (KEP-2837).

    Raises:
        InputError: a name that no pod can set, or what is wrong for a container too.
    """
    for field, part in (("requests", resources.requests), ("limits", resources.limits)):
        for name in part:
            if not is_supported(name):
                remedy = "only cpu, memory and hugepages-SIZE can be set for a pod"
                raise InputError("is not supported at pod level", field=f"{field}.{name}", remedy=remedy)
    check_resources(resources.requests, resources.limits)


def check_containers_fit(resources: PodResources, containers: Sequence[Container]) -> None:
    """Check that the containers request no more than their pod has (KEP-2837).

    The recordings hold pods that break this rule, made without an API server, so it is asked of files only.

    Raises:
        InputError: they request more.
    """
    for name, amount in total_requests(containers).items():
        _check_within("requests", name, amount, resources.requests)
    for name, amount in total_limits(containers).items():
        if name.startswith(HUGE_PAGES):
            _check_within("limits", name, amount, resources.limits)
    pod_limits, apps = resources.limits, [one for one in containers if one.kind is ContainerKind.APP]
    for container in apps:
        for name, limit in container.limits.items():
            if name in pod_limits and limit > pod_limits[name]:
                problem = f"{pod_limits[name]} is less than the limit of container {container.name}, {limit}"
                raise InputError(problem, field=f"limits.{name}")


def check_name(name: str, field: str, longest: int) -> None:
    """Check a name as the API server does: of a container or namespace as an RFC 1123 label, of a pod as a subdomain.

    The recordings hold other names, made without an API server, so it is asked of files only.

    Args:
        name: to check.
        field: that has it.
        longest: :data:`LABEL`, or :data:`SUBDOMAIN`, which may have dots.

    Raises:
        InputError: it is no such name.

    >>> check_name("A_b", "metadata.name", SUBDOMAIN)
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: metadata.name: 'A_b' is not a valid name; write a-b
    """
    pattern = _LABEL if longest == LABEL else SUBDOMAIN_FORM
    if len(name) <= longest and pattern.fullmatch(name):
        return
    proposed = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    marks = "" if longest == LABEL else ", '.'"
    rules = f"use lower-case letters, digits{marks} and '-', at most {longest}, with a letter or digit at both ends"
    remedy = f"write {proposed}" if proposed and len(proposed) <= longest and len(name) <= longest else rules
    raise InputError(f"{name!r:.80} is not a valid name", field=field, remedy=remedy)


def check_names(names: Collection[str]) -> None:
    """Check that no two containers of a pod share a name.

    Raises:
        InputError: they do.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two containers are called {name!r}", field="spec", remedy="rename one of them")
        seen.add(name)


def _check_special(name: str, amount: Quantity, field: str) -> None:
    """Check names and amounts of huge pages and of what device plugins offer."""
    if name.startswith(HUGE_PAGES):
        pages = name.removeprefix(HUGE_PAGES)
        try:
            size = Quantity.parse(pages).nano
        except QuantitySyntaxError:
            size = 0
        if size <= 0 or size % _NANO:
            raise InputError(f"{name} does not name a page size", remedy="write hugepages-2Mi or hugepages-1Gi")
        if amount.nano % size:
            raise InputError(f"{amount} is not a whole number of {pages} pages", field=f"{field}.{name}")
    elif "/" not in name:
        is_pages = name.startswith("hugepage-")
        close = HUGE_PAGES + name.removeprefix("hugepage-") if is_pages else nearest(name, _NATIVE)
        # ``gpu`` and ``npu`` are not cpu misspelt.
        close = close if name[:1].lower() == close[:1] else ""
        remedy = f"did you mean {close}?" if close else _KNOWN
        raise InputError("is not a container resource", field=f"{field}.{name}", remedy=remedy)
    elif amount.nano % _NANO and not _overcommits(name):
        raise InputError(f"must be a whole number, but is {amount}", field=f"{field}.{name}")


@lru_cache(maxsize=64)
def _overcommits(name: str) -> bool:
    """Tell whether a resource may be promised twice: only those of Kubernetes itself, and no huge pages."""
    return not name.startswith(HUGE_PAGES) and ("/" not in name or "kubernetes.io/" in name)


def _check_within(field: str, name: str, amount: Quantity, pod: Mapping[str, Quantity]) -> None:
    if name in pod and amount > pod[name]:
        problem = f"{pod[name]} is less than the containers' {field} of {amount}"
        raise InputError(problem, field=f"{field}.{name}")
