"""A node's state as an object of the cluster, named like the node.

The texts of the checkpoint files are kept letter for letter: they are what the kubelet would read, with checksums.
Beside them stands what a person or a simple program may want to know, in the status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType, to_builtins

from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.devicemanager.state import NOWHERE, Device, DeviceState, Holdings
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.pods.pod_fields import LABEL, SUBDOMAIN, check_name
from mooring.published.objects import STATE, NodeState, PodKey, new_object, read_object

_NodeId = Annotated[int, msgspec.Meta(ge=NOWHERE, le=HIGHEST_NODE)]
_CPU = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_CPU)]


@dataclass(frozen=True, slots=True)
class ExclusiveCPUs:
    """How many CPUs of a node are available for exclusive use, for readers that only count."""

    allocatable: int
    """When no container holds any."""
    available: int
    """Now."""


# What is written is what is read; readers take more: members that are left out, and null for an unknown node.


class _Device(msgspec.Struct):
    id: str
    numa: list[_NodeId] | UnsetType | None = UNSET
    healthy: bool | UnsetType = UNSET
    """Left out for a healthy device."""


class _Resource(msgspec.Struct):
    resource: str
    devices: list[_Device] = []


class _Held(msgspec.Struct):
    pod: str
    container: str
    resource: str
    ids: list[str] = []


class _Pod(msgspec.Struct):
    namespace: str
    name: str
    uid: str | UnsetType = UNSET


class _Files(msgspec.Struct):
    cpu: str | UnsetType | None = UNSET
    memory: str | UnsetType | None = UNSET


class _Replacement(msgspec.Struct):
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
    offline: str | UnsetType = UNSET
    """Left out, with ``displaced``, on a node whose CPUs are all online."""
    displaced: list[_Replacement] | UnsetType = UNSET


class _State(msgspec.Struct):
    spec: _StateSpec


def state_document(state: NodeState, exclusive: ExclusiveCPUs | None = None) -> dict[str, Any]:
    """Return the NodeState object.

    Args:
        state: the state.
        exclusive: what its status says; None where it cannot be known.
    """
    hotplug = bool(state.offline or state.displaced)
    spec = to_builtins(
        _StateSpec(
            facts=state.facts,
            sequence=state.sequence,
            files=_Files(_present(state.files.cpu), _present(state.files.memory)),
            devices=[
                _Resource(resource, [_written_device(device) for device in devices])
                for resource, devices in state.devices.devices.items()
            ],
            held=list(_held(state.devices.held)),
            pods=[_Pod(pod.namespace, pod.name, pod.uid or UNSET) for pod in state.pods],
            offline=list_text(state.offline) if hotplug else UNSET,
            displaced=list(_replacements(state.displaced)) if hotplug else UNSET,
        )
    )
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
    for index, pod in enumerate(spec.pods):
        try:
            check_name(pod.namespace, f"spec.pods[{index}].namespace", LABEL)
            check_name(pod.name, f"spec.pods[{index}].name", SUBDOMAIN)
        except InputError as error:
            raise error.at(f"{STATE} {name}") from None
    devices = {entry.resource: tuple(_device(device) for device in entry.devices) for entry in spec.devices}
    held: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for entry in spec.held:
        held.setdefault(entry.pod, {}).setdefault(entry.container, {})[entry.resource] = frozenset(entry.ids)
    return NodeState(
        node=name,
        facts=spec.facts,
        files=StateTexts(_text(spec.files.cpu), _text(spec.files.memory)),
        devices=DeviceState(devices, held),
        pods=tuple(PodKey(pod.namespace, pod.name, pod.uid or "") for pod in spec.pods),
        sequence=spec.sequence,
        offline=_offline(spec.offline or ""),
        displaced=_displaced(spec.displaced or []),
    )


def _offline(text: str) -> int:
    try:
        return CPUSet.parse(text).mask
    except CPUSetSyntaxError as error:
        raise InputError(str(error), field="spec.offline") from None


def _displaced(found: list[_Replacement]) -> dict[str, dict[int, int]]:
    displaced: dict[str, dict[int, int]] = {}
    for one in found:
        displaced.setdefault(one.pod, {})[one.lost] = one.by
    return displaced


def _replacements(displaced: Mapping[str, Mapping[int, int]]) -> Iterator[_Replacement]:
    for pod, pairs in sorted(displaced.items()):
        for lost, by in sorted(pairs.items()):
            yield _Replacement(pod, lost, by)


def _text(found: str | UnsetType | None) -> str | None:
    return None if found is UNSET else found


def _present(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text


def _device(found: _Device) -> Device:
    numa = None if found.numa is UNSET or found.numa is None else tuple(found.numa)
    return Device(found.id, numa, healthy=found.healthy is not False)


def _written_device(device: Device) -> _Device:
    return _Device(device.id, UNSET if device.numa is None else list(device.numa), UNSET if device.healthy else False)


def _held(held: Holdings) -> Iterator[_Held]:
    for pod, containers in sorted(held.items()):
        for container, resources in sorted(containers.items()):
            for resource, ids in sorted(resources.items()):
                yield _Held(pod, container, resource, sorted(ids))
