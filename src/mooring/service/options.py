"""Options that several daemons have: addresses of listeners, form and level of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import inside, text_at
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
    try:
        return nanoseconds(text)
    except InputError as error:
        raise inside(error, field) from None
