"""KubeletConfiguration and flags by release, and values that some releases refuse (releases.md sections 5 to 8)."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.faults import text_of
from tests.releases.flipped import flipped
from tests.values import cases

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Finding
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.config_fields import (
    DEFAULT_HISTORY,
    FIELDS,
    FIELDS_SINCE,
    KNOWN_FLAGS,
    LASTING_FLAGS,
    READ_FIELDS,
    flags_of,
    is_lasting,
    later_fields,
    unknown_flag,
)
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.inputs.configuration.kubelet_config import KNOWN, kubelet_config
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.scenario import scenario

MACHINE = parse_compact("sockets=1 cores=4 memory=8Gi")
QUERY = {"enableSystemLogQuery": True, "featureGates": {"NodeLogQuery": False}}


def refusal(release: str, fields: dict[str, Any]) -> str:
    """Return what the kubelet says while it validates; an empty text when it starts."""
    config = kubelet_config(fields, source="test")
    found = build_settings(config, MooringConfig(release=RELEASES[release]), MACHINE.info)
    if isinstance(found, Settings):
        return ""
    assert isinstance(found, StartRefusal)
    assert found.stage == "validation"
    return found.message.removeprefix("invalid configuration: ")


@pytest.mark.parametrize(("text", "since", "fields"), cases(__file__, "values-refused.yaml", "text", "since", "fields"))
def test_values_are_refused_since_the_release_that_checks_them(fields: dict[str, Any], since: str, text: str) -> None:
    refused = {release: refusal(release, fields) for release in RELEASE_NAMES}
    assert refused == {release: text if release >= since else "" for release in RELEASE_NAMES}


@pytest.mark.parametrize("release", [release for release in RELEASE_NAMES if release <= "1.35"])  # then it is locked
def test_a_log_query_without_its_gate_is_refused_in_the_words_of_the_release(release: str) -> None:
    field = "enableSystemLogHandler" if release <= "1.34" else "enableSystemLogQuery"
    assert refusal(release, QUERY) == f"NodeLogQuery feature gate is required for {field}"
    on = {**QUERY, "enableSystemLogHandler": False, "featureGates": {"NodeLogQuery": True}}
    assert refusal(release, on) == "enableSystemLogHandler is required for enableSystemLogQuery"


@pytest.mark.parametrize(("factor", "text"), [(1.5, "1.5"), (2, "2"), (0, "0"), (-0.25, "-0.25")])
def test_a_throttling_factor_is_a_share(factor: float, text: str) -> None:
    expected = f"memoryThrottlingFactor {text} must be greater than 0 and less than or equal to 1.0"
    assert refusal("1.37", {"memoryThrottlingFactor": factor}) == expected
    assert refusal("1.31", {"memoryThrottlingFactor": factor}) == expected


@pytest.mark.parametrize("policy", ["none", "other", "static"])
@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_a_machine_without_cpus_stops_each_release_that_reads_it(release: str, policy: str) -> None:
    config = KubeletConfig(cpu_manager_policy=policy, system_reserved={"cpu": "1"})
    info = replace(MACHINE.info, num_cores=0)
    found = build_settings(config, MooringConfig(release=RELEASES[release]), info)
    if release == "1.31" and policy != "static":
        expected = None if policy == "none" else 'unknown policy: "other"'
    else:
        expected = "could not detect number of cpus"
    assert (found.message if isinstance(found, StartRefusal) else None) == expected


def test_every_later_field_is_one_of_the_newest_release() -> None:
    assert set(FIELDS_SINCE) <= KNOWN
    assert set(DEFAULT_HISTORY) <= KNOWN
    assert not later_fields("1.38")
    assert later_fields("1.31") == set(FIELDS_SINCE)


def test_a_field_that_came_later_is_reported_and_ignored() -> None:
    found: list[Finding] = []
    content = {"kubelet": {"mergeDefaultEvictionSettings": True}, "release": "1.32", "machine": "m", "id": "s"}
    scenario(content, source="test", report=found.append)
    [finding] = found
    assert "kubelet 1.32 does not have the field mergeDefaultEvictionSettings yet" in finding.message
    scenario({**content, "release": "1.33"}, source="test", report=found.append)
    assert len(found) == 1


def test_every_member_of_a_configuration_is_one_field_of_the_table() -> None:
    members = [one.member for one in READ_FIELDS.values()]
    assert sorted(members) == sorted({one.name for one in fields(KubeletConfig)} - {"checked"})


def test_the_table_names_fields_of_the_type_and_each_once() -> None:
    names = [one.name for one in FIELDS]
    assert len(names) == len(set(names))
    assert {name.partition(".")[0] for name in names} <= KNOWN


def test_up_to_1_37_a_gate_that_is_off_forbids_memory_swap() -> None:
    fields = {"memorySwap": {"swapBehavior": "x"}, "featureGates": {"NodeSwap": False}}
    config, older = kubelet_config(fields, source="test"), RELEASES["1.33"]
    texts = []
    for release in (older, flipped(older, "swap-behavior-needs-gate")):
        found = build_settings(config, MooringConfig(release=release), MACHINE.info)
        texts.append(found.message if isinstance(found, StartRefusal) else "")
    assert texts == [
        "invalid configuration: memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled",
        'invalid configuration: memorySwap.swapBehavior "x" must be one of: "", "LimitedSwap" or "NoSwap"',
    ]


GONE = {"1.34": {"cloud-config", "register-schedulable"}, "1.35": {"pod-infra-container-image"}, "1.37": 18}


def test_a_release_lacks_what_the_one_before_had_and_adds_nothing() -> None:
    for before, after in itertools.pairwise(RELEASE_NAMES):
        gone = flags_of(before) - flags_of(after)
        expected = GONE.get(after, set())
        assert flags_of(after) <= flags_of(before)
        assert (len(gone) if isinstance(expected, int) else gone) == expected
    assert [len(flags_of(name)) for name in RELEASE_NAMES] == [152, 152, 152, 150, 149, 149, 131, 131]
    assert flags_of(RELEASE_NAMES[-1]) == LASTING_FLAGS < KNOWN_FLAGS


@pytest.mark.parametrize(
    ("text", "release", "flags"), cases(__file__, "flags-refused.yaml", "text", "release", "flags")
)
def test_the_first_flag_that_a_release_lacks_is_named_as_it_is_written(
    flags: list[str], release: str, text: str
) -> None:
    assert text_of(unknown_flag(flags, release)) == (f"failed to parse kubelet flag: {text}" if text else "")


def test_underscores_are_dashes() -> None:
    assert is_lasting("--max_pods")
