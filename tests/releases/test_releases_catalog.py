"""The known releases, and the rules that each of them follows."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mooring import KUBELET_VERSION
from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST, ReleaseRules
from mooring.engine.releases.catalog import RELEASES, TAGS, release_of
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES


def test_the_release_that_decides_by_default_is_the_newest_that_is_out() -> None:
    assert RELEASES[NEWEST.name] == NEWEST
    assert [name for name, release in RELEASES.items() if not release.is_preview][-1] == NEWEST.name
    assert NEWEST.tag == KUBELET_VERSION


def test_the_newest_known_release_follows_no_rule_of_an_older_one() -> None:
    assert not RELEASES[RELEASE_NAMES[-1]].rules.names()


def test_every_field_of_the_rules_has_one_entry_in_the_table_and_some_release_follows_it() -> None:
    named = [rule.name.replace("-", "_") for rule in RULES]
    assert sorted(named) == sorted({field.name for field in fields(ReleaseRules)} - {"resizes_exclusive_cpus"})
    assert all(rule.releases and rule.until != RELEASE_NAMES[-1] for rule in RULES)


@pytest.mark.parametrize("name", RELEASE_NAMES)
def test_a_release_follows_the_rules_whose_span_it_is_in(name: str) -> None:
    assert set(RELEASES[name].rules.names()) == {rule.name for rule in RULES if name in rule.releases}


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
