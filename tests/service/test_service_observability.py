"""Dashboards and rules name only what the programs export, and what no dashboard shows is listed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.exported_metrics import TARGET, exported

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
