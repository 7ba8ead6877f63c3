"""Options of the static policy, scale-delay-time among them (configuration.md section 4, resize.md section 5.2)."""

from __future__ import annotations

from itertools import product

import pytest
from tests.faults import text_of

from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import OPTION_GROUPS, parse_options
from mooring.engine.releases.gates import known_gates


def gates_of_137(**configured: bool) -> FeatureGates:
    resolved = resolve_gates(configured, known_gates("1.37"))
    assert isinstance(resolved, FeatureGates)
    return resolved


EVERYTHING = gates_of_137(CPUManagerPolicyAlphaOptions=True)


def test_groups_in_this_release() -> None:
    assert OPTION_GROUPS == {
        "full-pcpus-only": "stable",
        "strict-cpu-reservation": "stable",
        "prefer-align-cpus-by-uncorecache": "stable",
        "distribute-cpus-across-numa": "beta",
        "align-by-socket": "alpha",
        "distribute-cpus-across-cores": "alpha",
    }


def test_28_of_64_combinations_pass() -> None:
    names = [*OPTION_GROUPS]
    passed = 0
    for words in product(["true", "false"], repeat=len(names)):
        passed += isinstance(parse_options(dict(zip(names, words, strict=True)), EVERYTHING), tuple)
    assert passed == 28


V137 = known_gates("1.37")
MILLISECOND = 1_000_000
ON = frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY})
RESIZE, DELAY = "InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay"


def gates(**configured: bool) -> FeatureGates:
    found = resolve_gates({"CPUManagerPolicyAlphaOptions": True, **configured}, V137, ON)
    assert isinstance(found, FeatureGates), found
    return found


def parsed(text: str, **configured: bool) -> object:
    return text_of(parse_options({"scale-delay-time": text}, gates(**configured), ON))


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0s", 0), ("0ms", 0), ("5s", 5000), ("500ms", 500), ("10s", 10000), ("10000ms", 10000), ("007s", 7000)],
)
def test_seconds_and_milliseconds_are_read(text: str, milliseconds: int) -> None:
    assert parsed(text, **{RESIZE: True}) == (frozenset(), milliseconds * MILLISECOND)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "+5s", "1.5s", "5S", "5s ", "1m", "5us", "1s500ms", "٥s"])
def test_other_texts_are_refused(text: str) -> None:
    expected = f'bad value for option "scale-delay-time": time: invalid duration "{text}"'
    assert parsed(text, **{RESIZE: True}) == expected


@pytest.mark.parametrize("text", ["11s", "10001ms", "999999999999s"])
def test_more_than_ten_seconds_are_refused(text: str) -> None:
    expected = 'bad value for option "scale-delay-time": must be between 0s and 10s'
    assert parsed(text, **{RESIZE: True}) == expected


def test_a_delay_needs_the_gate_of_the_resizes_and_none_does_not() -> None:
    assert parsed("1ms") == f'option "scale-delay-time" needs the feature gate {RESIZE}'
    assert parsed("0s") == (frozenset(), 0)


def test_the_option_belongs_to_the_alpha_group() -> None:
    expected = 'CPU Manager Policy Alpha-level Options not enabled, but option "scale-delay-time" provided'
    assert parsed("0s", CPUManagerPolicyAlphaOptions=False) == expected


def test_without_the_extension_the_option_is_unknown() -> None:
    expected = 'unknown CPU Manager Policy option: "scale-delay-time"'
    assert text_of(parse_options({"scale-delay-time": "0s"}, gates(**{RESIZE: True}), {EXCLUSIVE_RESIZE})) == expected


def test_other_options_stand_beside_it() -> None:
    both = {"scale-delay-time": "1s", "full-pcpus-only": "true"}
    assert parse_options(both, gates(**{RESIZE: True}), ON) == (frozenset({"full-pcpus-only"}), 10**9)


def test_the_gate_of_pods_is_known_with_the_extension_only_and_needs_the_other() -> None:
    unknown = f"unrecognized feature gate: {DELAY}"
    assert text_of(resolve_gates({DELAY: True, RESIZE: True}, V137, {EXCLUSIVE_RESIZE})) == unknown
    unmet = f"{DELAY} is enabled, but depends on features that are disabled: [{RESIZE}]"
    assert text_of(resolve_gates({DELAY: True}, V137, ON)) == unmet
    assert gates()[DELAY] is False
    assert gates(**{RESIZE: True, DELAY: True})[DELAY] is True
