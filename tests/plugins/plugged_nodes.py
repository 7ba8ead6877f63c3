"""Nodes with the plugins that come with Mooring, and what must hold on them whoever chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.laws.laws_whole_node import cpu_breaks
from tests.plans import started_kubelet

from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import CPUFacts, CPUKind
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.policy import exclusive_cpus
from mooring.engine.extensions.owners import hidden_of_pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.node import Decision, Node
from mooring.inputs.configuration.mooring_config import plugin_choice
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import load_machine

SNAPSHOTS = Path(__file__).parents[2].parent / "shared" / "machines"

STATIC = KubeletConfig(cpu_manager_policy="static", kube_reserved={"cpu": "1"}, eviction_hard={})
WHOLE = replace(STATIC, cpu_manager_policy_options={"full-pcpus-only": "true"})

LAKEFIELD = "cores=1 threads=1 efficiency-cores=4 memory=8Gi"
"""One large core and four small ones, without SMT, as an Intel Core i5-L16G7."""


@cache
def machine_named(name: str) -> Machine:
    """Return a shipped machine, one in a line, or a snapshot beside the repository; skip the test without that."""
    if (SNAPSHOTS / name).is_dir():
        return load_machine(str(next((SNAPSHOTS / name).glob("*.tar.gz"))))
    if "=" in name:
        return parse_compact(name)
    try:
        return load_machine(name)
    except Exception:  # noqa: BLE001 - whatever is wrong with a name that is neither
        pytest.skip(f"the recorded machine {name} is not here")


def with_facts(machine: Machine, isolated: str = "", kinds: Mapping[int, str] | None = None) -> Machine:
    """Return a machine of which more is known than its description tells."""
    found = tuple(CPUKind(rank, CPUSet.parse(cpus)) for rank, cpus in (kinds or {}).items())
    facts = CPUFacts(found or machine.info.facts.kinds, CPUSet.parse(isolated))
    return replace(machine, info=replace(machine.info, facts=facts))


def plugged(*plugins: object, extensions: frozenset[str] = frozenset()) -> MooringConfig:
    """Return Mooring's document with plugins, written as in a file."""
    choice = plugin_choice({"plugins": list(plugins)})
    return MooringConfig(extensions=frozenset({"plugins"}) | extensions, plugins=choice)


def node_on(
    machine: Machine | str, *plugins: object, config: KubeletConfig = STATIC, files: StateTexts | None = None
) -> Kubelet:
    """Return a started kubelet with plugins."""
    described = machine_named(machine) if isinstance(machine, str) else machine
    return started_kubelet(described.info, config, plugged(*plugins), files)


def named(plugin: str, placement: str = "", **settings: Any) -> dict[str, Any]:
    """Return the entry of a plugin."""
    return {"name": plugin, "settings": settings, **({"placement": placement} if placement else {})}


def container(name: str, cpus: int, kind: ContainerKind = ContainerKind.APP) -> Container:
    limits = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse("1Mi")}
    return Container(name, kind, limits, limits)


def pod(name: str, *cpus: int, namespace: str = "default", **annotations: str) -> Pod:
    """Return a Guaranteed pod with a container for each number; ``core_kind`` is ``mooring/core-kind``."""
    found = {f"mooring/{key.replace('__', '.').replace('_', '-')}": value for key, value in annotations.items()}
    containers = tuple(container(f"c{index}", number) for index, number in enumerate(cpus))
    return Pod(name, name, namespace, containers, QoS.GUARANTEED, annotations=found)


def cpus_of(decision: Decision, name: str = "c0") -> CPUSet:
    """Return what an admitted pod's container has."""
    assert decision.admitted, decision.message
    return decision.containers[name].cpus


def topology_of(kubelet: Kubelet) -> Topology:
    """Return the topology of a node with a CPU manager."""
    assert kubelet.settings.topology is not None
    return kubelet.settings.topology


def reserved_of(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs that a node keeps for the system."""
    assert kubelet.settings.cpu is not None
    return CPUSet(kubelet.settings.cpu.reserved)


def breaks(node: Node) -> Iterator[str]:
    """Yield what breaks the laws of a node, and containers with another number of CPUs than they want or no cores."""
    yield from cpu_breaks(node)
    policy = node.settings.cpu
    assert policy is not None
    for one in node.active.values():
        hidden = hidden_of_pod(node.cpu, one.uid)
        for each in one.containers:
            cpus = node.cpu.assignments.get(one.uid, {}).get(each.name, 0)
            need = exclusive_cpus(one, each, policy.gates)
            if cpus.bit_count() != need:
                yield f"{one.uid}/{each.name} has {list_text(cpus)} where {need} are wanted"
            whole = cpus | hidden.get(each.name, 0)
            if policy.rules.whole_cores and policy.topology.core_siblings(CPUMask(whole)) != whole:
                yield f"{one.uid}/{each.name} has {list_text(cpus)}, no whole cores"
