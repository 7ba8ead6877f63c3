"""Traces of a daemon's work, sent by OpenTelemetry where its environment variables ask for it (extra ``tracing``).

Work is recorded when it is done: no answer waits for a span, and without traces nothing is measured for them. The
packages are imported when traces are asked for.

Source: OpenTelemetry specification, environment variables: ``OTEL_TRACES_EXPORTER``, ``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_SDK_DISABLED`` and those that the SDK reads itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

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
