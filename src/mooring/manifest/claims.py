"""Which ResourceClaims a pod names: those that somebody made, and those that were made for it from a template.

Source: core/v1, PodResourceClaim and PodResourceClaimStatus (KEP-4381).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.errors import InputError
from mooring.manifest.fields import as_mapping, inside, list_at, text_at

FIELD = "resourceClaims"
STATUS_FIELD = "resourceClaimStatuses"


def claims_of_pod(obj: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a pod's claims; one of a template has a name when its pod's status tells it.

    Args:
        obj: the pod.
        spec: of it.

    Raises:
        InputError: a field has another form.

    >>> spec = {"resourceClaims": [{"name": "cpus", "resourceClaimName": "fast"}, {"name": "own"}]}
    >>> claims_of_pod({"status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "a-own-1"}]}}, spec)
    ('fast', 'a-own-1')
    """
    if not spec.get(FIELD):
        return ()
    status = obj.get("status")
    made = _names(status, STATUS_FIELD, "status") if isinstance(status, dict) else {}
    named = (claim or made.get(name, "") for name, claim in _names(spec, FIELD, "spec").items())
    return tuple(dict.fromkeys(claim for claim in named if claim))


def _names(parent: Mapping[str, Any], field: str, place: str) -> dict[str, str]:
    """Return the pod's own name of a claim -> the claim's."""
    try:
        items = list_at(parent, field)
    except InputError as error:
        raise inside(error, place) from None
    found = {}
    for index, item in enumerate(items):
        try:
            entry = as_mapping(item)
            found[text_at(entry, "name")] = text_at(entry, "resourceClaimName")
        except InputError as error:
            raise inside(error, f"{place}.{field}[{index}]") from None
    return found
