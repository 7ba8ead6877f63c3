"""Laws of the known feature gates and of how a configuration sets them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from mooring.core.gatenames import KUBELET_GATES
from mooring.core.gates import DECODE_PREFIX, GATES, REMOVED_GATES, SWITCHES, FeatureGates, Stage, resolve_gates

POD_LEVEL = "PodLevelResources"


def resolved(configured: Mapping[str, bool]) -> FeatureGates:
    gates = resolve_gates(configured)
    assert isinstance(gates, FeatureGates), gates
    return gates


def test_every_gate_of_the_managers_and_both_switches_are_known() -> None:
    assert set(GATES) | set(SWITCHES.values()) <= KUBELET_GATES


def test_removed_gates_are_not_known() -> None:
    assert not REMOVED_GATES & KUBELET_GATES


def test_names_are_those_of_exported_go_identifiers() -> None:
    assert [name for name in KUBELET_GATES if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []


def test_the_names_of_gates_count_not_those_of_their_constants() -> None:
    assert {"CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriApi"} <= KUBELET_GATES
    assert not {"CPUCFSQuotaPeriod", "RuntimeClassInImageCriAPI", "LoggingStableOptions"} & KUBELET_GATES


def test_no_switch_reaches_a_locked_gate() -> None:
    assert [name for name, gate in GATES.items() if gate.locked and gate.stage in SWITCHES] == []


@pytest.mark.parametrize("on", [False, True])
def test_known_gates_that_the_managers_do_not_read_have_no_effect(on: bool) -> None:
    others = KUBELET_GATES - set(GATES) - set(SWITCHES.values())
    assert resolved(dict.fromkeys(others, on)) == resolved({})


@pytest.mark.parametrize("name", [*sorted(REMOVED_GATES), "NoSuchGate", "allalpha", ""])
def test_unknown_and_removed_gates_are_refused(name: str) -> None:
    assert resolve_gates({name: True}) == f"{DECODE_PREFIX}unrecognized feature gate: {name}"


# AllAlpha on with AllBeta off is left out: the kubelet refuses it, because of gates that are not read here.
@pytest.mark.parametrize(("alpha", "beta"), [(False, False), (False, True), (True, True)])
def test_each_switch_sets_the_gates_of_its_stage_and_no_others(alpha: bool, beta: bool) -> None:
    gates = resolved({"AllAlpha": alpha, "AllBeta": beta})
    switched = {Stage.ALPHA: alpha, Stage.BETA: beta}
    assert gates.values == {name: switched.get(gate.stage, gate.default) for name, gate in GATES.items()}


def test_a_switch_leaves_the_other_stages_at_their_defaults() -> None:
    expected = {name: gate.stage is not Stage.BETA and gate.default for name, gate in GATES.items()}
    assert resolved({"AllBeta": False}).values == expected


def test_a_gate_set_by_name_wins_over_its_switch_in_any_order() -> None:
    named, switch = {"MemoryQoS": True}, {"AllBeta": False}
    for configured in (named | switch, switch | named):
        gates = resolved(configured)
        assert gates["MemoryQoS"]
        assert not gates[POD_LEVEL]


def test_needs_are_checked_after_the_switches() -> None:
    refused = resolve_gates({"AllBeta": False, "PodLevelResourceManagers": True})
    assert refused == (
        f"{DECODE_PREFIX}PodLevelResourceManagers is enabled, but depends on features that are disabled: [{POD_LEVEL}]"
    )
