"""What a pod asks of other pods: affinity, anti-affinity and topology spread constraints, with its labels.

Source: v1 PodSpec; kube-scheduler v1.37.1, plugins InterPodAffinity and PodTopologySpread. The API server merges
``matchLabelKeys`` into the selectors when it creates the pod, and so does the reader here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.inputs.decoding.fields import as_mapping, count_at, list_at, mapping_at, text_at, texts_at, within
from mooring.inputs.pods.scheduling_fields import Operator, Requirement, requirement_of
from mooring.lazy import dataclass

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Which pods are meant."""

    namespaces: tuple[str, ...] | None
    """None for all namespaces."""
    requirements: tuple[Requirement, ...] | None
    """None for no pod at all."""

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod is meant.

        >>> PodSelector(("a",), ()).matches("a", {"app": "web"})
        True
        """
        if self.requirements is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return all(one.meets(labels) for one in self.requirements)


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """Pods near which, or away from which, a pod is wanted."""

    selector: PodSelector
    topology_key: str


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """How evenly pods are spread over the values of a label of nodes."""

    selector: PodSelector
    topology_key: str
    max_skew: int
    is_required: bool = False
    """``DoNotSchedule``; otherwise it adds to the score only."""
    min_domains: int = 1
    honors_affinity: bool = True
    """Whether nodes that the pod's node affinity excludes are left out of the count."""
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodRelations:
    """A pod as other pods see it, and what it asks of them; equal for replicas."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[tuple[int, PodAffinityTerm], ...] = ()
    """Weights of terms that add to the score of a node; anti-affinity has a negative weight."""
    spread: tuple[SpreadConstraint, ...] = ()
    is_spread_by_default: bool = False
    """Whether the constraints are the scheduler's own: then they also count nodes that lack one of the labels."""
    ignored: tuple[str, ...] = ()
    """Fields that the pod has, and that are not read here."""

    @property
    def has_terms(self) -> bool:
        """Whether other pods decide where it goes, or it decides where others go."""
        return bool(self.affinity or self.anti_affinity or self.preferred or self.spread)

    @property
    def has_required_terms(self) -> bool:
        """Whether other pods decide on which nodes it may be, beyond what is preferred."""
        return bool(self.affinity or self.anti_affinity or any(one.is_required for one in self.spread))

    def is_in(self, selector: PodSelector) -> bool:
        """Tell whether a selector means this pod."""
        return selector.matches(self.namespace, dict(self.labels))


NO_RELATIONS = PodRelations()


def pod_relations(content: Mapping[str, Any], owner: Mapping[str, Any] | None = None) -> PodRelations:
    """Return what a v1 Pod asks of other pods.

    Args:
        content: the pod.
        owner: ``spec.selector`` of its ReplicaSet or StatefulSet, by which the scheduler spreads pods without
            constraints of their own; None without such an owner.

    Raises:
        InputError: a field is of the wrong type.

    >>> pod_relations({"metadata": {"labels": {"app": "web"}}}).labels
    (('app', 'web'),)
    """
    metadata, spec = mapping_at(content, "metadata"), mapping_at(content, "spec")
    namespace = text_at(metadata, "namespace") or "default"
    labels = texts_at(metadata, "labels") if metadata.get("labels") else {}
    affinity, ignored = mapping_at(spec, "affinity"), list[str]()
    near, away = (mapping_at(affinity, name) for name in ("podAffinity", "podAntiAffinity"))
    with within("spec.affinity"):
        required = [tuple(_terms(list_at(part, _REQUIRED), namespace, labels, ignored)) for part in (near, away)]
        preferred = (*_weighted(near, 1, namespace, labels, ignored), *_weighted(away, -1, namespace, labels, ignored))
    with within("spec.topologySpreadConstraints"):
        spread = tuple(
            SpreadConstraint(
                PodSelector((namespace,), _requirements(found, labels)),
                text_at(found, "topologyKey"),
                count_at(found, "maxSkew", 1),
                text_at(found, "whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
                count_at(found, "minDomains", 1),
                text_at(found, "nodeAffinityPolicy", "Honor") == "Honor",
                text_at(found, "nodeTaintsPolicy", "Ignore") == "Honor",
            )
            for found in map(as_mapping, list_at(spec, "topologySpreadConstraints"))
        )
    is_default = not spread and owner is not None and bool(requirements := label_requirements(owner))
    if is_default:
        selector = PodSelector((namespace,), requirements)
        spread = (SpreadConstraint(selector, HOSTNAME, 3), SpreadConstraint(selector, ZONE, 5))
    mine = tuple(sorted(labels.items()))
    return PodRelations(namespace, mine, required[0], required[1], preferred, spread, is_default, tuple(ignored))


def _weighted(
    part: Mapping[str, Any], sign: int, namespace: str, labels: Mapping[str, str], ignored: list[str]
) -> Iterator[tuple[int, PodAffinityTerm]]:
    for entry in list_at(part, _PREFERRED):
        found = as_mapping(entry)
        for term in _terms([mapping_at(found, "podAffinityTerm")], namespace, labels, ignored):
            yield sign * count_at(found, "weight", 0), term


def _terms(
    entries: list[Any], namespace: str, labels: Mapping[str, str], ignored: list[str]
) -> Iterator[PodAffinityTerm]:
    for entry in entries:
        found = as_mapping(entry)
        named = tuple(str(one) for one in list_at(found, "namespaces"))
        everywhere = found.get("namespaceSelector")
        if everywhere:
            ignored.append("namespaceSelector")
        # An empty selector means every namespace; one with labels means namespaces whose labels are not known here.
        namespaces = None if everywhere == {} else named or (namespace,)
        yield PodAffinityTerm(PodSelector(namespaces, _requirements(found, labels)), text_at(found, "topologyKey"))


def label_requirements(selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Return what a LabelSelector asks of labels.

    Raises:
        InputError: a field is of the wrong type.
    """
    equal = texts_at(selector, "matchLabels") if selector.get("matchLabels") else {}
    return (
        *(Requirement(key, Operator.IN, (value,)) for key, value in sorted(equal.items())),
        *(requirement_of(as_mapping(one)) for one in list_at(selector, "matchExpressions")),
    )


def _requirements(found: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[Requirement, ...] | None:
    """Return what the selector of a term or constraint asks of labels; None without one."""
    selector = found.get("labelSelector")
    if selector is None:
        return None
    keys = (
        Requirement(str(key), operator, (labels[str(key)],))
        for field, operator in (("matchLabelKeys", Operator.IN), ("mismatchLabelKeys", Operator.NOT_IN))
        for key in list_at(found, field)
        if str(key) in labels
    )
    return (*label_requirements(as_mapping(selector)), *keys)
