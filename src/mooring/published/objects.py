"""What a node publishes, as values; what objects of group ``mooring.dev`` have in common; the object of a state.

Facts are shared by all nodes of one kind, so they are kept once, under the digest of their content. A state is named
like its node and names the facts that it belongs to, the files as the node's managers would write them, and the pods
that are in it. A pod that is bound to the node and not named there has yet to be admitted. The texts of the checkpoint
files are kept letter for letter: they are what the kubelet would read, with checksums. Beside them stands what a person
or a simple program may want to know, in the status.

Objects that are read were written by another program, perhaps of another version, and came over a network: unknown
members are skipped, everything else that is not as expected is an :class:`~mooring.engine.core.errors.InputError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec

from mooring.documents.plan import learn
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import HIGHEST_NODE, MachineInfo
from mooring.engine.devicemanager.state import NOWHERE, Device, DeviceState
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.decoding.fields import within
from mooring.inputs.pods.pod_fields import LABEL, SUBDOMAIN, check_name

GROUP: Final = "mooring.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FACTS: Final = "NodeFacts"
STATE: Final = "NodeState"
SHADOW: Final = "NodeShadow"
PLURALS: Final[Mapping[str, str]] = {FACTS: "nodefacts", STATE: "nodestates", SHADOW: "nodeshadows"}
PATHS: Final[Mapping[str, str]] = {kind: f"apis/{API_VERSION}/{plural}" for kind, plural in PLURALS.items()}
"""Kind -> path of its objects at the API server."""
NODE_LABEL: Final = f"{GROUP}/node"
"""Label of a NodeFacts: the node that made it. Others of its kind use it too."""
LARGEST_OBJECT: Final = 1_000_000
"""Bytes of an object as JSON. etcd takes 1.5 MiB, and the API server's records of field managers need room."""

_REMEDY: Final = "is it from another version of Mooring? mooring publish writes it again"
_T = TypeVar("_T")


def read_object(content: object, kind: str, shape: type[_T]) -> tuple[str, _T]:
    """Return the name of an object and its content in the given shape.

    Raises:
        InputError: it is of another kind or version, has no name, or its content has another shape.
    """
    metadata = content.get("metadata") if isinstance(content, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(content, dict) or not isinstance(name, str) or not name:
        raise InputError("is not an object with a name", source=kind, remedy=_REMEDY)
    found = content.get("apiVersion"), content.get("kind")
    if found != (API_VERSION, kind):
        shown = f"{found[1]!s:.60} of {found[0]!s:.60}"
        raise InputError(f"is {shown}, not {kind} of {API_VERSION}", source=f"{kind} {name}", remedy=_REMEDY)
    with within(source=kind):
        check_name(name, "metadata.name", SUBDOMAIN)
    try:
        return name, msgspec.convert(content, shape)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise bad_object(kind, name, path.rstrip("`").strip("."), problem.replace("`", "'")) from None


def object_name(content: Mapping[str, Any]) -> str:
    """Return the name of an object; empty where it has none."""
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def bad_object(kind: str, name: str, field: str, problem: str) -> InputError:
    """Return the error about an object that cannot be used."""
    return InputError(problem, source=f"{kind} {name}", field=field, remedy=_REMEDY)


def new_object(kind: str, name: str, **members: object) -> dict[str, Any]:
    """Return an object, ready for any encoder of JSON or YAML."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **members}


def encoded(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, the same bytes for the same content.

    Raises:
        InputError: it is larger than an API server takes.
    """
    data = msgspec.json.encode(content, order="sorted")
    if len(data) > LARGEST_OBJECT:
        name = f"{content.get('kind')} {content['metadata']['name']}"
        raise InputError(f"has {len(data)} bytes, more than an object of the cluster may have", source=name)
    return data


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What decides and does not change while the kubelet or the agent runs."""

    machine: MachineInfo
    config: KubeletConfig
    """Of the managers that decide: the kubelet's, or the agent's."""
    mooring: MooringConfig
    """With the release that decides: of the node's kubelet, or of the agent."""


@dataclass(frozen=True, slots=True)
class PodKey:
    """A pod of a node's state."""

    namespace: str
    name: str
    uid: str = ""
    """Empty where the source tells none, as the kubelet's PodResources API does."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node has allocated, at one moment."""

    node: str
    """Name in the cluster."""
    facts: str
    """Digest of the facts."""
    files: StateTexts = field(default_factory=StateTexts)
    """What the checkpoint files say; None for a manager with policy none that writes none."""
    devices: DeviceState = field(default_factory=DeviceState)
    """Devices of the plugins, and their holders."""
    pods: tuple[PodKey, ...] = ()
    """Pods that the node has admitted, in the order of admission where it is known."""
    sequence: int = 0
    """Grows with every change that this publisher has seen."""
    offline: int = 0
    """Mask of the CPUs that are offline (extension cpu-hotplug); the files tell nothing of it."""
    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Uid of a pod -> a CPU that it lost, and its replacement."""


_NodeId = Annotated[int, msgspec.Meta(ge=NOWHERE, le=HIGHEST_NODE)]
_CPU = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_CPU)]


# What is read; readers take more than is written: members that are left out, and null for an unknown node.


class _Device(msgspec.Struct):
    id: str
    numa: tuple[_NodeId, ...] | None = None
    healthy: bool = True


class _Resource(msgspec.Struct):
    resource: str
    devices: list[_Device] = []


class _Held(msgspec.Struct):
    pod: str
    container: str
    resource: str
    ids: list[str] = []


class _Files(msgspec.Struct):
    cpu: str | None = None
    memory: str | None = None


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
    pods: tuple[PodKey, ...] = ()
    offline: str = ""
    displaced: list[_Replacement] = []


class _State(msgspec.Struct):
    spec: _StateSpec


learn(_State)


def state_document(state: NodeState, exclusive: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the NodeState object.

    Args:
        state: the state.
        exclusive: how many CPUs are available for exclusive use when no container holds any, and now, for readers that
            only count; None where it cannot be known.
    """
    files = {"cpu": state.files.cpu, "memory": state.files.memory}
    spec: dict[str, Any] = {
        "facts": state.facts,
        "sequence": state.sequence,
        "files": {name: text for name, text in files.items() if text is not None},
        "devices": [
            {
                "resource": resource,
                "devices": [
                    {
                        "id": device.id,
                        **({} if device.numa is None else {"numa": list(device.numa)}),
                        **({} if device.healthy else {"healthy": False}),
                    }
                    for device in devices
                ],
            }
            for resource, devices in state.devices.devices.items()
        ],
        "held": [
            {"pod": pod, "container": container, "resource": resource, "ids": sorted(ids)}
            for pod, containers in sorted(state.devices.held.items())
            for container, resources in sorted(containers.items())
            for resource, ids in sorted(resources.items())
        ],
        "pods": [
            {"namespace": pod.namespace, "name": pod.name, **({"uid": pod.uid} if pod.uid else {})}
            for pod in state.pods
        ],
    }
    if state.offline or state.displaced:
        spec["offline"] = list_text(state.offline)
        spec["displaced"] = [
            {"pod": pod, "lost": lost, "by": by}
            for pod, pairs in sorted(state.displaced.items())
            for lost, by in sorted(pairs.items())
        ]
    if exclusive is None:
        return new_object(STATE, state.node, spec=spec)
    counts = dict(zip(("allocatable", "available"), exclusive, strict=True))
    return new_object(STATE, state.node, spec=spec, status={"exclusiveCPUs": counts})


def state_of(document: object) -> NodeState:
    """Return the state of a NodeState object.

    Raises:
        InputError: it is none, or cannot be read. The checkpoint texts are read where a node is started on them.
    """
    name, found = read_object(document, STATE, _State)
    spec = found.spec
    for index, pod in enumerate(spec.pods):
        with within(source=f"{STATE} {name}"):
            check_name(pod.namespace, f"spec.pods[{index}].namespace", LABEL)
            check_name(pod.name, f"spec.pods[{index}].name", SUBDOMAIN)
    devices = {
        entry.resource: tuple(Device(one.id, one.numa, one.healthy) for one in entry.devices) for entry in spec.devices
    }
    held: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for entry in spec.held:
        held.setdefault(entry.pod, {}).setdefault(entry.container, {})[entry.resource] = frozenset(entry.ids)
    try:
        offline = CPUSet.parse(spec.offline).mask
    except CPUSetSyntaxError as error:
        raise InputError(str(error), field="spec.offline") from None
    displaced: dict[str, dict[int, int]] = {}
    for one in spec.displaced:
        displaced.setdefault(one.pod, {})[one.lost] = one.by
    return NodeState(
        node=name,
        facts=spec.facts,
        files=StateTexts(spec.files.cpu, spec.files.memory),
        devices=DeviceState(devices, held),
        pods=spec.pods,
        sequence=spec.sequence,
        offline=offline,
        displaced=displaced,
    )
