"""Resource lists and durations: names, quantities and spans of time as the API server and the kubelet take them.

Source: API server v1.37.1, decoding of Quantity and SetDefaults_ResourceList; Go's time.ParseDuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mooring.engine.core.errors import InputError
from mooring.engine.core.gotext import INT64_MAX
from mooring.engine.core.quantity import FORMAT_WRONG, Quantity, QuantitySyntaxError
from mooring.inputs.decoding.fields import inside, number_text, wrong_kind

NANOS_PER_MILLI = 10**6
HUGE_PAGES = "hugepages-"
"""Beginning of the name of a pool of huge pages; the size of its pages follows."""
QUANTITY_REMEDY = 'write one such as 2, "500m" or 4Gi'


def resource_list(parent: Mapping[str, Any], field: str) -> dict[str, Quantity]:
    """Return the resource list in ``field``; absent and null are empty.

    Raises:
        InputError: it is no mapping, or holds something that is no quantity.
    """
    given = parent.get(field)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise wrong_kind(given, "a mapping", field)
    quantities = {}
    for name, value in given.items():
        try:
            quantities[name] = _stored(value if isinstance(value, str) else quantity_text(value))
        except InputError as error:
            raise InputError(error.problem, field=f"{field}.{name}", remedy=error.remedy) from None
        except QuantitySyntaxError as error:
            raise not_a_quantity(value, error, f"{field}.{name}") from None
    return quantities


def saturated(amounts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return amounts as kubelets from 1.38 on hold them (:meth:`Quantity.saturated`)."""
    return {name: amount.saturated(NANOS_PER_MILLI if name == "cpu" else 10**9) for name, amount in amounts.items()}


def not_a_quantity(value: object, error: QuantitySyntaxError, field: str) -> InputError:
    """Return the error for a value that is no quantity; the pattern that Kubernetes prints for it is left out.

    >>> print(not_a_quantity("2 cores", QuantitySyntaxError(FORMAT_WRONG), "cpu"))
    cpu: '2 cores' is not a quantity; write one such as 2, "500m" or 4Gi
    """
    reason = "" if str(error) == FORMAT_WRONG else f": {error}"
    return InputError(f"{value!r:.60} is not a quantity{reason}", field=field, remedy=QUANTITY_REMEDY)


def quantity_of(value: object, field: str) -> Quantity:
    """Return the quantity that a value of a field is.

    Raises:
        InputError: it is none.
    """
    try:
        return Quantity.parse(quantity_text(value))
    except InputError as error:
        raise inside(error, field) from None
    except QuantitySyntaxError as error:
        raise not_a_quantity(value, error, field) from None


def quantity_text(value: object) -> str:
    """Return the text of a quantity that may be written as a number.

    Raises:
        InputError: the value is neither a text nor a number.

    >>> quantity_text(0.5), quantity_text(" 2Gi ")
    ('0.5', '2Gi')
    """
    if isinstance(value, str):
        # Spaces around a quantity are tolerated where it is decoded, and nowhere else.
        return value.strip(" \t\r\n")
    if value is None:
        return "0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_kind(value, "a quantity", "")
    return number_text(value)


@lru_cache(maxsize=4096)
def _stored(text: str) -> Quantity:
    return Quantity.parse(quantity_text(text)).stored()


_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]{0,30})(?:\.([0-9]{0,30}))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def nanoseconds(text: str) -> int:
    """Return the span in nanoseconds.

    Source: Go's time.ParseDuration, behind every duration of a KubeletConfiguration.

    Raises:
        InputError: the text is no duration, or longer than 292 years.

    >>> nanoseconds("100ms"), nanoseconds("1m0.5s")
    (100000000, 60500000000)
    """
    size = text[1:] if text[:1] in ("+", "-") else text
    if size == "0":
        return 0
    total = end = 0
    while end < len(size):
        part = _PART.match(size, end)
        if part is None or not (part[1] or part[2]):
            break
        unit = _UNITS[part[3]]
        fraction = part[2] or "0"
        total += int(part[1] or "0") * unit + int(fraction) * unit // 10 ** len(fraction)
        end = part.end()
    if not size or end < len(size) or total > INT64_MAX:
        raise InputError(f"{text[:40]!r} is not a duration", remedy="write one such as 10s or 100ms")
    return -total if text[0] == "-" else total
