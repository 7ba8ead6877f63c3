"""Feature gates and policy options of every release: laws of the data, and how a configuration sets them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import pytest
from tests.faults import read_text, text_of

from mooring.engine.core.config import MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.release import MANAGER_GATES, SWITCHES, FeatureGates, Stage, resolve_gates
from mooring.engine.cpumanager.options import OPTION_GROUPS
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.gates import cpu_option_groups, known_gates, topology_option_groups
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.inputs.configuration.kubelet_config import kubelet_config
from mooring.inputs.machines.compact import parse_compact

POD_LEVEL = "PodLevelResources"
V137 = known_gates("1.37")
EACH = pytest.mark.parametrize("release", RELEASE_NAMES)

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
    assert MANAGER_GATES | set(SWITCHES.values()) <= set(V137)


@EACH
def test_no_switch_reaches_a_locked_gate(release: str) -> None:
    gates = known_gates(release)
    assert [name for name, gate in gates.items() if gate.locked and gate.stage in SWITCHES] == []


@EACH
def test_every_need_is_a_gate_of_the_same_release_and_none_needs_itself(release: str) -> None:
    gates = known_gates(release)
    for name, gate in gates.items():
        assert set(gate.needs) <= set(gates) - {name}
        assert list(gate.needs) == sorted(gate.needs)
        assert not gate.needs or release >= "1.35"


@EACH
def test_the_gates_of_a_release_are_those_that_were_read_in_its_sources(release: str) -> None:
    known = known_gates(release)
    lines = [f"{name} {gate.stage.value} {gate.default} {gate.locked} {gate.needs}" for name, gate in known.items()]
    digest = sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]
    assert (len(lines), digest) == READ[release]


@pytest.mark.parametrize("name", ["CPUManager", "MemoryManager", "TopologyManager", "NoSuchGate", "allalpha", ""])
def test_unknown_and_removed_gates_are_refused(name: str) -> None:
    assert text_of(resolve_gates({name: True}, V137)) == f"unrecognized feature gate: {name}"


@pytest.mark.parametrize(("alpha", "beta"), [(False, False), (False, True), (True, True)])
def test_each_switch_sets_the_gates_of_its_stage_and_no_others(alpha: bool, beta: bool) -> None:
    gates = resolved({"AllAlpha": alpha, "AllBeta": beta})
    switched = {Stage.ALPHA: alpha, Stage.BETA: beta}
    assert gates.values == {name: switched.get(gate.stage, gate.default) for name, gate in V137.items()}


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


def error(**configured: bool) -> str:
    return read_text(resolve_gates(configured, V137))


def test_needs_are_checked_one_by_one_and_together() -> None:
    needed = "is enabled, but depends on features that are disabled: [PodLevelResources]"
    others = {
        "PodLevelResourcesFixDefaulting": False,
        "PodLevelResourcesFixKubeletQOSClass": False,
        "InPlacePodLevelResourcesVerticalScaling": False,
    }
    assert isinstance(resolve_gates({"PodLevelResources": False, **others}, V137), FeatureGates)
    text = error(PodLevelResources=False, PodLevelResourceManagers=True, **others)
    assert text == f"PodLevelResourceManagers {needed}"
    names = [
        "InPlacePodLevelResourcesVerticalScaling",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourcesFixKubeletQOSClass",
    ]
    assert error(PodLevelResources=False) == f"[{', '.join(f'{name} {needed}' for name in names)}]"


def test_every_locked_gate_is_named_before_needs_are_checked() -> None:
    refused = error(NodeSwap=False, NodeDeclaredFeatures=False, PodLevelResources=False)
    locked = ["NodeDeclaredFeatures", "NodeSwap"]
    texts = [f"cannot set feature gate {name} to false, feature is locked to true" for name in locked]
    assert refused == f"[{', '.join(texts)}]"


GROUPS = {
    "full-pcpus-only": "beta beta stable stable stable stable stable",
    "distribute-cpus-across-numa": "alpha alpha beta beta beta beta beta",
    "align-by-socket": "alpha alpha alpha alpha alpha alpha alpha",
    "distribute-cpus-across-cores": "alpha alpha alpha alpha alpha alpha alpha",
    "strict-cpu-reservation": "- alpha beta beta stable stable stable",
    "prefer-align-cpus-by-uncorecache": "- alpha alpha beta beta stable stable",
    "prefer-closest-numa-nodes": "beta stable stable stable stable stable stable",
    "max-allowable-numa-nodes": "beta beta beta beta stable stable stable",
}
"""Option -> its groups from 1.31 on, in the words of the specification."""
MACHINE = parse_compact("sockets=2 cores=4 threads=2 memory=32Gi")


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_options_are_those_of_the_specification(name: str) -> None:
    known = [{**cpu_option_groups(release), **topology_option_groups(release)} for release in RELEASE_NAMES[:7]]
    assert " ".join(groups.get(name, "-") for groups in known) == GROUPS[name]


def test_the_managers_own_table_is_that_of_the_newest_release() -> None:
    assert cpu_option_groups("1.37") == OPTION_GROUPS


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            "cpuManagerPolicyOptions",
            'CPU Manager policy options map[] require feature gates "CPUManager", "CPUManagerPolicyOptions" enabled',
        ),
        (
            "topologyManagerPolicyOptions",
            'topology manager policy options map[] require feature gates "TopologyManagerPolicyOptions" enabled',
        ),
    ],
)
def test_an_empty_map_of_options_needs_the_gate_too(field: str, text: str) -> None:
    """The kubelet asks whether there is a map, not whether something is in it (cmd/kubelet/app/server.go, run)."""
    off = {"CPUManagerPolicyOptions": False, "TopologyManagerPolicyOptions": False}
    older = MooringConfig(release=RELEASES["1.32"])
    empty = kubelet_config({field: {}, "featureGates": off}, source="test")
    assert build_settings(empty, older, MACHINE.info) == StartRefusal("options", text)
    absent = kubelet_config({field: None, "featureGates": off}, source="test")
    assert isinstance(build_settings(absent, older, MACHINE.info), Settings)
