"""Options of the static policy, scale-delay-time among them (configuration.md section 4, resize.md section 5.2)."""

from __future__ import annotations

from itertools import combinations as combinations_of

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults import text_of

from mooring.engine.core.config import EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import OPTION_GROUPS, parse_options
from mooring.engine.releases.gates import known_gates

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


def test_the_delay_is_an_option_of_the_alpha_group_that_the_extension_brings() -> None:
    expected = 'CPU Manager Policy Alpha-level Options not enabled, but option "scale-delay-time" provided'
    assert parsed("0s", CPUManagerPolicyAlphaOptions=False) == expected
    unknown = 'unknown CPU Manager Policy option: "scale-delay-time"'
    assert text_of(parse_options({"scale-delay-time": "0s"}, gates(**{RESIZE: True}), {EXCLUSIVE_RESIZE})) == unknown


@pytest.mark.parametrize(("beta", "alpha", "passed"), [(True, True, 28), (True, False, 12), (False, False, 8)])
def test_so_many_of_64_combinations_pass(*, beta: bool, alpha: bool, passed: int) -> None:
    known = gates(CPUManagerPolicyBetaOptions=beta, CPUManagerPolicyAlphaOptions=alpha)
    combinations = (dict.fromkeys(on, "true") for size in range(7) for on in combinations_of(OPTION_GROUPS, size))
    assert sum(isinstance(parse_options(options, known), tuple) for options in combinations) == passed


def test_other_options_stand_beside_it() -> None:
    both = {"scale-delay-time": "1s", "full-pcpus-only": "true"}
    assert parse_options(both, gates(**{RESIZE: True}), ON) == (frozenset({"full-pcpus-only"}), 10**9)


TRUE, FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def test_twelve_words_are_boolean() -> None:
    for word in (*TRUE, *FALSE):
        on = frozenset({"full-pcpus-only"} if word in TRUE else ())
        assert parse_options({"full-pcpus-only": word}, gates()) == (on, 0)


@given(st.text(max_size=6).filter(lambda text: text not in (*TRUE, *FALSE)))
def test_other_words_are_refused(text: str) -> None:
    fault = f'bad value for option "full-pcpus-only": strconv.ParseBool: parsing {quoted(text)}: invalid syntax'
    assert text_of(parse_options({"full-pcpus-only": text}, gates())) == fault


def quoted(name: str) -> str:
    """Return a text as Go quotes it: as that of an option that it does not know."""
    return str(text_of(parse_options({name: ""}, gates()))).removeprefix("unknown CPU Manager Policy option: ")
