"""The device manager's record: which containers hold which devices, near which NUMA nodes, and what was registered.

Source: kubelet v1.37.1, pkg/kubelet/cm/devicemanager: checkpoint/checkpoint.go (structures, checksum), manager.go
(writeCheckpoint, readCheckpoint) and pod_devices.go (an entry whose answer of the plugin is no message is passed over);
file ``device-plugins/kubelet_internal_checkpoint``. A device that is near several NUMA nodes is listed under each, one
near none under -1. A kubelet that cannot read the record starts all the same, and does not know which devices are held.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from mooring.engine.checkpoint.checksum import value_checksum
from mooring.engine.checkpoint.formats import CORRUPTED, bytes_of
from mooring.engine.checkpoint.gojson import decode, quoted
from mooring.engine.checkpoint.goscan import JSONSyntaxError, parse
from mooring.engine.checkpoint.gotypes import CHECKSUM, STRING, GoBytes, GoField, GoMap, GoSlice, GoStruct, GoValue
from mooring.engine.checkpoint.store import read_state_file
from mooring.engine.devicemanager.state import Device
from mooring.lazy import dataclass, field, replace

DEVICE_FILE: Final = "device-plugins/kubelet_internal_checkpoint"
_WITHOUT_NODE: Final = -1
_PACKAGE: Final = "checkpoint"
_IDS: Final = GoSlice("[]string", STRING)
_ENTRY: Final = GoStruct(
    "PodDevicesEntry",
    (
        GoField("PodUID", "PodUID", STRING),
        GoField("ContainerName", "ContainerName", STRING),
        GoField("ResourceName", "ResourceName", STRING),
        GoField("DeviceIDs", "DeviceIDs", GoMap("checkpoint.DevicesPerNUMA", _IDS, integer_keys=True, key="int64")),
        GoField("AllocResp", "AllocResp", GoBytes()),
    ),
    _PACKAGE,
)
_DATA: Final = GoStruct(
    "checkpointData",
    (
        GoField("PodDeviceEntries", "PodDeviceEntries", GoSlice("[]checkpoint.PodDevicesEntry", _ENTRY)),
        GoField("RegisteredDevices", "RegisteredDevices", GoMap("map[string][]string", _IDS)),
    ),
    _PACKAGE,
)
_RECORD: Final = GoStruct("Data", (GoField("Data", "Data", _DATA), GoField("Checksum", "Checksum", CHECKSUM)), _PACKAGE)


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """Devices of one resource that one container holds."""

    uid: str
    container: str
    resource: str
    nodes: Mapping[int, tuple[str, ...]]
    """NUMA node, -1 for none -> ids."""
    answer: bytes = b""
    """What the plugin answered to Allocate, as a message."""

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all of them."""
        return frozenset(one for ids in self.nodes.values() for one in ids)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Them with their NUMA nodes."""
        near: dict[str, set[int]] = {}
        for node, ids in self.nodes.items():
            for one in ids:
                near.setdefault(one, set()).update({node} - {_WITHOUT_NODE})
        return tuple(Device(one, tuple(sorted(nodes)) or None) for one, nodes in sorted(near.items()))


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """What a kubelet that starts on the record knows of it."""

    is_there: bool = False
    held: tuple[HeldDevices, ...] = ()
    registered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Resource -> ids of the devices that were healthy when it was written; their NUMA nodes are not in it."""
    problem: str = ""
    """Why the kubelet cannot read it, in its words; then nothing else is known."""


def read_device_file(root: Path) -> str | None:
    """Return the text of the record in a kubelet's root directory; None where there is none.

    Raises:
        InputError: it cannot be read.
    """
    return read_state_file(root / DEVICE_FILE)


def device_record(text: str | None) -> DeviceRecord:
    """Return what a kubelet reads from the record; None is a missing file.

    >>> device_record('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}').problem
    'checkpoint is corrupted'
    """
    if text is None:
        return DeviceRecord()
    try:
        document = parse(bytes_of(text))
    except JSONSyntaxError as error:
        return DeviceRecord(is_there=True, problem=str(error))
    found, fault = decode(document, _RECORD, _fresh())
    if fault is not None:
        return DeviceRecord(is_there=True, problem=str(fault))
    data = found["Data"]
    if value_checksum(_DATA, data) != found["Checksum"]:
        return DeviceRecord(is_there=True, problem=CORRUPTED)
    registered = {resource: frozenset(ids or ()) for resource, ids in (data["RegisteredDevices"] or {}).items()}
    return DeviceRecord(True, tuple(_held(data["PodDeviceEntries"] or ())), registered)


def device_text(held: Iterable[HeldDevices], registered: Mapping[str, Iterable[str]]) -> str:
    """Return the record as a kubelet writes it."""
    entries: list[GoValue] = [
        {
            "PodUID": one.uid,
            "ContainerName": one.container,
            "ResourceName": one.resource,
            "DeviceIDs": {node: list(ids) for node, ids in one.nodes.items()},
            "AllocResp": one.answer,
        }
        for one in held
    ]
    data: dict[str, GoValue] = {
        "PodDeviceEntries": entries or None,
        "RegisteredDevices": {resource: sorted(ids) for resource, ids in sorted(registered.items())},
    }
    return f'{{"Data":{_json(data)},"Checksum":{value_checksum(_DATA, data)}}}'


def without_answers(text: str) -> str | None:
    """Return the record without what plugins answered, which can hold anything; None where it cannot be read.

    A record whose checksum is wrong has a wrong one afterwards.
    """
    record = device_record(text)
    if record.problem not in ("", CORRUPTED):
        return None
    data = decode(parse(bytes_of(text)), _RECORD, _fresh())[0]["Data"]
    held = [replace(one, answer=b"") for one in _held(data["PodDeviceEntries"] or ())]
    reduced = device_text(held, {resource: ids or () for resource, ids in (data["RegisteredDevices"] or {}).items()})
    if not record.problem:
        return reduced
    body, _, checksum = reduced.rpartition(":")
    return f"{body}:{int(checksum[:-1]) ^ 1}}}"


def _fresh() -> dict[str, GoValue]:
    return {"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}, "Checksum": 0}


def _held(entries: Iterable[dict[str, GoValue]]) -> Iterator[HeldDevices]:
    for entry in entries:
        answer = entry["AllocResp"] or b""
        if _is_answer(answer):
            nodes = {node: tuple(ids or ()) for node, ids in (entry["DeviceIDs"] or {}).items()}
            yield HeldDevices(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], nodes, answer)


def _json(value: GoValue) -> str:
    match value:
        case str():
            return quoted(value)
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case dict():
            keys = value if value.keys() == _ENTRY_MEMBERS else sorted(value, key=str)
            return f"{{{','.join(f'{quoted(str(key))}:{_json(value[key])}' for key in keys)}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case _:
            return json.dumps(value)


_ENTRY_MEMBERS: Final = frozenset(one.member for one in _ENTRY.fields)


def _is_answer(data: bytes) -> bool:
    """Tell whether bytes are a message of protobuf, as far as any reader can tell without its definition."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        if not key >> 3 or kind not in (0, 1, 2, 5):
            return False
        size = 0
        if kind in (0, 2):
            size, place = _number(data, place)
        place += {0: 0, 1: 8, 2: size, 5: 4}[kind]
    return place == len(data)


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return a variable-length number and the place behind it; beyond the data where it does not end."""
    value = 0
    for index in range(10):
        if place + index >= len(data):
            break
        byte = data[place + index]
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value, place + index + 1
    return 0, len(data) + 1
