"""Laws of the known feature gates and of how a configuration sets them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from mooring.core.gates import DECODE_PREFIX, MANAGER_GATES, REMOVED_GATES, SWITCHES, FeatureGates, resolve_gates
from mooring.core.kubelet_gates import KUBELET_GATES, Stage

POD_LEVEL = "PodLevelResources"


def resolved(configured: Mapping[str, bool]) -> FeatureGates:
    gates = resolve_gates(configured)
    assert isinstance(gates, FeatureGates), gates
    return gates


def test_every_gate_of_the_managers_and_both_switches_are_known() -> None:
    assert MANAGER_GATES | set(SWITCHES.values()) <= set(KUBELET_GATES)


def test_removed_gates_are_not_known() -> None:
    assert not REMOVED_GATES & set(KUBELET_GATES)


def test_names_are_those_of_exported_go_identifiers() -> None:
    assert [name for name in KUBELET_GATES if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []


def test_the_names_of_gates_count_not_those_of_their_constants() -> None:
    assert {"CustomCPUCFSQuotaPeriod", "RuntimeClassInImageCriApi"} <= set(KUBELET_GATES)
    assert not {"CPUCFSQuotaPeriod", "RuntimeClassInImageCriAPI", "LoggingStableOptions"} & set(KUBELET_GATES)


def test_no_switch_reaches_a_locked_gate() -> None:
    assert [name for name, gate in KUBELET_GATES.items() if gate.locked and gate.stage in SWITCHES] == []


def test_every_need_is_a_gate_and_none_needs_itself() -> None:
    for name, gate in KUBELET_GATES.items():
        assert set(gate.needs) <= set(KUBELET_GATES) - {name}
        assert list(gate.needs) == sorted(gate.needs)


def test_the_defaults_meet_every_need() -> None:
    assert resolved({}).values == {name: gate.default for name, gate in KUBELET_GATES.items()}


@pytest.mark.parametrize("name", [*sorted(REMOVED_GATES), "NoSuchGate", "allalpha", ""])
def test_unknown_and_removed_gates_are_refused(name: str) -> None:
    assert resolve_gates({name: True}) == f"{DECODE_PREFIX}unrecognized feature gate: {name}"


def test_all_alpha_gates_need_beta_gates_that_are_off() -> None:
    refused = resolve_gates({"AllAlpha": True})
    assert isinstance(refused, str)
    assert "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload]" in refused


@pytest.mark.parametrize(("alpha", "beta"), [(False, False), (False, True), (True, True)])
def test_each_switch_sets_the_gates_of_its_stage_and_no_others(alpha: bool, beta: bool) -> None:
    gates = resolved({"AllAlpha": alpha, "AllBeta": beta})
    switched = {Stage.ALPHA: alpha, Stage.BETA: beta}
    assert gates.values == {name: switched.get(gate.stage, gate.default) for name, gate in KUBELET_GATES.items()}


def test_a_switch_leaves_the_other_stages_at_their_defaults() -> None:
    expected = {name: gate.stage is not Stage.BETA and gate.default for name, gate in KUBELET_GATES.items()}
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
