"""Policy options by release: groups, gates and texts (releases.md section 3, and rules of sections 7 and 8)."""

from __future__ import annotations

import pytest

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.options import OPTION_GROUPS
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.gates import cpu_option_groups, topology_option_groups
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.topologymanager.options import OPTION_GROUPS as TOPOLOGY_OPTION_GROUPS
from mooring.inputs.configuration.kubelet_config import kubelet_config
from mooring.inputs.machines.compact import parse_compact

CPU_GROUPS = {
    "full-pcpus-only": "beta beta stable stable stable stable stable",
    "distribute-cpus-across-numa": "alpha alpha beta beta beta beta beta",
    "align-by-socket": "alpha alpha alpha alpha alpha alpha alpha",
    "distribute-cpus-across-cores": "alpha alpha alpha alpha alpha alpha alpha",
    "strict-cpu-reservation": "- alpha beta beta stable stable stable",
    "prefer-align-cpus-by-uncorecache": "- alpha alpha beta beta stable stable",
}
TOPOLOGY_GROUPS = {
    "prefer-closest-numa-nodes": "beta stable stable stable stable stable stable",
    "max-allowable-numa-nodes": "beta beta beta beta stable stable stable",
}
MACHINE = parse_compact("sockets=2 cores=4 threads=2 memory=32Gi")


def started(release: str, **fields: object) -> Settings | StartRefusal:
    config = KubeletConfig(**{"cpu_manager_policy": "static", "system_reserved": {"cpu": "1"}, **fields})  # type: ignore[arg-type]
    return build_settings(config, MooringConfig(release=RELEASES[release]), MACHINE.info)


def refusal(release: str, **fields: object) -> tuple[str, str]:
    found = started(release, **fields)
    assert isinstance(found, StartRefusal), found
    return found.stage, found.message


@pytest.mark.parametrize("name", CPU_GROUPS)
def test_groups_of_cpu_manager_options_are_those_of_the_specification(name: str) -> None:
    groups = CPU_GROUPS[name].split()
    assert [cpu_option_groups(release).get(name, "-") for release in RELEASE_NAMES[: len(groups)]] == groups


@pytest.mark.parametrize("name", TOPOLOGY_GROUPS)
def test_groups_of_topology_manager_options_are_those_of_the_specification(name: str) -> None:
    groups = TOPOLOGY_GROUPS[name].split()
    assert [topology_option_groups(release).get(name, "-") for release in RELEASE_NAMES[: len(groups)]] == groups


def test_the_managers_own_tables_are_those_of_the_newest_release() -> None:
    assert cpu_option_groups("1.37") == OPTION_GROUPS
    assert topology_option_groups("1.37") == TOPOLOGY_OPTION_GROUPS


def test_options_that_came_later_are_unknown() -> None:
    stage, message = refusal("1.31", cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    assert (stage, message) == (
        "cpuManager",
        'new static policy error: unknown CPU Manager Policy option: "strict-cpu-reservation"',
    )


@pytest.mark.parametrize(("release", "starts"), [("1.33", False), ("1.34", True)])
def test_an_alpha_option_needs_the_gate_of_its_group(release: str, starts: bool) -> None:
    options = {"prefer-align-cpus-by-uncorecache": "true"}
    assert isinstance(started(release, cpu_manager_policy_options=options), Settings) is starts


@pytest.mark.parametrize(
    ("release", "begins"),
    [
        ("1.32", "Topology Manager Policy Beta-level Options"),
        ("1.33", "topology manager policy beta-level options"),
    ],
)
def test_topology_options_of_a_closed_group_are_refused_in_the_words_of_the_release(release: str, begins: str) -> None:
    found = refusal(
        release,
        topology_manager_policy="restricted",
        topology_manager_policy_options={"max-allowable-numa-nodes": "8"},
        feature_gates={"TopologyManagerPolicyBetaOptions": False},
    )
    assert found == ("topologyManager", f'{begins} not enabled, but option "max-allowable-numa-nodes" provided')


@pytest.mark.parametrize("policy", ["none", "static"])
def test_options_of_the_cpu_manager_need_their_gate_whatever_the_policy(policy: str) -> None:
    stage, message = refusal(
        "1.32",
        cpu_manager_policy=policy,
        cpu_manager_policy_options={"full-pcpus-only": "true", "align-by-socket": "true"},
        feature_gates={"CPUManagerPolicyOptions": False},
    )
    options = "map[align-by-socket:true full-pcpus-only:true]"
    needed = 'require feature gates "CPUManager", "CPUManagerPolicyOptions" enabled'
    assert (stage, message) == ("options", f"CPU Manager policy options {options} {needed}")


def test_options_of_the_topology_manager_need_their_gate() -> None:
    off = {"TopologyManagerPolicyOptions": False}
    options = {"prefer-closest-numa-nodes": "true"}
    needed = 'require feature gates "TopologyManagerPolicyOptions" enabled'
    text = f"topology manager policy options map[prefer-closest-numa-nodes:true] {needed}"
    for release in ("1.31", "1.32", "1.35"):
        assert refusal(release, topology_manager_policy_options=options, feature_gates=off) == ("options", text)
        assert isinstance(started(release, feature_gates=off), Settings)
    assert refusal("1.36", feature_gates=off)[0] == "decode"


def test_an_empty_map_of_options_needs_the_gate_too() -> None:
    """The kubelet asks whether there is a map, not whether something is in it (cmd/kubelet/app/server.go, run)."""
    off = {"CPUManagerPolicyOptions": False, "TopologyManagerPolicyOptions": False}
    for field, text in (
        (
            "cpuManagerPolicyOptions",
            'CPU Manager policy options map[] require feature gates "CPUManager", "CPUManagerPolicyOptions" enabled',
        ),
        (
            "topologyManagerPolicyOptions",
            'topology manager policy options map[] require feature gates "TopologyManagerPolicyOptions" enabled',
        ),
    ):
        config = kubelet_config({field: {}, "featureGates": off}, source="test")
        found = build_settings(config, MooringConfig(release=RELEASES["1.32"]), MACHINE.info)
        assert found == StartRefusal("options", text)
        config = kubelet_config({field: None, "featureGates": off}, source="test")
        assert isinstance(build_settings(config, MooringConfig(release=RELEASES["1.32"]), MACHINE.info), Settings)


def test_gates_are_refused_after_decoding_in_the_oldest_release() -> None:
    gates = {"PodLevelResources": True}
    assert refusal("1.31", feature_gates=gates) == ("featureGates", "unrecognized feature gate: PodLevelResources")
    assert isinstance(started("1.32", feature_gates=gates), Settings)


@pytest.mark.parametrize(
    ("release", "text"),
    [("1.31", 'unknown policy: "BestEffort"'), ("1.32", 'policy "BestEffort" is not available for platform "linux"')],
)
def test_the_memory_policy_best_effort_is_refused_in_the_words_of_the_release(release: str, text: str) -> None:
    assert refusal(release, memory_manager_policy="BestEffort") == ("memoryManager", text)
