"""Devices as people write them: resource -> list of ``{id, numa, unhealthy?}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.errors import InputError
from mooring.devicemanager.state import Device
from mooring.manifest.fields import flag_at, name_at, wrong_kind

HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""


def device_table(content: Mapping[str, Any]) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each resource.

    Raises:
        InputError: naming the resource and the device.

    >>> device_table({"example/gpu": [{"id": "gpu0", "numa": [0]}]})
    {'example/gpu': (Device(id='gpu0', numa=(0,), healthy=True),)}
    """
    table: dict[str, tuple[Device, ...]] = {}
    for resource, items in content.items():
        field = f"devices.{resource}"
        if not isinstance(items, list):
            raise wrong_kind(items, "a list of devices", field)
        devices = tuple(_device(item, f"{field}[{index}]") for index, item in enumerate(items))
        if len({device.id for device in devices}) != len(devices):
            raise InputError("two devices have the same id", field=field, remedy="give each device its own id")
        table[resource] = devices
    return table


def _device(item: Any, field: str) -> Device:
    if not isinstance(item, dict):
        raise wrong_kind(item, "a device", field)
    numa = item.get("numa")
    if numa is not None and not (
        isinstance(numa, list) and all(type(node) is int and 0 <= node <= HIGHEST_NODE for node in numa)
    ):
        raise InputError("is no list of NUMA nodes", field=f"{field}.numa", remedy="write numa: [0] or leave it out")
    return Device(
        id=name_at(item, "id"),
        numa=None if numa is None else tuple(numa),
        healthy=not flag_at(item, "unhealthy", default=False),
    )
