"""Times in files: seconds since the beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.errors import InputError


def seconds_at(content: Mapping[str, Any], field: str) -> float | None:
    """Return a time; None where the field is absent.

    Raises:
        InputError: it is no number of seconds.

    >>> seconds_at({"at": 5}, "at")
    5.0
    """
    value = content.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError("must be a number of seconds, 0 or more", field=field)
    return float(value)
