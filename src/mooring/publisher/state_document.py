"""A node's state as an object of the cluster, named like the node.

The texts of the checkpoint files are kept letter for letter: they are what the kubelet would read, with checksums.
Beside them stands what a person or a simple program may want to know, in the status.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from mooring.core.bits import list_text
from mooring.core.cpuset import HIGHEST_CPU, CPUSet, CPUSetSyntaxError
from mooring.core.errors import InputError
from mooring.core.machineinfo import HIGHEST_NODE
from mooring.devicemanager.state import Device, DeviceState, Holdings
from mooring.kubelet.kubelet import StateTexts
from mooring.publisher.objects import STATE, NodeState, PodKey, new_object, read_object

_NodeId = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_NODE)]
_CPU = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_CPU)]


@dataclass(frozen=True, slots=True)
class ExclusiveCPUs:
    """How many CPUs of a node are available for exclusive use, for readers that only count."""

    allocatable: int
    """When no container holds any."""
    available: int
    """Now."""


class _Device(msgspec.Struct):
    id: str
    numa: list[_NodeId] | None = None
    healthy: bool = True


class _Resource(msgspec.Struct):
    resource: str
    devices: list[_Device] = []


class _Held(msgspec.Struct):
    pod: str
    container: str
    resource: str
    ids: list[str] = []


class _Pod(msgspec.Struct):
    name: str
    namespace: str
    uid: str = ""


class _Files(msgspec.Struct):
    cpu: str | None = None
    memory: str | None = None


class _StandIn(msgspec.Struct):
    pod: str
    lost: _CPU
    by: _CPU


class _StateSpec(msgspec.Struct):
    facts: Annotated[str, msgspec.Meta(min_length=1)]
    sequence: int = 0
    files: _Files = msgspec.field(default_factory=_Files)
    devices: list[_Resource] = []
    held: list[_Held] = []
    pods: list[_Pod] = []
    offline: str = ""
    displaced: list[_StandIn] = []


class _State(msgspec.Struct):
    spec: _StateSpec


def state_document(state: NodeState, exclusive: ExclusiveCPUs | None = None) -> dict[str, Any]:
    """Return the NodeState object.

    Args:
        state: the state.
        exclusive: what its status says; None where it cannot be known.
    """
    files = {
        name: text for name, text in (("cpu", state.files.cpu), ("memory", state.files.memory)) if text is not None
    }
    spec = {
        "facts": state.facts,
        "sequence": state.sequence,
        "files": files,
        "devices": [
            {"resource": resource, "devices": [_device_document(device) for device in devices]}
            for resource, devices in state.devices.devices.items()
        ],
        "held": list(_held_documents(state.devices.held)),
        "pods": [_pod_document(pod) for pod in state.pods],
        **_offline_document(state),
    }
    if exclusive is None:
        return new_object(STATE, state.node, spec=spec)
    counts = {"allocatable": exclusive.allocatable, "available": exclusive.available}
    return new_object(STATE, state.node, spec=spec, status={"exclusiveCPUs": counts})


def state_of(document: object) -> NodeState:
    """Return the state of a NodeState object.

    Raises:
        InputError: it is none, or cannot be read. The checkpoint texts are read where a node is started on them.
    """
    name, found = read_object(document, STATE, _State)
    spec = found.spec
    devices = {entry.resource: tuple(_device(device) for device in entry.devices) for entry in spec.devices}
    held: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for entry in spec.held:
        held.setdefault(entry.pod, {}).setdefault(entry.container, {})[entry.resource] = frozenset(entry.ids)
    return NodeState(
        node=name,
        facts=spec.facts,
        files=StateTexts(spec.files.cpu, spec.files.memory),
        devices=DeviceState(devices, held),
        pods=tuple(PodKey(pod.namespace, pod.name, pod.uid) for pod in spec.pods),
        sequence=spec.sequence,
        offline=_offline(spec.offline),
        displaced=_displaced(spec.displaced),
    )


def _offline(text: str) -> int:
    try:
        return CPUSet.parse(text).mask
    except CPUSetSyntaxError as error:
        raise InputError(str(error), field="spec.offline") from None


def _displaced(found: list[_StandIn]) -> dict[str, dict[int, int]]:
    displaced: dict[str, dict[int, int]] = {}
    for one in found:
        displaced.setdefault(one.pod, {})[one.lost] = one.by
    return displaced


def _offline_document(state: NodeState) -> dict[str, Any]:
    """Return what there is to say of offline CPUs; nothing on most nodes."""
    if not state.offline and not state.displaced:
        return {}
    stand_ins = [
        {"pod": pod, "lost": lost, "by": by}
        for pod, pairs in sorted(state.displaced.items())
        for lost, by in sorted(pairs.items())
    ]
    return {"offline": list_text(state.offline), "displaced": stand_ins}


def _device(found: _Device) -> Device:
    return Device(found.id, None if found.numa is None else tuple(found.numa), found.healthy)


def _device_document(device: Device) -> dict[str, Any]:
    document: dict[str, Any] = {"id": device.id}
    if device.numa is not None:
        document["numa"] = list(device.numa)
    return document if device.healthy else {**document, "healthy": False}


def _held_documents(held: Holdings) -> Iterator[dict[str, Any]]:
    for pod, containers in sorted(held.items()):
        for container, resources in sorted(containers.items()):
            for resource, ids in sorted(resources.items()):
                yield {"pod": pod, "container": container, "resource": resource, "ids": sorted(ids)}


def _pod_document(pod: PodKey) -> dict[str, Any]:
    named = {"namespace": pod.namespace, "name": pod.name}
    return {**named, "uid": pod.uid} if pod.uid else named
