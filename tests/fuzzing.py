"""The pytest plugin of `make fuzz` (scripts/fuzz.py): property tests with a seed of their own, until the time is over.

The seed also shuffles the tests, so that each of them gets its turn when there is no time for all. The summary has one
command for each failure, which repeats it on any machine.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-until", type=float, help="Unix time in seconds after which no further test starts")
    group.addoption("--fuzz-findings", type=Path, help="file to which the commands that repeat failures are appended")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    Random(_seed(config)).shuffle(items)  # noqa: S311 - an order, not a secret


def pytest_runtest_setup(item: pytest.Item) -> None:
    until: float = item.config.getoption("--fuzz-until")
    if time.time() > until:
        pytest.skip("the time for this search is over")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    failed = [report.nodeid for kind in ("failed", "error") for report in terminalreporter.getreports(kind)]
    if not failed:
        return
    lines = [repeating(nodeid, _seed(config)) for nodeid in sorted(set(failed))]
    terminalreporter.section("how to repeat it")
    for line in lines:
        terminalreporter.line(line)
    findings: Path = config.getoption("--fuzz-findings")
    with findings.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def repeating(nodeid: str, seed: str) -> str:
    """Return the command that draws the same examples for this test again."""
    return f".venv/bin/python -m pytest --hypothesis-profile=fuzz --hypothesis-seed={seed} '{nodeid}'"


def _seed(config: pytest.Config) -> str:
    return str(config.getoption("--hypothesis-seed"))
