"""Recorded decisions of older kubelets and of the preview, replayed and compared; each rule is noticed by one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.planner.recordings import CORPORA, PARTS, check_decisions, lines, named, share
from tests.releases.flipped import departures, files_of, flipped, recorded

from mooring import KUBELET_VERSION
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST, Release, ReleaseRules
from mooring.engine.releases.catalog import RELEASES, TAGS, release_of
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES

FOLDER = CORPORA / "releases"
MACHINES = (FOLDER / "machines.jsonl", FOLDER / "v1.38.0-beta.0" / "differences-machines.jsonl")
FILES = sorted(str(path.relative_to(CORPORA)) for path in FOLDER.glob("v*/*.jsonl.gz"))


def test_each_other_release_has_recordings_of_its_own() -> None:
    recorded = {name.split("/")[1] for name in FILES}
    assert recorded == set(TAGS.values()) - {NEWEST.tag}


@pytest.mark.corpus
@pytest.mark.parametrize("name", FILES)
def test_each_line_names_the_release_of_its_folder(name: str) -> None:
    expected = {"merge-38": "", "differences-v1.37.2": NEWEST.tag}.get(Path(name).name.removesuffix(".jsonl.gz"))
    assert {named(line).release for line in lines(name)} == {name.split("/")[1] if expected is None else expected}


@pytest.mark.corpus
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", FILES)
def test_decisions_equal_those_of_the_release(name: str, part: int, tmp_path: Path) -> None:
    check_decisions(share(name)[part :: len(PARTS)], MACHINES, tmp_path / "part.jsonl")


FROM_THE_TEXT: dict[str, str] = yaml.safe_load(
    Path(__file__).with_name("rules-from-the-text.yaml").read_text(encoding="utf-8")
)
"""Rules that no recording separates, at the last release that follows them at least: the test from the text."""

ONE_SIDED = {
    "certificate-algorithms-unknown": "test_values_are_refused_since_the_release_that_checks_them",
    "hints-without-score": "test_decisions_equal_those_of_the_release",
}
"""Rules of which only the release after them has a recording that notices them."""

RECORDED = [
    pytest.param(rule.name, RELEASES[name], scenario, id=f"{rule.name}-{name}")
    for rule in RULES
    for name, scenario in ((rule.until, rule.recording), (rule.after, rule.recording_after))
    if scenario
]


def recording(release: Release, name: str) -> dict[str, Any]:
    theme = {"delta": "deltas", "difference": "differences", "state": "state-files"}.get(
        name.partition("-")[0], name.rsplit("-", 2)[0]
    )
    file = next(file for file in files_of(release) if theme in file.name.partition(".")[0])
    return next(content for content in recorded(file) if content["id"] == name)


def test_every_rule_says_what_separates_it() -> None:
    recorded = {rule.name for rule in RULES if rule.recording}
    assert recorded | set(FROM_THE_TEXT) | set(ONE_SIDED) == {rule.name for rule in RULES}
    assert not recorded & {*FROM_THE_TEXT, *ONE_SIDED}


def test_the_tests_from_the_text_exist() -> None:
    tests = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in {*FROM_THE_TEXT.values(), *ONE_SIDED.values()} if f"def {name}(" not in tests] == []


@pytest.mark.parametrize(("rule", "release", "name"), RECORDED)
def test_a_recording_notices_the_rule(rule: str, release: Release, name: str) -> None:
    content = recording(release, name)
    assert departures(content, release) == []
    assert departures(content, flipped(release, rule))


def test_the_release_that_decides_by_default_is_the_newest_that_is_out() -> None:
    assert RELEASES[NEWEST.name] == NEWEST
    assert [name for name, release in RELEASES.items() if not release.is_preview][-1] == NEWEST.name
    assert NEWEST.tag == KUBELET_VERSION


def test_every_field_of_the_rules_has_one_entry_in_the_table_and_some_release_follows_it() -> None:
    named = [rule.name.replace("-", "_") for rule in RULES]
    assert sorted(named) == sorted({field.name for field in fields(ReleaseRules)} - {"resizes_exclusive_cpus"})
    assert all(rule.releases and rule.until != RELEASE_NAMES[-1] for rule in RULES)


@pytest.mark.parametrize("tag", TAGS.values())
def test_a_recorded_tag_names_its_release(tag: str) -> None:
    assert release_of(tag).tag == tag


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("v1.34", "1.34"),
        ("1.33.5", "1.33"),
        ("v1.31.9-eks-1-2", "1.31"),
        ("v1.33.3+k3s1", "1.33"),
        ("1.99", NEWEST.name),
        ("v1.38.0-beta.0", "1.38"),
    ],
)
def test_versions_in_the_forms_that_nodes_report(version: str, name: str) -> None:
    assert release_of(version).name == name


@pytest.mark.parametrize("version", ["1.30", "v1.9.4", "34", "", "2.1", "v1"])
def test_a_release_that_is_not_known_is_refused(version: str) -> None:
    with pytest.raises(InputError):
        release_of(version)


def test_no_known_release_resizes_exclusive_cpus_by_its_gate_alone() -> None:
    """KEP-5554 is in none of them; a release that has it is an entry in ``RESIZING``."""
    assert not any(release.rules.resizes_exclusive_cpus for release in RELEASES.values())
