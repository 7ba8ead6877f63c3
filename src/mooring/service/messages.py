"""Protobuf messages declared as classes, and those of the kubelet's gRPC APIs: PodResources and claims.

One declaration is for the type checker and for the wire. A class is named as its message with ``Message`` behind it. A
field has its type as annotation, and ``at`` its number. Types are ``str``, ``bytes``, ``bool``, ``float``, the integers
below, messages of the same package that are declared before, ``Repeated[TYPE]`` and ``Map[KEY, TYPE]``. Annotations are
read as text, so a module that declares messages has ``from __future__ import annotations``.

The class statement returns protobuf's own message class, made from a descriptor: generated modules are tied to one
major version of protobuf, descriptors work with all of them (4.25 to 7).

>>> class PointMessage(TypedMessage, package="example"):
...     x: Int64 = at(1)
>>> class LineMessage(TypedMessage, package="example"):
...     points: Repeated[PointMessage] = at(1)
>>> line = LineMessage(points=[PointMessage(x=1)])
>>> line.points.add(x=2).x, line.SerializeToString().hex()
(2, '0a0208010a020802')

Source for numbers, names and types of a driver's interface and of the registration: k8s.io/kubelet v0.37.1,
pkg/apis/dra/v1 and pkg/apis/pluginregistration/v1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, dataclass_transform

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

Int32: TypeAlias = int
Int64: TypeAlias = int
UInt32: TypeAlias = int
UInt64: TypeAlias = int

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "float": _Field.TYPE_DOUBLE,
    "str": _Field.TYPE_STRING,
    "Int32": _Field.TYPE_INT32,
    "Int64": _Field.TYPE_INT64,
    "UInt32": _Field.TYPE_UINT32,
    "UInt64": _Field.TYPE_UINT64,
}
_POOLS: Final[dict[str, descriptor_pool.DescriptorPool]] = {}
"""Package -> its messages."""
_DECLARED: Final[set[str]] = set()
"""Files of the messages that are declared."""


class RepeatedField(MutableSequence[_Item], ABC):
    """What a repeated field of a message is."""

    @abstractmethod
    def add(self, **fields: object) -> _Item:
        """Append a new message with these fields, and return it."""


class Repeated(Generic[_Item]):
    """A repeated field: any iterable for the constructor."""

    def __get__(self, instance: object, owner: object = None) -> RepeatedField[_Item]:
        """Return the values of a message; for the type checker only."""
        raise NotImplementedError

    def __set__(self, instance: object, value: Iterable[_Item]) -> None:
        """Take values; for the type checker only: protobuf allows it in constructors alone."""
        raise NotImplementedError


class Map(Generic[_Key, _Item]):
    """A map field: any mapping for the constructor."""

    def __get__(self, instance: object, owner: object = None) -> MutableMapping[_Key, _Item]:
        """Return the map of a message; for the type checker only."""
        raise NotImplementedError

    def __set__(self, instance: object, value: Mapping[_Key, _Item]) -> None:
        """Take a mapping; as in :class:`Repeated`."""
        raise NotImplementedError


def at(number: int) -> Any:
    """Return the declaration of a field with this number."""
    return number


class _Building(type):
    """Turns the declaration of a message into protobuf's class."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], package: str = "") -> Any:
        if not package:
            return super().__new__(cls, name, bases, namespace)
        fields: Mapping[str, str] = namespace.get("__annotations__", {})
        made = _made(package, _wire_name(name), {field: (namespace[field], kind) for field, kind in fields.items()})
        made.__doc__, made.__module__ = namespace.get("__doc__"), namespace["__module__"]
        return made


@dataclass_transform(kw_only_default=True, eq_default=False)
class TypedMessage(Message, metaclass=_Building):
    """A message whose fields the type checker knows."""

    def __init_subclass__(cls, package: str) -> None:
        """Declare a message of a package; only the type checker comes here."""


def _made(package: str, name: str, fields: Mapping[str, tuple[int, str]]) -> type[Message]:
    """Return the class of a message.

    Args:
        package: of the message.
        name: of the message in its package.
        fields: number and type of each field.

    Raises:
        TypeError: a field has a type that is not declared.
    """
    pool = _POOLS.setdefault(package, descriptor_pool.DescriptorPool())
    file = descriptor_pb2.FileDescriptorProto(name=_file_of(package, name), package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    for field, (number, kind) in fields.items():
        _add_field(file, message, field, number, kind)
    pool.Add(file)
    _DECLARED.add(file.name)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


def _add_field(
    file: descriptor_pb2.FileDescriptorProto, message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str
) -> None:
    outer, _, inner = kind.rstrip("]").partition("[")
    field = message.field.add(name=name, number=number, label=_Field.LABEL_REPEATED if inner else _Field.LABEL_OPTIONAL)
    if outer == "Map":
        # In protobuf a map is a repeated message of key and value with a mark.
        entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for place, (part, half) in enumerate(zip(("key", "value"), inner.split(", "), strict=True), start=1):
            _set_type(file, entry.field.add(name=part, number=place, label=_Field.LABEL_OPTIONAL), half)
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{file.package}.{message.name}.{entry.name}"
    else:
        _set_type(file, field, inner if outer == "Repeated" else kind)


def _set_type(file: descriptor_pb2.FileDescriptorProto, field: _Field, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{file.package}.{_wire_name(kind)}"
    needed = _file_of(file.package, _wire_name(kind))
    if needed not in _DECLARED:
        raise TypeError(f"field {field.name}: no message {kind} is declared before this one")
    if needed not in file.dependency:
        file.dependency.append(needed)


def _wire_name(declared: str) -> str:
    return declared.removesuffix("Message")


def _file_of(package: str, message: str) -> str:
    """Return the name of the file that declares a message; each has its own, so that each can be made at once."""
    return f"{package}.{message}.proto"


PODRESOURCES_PACKAGE: Final = "v1"
PODRESOURCES_SERVICE: Final = f"{PODRESOURCES_PACKAGE}.PodResourcesLister"


class ListPodResourcesRequestMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    """Has no field."""


class NUMANodeMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    ID: Int64 = at(1)


class TopologyInfoMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    nodes: Repeated[NUMANodeMessage] = at(1)


class ContainerDevicesMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    resource_name: str = at(1)
    device_ids: Repeated[str] = at(2)
    topology: TopologyInfoMessage = at(3)


class ContainerMemoryMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    memory_type: str = at(1)
    size: UInt64 = at(2)
    topology: TopologyInfoMessage = at(3)


class ClaimResourceMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    driver_name: str = at(2)
    pool_name: str = at(3)
    device_name: str = at(4)
    share_id: str = at(5)


class DynamicResourceMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    claim_name: str = at(2)
    claim_namespace: str = at(3)
    claim_resources: Repeated[ClaimResourceMessage] = at(4)


class ContainerResourcesMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    name: str = at(1)
    devices: Repeated[ContainerDevicesMessage] = at(2)
    cpu_ids: Repeated[Int64] = at(3)
    memory: Repeated[ContainerMemoryMessage] = at(4)
    dynamic_resources: Repeated[DynamicResourceMessage] = at(5)


class PodResourcesMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    name: str = at(1)
    namespace: str = at(2)
    containers: Repeated[ContainerResourcesMessage] = at(3)
    cpu_ids: Repeated[Int64] = at(4)
    memory: Repeated[ContainerMemoryMessage] = at(5)


class ListPodResourcesResponseMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    pod_resources: Repeated[PodResourcesMessage] = at(1)


class AllocatableResourcesRequestMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    """Has no field."""


class AllocatableResourcesResponseMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    devices: Repeated[ContainerDevicesMessage] = at(1)
    cpu_ids: Repeated[Int64] = at(2)
    memory: Repeated[ContainerMemoryMessage] = at(3)


class GetPodResourcesRequestMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    pod_name: str = at(1)
    pod_namespace: str = at(2)


class GetPodResourcesResponseMessage(TypedMessage, package=PODRESOURCES_PACKAGE):
    pod_resources: PodResourcesMessage = at(1)


CLAIMS_PACKAGE: Final = "mooring.claims.v1"
CLAIMS_SERVICE: Final = f"{CLAIMS_PACKAGE}.Claims"


class ShareMessage(TypedMessage, package=CLAIMS_PACKAGE):
    request: str = at(1)
    device: str = at(2)
    count: Int64 = at(3)
    within: str = at(4)
    wished: str = at(5)
    numa_nodes: Int64 = at(6)


class PrepareRequestMessage(TypedMessage, package=CLAIMS_PACKAGE):
    uid: str = at(1)
    namespace: str = at(2)
    name: str = at(3)
    shares: Repeated[ShareMessage] = at(4)
    pods: Repeated[str] = at(5)


class HeldShareMessage(TypedMessage, package=CLAIMS_PACKAGE):
    request: str = at(1)
    device: str = at(2)
    cpus: str = at(3)
    variable: str = at(4)


class PrepareResponseMessage(TypedMessage, package=CLAIMS_PACKAGE):
    shares: Repeated[HeldShareMessage] = at(1)
    reason: str = at(2)


class UnprepareRequestMessage(TypedMessage, package=CLAIMS_PACKAGE):
    uid: str = at(1)


class UnprepareResponseMessage(TypedMessage, package=CLAIMS_PACKAGE):
    reason: str = at(1)


class NodeRequestMessage(TypedMessage, package=CLAIMS_PACKAGE):
    """Has no field."""


class HeldClaimMessage(TypedMessage, package=CLAIMS_PACKAGE):
    uid: str = at(1)
    namespace: str = at(2)
    name: str = at(3)
    shares: Repeated[HeldShareMessage] = at(4)
    pods: Repeated[str] = at(5)


class NodeResponseMessage(TypedMessage, package=CLAIMS_PACKAGE):
    node: str = at(1)
    machine: bytes = at(2)
    static: bool = at(3)
    group_size: Int64 = at(4)
    whole_cores: bool = at(5)
    claimable: str = at(6)
    shared: str = at(7)
    claims: Repeated[HeldClaimMessage] = at(8)
    synchronized: bool = at(9)
    reserved: str = at(10)


_DRA_PACKAGE: Final = "k8s.io.kubelet.pkg.apis.dra.v1"
DRA_SERVICE: Final = f"{_DRA_PACKAGE}.DRAPlugin"
DRA_VERSION: Final = "v1.DRAPlugin"
"""How the registration names the interface."""
_REGISTRATION_PACKAGE: Final = "pluginregistration"
REGISTRATION_SERVICE: Final = f"{_REGISTRATION_PACKAGE}.Registration"


class ClaimMessage(TypedMessage, package=_DRA_PACKAGE):
    namespace: str = at(1)
    uid: str = at(2)
    name: str = at(3)


class NodePrepareResourcesRequestMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Repeated[ClaimMessage] = at(1)


class DeviceMessage(TypedMessage, package=_DRA_PACKAGE):
    request_names: Repeated[str] = at(1)
    pool_name: str = at(2)
    device_name: str = at(3)
    cdi_device_ids: Repeated[str] = at(4)
    # Optional in the original: an empty one is not written, which says the same.
    share_id: str = at(5)


class NodePrepareResourceResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    devices: Repeated[DeviceMessage] = at(1)
    error: str = at(2)


class NodePrepareResourcesResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Map[str, NodePrepareResourceResponseMessage] = at(1)


class NodeUnprepareResourcesRequestMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Repeated[ClaimMessage] = at(1)


class NodeUnprepareResourceResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    error: str = at(1)


class NodeUnprepareResourcesResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Map[str, NodeUnprepareResourceResponseMessage] = at(1)


class PluginInfoMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    type: str = at(1)
    name: str = at(2)
    endpoint: str = at(3)
    supported_versions: Repeated[str] = at(4)


class RegistrationStatusMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    plugin_registered: bool = at(1)
    error: str = at(2)


class RegistrationStatusResponseMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    """Has no field."""


class InfoRequestMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    """Has no field."""
