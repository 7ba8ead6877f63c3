"""The page of the kubelet's releases is the data by which the engine decides (docs/reference/kubelet-releases.md)."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest

from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES


def test_the_tables_of_the_page_are_those_of_the_data(releases_page: ModuleType) -> None:
    page = releases_page.PAGE.read_text(encoding="utf-8")
    assert releases_page.with_tables(page) == page


def test_every_rule_and_every_release_is_on_the_page(releases_page: ModuleType) -> None:
    page = releases_page.PAGE.read_text(encoding="utf-8")
    assert all(f"* `{rule.name}` ({rule.span}): " in page for rule in RULES)
    assert all(release in page for release in RELEASE_NAMES)


def test_a_change_of_the_data_changes_the_page(releases_page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    page = releases_page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(releases_page, "RULES", (replace(RULES[0], says="does something else"), *RULES[1:]))
    assert releases_page.with_tables(page) != page


def test_a_page_without_a_place_for_a_table_is_refused(releases_page: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no place for patches"):
        releases_page.with_tables("# Other releases\n")
