"""Alignment of memory and devices is measured, and alignment by luck never wins against a guarantee."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.planner.compared import FIGURES, STATIC, trace, varied

from mooring.answers.base.changes.configuration import AlignmentPromise
from mooring.answers.compare.answer import Comparison, compare
from mooring.answers.compare.measures import MEASURES, AlignedContainersPart, VariantPart, rank_key
from mooring.answers.compare.variant import Dimension
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.loader import load_machine

GPU = "vendor.example/gpu"
NODE = load_machine("sockets=2 numa=2 cores=8 threads=1 memory=32Gi")
"""Nodes 0-3 and 4-7; CPU 0 is reserved."""
PINNING = replace(
    STATIC,
    memory_manager_policy="Static",
    kube_reserved={"memory": "1948Mi"},
    reserved_memory=(ReservedMemory(0, {"memory": "2Gi"}),),
)


def trainer(name: str, cpus: int, gpus: int) -> Pod:
    texts = {"cpu": str(cpus), "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    amounts = {resource: Quantity.parse(text) for resource, text in texts.items()}
    return Pod(
        f"uid-{name}", name, containers=(Container("main", requests=amounts, limits=amounts),), qos=QoS.GUARANTEED
    )


def by_policy(
    pods: list[Pod], config: KubeletConfig = STATIC, gpus: tuple[int, ...] = (0, 1), by: str = "guaranteed"
) -> Comparison:
    """Compare the topology policies on a node with a GPU on each of some NUMA nodes."""
    devices = {GPU: tuple(Device(f"gpu-{number}", (node,)) for number, node in enumerate(gpus))}
    variants = [replace(one, devices=devices) for one in varied(NODE, config, Dimension.TOPOLOGY_POLICY)]
    return compare(trace(pods), variants, by=by)


def policies(comparison: Comparison) -> list[str]:
    return [one.settings.topology_manager_policy for one in comparison.document.variants]


def of_policy(comparison: Comparison, policy: str) -> VariantPart:
    return next(one for one in comparison.document.variants if one.settings.topology_manager_policy == policy)


def of_devices(found: VariantPart) -> tuple[int, int]:
    """Return how many containers with devices are aligned, and how many there are."""
    return found.aligned.devices, found.device_containers


def test_devices_far_from_the_cpus_are_counted() -> None:
    # Without hints the CPUs of the first pod come from NUMA node 0 and its GPU is gpu-0; the second gets CPUs of both.
    found = by_policy([trainer("one", 2, 0), trainer("two", 3, 1)], gpus=(0,))
    assert of_devices(of_policy(found, "none")) == (0, 1)
    # Of the two the GPU is where the CPUs are, when hints are used.
    assert of_devices(of_policy(by_policy([trainer("two", 3, 1)], gpus=(1,)), "restricted")) == (1, 1)


def test_memory_away_from_the_cpus_is_counted() -> None:
    found = by_policy([trainer("one", 2, 0), trainer("two", 4, 0)], PINNING)
    without, sure = of_policy(found, "none"), of_policy(found, "restricted")
    assert without.memory_containers == sure.memory_containers == 2
    assert without.aligned.memory < 2
    assert sure.aligned.memory == 2


def test_a_policy_that_promises_nothing_does_not_win_when_it_aligns_as_much() -> None:
    found = by_policy([trainer("one", 3, 1), trainer("two", 4, 1)])
    assert len({one.admitted for one in found.document.variants}) == 1, "every policy decides the same here"
    assert policies(found)[-2:] == ["best-effort", "none"]
    assert not found.document.variants[0].is_luck


def test_a_policy_that_promises_nothing_wins_by_admitting_more_only_where_that_is_the_measure() -> None:
    pods = [trainer("one", 2, 0), trainer("two", 2, 0), trainer("three", 3, 0)]
    found = by_policy(pods, by="admitted")
    assert policies(found)[:2] == ["best-effort", "none"]
    assert found.document.variants[0].is_luck
    assert policies(by_policy(pods))[-2:] == ["best-effort", "none"]


def test_align_by_socket_guarantees_sockets_and_not_numa_nodes() -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    config = replace(STATIC, cpu_manager_policy_options={"align-by-socket": "true"}, feature_gates=gates)
    found = by_policy([trainer("one", 4, 0)], config)
    measured_ = of_policy(found, "restricted")
    assert (measured_.promise, measured_.is_luck, measured_.is_socket_luck) == (AlignmentPromise.SOCKET, True, False)
    assert MEASURES["numa"](measured_) == (0,)
    assert MEASURES["socket"](measured_) == (-1,)


def test_without_anything_to_align_the_given_configuration_stays_first() -> None:
    shared = Pod("uid-shared", "shared", containers=(Container("main"),), qos=QoS.BEST_EFFORT)
    assert policies(by_policy([shared]))[0] == "none"


@st.composite
def measured(draw: st.DrawFn, promise: AlignmentPromise) -> VariantPart:
    small = st.integers(0, 3)
    numa, socket, l3, memory, devices = (draw(small) for _ in range(5))
    return structs.replace(
        FIGURES,
        admitted=4,
        exclusive_containers=3,
        memory_containers=3,
        device_containers=3,
        aligned=AlignedContainersPart(numa, socket, l3, 3, memory, devices),
        spread=round(draw(st.integers(3, 6)) / 3, 3),
        alignment_promise=promise.name.lower(),
    )


@pytest.mark.parametrize("by", sorted(set(MEASURES) - {"socket"}))
@given(
    measured(AlignmentPromise.GUARANTEE),
    st.sampled_from([AlignmentPromise.NOTHING, AlignmentPromise.ATTEMPT]).flatmap(measured),
)
@settings(deadline=None, max_examples=50)
def test_luck_never_outranks_a_guarantee(by: str, sure: VariantPart, lucky: VariantPart) -> None:
    assert rank_key(sure, by) < rank_key(lucky, by)
