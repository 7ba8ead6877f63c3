"""On nine and ten NUMA nodes the whole node decides the same whether hints are described or listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods, quantities

import mooring.engine.cpumanager.hints as cpu_hints
import mooring.engine.devicemanager.hints as device_hints
import mooring.engine.memorymanager.hints as memory_hints
from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.pod import Container, Pod
from mooring.engine.node import Node

ROOMS = (cpu_hints, memory_hints, device_hints)
EVERY_MACHINE = 16


def wide(pod: Pod, factor: int) -> Pod:
    """Return a pod that asks for so many times as much, as a container may of several NUMA nodes."""

    def larger(one: Container) -> Container:
        asked = quantities({name: amount.units * factor for name, amount in one.requests.items()})
        return replace(one, requests=asked, limits=asked)

    return replace(pod, containers=tuple(map(larger, pod.containers)), resources=None)


def story(hard: Hardware, config: KubeletConfig, fixed: frozenset[str], asked: list[Pod], ended: int) -> list[object]:
    """Admit pods, remove one, restart in the end; return everything that was decided and given."""
    node = Node.fresh(hard.info, config, MooringConfig(fixed_defects=fixed)).with_devices(hard.devices)
    told: list[object] = []
    for number, pod in enumerate(asked):
        node, decision = node.admit(pod)
        told.append((decision.admitted, decision.rejection, decision.affinity, decision.containers, decision.devices))
        event(f"admitted {decision.admitted}")
        if number == ended:
            node, _ = node.remove(asked[0].uid)
        told.append((node.cpu, node.memory, node.providers.devices.held))
    again = node.restart()
    # A group that a removed pod left behind keeps v1.37.1 from starting.
    told.append(again if isinstance(again, StartRefusal) else [(one.uid, one.affinity) for one in again[1].decisions])
    return told


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    hardware(9, 10),
    configurations(),
    st.booleans(),
    st.tuples(*(st.builds(wide, pods(f"pod-{number}"), st.sampled_from([1, 3])) for number in range(8))),
    st.integers(0, 12),
)
def test_described_and_listed_hints_lead_to_the_same_decisions(
    hard: Hardware, config: KubeletConfig, fixed: bool, asked: tuple[Pod, ...], ended: int
) -> None:
    options = {**config.topology_manager_policy_options, "max-allowable-numa-nodes": "16"}
    config = replace(config, topology_manager_policy_options=options)
    defects = FIXABLE_DEFECTS if fixed else frozenset[str]()
    described = story(hard, config, defects, [*asked], ended)
    with pytest.MonkeyPatch.context() as patch:
        for room in ROOMS:
            patch.setattr(room, "MOST_LISTED", EVERY_MACHINE)
        assert story(hard, config, defects, [*asked], ended) == described
