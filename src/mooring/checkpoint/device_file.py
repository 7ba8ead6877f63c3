"""The device manager's record: which containers hold which devices, by the uid of their pod.

Source: kubelet v1.37.1, pkg/kubelet/cm/devicemanager/checkpoint, ``device-plugins/kubelet_internal_checkpoint``. A
kubelet that cannot read it starts all the same, and does not know which devices are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from mooring.checkpoint.store import read_state_file
from mooring.core.errors import InputError

DEVICE_FILE: Final = "device-plugins/kubelet_internal_checkpoint"


class _Entry(msgspec.Struct):
    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[str, list[str] | None] | None = None


class _Data(msgspec.Struct):
    PodDeviceEntries: list[_Entry] | None = None


class _Checkpoint(msgspec.Struct):
    Data: _Data


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """Devices of one resource that one container holds."""

    uid: str
    container: str
    resource: str
    ids: frozenset[str]


def read_device_file(root: Path) -> str | None:
    """Return the text of the record in a kubelet's root directory; None where there is none.

    Raises:
        InputError: it cannot be read.
    """
    return read_state_file(root / DEVICE_FILE)


def held_devices(text: str | None) -> tuple[HeldDevices, ...]:
    """Return what the record says.

    Raises:
        InputError: it is none.

    >>> entry = '{"PodUID":"u","ContainerName":"c","ResourceName":"v/gpu","DeviceIDs":{"-1":["a"],"0":["b"]}}'
    >>> sorted(held_devices('{"Data":{"PodDeviceEntries":[' + entry + ']}}')[0].ids)
    ['a', 'b']
    """
    if text is None:
        return ()
    try:
        found = msgspec.json.decode(text.encode(errors="surrogateescape"), type=_Checkpoint)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"is not a record of devices: {error}", source=DEVICE_FILE) from None
    return tuple(
        HeldDevices(
            entry.PodUID,
            entry.ContainerName,
            entry.ResourceName,
            frozenset(one for ids in (entry.DeviceIDs or {}).values() for one in ids or ()),
        )
        for entry in found.Data.PodDeviceEntries or ()
    )
