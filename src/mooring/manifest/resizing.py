"""Other resources for a pod that runs: what a resize asks for, and the pod as it wants to be.

Amounts that are not named stay, as with ``kubectl patch --subresource resize``.

Source: API server v1.37.1, ValidatePodResize; KEP-1287.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mooring.core.errors import InputError
from mooring.core.pod import Container, Pod, PodResources, ResourceList
from mooring.manifest.fields import as_mapping, inside, mapping_at, name_at
from mooring.manifest.gates import PodGates
from mooring.manifest.qos import qos_of
from mooring.manifest.resources import resource_list
from mooring.manifest.validation import check_containers_fit, check_pod_resources, check_resources

RESIZABLE = frozenset({"cpu", "memory"})
"""Resources that can be resized in place."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests and limits that are named; all others stay."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resizing:
    """A pod is to have other resources."""

    uid: str
    containers: Mapping[str, Amounts]
    resources: Amounts | None = None
    """Of the pod as a whole."""


def resizing(content: Mapping[str, Any]) -> Resizing:
    """Read ``{"uid", "containers": {name: {"requests", "limits"}}, "resources"?}``.

    Raises:
        InputError: it is not valid.
    """
    containers = {
        name: _amounts(given, f"containers.{name}") for name, given in mapping_at(content, "containers").items()
    }
    resources = _amounts(content["resources"], "resources") if content.get("resources") is not None else None
    return Resizing(name_at(content, "uid"), containers, resources)


def _amounts(given: Any, place: str) -> Amounts:
    try:
        fields = as_mapping(given)
        return Amounts(_resizable(fields, "requests"), _resizable(fields, "limits"))
    except InputError as error:
        raise inside(error, place) from None


def _resizable(fields: Mapping[str, Any], part: str) -> ResourceList:
    named = resource_list(fields, part)
    for name in sorted(named.keys() - RESIZABLE):
        raise InputError("cannot be resized", field=f"{part}.{name}", remedy="only cpu and memory can")
    return named


def resized_pod(pod: Pod, asked: Resizing, gates: PodGates) -> Pod:
    """Return a pod with the resources that are asked for.

    Args:
        pod: as it is.
        asked: the change.
        gates: those of the pod's API server.

    Raises:
        InputError: something the API server refuses.
    """
    _check_known(asked.containers, [one.name for one in pod.containers])
    containers = tuple(
        _resized(one, asked.containers[one.name]) if one.name in asked.containers else one for one in pod.containers
    )
    resources = pod.resources
    if asked.resources is not None:
        before = resources or PodResources()
        resources = PodResources(
            {**before.requests, **asked.resources.requests}, {**before.limits, **asked.resources.limits}
        )
        try:
            check_pod_resources(resources)
            check_containers_fit(resources, containers)
        except InputError as error:
            raise inside(error, "resources") from None
    if qos_of(containers, resources, gates) is not pod.qos:
        raise InputError(
            f"the pod would not be {pod.qos.value} any more: a resize cannot change the QoS class",
            field="containers",
            remedy="change requests and limits together",
        )
    return replace(pod, containers=containers, resources=resources)


def _check_known(named: Collection[str], known: Collection[str]) -> None:
    for name in named:
        if name not in known:
            raise InputError("no such container", field=f"containers.{name}", remedy=f"they are {', '.join(known)}")


def _resized(container: Container, asked: Amounts) -> Container:
    requests, limits = {**container.requests, **asked.requests}, {**container.limits, **asked.limits}
    try:
        check_resources(requests, limits)
    except InputError as error:
        raise inside(error, f"containers.{container.name}") from None
    return replace(container, requests=requests, limits=limits)
