"""One document of a file, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = "dict[str, Value] | list[Value] | str | int | float | bool | None"
"""What JSON can hold."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML or JSON document and where it stood."""

    content: Value
    file: str
    """Name of the file as the person gave it; ``standard input`` for ``-``."""
    index: int
    """Number within the file, counted from 1; empty documents count too."""
    line: int
    """Line on which it begins, counted from 1."""

    @property
    def source(self) -> str:
        """The place for messages.

        >>> Document({}, "pods.yaml", 2, 14).source
        'pods.yaml:14'
        """
        return self.file if self.line == 1 else f"{self.file}:{self.line}"
