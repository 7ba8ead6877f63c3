"""Which pods and nodes are meant: selectors of options, and the budgets that keep pods from being evicted.

Source: Kubernetes API v1.37, policy/v1 PodDisruptionBudget; ``kubectl get --selector``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.fleet.live.pod_object import LivePod
from mooring.inputs.decoding.fields import count_at, mapping_at, text_at
from mooring.inputs.pods.pod_relations import PodSelector, label_requirements
from mooring.inputs.pods.scheduling_fields import Operator, Requirement

EVERYTHING: Final = PodSelector(None, ())


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    selector: PodSelector
    allowed: int
    """Pods that may be evicted now."""

    def blocks(self, pod: LivePod) -> bool:
        """Tell whether it keeps a pod from being evicted now."""
        return self.allowed < 1 and self.selector.matches(pod.pod.namespace, pod.labels)


def requirements_of_text(text: str, option: str = "") -> tuple[Requirement, ...]:
    """Return the selector of an option, in kubectl's form with equality and existence.

    Args:
        text: of the selector.
        option: its name, for messages.

    Raises:
        InputError: a part of it is not understood.

    >>> all(one.meets({"app": "web"}) for one in requirements_of_text("app=web,tier!=db,!old"))
    True
    """
    return tuple(_requirement_of_text(part.strip(), text, option) for part in text.split(","))


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
            wanted = label_requirements(mapping_at(spec, "selector")) if spec.get("selector") is not None else None
            selector = PodSelector((text_at(metadata, "namespace", "default"),), wanted)
            found.append(DisruptionBudget(selector, count_at(status, "disruptionsAllowed", 0)))
        except InputError as error:
            raise error.at(f"{source}: PodDisruptionBudget") from None
    return tuple(found)
