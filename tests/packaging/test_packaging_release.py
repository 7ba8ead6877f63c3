"""The release: notes from the changelog, and a workflow of which each step runs here too."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import re
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.packaging.conftest import ROOT
from tests.values import script

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
    return script("release/notes")


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


def test_only_the_job_that_publishes_may_write_and_it_needs_the_tests_and_a_tag(workflow: dict[str, Any]) -> None:
    # The key "on" is read as a boolean by YAML 1.1.
    assert workflow[True]["push"]["tags"] == ["v[0-9]+.[0-9]+.[0-9]+"]  # type: ignore[index]
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


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "mooring" / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


# krew's manifest of the kubectl plugin, by the rules of krew's developer guide.


ADDRESS = "https://example.org/mooring/releases/download/v1"


def archive(folder: Path, *, link: bool = False) -> Path:
    file = folder / f"kubectl-mooring-{__version__}-linux-arm64.tar.gz"
    # As `make krew` packs it: without a name and a time in gzip's header.
    with (
        file.open("wb") as packed,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as out,
    ):
        for name in ("./mooring", "./LICENSE"):
            out.addfile(tarfile.TarInfo(name), io.BytesIO())
        if link:
            member = tarfile.TarInfo("./lib")
            member.type = tarfile.SYMTYPE
            out.addfile(member)
    return file


@pytest.fixture
def made(krew: ModuleType, tmp_path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = krew.manifest(ADDRESS, [archive(tmp_path)])
    return manifest


def test_the_manifest_names_version_platform_and_digest_of_the_archive(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    file = archive(tmp_path)  # built again at another time, it has the same bytes
    assert made["spec"]["version"] == f"v{__version__}"
    assert made["spec"]["homepage"] == "https://example.org/mooring"
    assert made["spec"]["platforms"] == [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": "arm64"}},
            "uri": f"{ADDRESS}/{file.name}",
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "bin": "mooring",
        }
    ]


def test_the_manifest_is_one_that_krew_takes_and_none_is_written_for_an_archive_that_it_cannot_unpack(
    krew: ModuleType, tmp_path: Path
) -> None:
    assert krew.main(ADDRESS, [archive(tmp_path, link=True)]) == 1
    assert not (tmp_path / "mooring.yaml").exists()
    assert krew.main(ADDRESS, [archive(tmp_path)]) == 0
    written = yaml.safe_load((tmp_path / "mooring.yaml").read_text(encoding="utf-8"))
    assert krew.faults(written, "mooring.yaml") == []


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("apiVersion",), "krew.googlecontainertools.github.com/v1alpha1", "apiVersion"),
        (("kind",), "Plugins", "kind"),
        (("metadata", "name"), "moor ing", "metadata.name"),
        (("spec", "version"), "0.1.0", "spec.version"),
        (("spec", "shortDescription"), "two\nlines", "spec.shortDescription"),
        (("spec", "description"), "", "spec.description"),
        (("spec", "platforms"), [], "spec.platforms"),
        (("spec", "platforms", 0, "uri"), "https://example.org/mooring.tar", "spec.platforms[0].uri"),
        (("spec", "platforms", 0, "sha256"), "ABC", "spec.platforms[0].sha256"),
        (("spec", "platforms", 0, "bin"), "", "spec.platforms[0].bin"),
        (("spec", "platforms", 0, "files"), [], "spec.platforms[0].files"),
        (("spec", "platforms", 0, "selector", "matchLabels"), {"libc": "musl"}, "spec.platforms[0].selector"),
    ],
)
def test_what_krew_refuses_is_found(
    krew: ModuleType, made: dict[str, Any], path: tuple[str | int, ...], value: object, fault: str
) -> None:
    wrong: Any = copy.deepcopy(made)
    part = wrong
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    assert fault in krew.faults(wrong, "mooring.yaml")


# Nothing that a release has goes away or changes its type: documents, custom resources, codes, metrics, options.


@pytest.fixture(scope="session")
def now(compatibility: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = compatibility.surface()
    return found


def test_everything_that_a_release_had_is_still_there(compatibility: ModuleType, now: dict[str, Any]) -> None:
    assert compatibility.released()
    found = {version: compatibility.breaks(old, now, version) for version, old in compatibility.released().items()}
    broken = [line for lines in found.values() for line in lines]
    assert not broken, (
        "others rely on this (docs/reference/versions.md): keep it, or make a new version of the document; "
        "make freeze is for a version that is not released yet:\n" + "\n".join(broken)
    )


def test_this_version_is_written_down_before_its_release(compatibility: ModuleType) -> None:
    assert __version__ in compatibility.released(), "run make freeze"


@pytest.mark.parametrize(
    ("area", "name", "new", "text"),
    [
        ("members of JSON documents", "Plan.pods", None, "Plan.pods was in 1.0 and is missing"),
        ("members of JSON documents", "Plan.kubelet", "integer", "Plan.kubelet was string in 1.0 and is integer"),
        ("codes", "MOOR-105", None, "MOOR-105 was in 1.0 and is missing"),
        ("metrics", "mooring_agent_repairs", "counter", "was counter by kind in 1.0 and is counter"),
        ("metrics", "mooring_agent_aligned_containers", None, "is missing"),
        ("metrics", "mooring_extender_request_seconds", "gauge by verb", "was histogram by verb"),
        ("metrics", "mooring_publish_writes", None, "is missing"),
        (
            "metrics",
            "mooring_dra_claims",
            "counter by step",
            "was counter by result, step in 1.0 and is counter by step",
        ),
        ("fields of custom resources", "NodeFacts.mooring.dev/v1alpha1.spec.content", "string", "string, required"),
        ("options", "mooring plan -f", None, "is missing"),
        ("options", "mooring agent --config", "a value", "was a value, required in 1.0"),
    ],
)
def test_what_is_removed_or_changed_is_named(
    compatibility: ModuleType, now: dict[str, Any], area: str, name: str, new: str | None, text: str
) -> None:
    changed = copy.deepcopy(now)
    assert name in changed[area]
    if new is None:
        del changed[area][name]
    else:
        changed[area][name] = new
    (line,) = compatibility.breaks(now, changed, "1.0")
    assert line.startswith(f"{area}: {name} was")
    assert text in line


def test_additions_are_compatible(compatibility: ModuleType, now: dict[str, Any]) -> None:
    more = copy.deepcopy(now)
    for area, names in more.items():
        names[f"new {area}"] = "string"
    assert compatibility.breaks(now, more, "1.0") == []
