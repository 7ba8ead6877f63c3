"""Taints of nodes, and the tolerations with which pods run there all the same.

What the API server refuses in one is refused here too: it would keep nothing away, or cover nothing.

Source: v1 Taint and Toleration; Kubernetes v1.37.1, pkg/apis/core/validation and the plugin TaintToleration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import as_mapping, choice_at, inside, list_at, name_at, text_at

_Read = TypeVar("_Read")


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
    effect = choice_at(content, "effect", TaintEffect.NO_SCHEDULE)
    return Taint(name_at(content, "key"), text_at(content, "value"), effect.value)


def taints_at(content: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints in the field of that name.

    Raises:
        InputError: one is no taint.
    """
    return tuple(_each(content, "taints", taint_of))


def tolerations_at(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """Return the tolerations of a pod's specification.

    Raises:
        InputError: the API server refuses one.
    """
    return tuple(_each(spec, "tolerations", _toleration))


def _each(content: Mapping[str, Any], field: str, read: Callable[[Mapping[str, Any]], _Read]) -> Iterator[_Read]:
    for index, one in enumerate(list_at(content, field)):
        try:
            yield read(as_mapping(one))
        except InputError as error:
            raise inside(error, f"{field}[{index}]") from None


def _toleration(content: Mapping[str, Any]) -> Toleration:
    given = {name: value for name, value in content.items() if value not in (None, "")}
    key, operator = text_at(given, "key"), choice_at(given, "operator", TolerationOperator.EQUAL)
    if not key and operator is not TolerationOperator.EXISTS:
        problem = "must be Exists where key is empty"
        raise InputError(problem, field="operator", remedy="write the taint's key, or operator: Exists for any taint")
    effect = choice_at(given, "effect", TaintEffect.NO_SCHEDULE).value if "effect" in given else ""
    return Toleration(key, operator.value, text_at(given, "value"), effect)
