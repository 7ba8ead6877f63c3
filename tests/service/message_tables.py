"""Protobuf message classes from compact tables, for peers that only tests have.

A table names a message's fields as ``number name type``, one a line. Types are the scalars of protobuf, names of other
messages or enums of the same package, ``repeated TYPE`` and ``map TYPE TYPE``.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def build_messages(
    package: str, tables: Mapping[str, str], enums: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, type[Message]]:
    """Return the message classes of a package by their names.

    Args:
        package: full name of the package, which decides the full names of messages.
        tables: fields of each message, see the module's docstring.
        enums: values of each enum by their names.

    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    kinds = dict.fromkeys(tables, _Field.TYPE_MESSAGE) | dict.fromkeys(enums or {}, _Field.TYPE_ENUM)
    for name, values in (enums or {}).items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, table in tables.items():
        message = file.message_type.add(name=name)
        for line in table.strip().splitlines():
            _add_field(message, package, kinds, line.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in tables}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


def _add_field(
    message: descriptor_pb2.DescriptorProto, package: str, kinds: Mapping[str, _Field.Type.ValueType], words: list[str]
) -> None:
    number, name, *kind = words
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind[0] == "repeated":
        field.label = _Field.LABEL_REPEATED
        _set_type(field, package, kinds, kind[1])
    elif kind[0] == "map":
        # In protobuf a map is a repeated message of key and value with a mark.
        field.label = _Field.LABEL_REPEATED
        entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for place, part in enumerate(("key", "value"), start=1):
            half = entry.field.add(name=part, number=place, label=_Field.LABEL_OPTIONAL)
            _set_type(half, package, kinds, kind[place])
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
    else:
        _set_type(field, package, kinds, kind[0])


def _set_type(field: _Field, package: str, kinds: Mapping[str, _Field.Type.ValueType], kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in kinds:
        field.type = kinds[kind]
        field.type_name = f".{package}.{kind}"
    else:
        raise ValueError(f"field {field.name}: undefined type {kind}")
