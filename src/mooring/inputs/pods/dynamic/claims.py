"""ResourceClaim objects.

Source: resource.k8s.io/v1 of v1.37, ``status.allocation.devices.results`` and ``status.reservedFor``; v1beta1 and
v1beta2 have the same form there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.engine.core.dynamic import ClaimedDevice, ResourceClaim
from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import as_mapping, flag_at, inside, list_at, mapping_at, name_at, text_at

CLAIM: Final = "ResourceClaim"


def claim_of(obj: Mapping[str, Any], *, source: str) -> ResourceClaim:
    """Return the claim that an object describes.

    Args:
        obj: of kind ResourceClaim.
        source: where it comes from, for messages.

    Raises:
        InputError: a field has another form.
    """
    try:
        metadata, status = mapping_at(obj, "metadata"), mapping_at(obj, "status")
        name, namespace, uid = name_at(metadata, "name"), text_at(metadata, "namespace"), text_at(metadata, "uid")
        try:
            allocation = status.get("allocation")
            devices = _devices(mapping_at(mapping_at(status, "allocation"), "devices"))
            pods = frozenset(_pods(list_at(status, "reservedFor")))
        except InputError as error:
            raise inside(error, "status") from None
    except InputError as error:
        raise error.at(source) from None
    return ResourceClaim(namespace or "default", name, uid, allocation is not None, devices, pods)


def _devices(allocated: Mapping[str, Any]) -> tuple[ClaimedDevice, ...]:
    try:
        return tuple(_device(item) for item in list_at(allocated, "results"))
    except InputError as error:
        raise inside(error, "allocation.devices.results") from None


def _device(item: object) -> ClaimedDevice:
    fields = as_mapping(item)
    return ClaimedDevice(
        text_at(fields, "request"),
        name_at(fields, "driver"),
        name_at(fields, "pool"),
        name_at(fields, "device"),
        flag_at(fields, "adminAccess", default=False),
        text_at(fields, "shareID"),
    )


def _pods(items: Iterable[object]) -> Iterable[str]:
    for item in items:
        fields = as_mapping(item)
        if text_at(fields, "resource") == "pods":
            yield text_at(fields, "uid")
