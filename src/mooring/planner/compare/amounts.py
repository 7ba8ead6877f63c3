"""Amounts of resources, added up as pods come."""

from __future__ import annotations

from collections.abc import Mapping


def added(used: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """Return what is used with a pod more.

    >>> added({"cpu": 2000, "memory": 7}, {"cpu": 500})
    {'cpu': 2500, 'memory': 7}
    """
    return {name: used.get(name, 0) + wanted.get(name, 0) for name in {**used, **wanted}}
