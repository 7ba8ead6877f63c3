"""Amounts that do not fit into 64 bits: the API server takes them, and the kubelet computes with what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.gotext import INT64_MAX
from mooring.engine.core.machine import Finding
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.decoding.api_fields import Places

TOO_LARGE: Final = "MOOR-518"
_CONTAINERS: Final = ("containers", "initContainers")
_SHORT: Final = 15
"""Characters of a quantity that can only be too large with a suffix that caps it (``Ei``)."""


def large_quantities(content: Mapping[str, Any], place: str, places: Places) -> Iterator[Finding]:
    """Yield a warning for each request or limit of a pod that does not fit into 64 bits.

    Args:
        content: a v1 Pod that was read without an error.
        place: where it is in its document; empty for the document itself.
        places: names the lines and columns of fields.
    """
    found = dict(_large(content["spec"], f"{place}.spec" if place else "spec"))
    lines = places(list(found)) if found else {}
    for field, problem in found.items():
        yield Finding("warning", field, f"{lines[field]}: {problem}", TOO_LARGE)


def _large(spec: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    holders = [(place, spec)]
    for kind in _CONTAINERS:
        holders += [(f"{place}.{kind}[{index}]", one) for index, one in enumerate(spec.get(kind) or ())]
    for where, holder in holders:
        resources = holder.get("resources") or {}
        for amounts in ("requests", "limits"):
            for name, value in (resources.get(amounts) or {}).items():
                text = str(value)
                if len(text) > _SHORT and (problem := _problem(name, text)):
                    yield f"{where}.resources.{amounts}.{name}", problem


def _problem(name: str, text: str) -> str:
    try:
        quantity = Quantity.parse(text)
    except QuantitySyntaxError:
        return ""
    unit, scale = ("thousandths", 10**6) if name == "cpu" else ("units", 10**9)
    if abs(quantity.nano) // scale <= INT64_MAX:
        return ""
    left = quantity.milli if name == "cpu" else quantity.units
    return (
        f"an amount of {len(text)} characters does not fit into 64 bits: the API server takes it, and the kubelet "
        f"computes with {left} {unit}"
    )
