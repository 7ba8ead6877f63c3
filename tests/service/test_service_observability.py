"""Dashboards and rules name only what the programs export, and what no dashboard shows is listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.exported_metrics import TARGET, exported
from tests.service.otlp_receiver import Receiver, attributes, receiving

from mooring.service.logs import CompletedSpan, Traces, open_traces, wants_traces

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "observability"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))
ALL = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in ALL if "alert" in rule]
METRIC = re.compile(r"\b((?:mooring_|kubelet_|mooring:)\w+(?::\w+)*)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def recordings() -> dict[str, frozenset[str]]:
    """Return the names of recordings, with the labels by which they sum, but for those of histograms' buckets."""
    found = {}
    for rule in ALL:
        if "record" in rule:
            [*_, last] = re.findall(r"by \(([^)]*)\)", rule["expr"])
            found[rule["record"]] = frozenset(re.split(r",\s*", last)) - {"le"}
    return found


def labels_of(expression: str) -> Iterator[tuple[str, set[str]]]:
    for name, inside in METRIC.findall(expression):
        yield name, set(LABEL.findall(inside or ""))


def grouped_by(expression: str) -> set[str]:
    return {label for inside in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", inside)}


def complaints(expression: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Return what an expression names and no program exports."""
    found = []
    every: set[str] = set(TARGET) | {"le"}
    for name, labels in labels_of(expression):
        if name not in known:
            found.append(f"{name}: unknown metric")
        else:
            every |= known[name]
            found += [f"{name}: no label {label}" for label in labels - known[name] - TARGET]
    return found + [f"no label {label}" for label in grouped_by(expression) - every]


def queries(dashboard: Any) -> list[tuple[str, str]]:
    """Return the expressions of a dashboard, each with the labels of its legend."""
    return [(target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel["targets"]]


KNOWN = {**exported(), **recordings()}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_only_what_is_exported(rule: Any) -> None:
    assert complaints(rule["expr"], KNOWN) == []
    summary = rule.get("annotations", {}).get("summary", "")
    known: set[str] = set(TARGET)
    for name, _ in labels_of(rule["expr"]):
        known |= KNOWN[name]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= (grouped_by(rule["expr"]) or known)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_names_only_what_is_exported(file: Path) -> None:
    dashboard = json.loads(file.read_text("utf-8"))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for expression, legend in queries(dashboard):
        assert complaints(expression, KNOWN) == [], expression
        shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
        every: set[str] = set(TARGET)
        for name, _ in labels_of(expression):
            every |= KNOWN[name]
        aggregated = re.match(r"(sum|max|count|histogram_quantile)\b", expression)
        assert shown <= (grouped_by(expression) - {"le"} if aggregated else every), expression
    [instance] = [one for one in dashboard["templating"]["list"] if one["name"] == "instance"]
    assert complaints(instance["query"].removeprefix("label_values(").partition(",")[0], KNOWN) == []


def test_panels_of_a_dashboard_do_not_overlap() -> None:
    for file in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(file.read_text("utf-8"))["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert max(x for x, _ in cells) < 24
            assert not cells & taken, (file.stem, panel["title"])
            taken |= cells


def test_what_no_dashboard_shows_is_what_the_page_lists() -> None:
    shown = {
        name
        for file in DASHBOARDS
        for expression, _ in queries(json.loads(file.read_text("utf-8")))
        for name, _ in labels_of(expression)
    }
    for rule in ALL:
        if rule.get("record") in shown:
            shown |= {name for name, _ in labels_of(rule["expr"])}
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    own = {re.sub("_(bucket|sum|count)$", "", name) for name in exported() if name.startswith("mooring_")}
    text = (ROOT / "docs" / "how-to" / "monitor.md").read_text("utf-8")
    listed = re.findall(r"`(mooring_\w+)`", text.partition("No dashboard shows")[2].partition("\n\n")[0])
    assert listed == sorted(own - families)


def test_every_alert_has_a_runbook_a_summary_and_a_unit_test() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    sections = re.findall("^## (.+)$", (ROOT / "docs" / "how-to" / "alerts.md").read_text("utf-8"), re.MULTILINE)
    assert sections == names
    for rule in ALERTS:
        assert rule["annotations"]["runbook"] == f"docs/how-to/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
    tests = yaml.safe_load((FOLDER / "rules_test.yaml").read_text("utf-8"))["tests"]
    assert [one["name"] for one in tests] == names
    for test in tests:
        silent, fires = test["alert_rule_test"]
        assert (silent["alertname"], silent["exp_alerts"]) == (test["name"], [])
        assert (fires["alertname"], len(fires["exp_alerts"])) == (test["name"], 1)


# Traces: what the environment asks for arrives at a real receiver of OTLP; otherwise nothing is loaded or sent.


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
