"""Pod templates in objects of any kind, with the number of pods that each stands for.

An operator's object nests a PodTemplateSpec (Kubernetes v1.37 API) at a place of its own: ``spec.tasks[0].template`` in
a Volcano Job, ``spec.workerGroupSpecs[0].template`` in a RayCluster. The template is recognized by its containers; the
fields that hold it tell how many pods it stands for. Sources: the API references of JobSet v1alpha2, LeaderWorkerSet
v1, Kueue v1beta1 (Workload), Volcano v1alpha1, KubeRay v1, Kubeflow training operator v1 and MPI operator v2beta1.

A SparkApplication has fields in their place, of which spark-submit makes the pods. Sources: Spark operator of Kubeflow,
v1beta2 (docs/api-docs.md; defaults.go, submission.go); Spark 3.5, running-on-kubernetes.md, configuration.md
(BasicDriverFeatureStep, BasicExecutorFeatureStep).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import as_mapping, count_at, list_at, mapping_at, text_at
from mooring.lazy import dataclass

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
    containers = spec.get("containers") if isinstance(spec, dict) else None
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
            names = (item.get(field) for field in _ITEM_NAMES) if isinstance(item, dict) else ()
            named = next((_label(name) for name in names if isinstance(name, str)), "") or role
            yield from _search(item, f"{path}[{index}]", named, pods, depth + 1, is_template)
    elif isinstance(value, dict):
        if path and is_template(value, path):
            yield FoundTemplate(path, value, role, pods)
        elif path and (
            isinstance(value.get("apiVersion"), str)
            and isinstance(value.get("kind"), str)
            and any(isinstance(value.get(part), dict) for part in ("metadata", "spec"))
        ):
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


_SIZE: Final = re.compile(r"(\d+)(b|[kmgtp]b?|)", re.IGNORECASE)
_UNITS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_LEAST_OVERHEAD: Final = "384m"
_OF_METADATA: Final = ("labels", "annotations")
_AT_START: Final = ("minExecutors", "initialExecutors")
_OVERHEAD, _OVERHEAD_OF_SCRIPTS = 0.1, 0.4


def spark_pods(spec: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield driver and executors of a SparkApplication's spec, each as role, number of pods and template.

    Fields of the operator win over ``sparkConf``. Requests are cores, or ``coreRequest``; a CPU limit is set for
    ``coreLimit`` alone. Memory is requested and limited: the heap and an overhead of a tenth (Python and R: four
    tenths), at least 384 MiB, or ``memoryOverhead``.

    Raises:
        InputError: a size or a number cannot be understood.
    """
    conf = {str(name): str(value) for name, value in mapping_at(spec, "sparkConf").items()}
    is_script = text_at(spec, "type") in ("Python", "R")
    factor = str(_OVERHEAD_OF_SCRIPTS if is_script else _OVERHEAD)
    factor = spec.get("memoryOverheadFactor", conf.get("spark.kubernetes.memoryOverheadFactor", factor))
    for role in ("driver", "executor"):
        given = mapping_at(spec, role)

        def told(
            field: str, default: Any = None, key: str = "", *, role: str = role, given: Mapping[str, Any] = given
        ) -> Any:
            return given.get(field, conf.get(f"spark.{key.format(role) or f'{role}.{field}'}", default))

        heap = _mebibytes(told("memory", "1g"), f"{role}.memory")
        extra = told("memoryOverhead")
        if extra is None:
            least = _mebibytes(conf.get(f"spark.{role}.minMemoryOverhead", _LEAST_OVERHEAD), "sparkConf")
            share = str(conf.get(f"spark.{role}.memoryOverheadFactor", factor))
            if not re.fullmatch(r"\d*\.?\d+", share):
                raise InputError(f"{share!r:.40} is no number", field="memoryOverheadFactor", remedy="write it as 0.1")
            extra = max(int(float(share) * heap), least)
        memory = heap + _mebibytes(extra, f"{role}.memoryOverhead")
        if role == "executor" and is_script:
            memory += _mebibytes(conf.get("spark.executor.pyspark.memory", "0"), "sparkConf")
        if role == "executor" and conf.get("spark.memory.offHeap.enabled") == "true":
            size = conf.get("spark.memory.offHeap.size", "0")
            memory += _mebibytes(f"{size}b" if size.isdecimal() else size, "sparkConf")
        template, gpu = mapping_at(given, "template"), mapping_at(given, "gpu")
        [base, *others] = list_at(mapping_at(template, "spec"), "containers") or [{}]
        resources = mapping_at(as_mapping(base), "resources")
        cores = told("coreRequest", told("cores", 1), f"kubernetes.{role}.request.cores")
        requests = {**mapping_at(resources, "requests"), "cpu": str(cores), "memory": f"{memory}Mi"}
        limits = {**mapping_at(resources, "limits"), "memory": f"{memory}Mi"}
        if (limit := told("coreLimit", None, f"kubernetes.{role}.limit.cores")) is not None:
            limits["cpu"] = str(limit)
        if "memoryLimit" in given:
            limits["memory"] = f"{_mebibytes(given['memoryLimit'], f'{role}.memoryLimit')}Mi"
        if gpu:
            limits[text_at(gpu, "name")] = str(gpu.get("quantity"))
        container: dict[str, Any] = {
            "name": f"spark-kubernetes-{role}",
            **base,
            "resources": {"requests": requests, "limits": limits},
        }
        containers = [container, *others, *list_at(given, "sidecars")]
        metadata = mapping_at(template, "metadata") | {key: given[key] for key in _OF_METADATA if key in given}
        pods = 1 if role == "driver" else _executors(spec, conf, told("instances"))
        inner = {"containers": containers, "initContainers": list_at(given, "initContainers")}
        yield role, pods, {"metadata": metadata, "spec": mapping_at(template, "spec") | inner}


def _executors(spec: Mapping[str, Any], conf: Mapping[str, str], instances: Any) -> int:
    """Return the executors at the start."""
    dynamic = mapping_at(spec, "dynamicAllocation")
    prefix = "spark.dynamicAllocation."
    told = {**{name.removeprefix(prefix): text for name, text in conf.items() if name.startswith(prefix)}, **dynamic}
    is_dynamic = str(told.get("enabled")).lower() == "true"
    counts: dict[str, Any] = {name: told.get(name) for name in (_AT_START if is_dynamic else ())}
    counts["instances"] = instances
    whole = {name: int(text) if str(text).isdecimal() else text for name, text in counts.items()}
    return max(count_at(whole, name, 0 if is_dynamic else 1, least=0) for name in whole)


def _mebibytes(size: Any, field: str) -> int:
    """Return a size of Spark in MiB; a bare number is one already.

    >>> _mebibytes("2g", "driver.memory"), _mebibytes(512, "driver.memory")
    (2048, 512)
    """
    match = _SIZE.fullmatch(str(size).strip())
    if match is None:
        remedy = "write it as Spark reads it, such as 4g or 512m"
        raise InputError(f"{size!r:.40} is no size of Spark", field=field, remedy=remedy)
    return int(match[1]) << _UNITS[match[2][:1].lower() or "m"] >> 20
