"""Pages and advice of the codes that concern releases: the data by which the engine decides, and the recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from tests.explain.refused_starts import recorded_starts
from tests.planner.recordings import CORPORA, some

from mooring.engine.core.decision import StartRefusal
from mooring.engine.releases.catalog import state_file_rules
from mooring.engine.releases.gates import CPU_OPTION_HISTORY, TOPOLOGY_OPTION_HISTORY
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES
from mooring.explanations.codes import all_codes, page, remedy

WITHOUT_ADVICE: list[str] = yaml.safe_load(
    Path(__file__).with_name("refusals-without-advice.yaml").read_text(encoding="utf-8")
)
"""Texts that say themselves what is wrong with one field."""


def refusals() -> Iterator[StartRefusal]:
    folder = CORPORA / "releases"
    for name in ("admission-config-errors", "admission-deltas", "state-files"):
        for file in sorted(folder.glob(f"v*/{name}.jsonl.gz")):
            starts = recorded_starts(str(file.relative_to(CORPORA)), (folder / "machines.jsonl",))
            yield from (start.refusal for start in some(start for start in starts if start.error))


@pytest.mark.corpus
def test_every_refusal_of_an_older_kubelet_says_itself_what_is_wrong_or_has_advice() -> None:
    found = list(refusals())
    silent = {
        refusal.message
        for refusal in found
        if not remedy(refusal) and not any(text in refusal.message for text in WITHOUT_ADVICE)
    }
    assert silent == set()
    assert {"MOOR-202", "MOOR-214", "MOOR-220", "MOOR-243", "MOOR-262"} <= {refusal.code for refusal in found}


@pytest.mark.parametrize(
    ("code", "histories"),
    [
        ("MOOR-211", CPU_OPTION_HISTORY),
        ("MOOR-212", CPU_OPTION_HISTORY),
        ("MOOR-214", CPU_OPTION_HISTORY),
        ("MOOR-215", TOPOLOGY_OPTION_HISTORY),
        ("MOOR-243", TOPOLOGY_OPTION_HISTORY),
    ],
)
def test_a_page_about_options_has_their_groups_in_every_release(code: str, histories: Mapping[str, str]) -> None:
    lines = [f"* `{name}`: {history}" for name, history in histories.items()]
    section = page(code).text.partition("## Releases\n\n")[2].partition("\n\n## ")[0]
    assert section.splitlines() == lines


def test_the_page_about_unreadable_state_files_has_the_formats_of_every_release() -> None:
    section = page("MOOR-262").text.partition("## Releases\n\n")[2].partition("\n\n## ")[0]
    cpu, memory = section.splitlines()
    read = {release: state_file_rules(release, pod_level=False) for release in RELEASE_NAMES}
    assert {rules.cpu.read for rules in read.values()} == {("V1", "V2"), ("V2", "V1"), ("V4", "V3", "V2")}
    assert "1.31 to 1.35 read V1 and V2; 1.36 reads V2 and V1" in cpu
    assert {rules.memory.read for rules in read.values()} == {("V1",), ("V3", "V2", "V1")}
    assert "1.31 to 1.35 read V1; 1.36 also V2" in memory
    assert cpu.endswith("1.37 reads V4, V3 and V2.")
    assert memory.endswith("1.37 reads V3, V2 and V1.")


def test_a_page_names_the_rules_of_releases_that_decide_about_its_code() -> None:
    known = set(all_codes())
    for rule in RULES:
        assert set(rule.codes) <= known
        for code in rule.codes:
            text = page(code).text
            section = text.partition("## Rules of older releases\n\n")[2].partition("\n\n## ")[0]
            assert f"* `{rule.name}` ({rule.span}): {rule.says}. Since {rule.after}: {rule.instead}." in section
            assert text.rpartition("\n## ")[2].startswith("Source\n")
    assert "## Rules of older releases" not in page("MOOR-101").text
