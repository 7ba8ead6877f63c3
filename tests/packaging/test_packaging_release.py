"""The release: notes from the changelog, and a workflow of which each step runs here too."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.packaging.conftest import ROOT, release_script

from mooring import __version__

CHANGELOG = """# Changelog

Words.

## Unreleased

### Added

- Next.

## [1.1.0] - 2026-02-03

- New.

## 1.0.0

"""
WORKFLOWS = ROOT / ".github" / "workflows"
OF_THE_RUNNER = ("sudo apt-get ", 'echo "$GH_TOKEN" | skopeo login ', "gh release create ", "mkdir index ")
"""Commands that only make sense there: packages of the machine, logins, the release's page."""


@pytest.fixture(scope="module")
def notes() -> ModuleType:
    return release_script("notes")


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.fixture(scope="module")
def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_the_notes_of_a_version_are_its_section_of_the_changelog(notes: ModuleType) -> None:
    assert notes.notes(CHANGELOG, "1.1.0") == "- New."
    assert notes.notes(CHANGELOG, "Unreleased") == "### Added\n\n- Next."


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("2.0.0", "has no section ## 2.0.0; it has Unreleased, 1.1.0, 1.0.0"),
        ("1.0.0", "the section ## 1.0.0 is empty"),
        ("1.1", "has no section ## 1.1;"),
    ],
)
def test_a_version_without_notes_is_refused(notes: ModuleType, version: str, says: str) -> None:
    with pytest.raises(notes.NoNotesError, match=re.escape(says)):
        notes.notes(CHANGELOG, version)


def test_the_tag_of_another_version_is_refused(notes: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert notes.main("v99.0.0") == 2
    assert capsys.readouterr().err == f"notes: this clone is version {__version__}, not v99.0.0: check out its tag\n"


def test_what_comes_next_has_notes(notes: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert notes.main("Unreleased") == 0
    assert "### Added" in capsys.readouterr().out


def test_every_step_of_the_release_is_a_target_of_the_makefile(workflow: dict[str, Any], targets: set[str]) -> None:
    lines = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    used = {match[1] for line in lines if (match := re.match(r"make ([a-z-]+)", line))}
    assert used <= targets
    assert {"test", "dist", "onefile", "krew", "image", "chart", "sbom", "sign", "notes", "compatibility"} <= used
    assert [line for line in lines if not line.startswith(("make ", *OF_THE_RUNNER))] == []


def test_only_the_job_that_publishes_may_write_and_it_needs_the_tests(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in workflow["jobs"].items() if "permissions" in job] == ["publish"]
    assert workflow["jobs"]["publish"]["needs"] == ["test", "build"]
    assert workflow["jobs"]["publish"]["if"] == "github.ref_type == 'tag'"


def test_reviews_of_dependencies_allow_the_licences_that_the_tests_allow(licences: ModuleType) -> None:
    text = (ROOT / ".github" / "workflows" / "dependencies.yml").read_text(encoding="utf-8")
    (review,) = (
        step["with"] for step in yaml.safe_load(text)["jobs"]["review"]["steps"] if "allow-licenses" in step["with"]
    )
    assert set(review["allow-licenses"].split(", ")) == licences.ALLOWED


@pytest.mark.parametrize("path", [*sorted(WORKFLOWS.glob("*.yml")), ROOT / "action.yml"], ids=lambda path: path.name)
def test_actions_are_commits_and_no_shell_gets_text_of_others(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = content["jobs"].values() if "jobs" in content else [content["runs"]]
    steps = [step for job in jobs for step in job["steps"]]
    assert [
        step["uses"] for step in steps if not re.fullmatch(r"\S+@[0-9a-f]{40}", step.get("uses", "x@" + "0" * 40))
    ] == []
    assert [step["run"] for step in steps if "${{" in step.get("run", "").replace("${{ matrix.python }}", "")] == []


def test_a_tag_with_code_starts_no_release(workflow: dict[str, Any]) -> None:
    # The key "on" is read as a boolean by YAML 1.1.
    assert workflow[True]["push"]["tags"] == ["v[0-9]+.[0-9]+.[0-9]+"]  # type: ignore[index]


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "mooring" / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
