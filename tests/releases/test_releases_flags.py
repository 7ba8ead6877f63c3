"""Flags of the kubelet by release."""

from __future__ import annotations

import itertools

import pytest
from tests.faults import read_text, text_of

from mooring.engine.releases.config_fields import KNOWN_FLAGS, LASTING_FLAGS, flags_of, is_lasting, unknown_flag
from mooring.engine.releases.rule import RELEASE_NAMES

GONE = {"1.34": {"cloud-config", "register-schedulable"}, "1.35": {"pod-infra-container-image"}, "1.37": 18}


def test_each_release_has_as_many_flags_as_it_registers() -> None:
    counts = [len(flags_of(name)) for name in RELEASE_NAMES]
    assert counts == [152, 152, 152, 150, 149, 149, 131, 131]


def test_a_release_lacks_what_the_one_before_had_and_adds_nothing() -> None:
    for before, after in itertools.pairwise(RELEASE_NAMES):
        gone = flags_of(before) - flags_of(after)
        expected = GONE.get(after, set())
        assert flags_of(after) <= flags_of(before)
        assert (len(gone) if isinstance(expected, int) else gone) == expected
    assert flags_of(RELEASE_NAMES[-1]) == LASTING_FLAGS < KNOWN_FLAGS


@pytest.mark.parametrize(
    ("flags", "release", "text"),
    [
        (["--pod-infra-container-image"], "1.34", ""),
        (["--v", "--pod-infra-container-image", "--x"], "1.35", "unknown flag: --pod-infra-container-image"),
        (["--containerd"], "1.37", "unknown flag: --containerd"),
        (["--container-runtime"], "1.31", "unknown flag: --container-runtime"),
        (["--Max-Pods"], "1.37", "unknown flag: --Max-Pods"),
        (["-v=2", "-h"], "1.37", ""),
        (["-max-pods=50"], "1.37", "unknown shorthand flag: 'm' in -max-pods=50"),
    ],
)
def test_the_first_flag_that_a_release_lacks_is_named_as_it_is_written(
    flags: list[str], release: str, text: str
) -> None:
    assert text_of(unknown_flag(flags, release)) == (f"failed to parse kubelet flag: {text}" if text else "")


def test_underscores_are_dashes() -> None:
    assert is_lasting("--max_pods")
    assert read_text(unknown_flag(["--pod_infra_container_image"], "1.35")).endswith(
        "unknown flag: --pod_infra_container_image"
    )
