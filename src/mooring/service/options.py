"""Options that several daemons have: addresses of listeners, form and level of the log.

A daemon's document of configuration: a struct declares its fields, and one reader turns the document into it.

Each field of the struct has a description with its unit, a default, its name in the document, and, where its type does
not say everything, a reader of its own. A reader takes the document and the name of the field, as the functions of
:mod:`mooring.inputs.decoding.fields` do, and is called only for a field that is there and not null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, get_args

from msgspec import Meta, Struct, structs

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.documents import load_documents, located
from mooring.inputs.decoding.fields import check_names, choice_at, count_at, flag_at, mapping_at, text_at, within
from mooring.inputs.decoding.quantities import nanoseconds

AGENT_CONFIGURATION: Final = "AgentConfiguration"
"""Kind of the agent's document."""


class LogFormat(Enum):
    """Form of a line in the log."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(Enum):
    """The least important lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, source: str = "", field: str = "", example: str = "127.0.0.1:9477") -> Address | None:
    """Return the address of ``host:port`` or ``[host]:port``; None for an empty text.

    Args:
        text: the address.
        source: file or option in which it stands.
        field: of a document.
        example: for the remedy.

    Raises:
        InputError: it is not an address.

    >>> parse_address("[::1]:80"), parse_address("")
    (Address(host='::1', port=80), None)
    >>> parse_address("9477", source="--metrics-address")
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: --metrics-address: '9477' is not an address; write host:port, such as \
127.0.0.1:9477
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not colon or not bare or not is_port or (":" in bare and bare == host):
        remedy = f"write host:port, such as {example}"
        raise InputError(f"{text!r:.80} is not an address", source=source, field=field, remedy=remedy)
    return Address(bare, int(port))


def address_at(content: Mapping[str, Any], field: str) -> Address | None:
    """Return the address in a field; None when it is empty.

    Raises:
        InputError: it holds something else.
    """
    return parse_address(text_at(content, field), field=field)


def duration_at(content: Mapping[str, Any], field: str) -> int:
    """Return the duration in a field in nanoseconds.

    Raises:
        InputError: it holds something else.
    """
    text = text_at(content, field)
    with within(field):
        return nanoseconds(text)


API_VERSION: Final = "mooring/v1alpha1"
"""Version of every document of Mooring's own."""

FieldReader: TypeAlias = Callable[[Mapping[str, Any], str], object]
"""Reads a field of a document by its name; raises InputError with the name."""

Options = TypeVar("Options", bound=Struct)

_BY_TYPE: Final[Mapping[object, FieldReader]] = {
    str: text_at,
    bool: partial(flag_at, default=False),
    int: partial(count_at, default=0),
}


def option(meaning: str, read: FieldReader | None = None) -> Meta:
    """Return the declaration of a field, for ``Annotated``.

    Args:
        meaning: of the value, with its unit.
        read: reads the field; without it the field's type says how: text, truth value, whole number, enum or struct.
    """
    return Meta(description=meaning, extra=None if read is None else {"read": read})


def load_options(path: str, kind: str, options: type[Options]) -> Options:
    """Read a file that holds one document of a kind and nothing else.

    Raises:
        InputError: it does not, or :func:`read_options` refuses it; file and line are named.
    """
    documents = load_documents(path)
    content = documents[0].content
    if len(documents) != 1 or not isinstance(content, dict) or content.get("kind") != kind:
        raise InputError(f"must hold one {kind} and nothing else", source=path, remedy=f"write kind: {kind}")
    with located(documents[0]):
        return read_options(content, options)


def read_options(content: Mapping[str, Any], options: type[Options]) -> Options:
    """Return what a document says; fields that are absent or null have their defaults.

    Raises:
        InputError: another version, an unknown field (the nearest is named), or a value that cannot be used.

    >>> from typing import Annotated
    >>> from msgspec import defstruct
    >>> pods = Annotated[int, option("pods that the example takes")]
    >>> Example = defstruct("Example", [("most_pods", pods, 7)], rename="camel")
    >>> read_options({"kind": "Example", "mostPods": 3}, Example), read_options({"mostPods": None}, Example)
    (Example(most_pods=3), Example(most_pods=7))
    >>> read_options({"mustPods": 3}, Example)
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: mustPods: is not known; did you mean mostPods?
    """
    version = text_at(content, "apiVersion", API_VERSION)
    if version != API_VERSION:
        raise InputError(f"{version!r:.60} is not supported", field="apiVersion", remedy=f"write {API_VERSION}")
    check_names(content, names_of(options), beside=("apiVersion", "kind"))
    return options(**given_values(content, options))


def read_part(content: Mapping[str, Any], field: str, options: type[Options]) -> Options:
    """Return what the mapping in a field says, as :func:`read_options`.

    Raises:
        InputError: it is no mapping, has an unknown field, or a value that cannot be used.
    """
    part = mapping_at(content, field)
    with within(field):
        check_names(part, names_of(options))
        return options(**given_values(part, options))


def given_values(content: Mapping[str, Any], options: type[Struct]) -> dict[str, Any]:
    """Return the values of the fields that a document has, by the names of the struct's attributes.

    Raises:
        InputError: a value cannot be used.
    """
    return {
        attribute: read(content, name)
        for name, (attribute, read) in _readers(options).items()
        if content.get(name) is not None
    }


def names_of(options: type[Struct]) -> Mapping[str, str]:
    """Return the fields of a document in the struct's order: name in the document -> attribute."""
    return dict(zip(options.__struct_encode_fields__, options.__struct_fields__, strict=True))


@cache
def _readers(options: type[Struct]) -> Mapping[str, tuple[str, FieldReader]]:
    return MappingProxyType({one.encode_name: (one.name, _reader(one)) for one in structs.fields(options)})


def _reader(field: structs.FieldInfo) -> FieldReader:
    """Return what reads a field: its own reader, or that of its type.

    Raises:
        TypeError: the struct declares neither.
    """
    kind, meta = get_args(field.type)
    if meta.extra is not None:
        own: FieldReader = meta.extra["read"]
        return own
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(choice_at, default=next(iter(kind)))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return partial(read_part, options=kind)
    raise TypeError(f"{field.name}: no reader for {kind}")
