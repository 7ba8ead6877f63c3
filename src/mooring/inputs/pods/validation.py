"""What the API server refuses in a pod, as far as it keeps nonsense away from the resource managers.

Source: API server v1.37.1, pkg/apis/core/validation. Each check names the field and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, PodResources, ResourceList
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.decoding.fields import nearest
from mooring.inputs.decoding.quantities import HUGE_PAGES
from mooring.inputs.pods.defaults import is_supported, total_limits, total_requests

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_KNOWN = (
    "known are cpu, memory, ephemeral-storage and hugepages-SIZE; extended resources need a domain, such as "
    "nvidia.com/gpu"
)
_NANO = 10**9
LABEL, SUBDOMAIN = 63, 253
"""Characters that names may have: RFC 1123, as apimachinery v0.37.1 checks them."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")


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
        if name not in limits:
            _check_unlimited(name)
        elif request.nano > limits[name].nano:
            raise _above_limit(name, request, limits[name])
        elif name not in _NATIVE and request.nano != limits[name].nano and not _overcommits(name):
            raise InputError(f"must equal the limit of {limits[name]}, but is {request}", field=f"requests.{name}")
    if any(name.startswith(HUGE_PAGES) for name in limits):
        _check_beside_huge_pages(requests, limits)


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
    for container in containers:
        if container.kind is ContainerKind.APP:
            _check_container_limits(container, resources.limits)


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
    pattern = _LABEL if longest == LABEL else _SUBDOMAIN
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
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two containers are called {name!r}", field="spec", remedy="rename one of them")
        seen.add(name)


def _above_limit(name: str, request: Quantity, limit: Quantity) -> InputError:
    return InputError(f"the request of {request} is above the limit of {limit}", field=f"requests.{name}")


def _check_special(name: str, amount: Quantity, field: str) -> None:
    """Check names and amounts of huge pages and of what device plugins offer."""
    if name.startswith(HUGE_PAGES):
        size = _page_size(name)
        if amount.nano % size:
            pages = name.removeprefix(HUGE_PAGES)
            raise InputError(f"{amount} is not a whole number of {pages} pages", field=f"{field}.{name}")
    elif "/" not in name:
        close = _close(name)
        remedy = f"did you mean {close}?" if close else _KNOWN
        raise InputError("is not a container resource", field=f"{field}.{name}", remedy=remedy)
    elif amount.nano % _NANO and not _overcommits(name):
        raise InputError(f"must be a whole number, but is {amount}", field=f"{field}.{name}")


def _close(name: str) -> str:
    """Return the resource without a domain that a misspelt name means; ``gpu`` and ``npu`` are not cpu misspelt."""
    if name.startswith("hugepage-"):
        return HUGE_PAGES + name.removeprefix("hugepage-")
    close = nearest(name, _NATIVE)
    return close if name[:1].lower() == close[:1] else ""


@lru_cache(maxsize=64)
def _page_size(name: str) -> int:
    try:
        size = Quantity.parse(name.removeprefix(HUGE_PAGES))
    except QuantitySyntaxError:
        size = Quantity.of_bytes(0)
    if size.nano <= 0 or size.nano % _NANO:
        raise InputError(f"{name} does not name a page size", remedy="write hugepages-2Mi or hugepages-1Gi")
    return size.nano


def _overcommits(name: str) -> bool:
    """Tell whether a resource may be promised twice: only those of Kubernetes itself, and no huge pages."""
    return not name.startswith(HUGE_PAGES) and ("/" not in name or "kubernetes.io/" in name)


def _check_unlimited(name: str) -> None:
    if name in _NATIVE:
        return
    _check_special(name, Quantity.of_bytes(0), "requests")
    if not _overcommits(name):
        raise InputError("needs a limit", field=f"requests.{name}", remedy="set limits to the same amount")


def _check_beside_huge_pages(requests: ResourceList, limits: ResourceList) -> None:
    if not any(name in part for part in (requests, limits) for name in ("cpu", "memory")):
        raise InputError("huge pages need cpu or memory beside them", field="limits")


def _check_within(field: str, name: str, amount: Quantity, pod: Mapping[str, Quantity]) -> None:
    if name in pod and amount > pod[name]:
        problem = f"{pod[name]} is less than the containers' {field} of {amount}"
        raise InputError(problem, field=f"{field}.{name}")


def _check_container_limits(container: Container, pod_limits: ResourceList) -> None:
    for name, limit in container.limits.items():
        if name in pod_limits and limit > pod_limits[name]:
            problem = f"{pod_limits[name]} is less than the limit of container {container.name}, {limit}"
            raise InputError(problem, field=f"limits.{name}")
