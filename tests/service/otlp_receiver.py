"""A receiver of OTLP over gRPC on loopback, as collectors are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services


class Receiver(services.TraceServiceServicer):
    """Keeps every span."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.address = ""
        self.answers = Event()
        """Unset while the receiver answers nothing."""
        self.answers.set()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's signature
        for resource in request.resource_spans:
            self.services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans
        self.answers.wait()
        return messages.ExportTraceServiceResponse()

    @property
    def environment(self) -> dict[str, str]:
        """What a daemon's environment has."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}"}

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def parts(self, span: Any) -> list[str]:
        return [one.name for one in self.spans if one.parent_span_id == span.span_id]


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = grpc.server(ThreadPoolExecutor(1))
    receiver = Receiver()
    services.add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]  # generated code
    receiver.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
