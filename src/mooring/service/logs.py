"""The agent's log: one event a line on standard error, as JSON for programs or as text for people.

What libraries log through the standard library has the same form.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

import structlog

from mooring.service.log_lines import Lines
from mooring.service.options import LogFormat, LogLevel

_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}
AGENT = "mooring.agent"
"""Name of the agent's logger."""


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object:
        """Write a line with its end."""


def start_log(form: LogFormat, level: LogLevel, stream: Stream | None = None, *, name: str = AGENT) -> Any:
    """Set up the log of this process and return its logger.

    A line has ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``event``, and whatever the event brings.

    Args:
        form: of a line.
        level: the least important lines that are written.
        stream: where they go; standard error by default.
        name: of the logger, which every line tells.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(form)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # Libraries are heard only when something is wrong, or when everything is to be heard.
    root.setLevel(logging.DEBUG if level is LogLevel.DEBUG else logging.WARNING)
    set_level(level, name)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return structlog.get_logger(name)


def open_log(form: LogFormat, level: LogLevel, *, name: str = AGENT) -> tuple[Any, Lines]:
    """Set up the log of a process that others wait for, as :func:`start_log` does; who logs waits for no reader.

    Returns:
        The logger, and the lines on their way to standard error, to be finished at the end.
    """

    def left_out(count: int) -> None:
        log.warning("lines of the log were left out: nobody read it", lines=count)

    lines = Lines(_standard_error(), left_out)
    log = start_log(form, level, lines, name=name)
    return log, lines


def _standard_error() -> int:
    """Return the descriptor of standard error, or -1: closed by whoever started the agent, 2 may be another file."""
    try:
        return -1 if sys.stderr is None else sys.stderr.fileno()
    except OSError:
        return -1


def set_level(level: LogLevel, name: str = AGENT) -> None:
    """Change the level of a log that was set up, as a reload of the configuration does."""
    logging.getLogger(name).setLevel(_LEVELS[level])


def _renderer(form: LogFormat) -> Any:
    if form is LogFormat.JSON:
        return structlog.processors.JSONRenderer()
    return structlog.processors.KeyValueRenderer(key_order=["time", "level", "event"], drop_missing=True)
