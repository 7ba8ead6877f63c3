"""From configuration and machine to policies: texts, stages and their order (configuration.md section 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.node.nodes import GIB, config, machine, refusal, settings_of

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.node.settings import Settings, build_settings

STATIC = "new static policy error: "


def amount(cpu: str, **options: str) -> KubeletConfig:
    """Return a configuration that reserves an amount of CPU."""
    return KubeletConfig(
        cpu_manager_policy="static",
        system_reserved={"cpu": cpu},
        cpu_manager_policy_options=options,
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )


# Order.


def test_the_first_error_stops_in_the_kubelets_order() -> None:
    bad = KubeletConfig(
        feature_gates={"Nonsense": True},
        topology_manager_scope="x",
        reserved_system_cpus="99",
        topology_manager_policy="best-effort",
        topology_manager_policy_options={"x": "y"},
        cpu_manager_policy="x",
        memory_manager_policy="x",
    )
    stages = [refusal(bad).stage]
    steps: list[dict[str, Any]] = [
        {"feature_gates": {}},
        {"topology_manager_scope": "pod"},
        {"reserved_system_cpus": ""},
        {"topology_manager_policy_options": {}},
        {"cpu_manager_policy": "none"},
    ]
    for step in steps:
        bad = replace(bad, **step)
        stages.append(refusal(bad).stage)
    assert stages == ["decode", "validation", "reservation", "topologyManager", "cpuManager", "memoryManager"]


def test_empty_names_are_defaults() -> None:
    found = settings_of(
        KubeletConfig(
            cpu_manager_policy="", memory_manager_policy="", topology_manager_policy="", topology_manager_scope=""
        )
    )
    assert (found.topology_policy, found.pod_scope, found.cpu, found.memory) == ("none", False, None, None)


# Topology manager.


def topology_error(kubelet: KubeletConfig, **shape: object) -> str:
    found = refusal(kubelet, machine(**shape))  # type: ignore[arg-type]
    assert found.stage == "topologyManager"
    return found.message


def test_more_than_eight_nodes_have_to_be_allowed() -> None:
    kubelet = KubeletConfig(topology_manager_policy="best-effort")
    assert settings_of(kubelet, machine(8, 1)).numa.nodes == 0xFF
    text = "unsupported on machines with more than 8 NUMA Nodes"
    assert topology_error(kubelet, nodes=9, cores=1) == text
    allowed = replace(kubelet, topology_manager_policy_options={"max-allowable-numa-nodes": "9"})
    assert settings_of(allowed, machine(9, 1)).numa.nodes == 0x1FF
    assert topology_error(allowed, nodes=10, cores=1) == text.replace("8", "9")


@pytest.mark.parametrize(("policy", "kept"), [("best-effort", True), ("restricted", True), ("single-numa-node", False)])
def test_distances_are_kept_where_they_count(policy: str, kept: bool) -> None:
    options = {"prefer-closest-numa-nodes": "true"}
    kubelet = KubeletConfig(topology_manager_policy=policy, topology_manager_policy_options=options)
    distances = settings_of(kubelet).numa.distances
    assert distances == ({0: (10, 20), 1: (20, 10)} if kept else None)


def test_nodes_beyond_64_bits_are_refused_where_the_kubelet_crashes_later() -> None:
    kubelet = KubeletConfig(topology_manager_policy="best-effort")
    assert topology_error(kubelet, ids=(0, 64)) == "bit number must be in range 0-63"
    assert settings_of(KubeletConfig(), machine(ids=(0, 64))).numa.nodes == 0b1
    assert settings_of(kubelet, machine(ids=(0, 63))).numa_ids == (0, 63)


# CPU manager.


def cpu_error(kubelet: KubeletConfig, **shape: object) -> str:
    found = refusal(kubelet, machine(**shape))  # type: ignore[arg-type]
    assert found.stage == "cpuManager"
    return found.message


def test_unknown_policies() -> None:
    assert cpu_error(KubeletConfig(cpu_manager_policy="dynamic")) == 'unknown policy: "dynamic"'
    as_it_is = cpu_error(KubeletConfig(cpu_manager_policy='a"b\\c'))
    assert as_it_is == 'unknown policy: "a"b\\c"', "quotes around it, nothing escaped"
    found = refusal(KubeletConfig(memory_manager_policy="x"))
    assert found == StartRefusal("memoryManager", 'unknown policy: "x"')
    text = 'policy "BestEffort" is not available for platform "linux"'
    assert refusal(KubeletConfig(memory_manager_policy="BestEffort")) == StartRefusal("memoryManager", text)


@pytest.mark.parametrize("kubelet", [KubeletConfig(), KubeletConfig(cpu_manager_policy="other"), amount("1")])
def test_a_machine_without_cpus_stops_the_kubelet_whatever_the_policy(kubelet: KubeletConfig) -> None:
    found = refusal(kubelet, replace(machine(), num_cores=0))
    assert found == StartRefusal("cpuManager", "could not detect number of cpus")


def test_reserved_amounts_follow_the_options_of_taking() -> None:
    spread = settings_of(amount("2", **{"distribute-cpus-across-cores": "true"})).cpu
    distributed = settings_of(amount("10", **{"distribute-cpus-across-numa": "true"})).cpu
    assert spread is not None
    assert distributed is not None
    assert spread.reserved == 0b11
    assert [(distributed.reserved & node).bit_count() for node in distributed.topology.numa.values()] == [5, 5]


def test_errors_of_the_amount_come_before_those_of_options() -> None:
    kubelet = KubeletConfig(cpu_manager_policy="static", cpu_manager_policy_options={"fast": "true"})
    assert cpu_error(kubelet) == "[cpumanager] unable to determine reserved CPU resources for static policy"


def test_an_endless_reservation_is_reported() -> None:
    """Four nodes of two cores and a half, where two CPUs make a core on average."""
    nodes = tuple(
        NUMANode(
            node, GIB, cores=tuple(Core(3 * node + core, threads, node // 2) for core, threads in enumerate(cores))
        )
        for node, cores in enumerate(
            ((5 * node, 5 * node + 1), (5 * node + 2, 5 * node + 3), (5 * node + 4,)) for node in range(4)
        )
    )
    info = MachineInfo(num_cores=24, num_sockets=2, memory_capacity=4 * GIB, topology=nodes)
    kubelet = amount("14", **{"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"})
    text = f"{STATIC}the kubelet would not return (defect group-loop)"
    assert refusal(kubelet, info) == StartRefusal("cpuManager", text)
    assert isinstance(build_settings(kubelet, MooringConfig(fixed_defects=frozenset({"group-loop"})), info), Settings)


def test_what_a_policy_knows() -> None:
    found = settings_of(
        config(options={"strict-cpu-reservation": "true"}, reserved="0-1", gates={"PodLevelResourceManagers": True})
    )
    policy = found.cpu
    assert policy is not None
    assert policy.reserved_cores == 0b11_0000_0011
    assert policy.strict_reservation
    assert (policy.gates.resources, policy.gates.managers) == (True, True)
    assert found.pod_level == policy.gates
    assert str(found.allocatable_cpus) == "2-15"
    assert str(settings_of(KubeletConfig()).allocatable_cpus) == ""
