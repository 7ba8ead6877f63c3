"""What a report says about the configuration and the machine besides pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring import KUBELET_VERSION
from mooring.core.cpuset import CPUSet
from mooring.core.machine import Machine
from mooring.node.settings import Settings
from mooring.render.report import ReportDistances


def settings_facts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield names and values of what the kubelet was told, as written in its configuration."""
    config = settings.config
    yield "kubelet", KUBELET_VERSION
    yield "CPU manager policy", config.cpu_manager_policy
    yield "CPU manager options", _pairs(config.cpu_manager_policy_options)
    yield "topology manager policy", config.topology_manager_policy
    yield "topology manager scope", config.topology_manager_scope
    yield "topology manager options", _pairs(config.topology_manager_policy_options)
    yield "memory manager policy", config.memory_manager_policy
    policy = settings.cpu
    reserved = CPUSet(policy.reserved) if policy is not None else settings.reservation.cpus
    yield "reserved CPUs", str(reserved) or "none"
    yield (
        "reserved memory",
        "; ".join(f"NUMA node {entry.numa_node}: {_pairs(entry.limits)}" for entry in config.reserved_memory) or "none",
    )
    yield "maximum of pods", str(config.max_pods)
    yield "feature gates set", _pairs({name: str(value).lower() for name, value in config.feature_gates.items()})
    yield "defects fixed", ", ".join(sorted(settings.fixed_defects)) or "none: all of the kubelet's are reproduced"
    if settings.extensions:
        yield "extensions", ", ".join(sorted(settings.extensions))
    if settings.plugins is not None:
        yield "plugins", ", ".join(one.name for one in settings.plugins.choice.plugins)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "none"


def distances_of(machine: Machine) -> ReportDistances | None:
    """Return the distances between the NUMA nodes: the hardware's, else those that the kubelet is told."""
    hardware = machine.hardware
    if hardware is not None and hardware.distances:
        return ReportDistances(hardware.distance_nodes, hardware.distances)
    # A node's row is by ascending node id, with no entry for absent ids (cAdvisor 0.60.5).
    told = sorted(machine.info.topology, key=lambda node: node.node_id)
    rows = tuple(node.distances for node in told if node.distances is not None)
    if not told or len(rows) != len(told) or any(len(row) != len(told) for row in rows):
        return None
    return ReportDistances(tuple(node.node_id for node in told), rows)
