"""Values that may be missing, and are not."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def not_none(value: Value | None) -> Value:
    """Return the value; fail where there is none."""
    assert value is not None
    return value
