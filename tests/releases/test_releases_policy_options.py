"""Policy options by release: groups, gates and texts (releases.md section 3, and rules of sections 7 and 8)."""

from __future__ import annotations

import pytest

from mooring.engine.core.config import MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.options import OPTION_GROUPS
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.gates import cpu_option_groups, topology_option_groups
from mooring.engine.releases.rule import RELEASE_NAMES
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


@pytest.mark.parametrize("name", CPU_GROUPS)
def test_groups_of_cpu_manager_options_are_those_of_the_specification(name: str) -> None:
    groups = CPU_GROUPS[name].split()
    assert [cpu_option_groups(release).get(name, "-") for release in RELEASE_NAMES[: len(groups)]] == groups


@pytest.mark.parametrize("name", TOPOLOGY_GROUPS)
def test_groups_of_topology_manager_options_are_those_of_the_specification(name: str) -> None:
    groups = TOPOLOGY_GROUPS[name].split()
    assert [topology_option_groups(release).get(name, "-") for release in RELEASE_NAMES[: len(groups)]] == groups


def test_the_managers_own_table_is_that_of_the_newest_release() -> None:
    assert cpu_option_groups("1.37") == OPTION_GROUPS


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
