"""Rules and dashboards in the real promtool and Prometheus, beside a running agent, publisher, extender and driver."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import httpx2
import pytest
import yaml
from tests import patience
from tests.agent.outside.nodes import busy, snapshot_of
from tests.service.exported_metrics import label_all, publisher_after_a_write

from mooring.agent.metrics import AgentMetrics
from mooring.agent.status import Published
from mooring.cluster.dra.plugin import DriverMetrics
from mooring.cluster.extender.service import ExtenderMetrics
from mooring.service.http import PROMETHEUS, Page, serve_tcp
from mooring.service.options import Address

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "observability"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
SECONDS = 60.0


def parts() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location("observability_parts", ROOT / "scripts" / "observability_parts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(name: str) -> str:
    module = parts()
    try:
        return str(module.prometheus_program(name))
    except module.UnavailableError as why:
        pytest.skip(f"{name}: {why}")


@pytest.fixture(scope="session")
def promtool() -> str:
    return program("promtool")


def test_the_rules_are_valid_and_their_unit_tests_hold(promtool: str) -> None:
    subprocess.run([promtool, "check", "rules", "--lint=all", "--lint-fatal", FOLDER / "rules.yaml"], check=True)
    subprocess.run([promtool, "test", "rules", FOLDER / "rules_test.yaml"], check=True)


@pytest.mark.parametrize("changed", [{"expr": "vector(1) > 2"}, {"expr": "vector(1)", "for": "0s"}])
@pytest.mark.parametrize("alert", ALERTS)
def test_the_unit_test_of_an_alert_notices_that_it_never_or_always_fires(
    promtool: str, tmp_path: Path, alert: str, changed: dict[str, str]
) -> None:
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule.get("alert") == alert:
                rule.update(changed)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
    (tmp_path / "rules_test.yaml").write_bytes((FOLDER / "rules_test.yaml").read_bytes())
    done = subprocess.run(
        [promtool, "test", "rules", "--run", f"^{alert}$", tmp_path / "rules_test.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus that scrapes all four programs' pages, and return its address."""
    binary, folder = program("prometheus"), tmp_path_factory.mktemp("prometheus")
    agent, extender = AgentMetrics(Published(snapshot_of(busy()))), ExtenderMetrics(dict)
    driver = DriverMetrics(lambda: True)
    publisher = publisher_after_a_write()
    agent.reply_seconds.labels("CreateContainer").observe(0.002)
    extender.seconds.labels("filter").observe(0.01)
    extender.requests.labels("filter", "200").inc()
    with driver.counted("prepare"):
        pass
    for metrics in (agent, extender, driver):
        label_all(metrics)
    pages = {
        "agent": agent.page,
        "extender": extender.page,
        "dra": driver.page,
        "publisher": lambda: Page(publisher.text(), PROMETHEUS),
    }
    servers = {job: serve_tcp(Address("127.0.0.1", 0), {"/metrics": page}) for job, page in pages.items()}
    jobs = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{one.address[1]}"]}]}
        for job, one in servers.items()
    ]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "rules.yaml")],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), "utf-8")
    command = [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    log = folder / "log"
    with log.open("w") as lines:
        running = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=lines)
    try:
        yield f"http://{until(lambda: re.search('Listening on.*address=(.+)', log.read_text()))[1]}"
    finally:
        running.terminate()
        running.wait(SECONDS)
        for one in servers.values():
            one.close()


Found = TypeVar("Found")


def until(condition: Callable[[], Found | None]) -> Found:
    """Return what a condition comes to, once it comes to something."""
    found: list[Found] = []

    def is_there() -> bool:
        one = condition()
        found.extend([one] if one else [])
        return bool(found)

    patience.until(is_there, "Prometheus says it", seconds=SECONDS, pause=0.2)
    return found[0]


def asked(prometheus: str, path: str, **fields: str) -> Any:
    answer = httpx2.get(f"{prometheus}/api/v1/{path}", params=fields, timeout=SECONDS)
    return answer.raise_for_status().json()["data"]


@pytest.fixture(scope="session")
def scraped(prometheus: str) -> str:
    """Wait until every program was scraped often enough for rates."""
    query = "count(count_over_time(up[5m]) >= 4 and up == 1) == 4"
    until(lambda: asked(prometheus, "query", query=query)["result"])
    return prometheus


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_each_query_of_a_dashboard_is_evaluated(scraped: str, file: Path) -> None:
    """Every panel has data, but for that of an extension that the node does not have."""
    empty = []
    for panel in json.loads(file.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            if not asked(scraped, "query", query=query)["result"]:
                empty.append(panel["title"])
    assert set(empty) == ({"Containers with devices"} if file.stem == "agent" else set())


def test_no_alert_fires_beside_healthy_programs(scraped: str) -> None:
    alerts = asked(scraped, "alerts")["alerts"]
    assert [one["labels"]["alertname"] for one in alerts if one["state"] == "firing"] == []
    groups = asked(scraped, "rules")["groups"]
    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")] == []
