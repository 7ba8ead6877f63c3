"""A pod's priority: which of several waiting resizes is tried first.

Source: API server v1.37.1, admission plugin Priority; classes of the cluster itself are known, all others only by the
number that the API server has put into the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.errors import InputError
from mooring.manifest.fields import count_at, inside, text_at

CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has."""


def priority_of(spec: Mapping[str, Any]) -> int:
    """Return the priority of a pod's ``spec``; 0 when nothing tells it.

    Raises:
        InputError: a field has the wrong type.

    >>> priority_of({"priorityClassName": "system-node-critical"}), priority_of({"priority": 7}), priority_of({})
    (2000001000, 7, 0)
    """
    if "priority" not in spec and "priorityClassName" not in spec:
        return 0
    try:
        return count_at(spec, "priority", CLASSES.get(text_at(spec, "priorityClassName"), 0))
    except InputError as error:
        raise inside(error, "spec") from None
