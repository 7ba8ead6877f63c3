"""What the scheduler reads of a pod beside its requests: selector, node affinity and tolerations.

Source: v1 PodSpec; kube-scheduler v1.37.1, plugins NodeAffinity, TaintToleration and NodeUnschedulable.

Nodes with their labels and taints, and the tolerations with which pods run there all the same.

What the API server refuses in one is refused here too: it would keep nothing away, or cover nothing.

Source: v1 Taint and Toleration; Kubernetes v1.37.1, pkg/apis/core/validation and the plugin TaintToleration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.fields import as_mapping, each_at, list_at, mapping_at, text_at, within
from mooring.lazy import dataclass, field, replace

CORDONED: Final = "cordoned"
"""Why a node takes no pods that was closed by hand."""


class TaintEffect(Enum):
    """What a taint does to pods that do not tolerate it; the value is the name in the API."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class TolerationOperator(Enum):
    """How a toleration compares the value of a taint; the value is the name in the API."""

    EQUAL = "Equal"
    EXISTS = "Exists"
    LESS = "Lt"
    GREATER = "Gt"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node of the API server."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    """Without those that say what ``closed`` does."""
    closed: str = ""
    """Why it takes no pods, such as that it is cordoned; empty where it does."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """cpu in millicores, everything else in whole units."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    """As above."""
    version: str = ""
    """Of its kubelet; empty where it is not told."""
    features: frozenset[str] = frozenset()
    """What it declares."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod; empty texts tolerate any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether it covers a taint.

        ``Lt`` and ``Gt`` cover none: they need the gate TaintTolerationComparisonOperators, which is off by default.

        >>> Toleration("gpu", "Exists").tolerates(Taint("gpu", "yes"))
        True
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


def taint_of(content: Mapping[str, Any]) -> Taint:
    """Return a taint.

    Raises:
        InputError: it has no key or an unknown effect, or a field is of the wrong type.
    """
    effect = reading.choice_at(content, "effect", TaintEffect.NO_SCHEDULE)
    return Taint(reading.name_at(content, "key"), text_at(content, "value"), effect.value)


def taints_at(content: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints in the field of that name.

    Raises:
        InputError: one is no taint.
    """
    return tuple(each_at(content, "taints", taint_of))


def _toleration(content: Mapping[str, Any]) -> Toleration:
    given = {name: value for name, value in content.items() if value not in (None, "")}
    key, operator = text_at(given, "key"), reading.choice_at(given, "operator", TolerationOperator.EQUAL)
    if not key and operator is not TolerationOperator.EXISTS:
        problem = "must be Exists where key is empty"
        raise InputError(problem, field="operator", remedy="write the taint's key, or operator: Exists for any taint")
    effect = reading.choice_at(given, "effect", TaintEffect.NO_SCHEDULE).value if "effect" in given else ""
    return Toleration(key, operator.value, text_at(given, "value"), effect)


class Operator(Enum):
    """How a requirement compares a label; the value is the name in the API."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression about a label or field."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    of_field: bool = False
    """Whether it is about a field of the node; there is one, its name."""

    def meets(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels satisfy it; a number that is none satisfies nothing.

        >>> Requirement("zone", Operator.NOT_IN, ("a",)).meets({})
        True
        """
        value = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        if self.operator is Operator.NOT_IN:
            return value not in self.values
        if value is None:
            return False
        if self.operator is Operator.IN:
            return value in self.values
        try:
            number, bound = int(value), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return number > bound if self.operator is Operator.GREATER else number < bound


NodeTerm: TypeAlias = tuple[Requirement, ...]
"""Requirements that a node has to meet together; a term without any is met by none."""


@dataclass(frozen=True, slots=True)
class SchedulingFields:
    """What the scheduler reads of a pod beside its requests; equal for replicas."""

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] | None = None
    """One of them has to be met; None where the pod has no required node affinity."""
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    """Weights of terms that a node had better meet."""
    tolerations: tuple[Toleration, ...] = ()
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """Fields that the pod has, and that are not read here."""
    features: frozenset[str] = frozenset()
    """What its node has to declare (KEP-5328)."""

    @property
    def chooses_nodes(self) -> bool:
        """Whether the pod has a selector or required node affinity."""
        return bool(self.selector) or self.required is not None

    def allows(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether selector and required affinity let the pod run on a node."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.required is None or any(meets_term(term, labels, name) for term in self.required)

    def tolerates(self, taints: tuple[Taint, ...]) -> bool:
        """Tell whether no taint keeps the pod away."""
        return all(
            any(one.tolerates(taint) for one in self.tolerations)
            for taint in taints
            if taint.effect in ("NoSchedule", "NoExecute")
        )


NO_FIELDS = SchedulingFields()


def meets_term(term: NodeTerm, labels: Mapping[str, str], name: str) -> bool:
    """Tell whether a node with these labels and this name satisfies a term."""
    fields = {"metadata.name": name}
    return bool(term) and all(one.meets(fields if one.of_field else labels) for one in term)


def scheduling_fields_of(pod: Mapping[str, Any], field: str = "") -> SchedulingFields:
    """Return what the scheduler reads of a pod.

    Args:
        pod: the object, or the template of one.
        field: where it stands in its file; empty for the whole of it.

    Raises:
        InputError: a field is not valid.
    """
    with within(f"{field}.spec".lstrip(".")):
        return scheduling_fields(mapping_at(pod, "spec"))


def scheduling_fields(spec: Mapping[str, Any]) -> SchedulingFields:
    """Return what the scheduler reads of a pod's specification.

    Raises:
        InputError: a field is of the wrong type.

    >>> scheduling_fields({"nodeSelector": {"pool": "gpu"}}).selector
    (('pool', 'gpu'),)
    """
    affinity = mapping_at(spec, "affinity")
    with within("affinity.nodeAffinity"):
        node = mapping_at(affinity, "nodeAffinity")
        required = mapping_at(node, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = list_at(node, "preferredDuringSchedulingIgnoredDuringExecution")
        terms = tuple(_term(as_mapping(one)) for one in list_at(required, "nodeSelectorTerms")) if required else None
        wished = tuple(
            (reading.count_at(one, "weight", 0), _term(mapping_at(one, "preference")))
            for one in map(as_mapping, preferred)
        )
    volumes = spec.get("volumes")
    if isinstance(volumes, list):
        volumes = any(isinstance(one, dict) and one.get("persistentVolumeClaim") for one in volumes)
    ignored = [
        name for name, found in (("schedulingGates", spec.get("schedulingGates")), ("volumes", volumes)) if found
    ]
    return SchedulingFields(
        tuple(sorted(reading.texts_at(spec, "nodeSelector").items())) if spec.get("nodeSelector") else (),
        terms,
        wished,
        tuple(each_at(spec, "tolerations", _toleration)),
        tuple(ignored),
        frozenset(_features_needed(spec)),
    )


def _features_needed(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the features that a node must declare to get a pod.

    Source: kube-scheduler v1.37.1, plugin NodeDeclaredFeatures, and component-helpers/nodedeclaredfeatures.
    """
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        yield "UserNamespacesHostNetworkSupport"
    for container in (as_mapping(one) for part in ("containers", "initContainers") for one in list_at(spec, part)):
        if any(
            as_mapping(one).get("action") == "RestartAllContainers" for one in list_at(container, "restartPolicyRules")
        ):
            yield "RestartAllContainersOnContainerExits"
        if any(as_mapping(one).get("bindMountOptions") for one in list_at(container, "volumeMounts")):
            yield "VolumeBindMountOptions"


def _term(content: Mapping[str, Any]) -> NodeTerm:
    expressions = (requirement_of(as_mapping(one)) for one in list_at(content, "matchExpressions"))
    fields = (replace(requirement_of(as_mapping(one)), of_field=True) for one in list_at(content, "matchFields"))
    return (*expressions, *fields)


def requirement_of(content: Mapping[str, Any]) -> Requirement:
    """Return one expression about a label or field.

    Raises:
        InputError: a field is of the wrong type.
    """
    operator = text_at(content, "operator")
    try:
        chosen = Operator(operator)
    except ValueError:
        known = ", ".join(one.value for one in Operator)
        raise InputError(f"{operator!r:.40} is not an operator", field="operator", remedy=f"write {known}") from None
    return Requirement(text_at(content, "key"), chosen, tuple(str(one) for one in list_at(content, "values")))
