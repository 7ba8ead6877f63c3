"""What a node publishes, as values, and what the objects of group ``mooring.dev`` have in common.

Facts are shared by all nodes of one kind, so they are kept once, under the digest of their content. A state names the
facts that it belongs to, the files as the node's managers would write them, and the pods that are in it. A pod that is
bound to the node and not named there has yet to be admitted.

Objects that are read were written by another program, perhaps of another version, and came over a network: unknown
members are skipped, everything else that is not as expected is an :class:`~mooring.engine.core.errors.InputError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.pods.pod_fields import SUBDOMAIN, check_name

GROUP: Final = "mooring.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FACTS: Final = "NodeFacts"
STATE: Final = "NodeState"
SHADOW: Final = "NodeShadow"
PLURALS: Final[Mapping[str, str]] = {FACTS: "nodefacts", STATE: "nodestates", SHADOW: "nodeshadows"}
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
    try:
        check_name(name, "metadata.name", SUBDOMAIN)
    except InputError as error:
        raise error.at(kind) from None
    try:
        return name, msgspec.convert(content, shape)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise bad_object(kind, name, path.rstrip("`").strip("."), problem.replace("`", "'")) from None


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
