"""Recorded decisions of older kubelets and of the preview, replayed and compared; each rule is noticed by one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.planner.recordings import CORPORA, PARTS, lines, named, share
from tests.releases.flipped import departures, files_of, flipped, recorded

from mooring import KUBELET_VERSION
from mooring.answers.base.agreement import replay_file
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
    chosen = share(name)[part :: len(PARTS)]
    file = tmp_path / "part.jsonl"
    file.write_text("".join(chosen), encoding="utf-8")
    outcomes = list(replay_file(file, MACHINES, compare=True))
    assert [outcome.id for outcome in outcomes] == [named(line).id for line in chosen]
    assert [outcome.id for outcome in outcomes if outcome.standing in ("unsupported", "unknown")] == []
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}


FROM_THE_TEXT = {
    "alignment-not-counted-at-start": "test_up_to_1_32_alignment_is_counted_without_caches_and_not_from_the_start",
    "exclusive-cpus-summed-at-start": "test_up_to_1_32_shared_cpus_count_for_each_container_at_the_start",
    "memory-pinning-counted-first": "test_up_to_1_36_memory_that_cannot_be_counted_is_a_pinning_request",
    "uncore-alignment-not-counted": "test_up_to_1_32_alignment_is_counted_without_caches_and_not_from_the_start",
    "default-pod-sysctls-unknown": "test_values_are_refused_since_the_release_that_checks_them",
    "distribute-claims-full-share": "test_a_node_that_cannot_give_the_full_share_gives_nothing",
    "huge-page-limits-beside-requests": "test_huge_pages_of_a_pod_get_the_defaults_of_the_release",
    "huge-page-requests-of-containers": "test_huge_pages_of_a_pod_get_the_defaults_of_the_release",
    "image-minimum-gc-age-not-checked": "test_values_are_refused_since_the_release_that_checks_them",
    "log-query-text-names-handler": "test_a_log_query_without_its_gate_is_refused_in_the_words_of_the_release",
    "machine-not-read-for-policy-none": "test_a_machine_without_cpus_stops_each_release_that_reads_it",
    "memory-reservation-policy-unknown": "test_values_are_refused_since_the_release_that_checks_them",
    "memory-throttling-needs-no-gate": "test_values_are_refused_since_the_release_that_checks_them",
    "pod-level-pods-admitted-without-gate": (
        "test_since_1_34_pods_with_resources_of_their_own_are_rejected_without_the_gate"
    ),
    "pod-resources-unknown": "test_resources_of_a_pod_are_dropped_where_the_field_is_unknown",
    "resize-asks-like-admission": "test_up_to_1_36_other_exclusive_cpus_are_an_impossible_hint_for_a_resize",
    "resize-beyond-node-refused": "test_up_to_1_35_a_resize_beyond_the_whole_node_is_infeasible",
    "resize-counts-sidecars-alone": "test_up_to_1_33_sidecars_do_not_add_up_in_the_check_against_the_node",
    "resize-leaves-eviction-threshold": "test_up_to_1_35_a_resize_beyond_the_whole_node_is_infeasible",
    "static-cpu-policy-not-asked": "test_each_release_refuses_guaranteed_pods_by_policy_in_its_own_way",
    "static-memory-policy-not-asked": "test_each_release_refuses_guaranteed_pods_by_policy_in_its_own_way",
    "static-policies-refuse-every-resize": "test_each_release_refuses_guaranteed_pods_by_policy_in_its_own_way",
    "claim-loop": "test_up_to_1_37_the_claim_of_uneven_nodes_does_not_end",
    "gauges-by-difference": "test_since_1_38_every_node_has_a_count_from_the_start_and_returns_to_0",
    "resize-retried-with-resources-only": "test_since_1_38_an_update_that_asks_for_nothing_new_retries_a_resize",
    "swap-behavior-needs-gate": "test_up_to_1_37_a_gate_that_is_off_forbids_memory_swap",
    "run-once-accepted": "test_values_are_refused_since_the_release_that_checks_them",
}
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
