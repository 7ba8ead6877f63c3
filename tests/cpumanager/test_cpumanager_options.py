"""Options of the static policy (configuration.md sections 4.1 and 4.2)."""

from __future__ import annotations

from itertools import product

import pytest
from tests.cpumanager.machines import fixture
from tests.faults import text_of

from mooring.engine.core.gates import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import OPTION_GROUPS, CPUOptions, TakeRules, check_against_machine, parse_options
from mooring.engine.releases.gates import known_gates


def gates(**configured: bool) -> FeatureGates:
    resolved = resolve_gates(configured, known_gates("1.37"))
    assert isinstance(resolved, FeatureGates)
    return resolved


EVERYTHING = gates(CPUManagerPolicyAlphaOptions=True)


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_twelve_words_are_boolean(word: str) -> None:
    assert text_of(parse_options({"full-pcpus-only": word}, gates())) == CPUOptions(frozenset({"full-pcpus-only"}))


@pytest.mark.parametrize("word", ["0", "f", "F", "FALSE", "false", "False"])
def test_false_switches_nothing_on(word: str) -> None:
    assert text_of(parse_options({"full-pcpus-only": word}, gates())) == CPUOptions()


@pytest.mark.parametrize("word", ["", "yes", "tRUE", " true", "2"])
def test_other_words_are_refused(word: str) -> None:
    text = f'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "{word}": invalid syntax'
    assert text_of(parse_options({"full-pcpus-only": word}, gates())) == text


@pytest.mark.parametrize("value", ["true", "false", "nonsense"])
def test_unknown_options_and_groups_come_before_the_value(value: str) -> None:
    assert text_of(parse_options({"fast": value}, EVERYTHING)) == 'unknown CPU Manager Policy option: "fast"'
    for name, group in OPTION_GROUPS.items():
        if group == "alpha":
            text = f'CPU Manager Policy Alpha-level Options not enabled, but option "{name}" provided'
            assert text_of(parse_options({name: value}, gates())) == text
        if group == "beta":
            text = f'CPU Manager Policy Beta-level Options not enabled, but option "{name}" provided'
            assert text_of(parse_options({name: value}, gates(CPUManagerPolicyBetaOptions=False))) == text


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
        passed += isinstance(parse_options(dict(zip(names, words, strict=True)), EVERYTHING), CPUOptions)
    assert passed == 28


@pytest.mark.parametrize(
    ("on", "pair"),
    [
        (
            ("full-pcpus-only", "distribute-cpus-across-numa", "distribute-cpus-across-cores"),
            "full-pcpus-only and distribute-cpus-across-cores",
        ),
        (
            ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa", "distribute-cpus-across-cores"),
            "distribute-cpus-across-numa and distribute-cpus-across-cores",
        ),
        (
            ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
            "prefer-align-cpus-by-uncorecache and distribute-cpus-across-cores",
        ),
        (
            ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
            "prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa",
        ),
    ],
)
def test_the_first_incompatible_pair_is_named(on: tuple[str, ...], pair: str) -> None:
    expected = f"static policy options {pair} can not be used at the same time"
    assert text_of(parse_options(dict.fromkeys(on, "true"), EVERYTHING)) == expected


def test_each_option_reaches_its_rule() -> None:
    def rules(*on: str) -> TakeRules:
        options = parse_options(dict.fromkeys(on, "true"), EVERYTHING)
        assert isinstance(options, CPUOptions)
        return options.take_rules(frozenset({"saved-combo"}))

    fixed = frozenset({"saved-combo"})
    assert rules() == TakeRules(fixed_defects=fixed)
    assert rules("full-pcpus-only") == TakeRules(whole_cores=True, fixed_defects=fixed)
    assert rules("strict-cpu-reservation") == TakeRules(fixed_defects=fixed)
    assert rules("prefer-align-cpus-by-uncorecache") == TakeRules(uncore=True, fixed_defects=fixed)
    assert rules("distribute-cpus-across-numa") == TakeRules(distribute=True, fixed_defects=fixed)
    assert rules("align-by-socket") == TakeRules(align_by_socket=True, fixed_defects=fixed)
    assert rules("distribute-cpus-across-cores") == TakeRules(spread=True, fixed_defects=fixed)


ALIGN = CPUOptions(frozenset({"align-by-socket"}))
TYPO = "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
SOCKETS = "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"


@pytest.mark.parametrize(
    ("options", "machine", "policy", "fixed", "text"),
    [
        (ALIGN, "2S4N80", "single-numa-node", frozenset(), TYPO),
        (ALIGN, "2S4N80", "single-numa-node", frozenset({"hint-typo"}), TYPO.replace("Topolgy", "Topology")),
        (ALIGN, "1S8", "single-numa-node", frozenset(), TYPO),
        (ALIGN, "1S8", "restricted", frozenset(), SOCKETS),
        (ALIGN, "2S4N80", "restricted", frozenset(), ""),
        (ALIGN, "S384", "none", frozenset(), ""),
        (CPUOptions(), "1S8", "single-numa-node", frozenset(), ""),
    ],
)
def test_align_by_socket_is_checked_against_the_machine(
    options: CPUOptions, machine: str, policy: str, fixed: frozenset[str], text: str
) -> None:
    assert text_of(check_against_machine(options, fixture(machine), policy, fixed)) == text
