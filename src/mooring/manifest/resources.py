"""Resource lists: names and quantities as the API server takes them.

Source: API server v1.37.1, decoding of Quantity and SetDefaults_ResourceList.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mooring.core.errors import InputError
from mooring.core.quantity import Quantity, QuantitySyntaxError
from mooring.manifest.fields import number_text, wrong_kind

NANOS_PER_MILLI = 10**6
HUGE_PAGES = "hugepages-"
"""Beginning of the name of a pool of huge pages; the size of its pages follows."""
_REMEDY = 'write one such as 2, "500m" or 4Gi'


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
            raise InputError(
                f"{value!r:.60} is not a quantity: {error}", field=f"{field}.{name}", remedy=_REMEDY
            ) from None
    return quantities


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
    """Return the quantity as the API server stores it: rounded up to thousandths.

    The memory manager still sees where it came from: what was a fraction stays without a quick answer
    (AsInt64).
    """
    quantity = Quantity.parse(quantity_text(text))
    rest = quantity.nano % NANOS_PER_MILLI
    if not rest:
        return quantity
    up = NANOS_PER_MILLI - rest if quantity.nano > 0 else -rest
    return Quantity(quantity.nano + up, quantity.format, quantity.fast, -3 if quantity.fast else 0)
