"""Options that several daemons have: the address of a listener, form and level of the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
