"""Which pods are meant: label selectors, and the budgets that keep pods from being evicted.

Source: Kubernetes API v1.37, LabelSelector and policy/v1 PodDisruptionBudget; ``kubectl get --selector``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.core.errors import InputError
from mooring.decoding.fields import as_mapping, choice_at, count_at, list_at, mapping_at, text_at, texts_at
from mooring.fleet.live.pod_object import LivePod
from mooring.manifest.scheduling_fields import Operator, Requirement


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels: all of them have to be met."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels meet it; without requirements it selects everything."""
        return all(one.meets(labels) for one in self.requirements)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    selector: LabelSelector | None
    """None selects nothing."""
    allowed: int
    """Pods that may be evicted now."""

    def blocks(self, pod: LivePod) -> bool:
        """Tell whether it keeps a pod from being evicted now."""
        if self.allowed > 0 or self.selector is None or pod.pod.namespace != self.namespace:
            return False
        return self.selector.selects(pod.labels)


EVERYTHING: Final = LabelSelector()


def selector_of_text(text: str, option: str = "") -> LabelSelector:
    """Return the selector of an option, in kubectl's form with equality and existence.

    Args:
        text: of the selector.
        option: its name, for messages.

    Raises:
        InputError: a part of it is not understood.

    >>> selector_of_text("app=web,tier!=db,!old").selects({"app": "web"})
    True
    """
    return LabelSelector(tuple(_requirement_of_text(part.strip(), text, option) for part in text.split(",")))


def _requirement_of_text(part: str, text: str, option: str) -> Requirement:
    key, equals, value = part.replace("==", "=").partition("=")
    if equals and key.endswith("!"):
        found = Requirement(key[:-1], Operator.NOT_IN, (value,))
    elif equals:
        found = Requirement(key, Operator.IN, (value,))
    elif part.startswith("!"):
        found = Requirement(part[1:], Operator.DOES_NOT_EXIST)
    else:
        found = Requirement(part, Operator.EXISTS)
    if not found.key or " " in found.key:
        raise InputError(f"{text!r:.80} is not a selector", source=option, remedy="write app=web,tier!=db")
    return found


def disruption_budgets(contents: Iterable[Mapping[str, Any]], source: str) -> tuple[DisruptionBudget, ...]:
    """Return the budgets among objects.

    Raises:
        InputError: one is not valid.
    """
    found = []
    for content in contents:
        try:
            metadata, spec, status = (mapping_at(content, part) for part in ("metadata", "spec", "status"))
            selector = _selector(mapping_at(spec, "selector")) if spec.get("selector") is not None else None
            allowed = count_at(status, "disruptionsAllowed", 0)
            found.append(DisruptionBudget(text_at(metadata, "namespace", "default"), selector, allowed))
        except InputError as error:
            raise error.at(f"{source}: PodDisruptionBudget") from None
    return tuple(found)


def _selector(content: Mapping[str, Any]) -> LabelSelector:
    labels = texts_at(content, "matchLabels") if content.get("matchLabels") else {}
    found = [Requirement(key, Operator.IN, (value,)) for key, value in sorted(labels.items())]
    for item in list_at(content, "matchExpressions"):
        one = as_mapping(item)
        values = tuple(str(value) for value in list_at(one, "values"))
        found.append(Requirement(text_at(one, "key"), choice_at(one, "operator", Operator.IN), values))
    return LabelSelector(tuple(found))
