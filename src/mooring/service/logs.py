"""The log and the traces of a daemon.

The log has one event a line on standard error, as JSON for programs or as text for people. What libraries log through
the standard library has the same form. A daemon that others wait for never waits for the reader of its log: a pipe that
is full blocks the writer, and the thread that answers the runtime logs too. A journal that hangs would keep containers
from being created, while the agent looks as if it were ready.

Traces are sent by OpenTelemetry where its environment variables ask for them (extra ``tracing``). Work is recorded when
it is done: no answer waits for a span, and without traces nothing is measured for them and no package is imported.

Source: OpenTelemetry specification, environment variables: ``OTEL_TRACES_EXPORTER``, ``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_SDK_DISABLED`` and those that the SDK reads itself.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from mooring.service.options import LogFormat, LogLevel

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider


_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}
AGENT = "mooring.agent"
"""Name of the agent's logger."""
_FIELDS = "fields"
"""Attribute of a record of the standard library that holds the fields of an event."""


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object:
        """Write a line with its end."""


class Log:
    """Logs events with fields: ``log.info("pod placed", pod="apps/db", cpus="1-2")``."""

    def __init__(self, name: str = AGENT) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: object) -> None:
        """Log what helps to find a defect."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log what has happened."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what an operator should know of."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, exc_info: BaseException | None = None, **fields: object) -> None:
        """Log what has failed, with the traceback of an exception where one is given."""
        self._log(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log what has failed, with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, event, fields, sys.exception())

    def _log(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            # As an argument the event would be a format.
            self._logger.log(level, "%s", event, exc_info=error, extra={_FIELDS: fields})


def start_log(form: LogFormat, level: LogLevel, stream: Stream | None = None, *, name: str = AGENT) -> Log:
    """Set up the log of this process and return it.

    A line has ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``event``, and the fields of the event.

    Args:
        form: of a line.
        level: the least important lines that are written.
        stream: where they go; standard error by default.
        name: of the logger, which is in every line.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Line(form))
    root = logging.getLogger()
    root.handlers = [handler]
    # Libraries are heard only when something is wrong, or when everything is to be heard.
    root.setLevel(logging.DEBUG if level is LogLevel.DEBUG else logging.WARNING)
    set_level(level, name)
    return Log(name)


def open_log(form: LogFormat, level: LogLevel, *, name: str = AGENT) -> tuple[Log, Lines]:
    """Set up the log of a process that others wait for, as :func:`start_log` does; no writer waits for a reader.

    Returns:
        The log, and the lines on their way to standard error, to be finished at the end.
    """

    def left_out(count: int) -> None:
        log.warning("log lines dropped: the reader of the log is too slow", lines=count)

    descriptor = -1  # if the parent process closed standard error, 2 may be another file
    with suppress(OSError):
        descriptor = -1 if sys.stderr is None else sys.stderr.fileno()
    lines = Lines(descriptor, left_out)
    log = start_log(form, level, lines, name=name)
    return log, lines


def set_level(level: LogLevel, name: str = AGENT) -> None:
    """Change the level of a log that was set up, as a reload of the configuration does."""
    logging.getLogger(name).setLevel(_LEVELS[level])


class _Line(logging.Formatter):
    """A record as one JSON document, or as ``name=value`` pairs."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        content = _content(record)
        if self._form is LogFormat.JSON:
            return json.dumps(content, default=repr)
        return " ".join(f"{name}={value!r}" for name, value in content.items())


def _content(record: logging.LogRecord) -> dict[str, object]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
    found: dict[str, object] = {
        "time": time.removesuffix("+00:00") + "Z",
        "level": record.levelname.lower(),
        "event": record.getMessage(),
        **getattr(record, _FIELDS, {}),
        "logger": record.name,
    }
    if record.exc_info and record.exc_info[1] is not None:
        found["exception"] = logging.Formatter().formatException(record.exc_info)
    return found


MOST_WAITING = 4096
"""Lines that wait at most, one or two megabytes; what comes while so many wait is left out and counted."""

LAST_LINES = 2.0
"""Seconds for the last lines at the end of a process, when no process reads them."""


class Lines:
    """What a log handler writes to: a queue, and a thread that writes to a descriptor."""

    def __init__(self, descriptor: int, left_out: Callable[[int], object], size: int = MOST_WAITING) -> None:
        """Begin to write.

        Args:
            descriptor: where lines go; one that cannot be written takes them all.
            left_out: is called with the number of lines left out once all others are written; it may log.
            size: how many lines may wait.
        """
        self._descriptor = descriptor
        self._report = left_out
        self._left_out = 0
        self._lock = threading.Lock()
        self._waiting: queue.Queue[str | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="mooring-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Have a text written as soon as possible, or leave it out. Never waits."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            with self._lock:
                self._left_out += 1
        return len(text)

    def finish(self, patience: float) -> None:
        """Write what waits, and end; waits for that for some seconds."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=patience)
            self._thread.join(patience)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            with suppress(OSError):
                data = text.encode(errors="backslashreplace")
                # Not through sys.stderr: its lock, held by a thread that waits, would abort the process at its end.
                while data:
                    try:
                        data = data[os.write(self._descriptor, data) :]
                    except BlockingIOError:
                        select.select((), (self._descriptor,), ())
            if self._waiting.empty():
                with self._lock:
                    count, self._left_out = self._left_out, 0
                if count:
                    self._report(count)


Attribute: TypeAlias = str | int | float | bool

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LAST_SPANS: Final = 2.0
"""Seconds that the last spans have at the end of a daemon. The SDK tries for longer while no collector answers."""


@dataclass(frozen=True, slots=True)
class CompletedSpan:
    """A piece of work that is done."""

    name: str
    began: float
    """Seconds of the monotonic clock."""
    ended: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    problem: str = ""
    """Why it failed; empty if it did not."""
    parts: tuple[CompletedSpan, ...] = ()


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Tell whether the environment asks for traces.

    >>> wants_traces({}), wants_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"})
    (False, True)
    >>> wants_traces({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_TRACES_EXPORTER": "none"})
    False
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    named = environment.get("OTEL_TRACES_EXPORTER", "")
    return named == "otlp" or (not named and any(environment.get(one) for one in _ENDPOINTS))


def open_traces(service: str, environment: Mapping[str, str], warn: Callable[[str], object]) -> Traces | None:
    """Return where spans go; None if the environment does not ask for traces.

    Args:
        service: name of the daemon, unless ``OTEL_SERVICE_NAME`` has another one.
        environment: of the process.
        warn: receives why there are no traces although they are asked for: a daemon runs without them.
    """
    if not wants_traces(environment):
        return None
    protocol = next((environment[one] for one in _PROTOCOLS if environment.get(one)), "grpc")
    if protocol != "grpc":
        warn(f"no traces: OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and only grpc is supported")
        return None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - see the module
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        warn(f"no traces: the package {error.name} is missing; install the extra tracing of kube-mooring")
        return None
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    # A thread of its own sends; a span is dropped when the queue is full.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)


class Traces:
    """Where completed spans go; usable from any thread."""

    def __init__(self, provider: TracerProvider) -> None:
        """Begin to record.

        Args:
            provider: of the SDK, closed with this.
        """
        self._provider = provider
        self._tracer = provider.get_tracer("mooring")

    def record(self, span: CompletedSpan) -> None:
        """Record a piece of work with its parts."""
        self._record(span, time.time_ns() - time.monotonic_ns(), None)

    def _record(self, span: CompletedSpan, offset: int, parent: Context | None) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context  # noqa: PLC0415 - see the module

        start, end = (int(seconds * 1e9) + offset for seconds in (span.began, span.ended))
        recorded = self._tracer.start_span(span.name, parent, attributes=dict(span.attributes), start_time=start)
        if span.problem:
            recorded.set_status(Status(StatusCode.ERROR, span.problem))
        if recorded.is_recording():
            inside = set_span_in_context(recorded)
            for part in span.parts:
                self._record(part, offset, inside)
        recorded.end(end)

    def close(self) -> None:
        """Send what is left, if a collector takes it in time."""
        ending = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        ending.start()
        ending.join(_LAST_SPANS)
