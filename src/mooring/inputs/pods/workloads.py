"""Objects in documents: pods, what describes pods, and everything else.

Source: Kubernetes v1.37 API. A controller's pods are named NAME-0, NAME-1 and so on; in a cluster only StatefulSets do
that, but stable names let two plans be compared. A DaemonSet gives the one pod that it would run on this node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import as_mapping, list_at, mapping_at, text_at, within
from mooring.inputs.pods import pod_templates
from mooring.inputs.pods.pod_templates import FoundTemplate, NestedObject, at_path, job_pods
from mooring.inputs.pods.virtual_machines import GROUP, INSTANCE, TYPE_FIELD, is_virtual_machine, launcher_pod
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

    @property
    def is_of_kubernetes(self) -> bool:
        """Whether the kind is of Kubernetes itself, so that it is known to have no pods."""
        return _is_of_kubernetes(self.content)


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
    elif _group(content).endswith(GROUP):
        yield from _virtual_machines(content, field, kind)
    elif kind in _SPARK and _group(content) == "sparkoperator.k8s.io":
        path = _SPARK[kind]
        holder = (
            mapping_at(mapping_at(content, "spec"), "template") if "template" in path else mapping_at(content, "spec")
        )
        with within(path):
            for role, pods, template in pod_templates.spark_pods(holder):
                place, pod = _join(field, f"{path}.{role}"), _pod_of(content, template)
                # Unknown fields are reported once, for the driver.
                described = holder if role == "driver" else {}
                yield PodObject(
                    "SparkApplicationSpec", described, _join(field, path), pod, place, pods, role, launched=kind
                )
    elif not _is_of_kubernetes(content):
        for one in pod_templates.templates_in(content, pod_templates.is_pod_template):
            if isinstance(one, NestedObject):
                with within(one.path):
                    inner = list(_found(one.content, _join(field, one.path), text_at(one.content, "kind"), paths))
                yield from inner
            else:
                yield _templated(content, field, one)


def _virtual_machines(content: Mapping[str, Any], field: str, kind: str) -> Iterator[PodObject]:
    """Yield the launchers' pods of a virtual machine, an instance, a replica set or a pool."""
    is_instance = kind == INSTANCE and is_virtual_machine(content)
    found = (
        [FoundTemplate("", content, "", 1)] if is_instance else pod_templates.templates_in(content, is_virtual_machine)
    )
    for one in found:
        if isinstance(one, FoundTemplate):
            place = _join(field, one.path) if one.path else field
            try:
                pod = launcher_pod(content, one.content)
            except InputError as error:
                raise reading.inside(error, one.path) if one.path and error.field != TYPE_FIELD else error from None
            cpu = mapping_at(mapping_at(mapping_at(one.content, "spec"), "domain"), "cpu")
            yield PodObject("CPU", cpu, _join(place, "spec.domain.cpu"), pod, place, one.pods, launched=kind)


def _group(content: Mapping[str, Any]) -> str:
    return text_at(content, "apiVersion").rpartition("/")[0]


def _is_of_kubernetes(content: Mapping[str, Any]) -> bool:
    """Tell whether an object is of an API group of Kubernetes itself, or of none.

    Custom kinds have a domain in their group; Kubernetes reserves ``k8s.io`` and gives its subprojects ``x-k8s.io``.
    """
    group = _group(content)
    return "." not in group or (group.endswith(".k8s.io") and not group.endswith((".x-k8s.io", "sparkoperator.k8s.io")))


def _at_paths(content: Mapping[str, Any], field: str, kind: str, paths: tuple[str, ...]) -> Iterator[PodObject]:
    for path in paths:
        found = [one for one in pod_templates.templates_in(content, at_path(path)) if isinstance(one, FoundTemplate)]
        if not found:
            name = str(mapping_at(content, "metadata").get("name", ""))
            remedy = "name the field that holds containers, or spec with containers"
            raise InputError(f"{kind} {name} has nothing there".replace("  ", " "), field=path, remedy=remedy)
        for one in found:
            template = one.content if isinstance(one.content.get("spec"), dict) else {"spec": one.content}
            yield _templated(content, field, replace(one, content=template))


def _built_in(content: Mapping[str, Any], field: str, kind: str) -> PodObject:
    if kind == "Pod":
        return PodObject(kind, content, field, content, field)
    if kind == "PodTemplate":
        return _of_workload(kind, content, content, field, "", 1)
    spec = mapping_at(content, "spec")
    with within("spec"):
        if kind == "CronJob":
            inner = mapping_at(mapping_at(spec, "jobTemplate"), "spec")
            return _of_workload(kind, content, inner, field, "spec.jobTemplate.spec", job_pods(inner))
        pods = (
            job_pods(spec)
            if kind == "Job"
            else 1
            if kind == "DaemonSet"
            else reading.count_at(spec, "replicas", 1, least=0)
        )
        first = reading.count_at(mapping_at(spec, "ordinals"), "start", 0, least=0) if kind == "StatefulSet" else 0
    return replace(_of_workload(kind, content, spec, field, "spec", pods), first=first)


def _of_workload(
    kind: str, owner: Mapping[str, Any], holder: Mapping[str, Any], field: str, path: str, replicas: int
) -> PodObject:
    path = _join(path, "template")
    template = holder.get("template")
    if not isinstance(template, dict):
        raise reading.wrong_kind(template, "a mapping", path)
    return PodObject(kind, owner, field, _pod_of(owner, template), _join(field, path), replicas)


def _templated(owner: Mapping[str, Any], field: str, found: FoundTemplate) -> PodObject:
    place = _join(field, found.path)
    pod = _pod_of(owner, found.content)
    return PodObject("PodTemplateSpec", found.content, place, pod, place, found.pods, found.role)


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
