"""Which claims a pod has, and which of its containers uses what of them.

Source: core/v1 of v1.37: PodResourceClaim and PodResourceClaimStatus (KEP-4381): a claim is named directly, or made for
the pod from a template, and then the status tells its name. PodExtendedResourceClaimStatus (KEP-5004): the scheduler
makes one claim for the extended resources of a pod that drivers serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import ClaimUse, Container
from mooring.inputs.decoding.fields import as_mapping, inside, list_at, mapping_at, text_at

_CLAIMS: Final = "resourceClaims"
_CLAIM_STATUSES: Final = "resourceClaimStatuses"
_EXTENDED: Final = "extendedResourceClaimStatus"


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
    named = [claim for claim in _names(obj, spec).values() if claim]
    extended = _extended(obj)
    if extended:
        named.append(text_at(extended, "resourceClaimName"))
    return tuple(dict.fromkeys(claim for claim in named if claim))


def unmade_claims_of_pod(obj: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pod's own names of claims of which nothing tells the name: those still to be made from templates.

    Args:
        obj: the pod.
        spec: of it.

    Raises:
        InputError: a field has another form.

    >>> unmade_claims_of_pod({}, {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]})
    ('gpu',)
    """
    return tuple(name for name, claim in _names(obj, spec).items() if not claim)


def with_claims(obj: Mapping[str, Any], spec: Mapping[str, Any], containers: list[Container]) -> list[Container]:
    """Return a pod's containers with what they use of its claims.

    Args:
        obj: the pod.
        spec: of it.
        containers: of it, init containers first.

    Raises:
        InputError: a field has another form.
    """
    names, extended = _names(obj, spec), _extended(obj)
    if not names and not extended:
        return containers
    uses = {container.name: list[ClaimUse]() for container in containers}
    for field in ("initContainers", "containers"):
        for index, item in enumerate(list_at(spec, field)):
            try:
                for use in _uses(as_mapping(item), names):
                    uses[item["name"]].append(use)
            except InputError as error:
                raise inside(error, f"spec.{field}[{index}].resources") from None
    for name, use in _extended_uses(extended):
        uses.setdefault(name, []).append(use)
    return [
        replace(container, claims=tuple(dict.fromkeys(uses[container.name]))) if uses[container.name] else container
        for container in containers
    ]


def _uses(item: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[ClaimUse]:
    for index, entry in enumerate(list_at(mapping_at(item, "resources"), "claims")):
        try:
            fields = as_mapping(entry)
            name, request = text_at(fields, "name"), text_at(fields, "request")
        except InputError as error:
            raise inside(error, f"claims[{index}]") from None
        if names.get(name):
            yield ClaimUse(names[name], request)


def _extended(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    status = obj.get("status")
    if not isinstance(status, dict) or not status.get(_EXTENDED):
        return {}
    try:
        found = mapping_at(status, _EXTENDED)
        text_at(found, "resourceClaimName")
    except InputError as error:
        raise inside(error, "status") from None
    return found


def _extended_uses(extended: Mapping[str, Any]) -> Iterator[tuple[str, ClaimUse]]:
    """Yield container and use for each resource that a driver serves."""
    try:
        claim = text_at(extended, "resourceClaimName")
        for item in list_at(extended, "requestMappings"):
            fields = as_mapping(item)
            if claim:
                yield text_at(fields, "containerName"), ClaimUse(claim, text_at(fields, "requestName"))
    except InputError as error:
        raise inside(error, f"status.{_EXTENDED}") from None


def _names(obj: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the pod's own name of a claim -> the claim's, empty while nothing tells it."""
    if not spec.get(_CLAIMS):
        return {}
    status = obj.get("status")
    made = dict(_entries(status, _CLAIM_STATUSES, "status")) if isinstance(status, dict) else {}
    return {name: claim or made.get(name, "") for name, claim in _entries(spec, _CLAIMS, "spec")}


def _entries(parent: Mapping[str, Any], field: str, place: str) -> Iterable[tuple[str, str]]:
    try:
        items = list_at(parent, field)
    except InputError as error:
        raise inside(error, place) from None
    for index, item in enumerate(items):
        try:
            entry = as_mapping(item)
            yield text_at(entry, "name"), text_at(entry, "resourceClaimName")
        except InputError as error:
            raise inside(error, f"{place}.{field}[{index}]") from None
