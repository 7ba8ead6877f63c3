"""A daemon's log that keeps its lines instead of writing them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from mooring.service.logs import Log


@dataclass(frozen=True, slots=True)
class Line:
    level: str
    event: str
    fields: Mapping[str, object]
    is_of_exception: bool


class RecordedLog(Log):
    """Keeps every line, the oldest first."""

    def __init__(self) -> None:
        name = f"recorded.{id(self)}"
        super().__init__(name)
        self.lines: list[Line] = []
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.handlers = [_Keeping(self.lines)]

    def events(self, level: str) -> list[str]:
        return [line.event for line in self.lines if line.level == level]


class _Keeping(logging.Handler):
    def __init__(self, lines: list[Line]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        fields: Mapping[str, object] = vars(record)["fields"]
        line = Line(record.levelname.lower(), record.getMessage(), fields, is_of_exception=bool(record.exc_info))
        self._lines.append(line)
