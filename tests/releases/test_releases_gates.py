"""Laws of the feature gates of every release, and of how a configuration sets them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from hashlib import sha256

import pytest
from tests.faults import text_of

from mooring.engine.core.release import MANAGER_GATES, SWITCHES, FeatureGates, Gate, Stage, resolve_gates
from mooring.engine.releases.gates import GATE_NEEDS, known_gates
from mooring.engine.releases.rule import RELEASE_NAMES

POD_LEVEL = "PodLevelResources"
V137 = known_gates("1.37")
REMOVED = ("CPUManager", "MemoryManager", "TopologyManager")

RELEASES = pytest.mark.parametrize("release", RELEASE_NAMES)

SPECIFIED = {
    "CPUManager": "GA:on:L GA:on:L - - - - - -",
    "MemoryManager": "beta:on GA:on:L GA:on:L GA:on:L GA:on:L - - -",
    "CPUManagerPolicyOptions": "beta:on beta:on GA:on:L GA:on:L GA:on:L GA:on:L GA:on:L GA:on:L",
    "CPUManagerPolicyBetaOptions": "beta:on beta:on beta:on beta:on beta:on beta:on beta:on beta:on",
    "CPUManagerPolicyAlphaOptions": "alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off",
    "TopologyManagerPolicyOptions": "beta:on GA:on GA:on GA:on GA:on GA:on:L GA:on:L GA:on:L",
    "TopologyManagerPolicyBetaOptions": "beta:on beta:on beta:on beta:on beta:on beta:on beta:on beta:on",
    "TopologyManagerPolicyAlphaOptions": " ".join(8 * ["alpha:off"]),
    "PodLevelResources": "- alpha:off alpha:off beta:on beta:on beta:on beta:on beta:on",
    "PodLevelResourceManagers": "- - - - - alpha:off beta:off beta:off",
    "InPlacePodLevelResourcesVerticalScaling": "- - - - alpha:off beta:on beta:on beta:on",
    "PodLevelResourcesFixKubeletQOSClass": "- - - - - - beta:on beta:on",
    "PodLevelResourcesFixDefaulting": "- - - - - - beta:on beta:on",
    "InPlacePodVerticalScaling": "alpha:off alpha:off beta:on beta:on GA:on:L GA:on:L GA:on:L -",
    "InPlacePodVerticalScalingExclusiveCPUs": "- alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off",
    "InPlacePodVerticalScalingExclusiveMemory": "- - - alpha:off alpha:off alpha:off alpha:off alpha:off",
    "InPlacePodVerticalScalingInitContainers": "- - - - - beta:on GA:on:L GA:on:L",
    "DisableCPUQuotaWithExclusiveCPUs": "- - beta:on beta:on beta:on deprecated:on deprecated:on:L deprecated:on:L",
    "WindowsCPUAndMemoryAffinity": "- alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off beta:on",
    "SidecarContainers": "beta:on beta:on GA:on:L GA:on:L GA:on:L GA:on:L - -",
    "NodeDeclaredFeatures": "- - - - alpha:off beta:on GA:on:L GA:on:L",
    "MemoryQoS": "alpha:off alpha:off alpha:off alpha:off alpha:off alpha:off beta:on beta:on",
}
"""The table of spec: releases.md section 2, from 1.31 to 1.38; - is a gate that the release does not recognise."""
READ = {
    "1.31": (167, "8847a349da9a"),
    "1.32": (179, "541e8d08f061"),
    "1.33": (191, "21d83f2a95f4"),
    "1.34": (208, "ede1235e6a3a"),
    "1.35": (218, "8d1835e6c015"),
    "1.36": (242, "8e9c2dfbc455"),
    "1.37": (254, "54846151f134"),
    "1.38": (243, "9cb5b2b62d51"),
}
"""Release -> how many gates its sources register with the kubelet, and a digest of what they say."""


def resolved(configured: Mapping[str, bool]) -> FeatureGates:
    gates = resolve_gates(configured, V137)
    assert isinstance(gates, FeatureGates), gates
    return gates


def test_every_gate_of_the_managers_and_both_switches_are_known() -> None:
    assert MANAGER_GATES | set(SWITCHES.values()) <= set(V137.gates)


@RELEASES
def test_the_names_of_gates_count_not_those_of_their_constants(release: str) -> None:
    gates = set(known_gates(release).gates)
    assert {"CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriApi"} <= gates
    assert not {"CPUCFSQuotaPeriod", "RuntimeClassInImageCriAPI", "LoggingStableOptions"} & gates
    assert [name for name in gates if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []


@RELEASES
def test_no_switch_reaches_a_locked_gate(release: str) -> None:
    gates = known_gates(release).gates
    assert [name for name, gate in gates.items() if gate.locked and gate.stage in SWITCHES] == []


@RELEASES
def test_every_need_is_a_gate_of_the_same_release_and_none_needs_itself(release: str) -> None:
    gates = known_gates(release).gates
    for name, gate in gates.items():
        assert set(gate.needs) <= set(gates) - {name}
        assert list(gate.needs) == sorted(gate.needs)
        assert not gate.needs or release >= "1.35"


@RELEASES
def test_the_defaults_meet_every_need(release: str) -> None:
    known = known_gates(release)
    assert text_of(resolve_gates({}, known)) == FeatureGates({name: gate.default for name, gate in known.gates.items()})


@RELEASES
def test_the_gates_of_a_release_are_those_that_were_read_in_its_sources(release: str) -> None:
    known = known_gates(release)
    lines = [
        f"{name} {gate.stage.value} {gate.default} {gate.locked} {gate.needs}" for name, gate in known.gates.items()
    ]
    digest = sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]
    assert (len(lines), digest) == READ[release]


def test_needs_have_a_part_for_each_change_and_no_other() -> None:
    assert list(GATE_NEEDS) == sorted(GATE_NEEDS)
    for name, history in GATE_NEEDS.items():
        parts = [part.split(" ", 1) for part in history.split(", ")]
        releases = [release for release, _ in parts]
        assert set(releases) <= set(RELEASE_NAMES), name
        assert releases == sorted(set(releases)), name
        assert all(before[1] != after[1] for before, after in itertools.pairwise(parts)), name


@pytest.mark.parametrize("name", SPECIFIED)
def test_gates_of_the_managers_stand_in_each_release_as_specified(name: str) -> None:
    words = SPECIFIED[name].split()
    found = [known_gates(release).gates.get(name) for release in RELEASE_NAMES[: len(words)]]
    assert [_word(gate) for gate in found] == words


def _word(gate: Gate | None) -> str:
    if gate is None:
        return "-"
    return f"{gate.stage.value}:{'on' if gate.default else 'off'}{':L' if gate.locked else ''}"


@pytest.mark.parametrize("name", [*REMOVED, "NoSuchGate", "allalpha", ""])
def test_unknown_and_removed_gates_are_refused(name: str) -> None:
    assert text_of(resolve_gates({name: True}, V137)) == f"unrecognized feature gate: {name}"


@pytest.mark.parametrize(
    ("name", "until"), [("CPUManager", "1.32"), ("MemoryManager", "1.35"), ("SidecarContainers", "1.36")]
)
def test_a_removed_gate_is_accepted_by_the_releases_that_had_it_and_by_no_later_one(name: str, until: str) -> None:
    for release in RELEASE_NAMES:
        gates = resolve_gates({name: True}, known_gates(release))
        if release <= until:
            assert isinstance(gates, FeatureGates), (release, gates)
            assert gates[name]
        else:
            assert text_of(gates) == f"unrecognized feature gate: {name}", release


@pytest.mark.parametrize(("alpha", "beta"), [(False, False), (False, True), (True, True)])
def test_each_switch_sets_the_gates_of_its_stage_and_no_others(alpha: bool, beta: bool) -> None:
    gates = resolved({"AllAlpha": alpha, "AllBeta": beta})
    switched = {Stage.ALPHA: alpha, Stage.BETA: beta}
    assert gates.values == {name: switched.get(gate.stage, gate.default) for name, gate in V137.gates.items()}


def test_a_gate_set_by_name_wins_over_its_switch_in_any_order() -> None:
    named, switch = {"MemoryQoS": True}, {"AllBeta": False}
    for configured in (named | switch, switch | named):
        gates = resolved(configured)
        assert gates["MemoryQoS"]
        assert not gates[POD_LEVEL]


def test_needs_are_checked_after_the_switches() -> None:
    refused = resolve_gates({"AllBeta": False, "PodLevelResourceManagers": True}, V137)
    assert text_of(refused) == (
        f"PodLevelResourceManagers is enabled, but depends on features that are disabled: [{POD_LEVEL}]"
    )
