"""Single fields of a pod: its ResourceClaims, its priority, its scale-down grace period, the statuses of containers.

Sources:
    claims: core/v1, PodResourceClaim and PodResourceClaimStatus (KEP-4381). A claim is named directly, or made for the
        pod from a template.
    priority, which of several waiting resizes is tried first: API server v1.37.1, admission plugin Priority. Classes
        of the cluster itself are known, all others only by the number that the API server has put into the pod.
    grace period, for how long containers keep CPUs that a resize takes from them (extension scale-down-delay):
        KEP-6122, draft of September 2026; spec: resize.md section 5.2. The annotation is this project's, for API
        servers that do not know the field.
    statuses of containers, whose ``allocatedResources`` the managers count in place of the requests up to v1.34, while
        InPlacePodVerticalScaling is on (rules status-resources-decide-size and status-of-init-containers-ignored):
        kubelet v1.34.4, cpumanager and memorymanager policy_static.go; spec: releases.md sections 7 and 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from mooring.core.errors import InputError
from mooring.core.pod import Container, ContainerKind, ResourceList
from mooring.manifest.defaults import DELAY_GATE, PodGates
from mooring.manifest.fields import as_mapping, count_at, inside, list_at, mapping_at, name_at, text_at
from mooring.manifest.quantities import resource_list

_CLAIMS = "resourceClaims"
_CLAIM_STATUSES = "resourceClaimStatuses"
_STATUSES: Final = {ContainerKind.APP: "containerStatuses", ContainerKind.SIDECAR: "initContainerStatuses"}


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
    if not spec.get(_CLAIMS):
        return ()
    status = obj.get("status")
    made = _claim_names(status, _CLAIM_STATUSES, "status") if isinstance(status, dict) else {}
    named = (claim or made.get(name, "") for name, claim in _claim_names(spec, _CLAIMS, "spec").items())
    return tuple(dict.fromkeys(claim for claim in named if claim))


def _claim_names(parent: Mapping[str, Any], field: str, place: str) -> dict[str, str]:
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


SCALE_DOWN_FIELD = "scaleDownGracePeriodSeconds"
SCALE_DOWN_ANNOTATION = "mooring/scale-down-grace-period-seconds"
LONGEST_SCALE_DOWN = 10
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_REMEDY = f"write a whole number of seconds from 0 to {LONGEST_SCALE_DOWN}"


def scale_down_grace(
    spec: Mapping[str, Any], annotations: Mapping[str, str], gates: PodGates, *, stored: bool
) -> int | None:
    """Return the seconds that a pod asks for; None when it says nothing. The field comes before the annotation.

    Args:
        spec: of the pod.
        annotations: of the pod.
        gates: without the extension neither is looked at.
        stored: whether the API server has taken the pod already: it refuses the field of new pods only.

    Raises:
        InputError: no such number, or the gate of the field is off.

    >>> scale_down_grace({}, {SCALE_DOWN_ANNOTATION: "5"}, PodGates(knows_delay=True), stored=False)
    5
    """
    if not gates.knows_delay:
        return None
    if spec.get(SCALE_DOWN_FIELD) is not None:
        try:
            return _of_field(spec, gates, stored=stored)
        except InputError as error:
            raise inside(error, "spec") from None
    text = annotations.get(SCALE_DOWN_ANNOTATION)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text) or int(text) > LONGEST_SCALE_DOWN:
        raise InputError(
            f"{text!r:.40} is no delay", field=f"metadata.annotations.{SCALE_DOWN_ANNOTATION}", remedy=_REMEDY
        )
    return int(text)


def _of_field(spec: Mapping[str, Any], gates: PodGates, *, stored: bool) -> int:
    seconds = count_at(spec, SCALE_DOWN_FIELD, 0)
    if not 0 <= seconds <= LONGEST_SCALE_DOWN:
        raise InputError(
            f"must be between 0 and {LONGEST_SCALE_DOWN}, but is {seconds}", field=SCALE_DOWN_FIELD, remedy=_REMEDY
        )
    if not gates.delay and not stored:
        remedy = f"switch on the feature gate {DELAY_GATE}, or use the annotation {SCALE_DOWN_ANNOTATION}"
        raise InputError(
            f"is forbidden while the feature gate {DELAY_GATE} is off", field=SCALE_DOWN_FIELD, remedy=remedy
        )
    return seconds


def with_statuses(obj: Mapping[str, Any], containers: Iterable[Container]) -> list[Container]:
    """Return the containers with what their statuses allocate; a status without it allocates nothing.

    Raises:
        InputError: a status is of the wrong type.
    """
    status = mapping_at(obj, "status")
    sizes = {kind: _allocated(status, field) for kind, field in _STATUSES.items()} if status else {}
    return [
        replace(container, allocated=sizes[container.kind][container.name])
        if container.name in sizes.get(container.kind, ())
        else container
        for container in containers
    ]


def _allocated(status: Mapping[str, Any], field: str) -> dict[str, ResourceList]:
    found: dict[str, ResourceList] = {}
    for index, item in enumerate(list_at(status, field)):
        try:
            one = as_mapping(item)
            found[name_at(one, "name")] = resource_list(one, "allocatedResources")
        except InputError as error:
            raise inside(error, f"status.{field}[{index}]") from None
    return found
