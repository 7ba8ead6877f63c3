"""Traces: what the environment asks for arrives at a real receiver of OTLP; otherwise nothing is loaded or sent."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.service.otlp_receiver import Receiver, attributes, receiving

from mooring.service.logs import CompletedSpan, Traces, open_traces, wants_traces


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def opened(receiver: Receiver, **more: str) -> Traces:
    complaints: list[str] = []
    traces = open_traces("mooring-test", {**receiver.environment, **more}, complaints.append)
    assert traces is not None
    assert complaints == []
    return traces


def test_a_span_arrives_with_its_parts_and_times(receiver: Receiver) -> None:
    traces = opened(receiver)
    parts = (CompletedSpan("engine", 10.0, 10.25), CompletedSpan("write state", 10.25, 10.5, problem="disk full"))
    traces.record(CompletedSpan("call", 10.0, 11.0, {"k8s.pod.name": "web", "mooring.updates": 2}, parts=parts))
    traces.close()
    [whole], [engine], [write] = (receiver.named(name) for name in ("call", "engine", "write state"))
    assert attributes(whole) == {"k8s.pod.name": "web", "mooring.updates": 2}
    assert (whole.end_time_unix_nano - whole.start_time_unix_nano) == pytest.approx(10**9, abs=1000)
    assert engine.parent_span_id == write.parent_span_id == whole.span_id
    assert (write.start_time_unix_nano - whole.start_time_unix_nano) == pytest.approx(25 * 10**7, abs=1000)
    assert (write.status.code, write.status.message, whole.status.code) == (2, "disk full", 0)
    assert receiver.services == {"mooring-test"}


def test_the_end_of_a_daemon_waits_for_no_collector(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.service.logs._LAST_SPANS", 0.05)
    traces = opened(receiver)
    receiver.answers.clear()
    traces.record(CompletedSpan("call", 1.0, 2.0))
    traces.close()
    [ending] = [one for one in threading.enumerate() if one.name == "last-spans"]
    receiver.answers.set()
    ending.join()


def test_the_environment_names_the_service_and_the_sampler(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "node-7")
    traces = opened(receiver, OTEL_SERVICE_NAME="node-7")
    traces.record(CompletedSpan("call", 1.0, 2.0))
    traces.close()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    silent = opened(receiver, OTEL_SERVICE_NAME="node-7")
    silent.record(CompletedSpan("unsampled", 1.0, 2.0, parts=(CompletedSpan("part", 1.0, 2.0),)))
    silent.close()
    assert (receiver.services, [span.name for span in receiver.spans]) == ({"node-7"}, ["call"])


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, False),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, False),
    ],
)
def test_traces_are_off_unless_the_environment_asks_for_them(environment: dict[str, str], wanted: bool) -> None:
    assert wants_traces(environment) is wanted


def test_another_protocol_is_reported_and_the_daemon_runs_without_traces() -> None:
    complaints: list[str] = []
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert open_traces("mooring-test", environment, complaints.append) is None
    assert complaints == ["no traces: OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf, and only grpc is supported"]


WITHOUT_PACKAGES = """
import sys
sys.modules["opentelemetry"] = None
import mooring.agent.agent, mooring.cluster.extender.wire
import mooring.agent.state_holder, mooring.cluster.extender.service
from mooring.service.logs import open_traces
assert open_traces("a", {}, print) is None
assert open_traces("a", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, print) is None
"""


def test_without_the_extra_the_daemons_run_and_report_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        "no traces: the package opentelemetry[.a-z]* is missing; install the extra tracing.*\n", done.stdout
    )
