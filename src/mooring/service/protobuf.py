"""Protobuf messages declared as classes: one declaration for the type checker and for the wire.

A class is named as its message with ``Message`` behind it. A field has its type as annotation, and ``at`` its number.
Types are ``str``, ``bytes``, ``bool``, ``float``, the integers below, messages of the same package that are declared
before, ``Repeated[TYPE]`` and ``Map[KEY, TYPE]``. Annotations are read as text, so a module that declares messages has
``from __future__ import annotations``.

The class statement returns protobuf's own message class, made from a descriptor: generated modules are tied to one
major version of protobuf, descriptors work with all of them (4.25 to 7).

>>> class PointMessage(TypedMessage, package="example"):
...     x: Int64 = at(1)
>>> class LineMessage(TypedMessage, package="example"):
...     points: Repeated[PointMessage] = at(1)
>>> line = LineMessage(points=[PointMessage(x=1)])
>>> line.points.add(x=2).x, line.SerializeToString().hex()
(2, '0a0208010a020802')
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
