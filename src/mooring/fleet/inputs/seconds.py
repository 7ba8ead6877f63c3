"""Times in files: seconds since the beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import kind_of

MOST_SECONDS: Final = 100 * 365 * 86_400
"""A hundred years: no work lasts longer, and sums of such times are exact enough to be told apart."""


def seconds_at(content: Mapping[str, Any], field: str) -> float | None:
    """Return a time; None where the field is absent.

    Raises:
        InputError: it is no number of seconds, negative, or too large.

    >>> seconds_at({"at": 5}, "at")
    5.0
    """
    value = content.get(field)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_SECONDS:
        problem = f"must be a number of seconds from 0 to {MOST_SECONDS} (100 years)"
        given = f"{value!r:.40}" if is_number else kind_of(value)
        raise InputError(f"{problem}, not {given}", field=field, remedy="write 3600 for an hour")
    return float(value)
