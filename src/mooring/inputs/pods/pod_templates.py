"""Pod templates in objects of any kind, with the number of pods that each stands for.

An operator's object nests a PodTemplateSpec (Kubernetes v1.37 API) at a place of its own: ``spec.tasks[0].template`` in
a Volcano Job, ``spec.workerGroupSpecs[0].template`` in a RayCluster. The template is recognized by its containers; the
fields that hold it tell how many pods it stands for. Sources: the API references of JobSet v1alpha2, LeaderWorkerSet
v1, Kueue v1beta1 (Workload), Volcano v1alpha1, KubeRay v1, Kubeflow training operator v1 and MPI operator v2beta1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import count_at

IsTemplate: TypeAlias = Callable[[Mapping[str, Any], str], bool]
"""Tells whether a mapping at a path is a template."""
_DEEPEST = 60
_NOT_SEARCHED = frozenset({"metadata", "status"})
_STRUCTURE = re.compile(r"(Pod)?(Template|GroupSpec|ReplicaSpec|Spec|Set|Group|Job|Task)s?$", re.IGNORECASE)
"""Endings of field names that say nothing about the role of the pods: ``headGroupSpec`` is the head."""
_NO_NAME_CHARACTER = re.compile(r"[^a-z0-9]+")
_ITEM_NAMES = ("name", "groupName")
_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class FoundTemplate:
    """A template somewhere in an object."""

    path: str
    """From the object: ``spec.tasks[0].template``."""
    content: Mapping[str, Any]
    role: str
    """Name of its pods beside other pods of the object, such as ``worker``; empty where nothing names one."""
    pods: int
    """How many pods it stands for."""


@dataclass(frozen=True, slots=True)
class NestedObject:
    """A whole object inside another one, as an AppWrapper or a ManifestWork wraps them."""

    path: str
    content: Mapping[str, Any]


def templates_in(content: Mapping[str, Any], is_template: IsTemplate) -> list[FoundTemplate | NestedObject]:
    """Return the templates and objects inside an object, in order; roles are unique.

    Raises:
        InputError: a number of replicas is negative.

    >>> task = {"name": "worker", "replicas": 3, "template": {"spec": {"containers": [{"name": "c"}]}}}
    >>> [(one.path, one.role, one.pods) for one in templates_in({"spec": {"tasks": [task]}}, is_pod_template)]
    [('spec.tasks[0].template', 'worker', 3)]
    """
    found = list(_search(content, "", "", 1, 0, is_template))
    roles = [one.role for one in found if isinstance(one, FoundTemplate)]
    return [
        FoundTemplate(one.path, one.content, _label(one.path), one.pods)
        if isinstance(one, FoundTemplate) and roles.count(one.role) > 1
        else one
        for one in found
    ]


def is_pod_template(content: Mapping[str, Any], _path: str = "") -> bool:
    """Tell whether a mapping is a PodTemplateSpec: its spec has containers, each with a name."""
    spec = content.get("spec")
    return isinstance(spec, dict) and _has_containers(spec)


def _has_containers(spec: Mapping[str, Any]) -> bool:
    containers = spec.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in containers)
    )


def at_path(wanted: str) -> IsTemplate:
    """Return the test for the templates at a path, such as ``spec.groups[*].template``."""
    return lambda _content, path: path == wanted or _INDEX.sub("[*]", path) == wanted


def _search(
    value: Any, path: str, role: str, pods: int, depth: int, is_template: IsTemplate
) -> Iterator[FoundTemplate | NestedObject]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            named = _item_name(item) or role
            yield from _search(item, f"{path}[{index}]", named, pods, depth + 1, is_template)
    elif isinstance(value, dict):
        if path and is_template(value, path):
            yield FoundTemplate(path, value, role, pods)
        elif path and _is_object(value):
            yield NestedObject(path, value)
        else:
            for name, inner in value.items():
                if not isinstance(inner, dict | list) or (not path and name in _NOT_SEARCHED):
                    continue
                label = _label(_STRUCTURE.sub("", name))
                below = f"{path}.{name}" if path else name
                try:
                    count = pods * _pods_of(value, name)
                except InputError as error:
                    raise InputError(error.problem, field=f"{path}.{error.field}" if path else error.field) from None
                yield from _search(inner, below, label or role, count, depth + 1, is_template)


def _is_object(content: Mapping[str, Any]) -> bool:
    return (
        isinstance(content.get("apiVersion"), str)
        and isinstance(content.get("kind"), str)
        and any(isinstance(content.get(part), dict) for part in ("metadata", "spec"))
    )


def _item_name(item: object) -> str:
    names = (item.get(field) for field in _ITEM_NAMES) if isinstance(item, dict) else ()
    return next((_label(name) for name in names if isinstance(name, str)), "")


def _label(text: str) -> str:
    return _NO_NAME_CHARACTER.sub("-", text.lower()).strip("-")


def _pods_of(holder: Mapping[str, Any], field: str) -> int:
    """Return by how much the fields beside a field multiply the pods below it.

    ``size`` of a LeaderWorkerSet counts the leader; without a template of its own the leader is made of the workers'.
    ``numOfHosts`` of a RayCluster's worker group is the number of pods of a replica.
    """
    if field == "workerTemplate" and _number(holder, "size") is not None:
        return max((_number(holder, "size") or 0) - (holder.get("leaderTemplate") is not None), 0)
    if field == "template" and not holder.keys().isdisjoint({"parallelism", "completions"}):
        return job_pods(holder)
    replicas = _number(holder, "replicas")
    least = _number(holder, "minReplicas")
    pods = max(replicas or 0, least or 0) if replicas is not None or least is not None else 1
    for name, beside in (("numOfHosts", "template"), ("count", "template"), ("count", "podTemplate")):
        number = _number(holder, name)
        if field == beside and number is not None:
            pods *= number
    return pods


def _number(holder: Mapping[str, Any], field: str) -> int | None:
    """Return a number of replicas; kinds that write something else there have no number."""
    value = holder.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return count_at(holder, field, 0, least=0)


def job_pods(spec: Mapping[str, Any]) -> int:
    """Return how many pods of a Job run at the same time.

    Raises:
        InputError: a number is negative or no number.
    """
    parallelism = count_at(spec, "parallelism", 1, least=0)
    return min(parallelism, count_at(spec, "completions", parallelism, least=0))
