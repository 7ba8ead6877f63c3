"""What the scheduler reads of a pod beside its requests: selector, node affinity and tolerations.

Source: v1 PodSpec; kube-scheduler v1.37.1, plugins NodeAffinity, TaintToleration and NodeUnschedulable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import as_mapping, count_at, inside, list_at, mapping_at, text_at, texts_at
from mooring.inputs.pods.taints import Taint, Toleration, tolerations_at


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


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements that a node has to meet together; a term without any is met by none."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def meets(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether a node satisfies it."""
        if not self.expressions and not self.fields:
            return False
        return all(one.meets(labels) for one in self.expressions) and all(
            one.meets({"metadata.name": name}) for one in self.fields
        )


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term that a node had better meet."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class SchedulingFields:
    """What the scheduler reads of a pod beside its requests; equal for replicas."""

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] | None = None
    """One of them has to be met; None where the pod has no required node affinity."""
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """Fields that the pod has, and that are not read here."""

    @property
    def chooses_nodes(self) -> bool:
        """Whether the pod has a selector or required node affinity."""
        return bool(self.selector) or self.required is not None

    def allows(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether selector and required affinity let the pod run on a node."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.required is None or any(term.meets(labels, name) for term in self.required)

    def tolerates(self, taints: tuple[Taint, ...]) -> bool:
        """Tell whether no taint keeps the pod away."""
        return all(
            any(one.tolerates(taint) for one in self.tolerations)
            for taint in taints
            if taint.effect in ("NoSchedule", "NoExecute")
        )


NO_FIELDS = SchedulingFields()


def scheduling_fields_of(pod: Mapping[str, Any], field: str = "") -> SchedulingFields:
    """Return what the scheduler reads of a pod.

    Args:
        pod: the object, or the template of one.
        field: where it stands in its file; empty for the whole of it.

    Raises:
        InputError: a field is not valid.
    """
    try:
        return scheduling_fields(mapping_at(pod, "spec"))
    except InputError as error:
        raise inside(error, f"{field}.spec".lstrip(".")) from None


def scheduling_fields(spec: Mapping[str, Any]) -> SchedulingFields:
    """Return what the scheduler reads of a pod's specification.

    Raises:
        InputError: a field is of the wrong type.

    >>> scheduling_fields({"nodeSelector": {"pool": "gpu"}}).selector
    (('pool', 'gpu'),)
    """
    affinity = mapping_at(spec, "affinity")
    try:
        node = mapping_at(affinity, "nodeAffinity")
        required = mapping_at(node, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = list_at(node, "preferredDuringSchedulingIgnoredDuringExecution")
        terms = tuple(_term(as_mapping(one)) for one in list_at(required, "nodeSelectorTerms")) if required else None
        wished = tuple(
            PreferredTerm(count_at(as_mapping(one), "weight", 0), _term(mapping_at(as_mapping(one), "preference")))
            for one in preferred
        )
    except InputError as error:
        raise inside(error, "affinity.nodeAffinity") from None
    ignored = [name for name in ("schedulingGates", "volumes") if _counts(spec, name)]
    return SchedulingFields(
        tuple(sorted(texts_at(spec, "nodeSelector").items())) if spec.get("nodeSelector") else (),
        terms,
        wished,
        tolerations_at(spec),
        tuple(ignored),
    )


def _counts(spec: Mapping[str, Any], name: str) -> bool:
    found = spec.get(name)
    if name == "volumes" and isinstance(found, list):
        return any(isinstance(one, dict) and one.get("persistentVolumeClaim") for one in found)
    return bool(found)


def _term(content: Mapping[str, Any]) -> NodeTerm:
    return NodeTerm(
        tuple(requirement_of(as_mapping(one)) for one in list_at(content, "matchExpressions")),
        tuple(requirement_of(as_mapping(one)) for one in list_at(content, "matchFields")),
    )


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
