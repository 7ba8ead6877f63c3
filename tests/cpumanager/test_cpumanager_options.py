"""Options of the static policy (configuration.md sections 4.1 and 4.2)."""

from __future__ import annotations

from itertools import product

from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import OPTION_GROUPS, CPUOptions, parse_options
from mooring.engine.releases.gates import known_gates


def gates(**configured: bool) -> FeatureGates:
    resolved = resolve_gates(configured, known_gates("1.37"))
    assert isinstance(resolved, FeatureGates)
    return resolved


EVERYTHING = gates(CPUManagerPolicyAlphaOptions=True)


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
