"""Objects in documents: pods, what describes pods, and everything else.

Source: Kubernetes v1.37 API. A controller's pods are named NAME-0, NAME-1 and so on; in a cluster only StatefulSets do
that, but stable names let two plans be compared. A DaemonSet gives the one pod that it would run on this node.

An operator's object nests a PodTemplateSpec at a place of its own: ``spec.tasks[0].template`` in a Volcano Job,
``spec.workerGroupSpecs[0].template`` in a RayCluster. The template is recognized by its containers; the fields that
hold it tell how many pods it stands for. Sources: the API references of JobSet v1alpha2, LeaderWorkerSet v1, Kueue
v1beta1 (Workload), Volcano v1alpha1, KubeRay v1, Kubeflow training operator v1 and MPI operator v2beta1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import as_mapping, count_at, list_at, mapping_at, text_at, within
from mooring.inputs.pods.launched_pods import KUBEVIRT, TYPE_FIELD, is_virtual_machine, launcher_pod, spark_pods
from mooring.lazy import dataclass, replace

TemplatePaths: TypeAlias = Mapping[str, tuple[str, ...]]
"""Kind -> paths of pod templates or pod specs in its objects, such as ``spec.predictor``."""
NO_PATHS: TemplatePaths = {}
_GROUPS = {
    "Pod": "v1",
    "PodTemplate": "v1",
    "ReplicationController": "v1",
    "Deployment": "apps/",
    "ReplicaSet": "apps/",
    "StatefulSet": "apps/",
    "DaemonSet": "apps/",
    "Job": "batch/",
    "CronJob": "batch/",
}
"""Kind -> API version, or the beginning of it."""
_SPARK = {"SparkApplication": "spec", "ScheduledSparkApplication": "spec.template"}
_DEEPEST_LIST = 10
_HOOK = "helm.sh/hook"
_INSTALLED = frozenset({"pre-install", "post-install", "pre-upgrade", "post-upgrade"})
"""Helm's hooks that run while a release is installed or upgraded; others run for ``helm test``, a deletion or a
rollback, but ``helm template`` prints them all. Source: Helm v3 documentation, chart hooks."""


def template_paths(given: Sequence[str]) -> TemplatePaths:
    """Return the paths of ``--pod-template-path``, by kind.

    Raises:
        InputError: one has another form.

    >>> template_paths(["InferenceService=spec.predictor"])
    {'InferenceService': ('spec.predictor',)}
    """
    paths: dict[str, tuple[str, ...]] = {}
    for text in given:
        kind, _, path = text.partition("=")
        if not kind.isalnum() or not path:
            remedy = "write one such as InferenceService=spec.predictor"
            raise InputError(f"{text!r:.60} is not KIND=PATH", source="--pod-template-path", remedy=remedy)
        paths[kind] = (*paths.get(kind, ()), path)
    return paths


@dataclass(frozen=True, slots=True)
class PodObject:
    """One object that describes a pod, or several that are alike."""

    kind: str
    """Type of what describes it, such as ``Deployment``, or ``PodTemplateSpec`` in an object of another API group."""
    described: Mapping[str, Any]
    """What describes it, of that type."""
    place: str
    """Where that is in the document; empty for the document itself."""
    content: Mapping[str, Any]
    """A v1 Pod: the object itself, or one made of the controller's template and name."""
    field: str
    """Where pod or template is in the document; empty for the document itself."""
    replicas: int | None = None
    """How many pods; None for a plain pod, which keeps its own name."""
    role: str = ""
    """Part of the names of the pods, where an object has several templates."""
    first: int = 0
    """Number of the first pod; StatefulSets can begin elsewhere."""
    launched: str = ""
    """Kind that the pod is computed from, as KubeVirt and Spark do; empty for other pods."""


@dataclass(frozen=True, slots=True)
class OtherObject:
    """An object in which no pod is found, or whose pods do not run when it is applied."""

    kind: str
    name: str
    content: Mapping[str, Any]
    hook: str = ""
    """The Helm hooks that alone run its pods, such as ``test``."""


def pod_objects(content: object, paths: TemplatePaths = NO_PATHS) -> Iterator[PodObject | OtherObject]:
    """Yield the pods, templates and other objects of a document, in the order in which they stand there.

    Args:
        content: of the document.
        paths: of templates that are not recognized.

    Raises:
        InputError: something in it is no object.

    >>> [type(found).__name__ for found in pod_objects({"kind": "List", "items": [{"kind": "Service"}]})]
    ['OtherObject']
    """
    return _walk(content, "", "", 0, paths)


def _walk(
    content: object, field: str, kind: str, depth: int, paths: TemplatePaths
) -> Iterator[PodObject | OtherObject]:
    with within(field):
        fields = as_mapping(content)
        kind = text_at(fields, "kind") or kind
        if not kind:
            raise InputError("must not be empty", field="kind", remedy="write kind: Pod or the kind of a workload")
        if not kind.endswith("List"):
            # Yield what one object describes; its fields are named from the object in errors
            found = list(_found(fields, field, kind, paths))
            # The Helm hooks of an object, if none of them belongs to an installation.
            hook = reading.part_at(mapping_at(fields, "metadata"), "annotations").get(_HOOK)
            if not isinstance(hook, str) or not _INSTALLED.isdisjoint(part.strip() for part in hook.split(",")):
                hook = ""
            if found and not hook:
                yield from found
            else:
                name = str(mapping_at(fields, "metadata").get("name", ""))
                yield OtherObject(kind, name, fields, hook if found else "")
            return
        if depth == _DEEPEST_LIST:
            raise InputError("lists inside lists without end")
        items = list_at(fields, "items")
    for index, item in enumerate(items):
        # The items of a PodList and its like need not name their kind.
        yield from _walk(item, _join(field, f"items[{index}]"), kind.removesuffix("List"), depth + 1, paths)


def _found(content: Mapping[str, Any], field: str, kind: str, paths: TemplatePaths) -> Iterator[PodObject]:
    if kind in paths:
        yield from _at_paths(content, field, kind, paths[kind])
    elif text_at(content, "apiVersion", _GROUPS.get(kind, "")).startswith(_GROUPS.get(kind, "/")):
        yield _built_in(content, field, kind)
    elif _group(content).endswith(KUBEVIRT):
        yield from _virtual_machines(content, field, kind)
    elif kind in _SPARK and _group(content) == "sparkoperator.k8s.io":
        holder = mapping_at(content, "spec")
        for name in _SPARK[kind].split(".")[1:]:
            holder = mapping_at(holder, name)
        path = _join(field, _SPARK[kind])
        with within(_SPARK[kind]):
            for role, pods, template in spark_pods(holder):
                # Unknown fields are reported once, for the driver.
                described = holder if role == "driver" else {}
                pod = _pod_of(content, template)
                yield PodObject(
                    "SparkApplicationSpec", described, path, pod, f"{path}.{role}", pods, role, launched=kind
                )
    elif not is_of_kubernetes(content):
        for one in templates_in(content, is_pod_template):
            if one.replicas is None:
                with within(one.place):
                    inner = list(_found(one.content, _join(field, one.place), text_at(one.content, "kind"), paths))
                yield from inner
            else:
                yield _templated(content, field, one)


def _virtual_machines(content: Mapping[str, Any], field: str, kind: str) -> Iterator[PodObject]:
    """Yield the launchers' pods of a virtual machine, an instance, a replica set or a pool."""
    is_instance = kind == "VirtualMachineInstance" and is_virtual_machine(content)
    for one in [_inside(content, "", 1)] if is_instance else templates_in(content, is_virtual_machine):
        if one.replicas is None:
            continue
        place = _join(field, one.place) if one.place else field
        try:
            pod = launcher_pod(content, one.content)
        except InputError as error:
            raise reading.inside(error, one.place) if one.place and error.field != TYPE_FIELD else error from None
        cpu = mapping_at(mapping_at(mapping_at(one.content, "spec"), "domain"), "cpu")
        yield PodObject("CPU", cpu, _join(place, "spec.domain.cpu"), pod, place, one.replicas, launched=kind)


def _group(content: Mapping[str, Any]) -> str:
    return text_at(content, "apiVersion").rpartition("/")[0]


def is_of_kubernetes(content: Mapping[str, Any]) -> bool:
    """Tell whether an object is of an API group of Kubernetes itself, or of none.

    Custom kinds have a domain in their group; Kubernetes reserves ``k8s.io`` and gives its subprojects ``x-k8s.io``.
    """
    group = _group(content)
    return "." not in group or (group.endswith(".k8s.io") and not group.endswith((".x-k8s.io", "sparkoperator.k8s.io")))


def _at_paths(content: Mapping[str, Any], field: str, kind: str, paths: tuple[str, ...]) -> Iterator[PodObject]:
    for path in paths:
        found = [one for one in templates_in(content, _at(path)) if one.replicas is not None]
        if not found:
            name = str(mapping_at(content, "metadata").get("name", ""))
            remedy = "name the field that holds containers, or spec with containers"
            raise InputError(f"{kind} {name} has nothing there".replace("  ", " "), field=path, remedy=remedy)
        for one in found:
            template = one.content if isinstance(one.content.get("spec"), dict) else {"spec": one.content}
            yield _templated(content, field, replace(one, described=template))


def _built_in(content: Mapping[str, Any], field: str, kind: str) -> PodObject:
    if kind == "Pod":
        return PodObject(kind, content, field, content, field)
    if kind == "PodTemplate":
        return _of_workload(kind, content, content, field, "", 1)
    spec = mapping_at(content, "spec")
    with within("spec"):
        if kind == "CronJob":
            inner = mapping_at(mapping_at(spec, "jobTemplate"), "spec")
            return _of_workload(kind, content, inner, field, "spec.jobTemplate.spec", _job_pods(inner))
        if kind == "Job":
            pods = _job_pods(spec)
        else:
            pods = 1 if kind == "DaemonSet" else count_at(spec, "replicas", 1, least=0)
        first = count_at(mapping_at(spec, "ordinals"), "start", 0, least=0) if kind == "StatefulSet" else 0
    return replace(_of_workload(kind, content, spec, field, "spec", pods), first=first)


def _of_workload(
    kind: str, owner: Mapping[str, Any], holder: Mapping[str, Any], field: str, path: str, replicas: int
) -> PodObject:
    path = _join(path, "template")
    template = holder.get("template")
    if not isinstance(template, dict):
        raise reading.wrong_kind(template, "a mapping", path)
    return PodObject(kind, owner, field, _pod_of(owner, template), _join(field, path), replicas)


def _templated(owner: Mapping[str, Any], field: str, found: PodObject) -> PodObject:
    """Return what is inside an owner, from the top of the document and with a pod under the owner's name."""
    place = _join(field, found.place)
    return replace(found, place=place, content=_pod_of(owner, found.described), field=place)


def _pod_of(owner: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod of a template, under its owner's name and namespace."""
    named = mapping_at(owner, "metadata")
    metadata = dict(mapping_at(template, "metadata"))
    metadata.pop("uid", None)
    for key in ("name", "namespace", "generateName"):
        metadata[key] = named.get(key)
    return {"metadata": metadata, "spec": template.get("spec")}


def _join(field: str, part: str) -> str:
    return f"{field}.{part}" if field else part


IsTemplate: TypeAlias = Callable[[Mapping[str, Any], str], bool]
"""Tells whether a mapping at a path is a template."""
_DEEPEST = 60
_NOT_SEARCHED = frozenset({"metadata", "status"})
_STRUCTURE = re.compile(r"(Pod)?(Template|GroupSpec|ReplicaSpec|Spec|Set|Group|Job|Task)s?$", re.IGNORECASE)
"""Endings of field names that say nothing about the role of the pods: ``headGroupSpec`` is the head."""
_NO_NAME_CHARACTER = re.compile(r"[^a-z0-9]+")
_ITEM_NAMES = ("name", "groupName")
_INDEX = re.compile(r"\[\d+\]")


def templates_in(content: Mapping[str, Any], is_template: IsTemplate) -> list[PodObject]:
    """Return the templates inside an object, and whole objects, as an AppWrapper or a ManifestWork wraps them.

    They are in order, with places from the object such as ``spec.tasks[0].template``, and have no name of an owner yet.
    Roles are unique; a whole object has no number of replicas.

    Raises:
        InputError: a number of replicas is negative.

    >>> task = {"name": "worker", "replicas": 3, "template": {"spec": {"containers": [{"name": "c"}]}}}
    >>> [(one.place, one.role, one.replicas) for one in templates_in({"spec": {"tasks": [task]}}, is_pod_template)]
    [('spec.tasks[0].template', 'worker', 3)]
    """
    found = list(_search(content, "", "", 1, 0, is_template))
    roles = [one.role for one in found if one.replicas is not None]
    return [replace(one, role=_label(one.place)) if roles.count(one.role) > 1 else one for one in found]


def _inside(content: Mapping[str, Any], path: str, replicas: int | None = None, role: str = "") -> PodObject:
    return PodObject("PodTemplateSpec", content, path, content, path, replicas, role)


def is_pod_template(content: Mapping[str, Any], _path: str = "") -> bool:
    """Tell whether a mapping is a PodTemplateSpec: its spec has containers, each with a name."""
    spec = content.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in containers)
    )


def _at(wanted: str) -> IsTemplate:
    """Return the test for the templates at a path, such as ``spec.groups[*].template``."""
    return lambda _content, path: path == wanted or _INDEX.sub("[*]", path) == wanted


def _search(value: Any, path: str, role: str, pods: int, depth: int, is_template: IsTemplate) -> Iterator[PodObject]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            names = (item.get(field) for field in _ITEM_NAMES) if isinstance(item, dict) else ()
            named = next((_label(name) for name in names if isinstance(name, str)), "") or role
            yield from _search(item, f"{path}[{index}]", named, pods, depth + 1, is_template)
    elif isinstance(value, dict):
        if path and is_template(value, path):
            yield _inside(value, path, pods, role)
        elif path and (
            isinstance(value.get("apiVersion"), str)
            and isinstance(value.get("kind"), str)
            and any(isinstance(value.get(part), dict) for part in ("metadata", "spec"))
        ):
            yield _inside(value, path)
        else:
            for name, inner in value.items():
                if not isinstance(inner, dict | list) or (not path and name in _NOT_SEARCHED):
                    continue
                label = _label(_STRUCTURE.sub("", name)) or role
                with within(path):
                    count = pods * _pods_of(value, name)
                yield from _search(inner, _join(path, name), label, count, depth + 1, is_template)


def _label(text: str) -> str:
    return _NO_NAME_CHARACTER.sub("-", text.lower()).strip("-")


def _pods_of(holder: Mapping[str, Any], field: str) -> int:
    """Return by how much the fields beside a field multiply the pods below it.

    ``size`` of a LeaderWorkerSet counts the leader; without a template of its own the leader is made of the workers'.
    ``numOfHosts`` of a RayCluster's worker group is the number of pods of a replica.
    """
    size = _number(holder, "size") if field == "workerTemplate" else None
    if size is not None:
        return max(size - (holder.get("leaderTemplate") is not None), 0)
    if field == "template" and not holder.keys().isdisjoint({"parallelism", "completions"}):
        return _job_pods(holder)
    replicas = [_number(holder, name) for name in ("replicas", "minReplicas")]
    pods = max((number for number in replicas if number is not None), default=1)
    for name, beside in (("numOfHosts", ("template",)), ("count", ("template", "podTemplate"))):
        number = _number(holder, name)
        if field in beside and number is not None:
            pods *= number
    return pods


def _number(holder: Mapping[str, Any], field: str) -> int | None:
    """Return a number of replicas; kinds that write something else there have no number."""
    value = holder.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return count_at(holder, field, 0, least=0)


def _job_pods(spec: Mapping[str, Any]) -> int:
    """Return how many pods of a Job run at the same time."""
    parallelism = count_at(spec, "parallelism", 1, least=0)
    return min(parallelism, count_at(spec, "completions", parallelism, least=0))
