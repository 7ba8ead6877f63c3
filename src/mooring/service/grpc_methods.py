"""Methods of a gRPC service, its errors and its limits, for the socket and for gRPC's own part behind it.

Apart from both, because a socket imports gRPC when the first client connects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

Code: TypeAlias = Literal["INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "UNKNOWN"]
"""Status codes of gRPC."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How much a service does at once."""

    threads: int = 2
    waiting: int = 16
    """Requests at once; more are refused with RESOURCE_EXHAUSTED."""
    grace: float = 1.0
    """Seconds for requests under way when the service is closed."""


_Request = TypeVar("_Request", bound="Message")


@dataclass(frozen=True, slots=True)
class Method(Generic[_Request]):
    """A unary method: the class of its requests, and what answers one."""

    request: type[_Request]
    answer: Callable[[_Request], Message]


Methods: TypeAlias = Mapping[str, Method[Any]]
"""Methods of a service by their names; each has requests of its own."""


class CallRefusedError(Exception):
    """The answer to a call is an error of gRPC.

    Attributes:
        code: of gRPC.
        text: for the caller.
    """

    def __init__(self, code: Code, text: str) -> None:
        self.code: Code = code
        self.text = text
        super().__init__(text)
