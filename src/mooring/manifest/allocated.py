"""A Pod of the API server with the resources that its node has allocated.

After a resize ``spec`` says what is wanted, and the kubelet goes on with what it allocated until it accepts the resize:
that is what it counts when another pod comes.

Source: Kubernetes API v1.37, ``containerStatuses[].allocatedResources`` (requests), ``containerStatuses[].resources``
(what is set up) and the same two fields of the status for pod-level resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mooring.core.quantity import Quantity, QuantitySyntaxError
from mooring.manifest.fields import list_at, mapping_at, name_at

_RESIZABLE: Final = ("cpu", "memory")


def with_allocated(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with allocated resources in the place of wanted ones; the same object when they are equal.

    Raises:
        InputError: a part of it is of the wrong type.

    >>> resources = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    >>> status = {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"}}]}
    >>> made = with_allocated({"spec": {"containers": [{"name": "a", "resources": resources}]}, "status": status})
    >>> made["spec"]["containers"][0]["resources"]
    {'requests': {'cpu': '2'}, 'limits': {'cpu': '2'}}
    """
    spec, status = mapping_at(obj, "spec"), mapping_at(obj, "status")
    changed: dict[str, Any] = {}
    for field, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        told = {name_at(one, "name"): one for one in list_at(status, statuses) if isinstance(one, dict)}
        items = list_at(spec, field)
        made = [_item(item, told) for item in items]
        if any(new is not old for new, old in zip(made, items, strict=True)):
            changed[field] = made
    wanted = spec.get("resources")
    if isinstance(wanted, dict) and wanted:
        allocated = _resources(wanted, status)
        if allocated is not wanted:
            changed["resources"] = allocated
    return {**obj, "spec": {**spec, **changed}} if changed else obj


def _item(item: object, told: Mapping[str, Mapping[str, Any]]) -> object:
    if not isinstance(item, dict) or item.get("name") not in told:
        return item
    wanted = mapping_at(item, "resources")
    allocated = _resources(wanted, told[item["name"]])
    return item if allocated is wanted else {**item, "resources": allocated}


def _resources(wanted: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return resources with the requests that are allocated.

    A limit that equals its request goes with it, because a resize does not change the QoS class; another limit is what
    the runtime has.
    """
    allocated = mapping_at(status, "allocatedResources")
    requests, limits = dict(mapping_at(wanted, "requests")), dict(mapping_at(wanted, "limits"))
    set_up = mapping_at(mapping_at(status, "resources"), "limits")
    changed = False
    for name in _RESIZABLE:
        # A request that the API server has filled in from the limit stands in the object too.
        if name not in allocated or name not in requests or _equal(allocated[name], requests[name]):
            continue
        changed = True
        if name in limits:
            tied = _equal(limits[name], requests[name])
            limits[name] = allocated[name] if tied else set_up.get(name, limits[name])
        requests[name] = allocated[name]
    return {**wanted, "requests": requests, "limits": limits} if changed else wanted


def _equal(one: object, other: object) -> bool:
    try:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    except QuantitySyntaxError:
        return one == other
