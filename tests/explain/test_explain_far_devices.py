"""Devices of a container that are farther from one another than as many others of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mooring.answers.base.plan import Question, make_plan
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device
from mooring.explanations.remarks import all_remarks
from mooring.inputs.machines.compact import parse_compact

GPU = "nvidia.com/gpu"


def remarks_on(homes: dict[str, int], count: int, *, distances: bool = True) -> list[str]:
    """Return what is said about a pod that gets the first devices by name, whatever their nodes."""
    machine = parse_compact("sockets=2 numa=4 cores=16 threads=1 memory=64Gi")
    if not distances:
        bare = tuple(replace(node, distances=None) for node in machine.info.topology)
        machine = replace(machine, info=replace(machine.info, topology=bare))
    amount = {GPU: Quantity.parse(str(count))}
    pod = Pod("u", "d", "train", (Container("main", requests=amount, limits=amount),))
    devices = {GPU: tuple(Device(name, (node,)) for name, node in homes.items())}
    (answer,) = make_plan(Question(machine, KubeletConfig(), pods=(pod,), devices=devices)).answers
    return [remark.sentence for remark in all_remarks(answer.decision, answer.circumstances)]


@pytest.mark.parametrize(
    ("homes", "remark"),
    [
        (
            {"a": 0, "b": 2, "c": 3},
            "0,2 (distance 32); on an empty machine NUMA nodes 2-3 (distance 12) have",
        ),
        ({"a": 0, "b": 2, "c": 2}, "0,2 (distance 32); on an empty machine NUMA node 2 (distance 10) has"),
        ({"a": 0, "b": 1, "c": 2}, ""),
        ({"a": 0, "b": 0}, ""),
    ],
    ids=["other nodes are closer", "one node has them", "the closest pair", "one node"],
)
def test_devices_are_judged_by_the_distance_of_their_nodes(homes: dict[str, int], remark: str) -> None:
    sentences = [f"main has 2 GPUs (nvidia.com/gpu) on NUMA nodes {remark} as many"] if remark else []
    assert remarks_on(homes, 2) == sentences


def test_without_distances_only_the_number_of_nodes_counts() -> None:
    assert remarks_on({"a": 0, "b": 2, "c": 3}, 2, distances=False) == []
    (said,) = remarks_on({"a": 0, "b": 2, "c": 2}, 2, distances=False)
    assert said.endswith("on NUMA nodes 0,2; on an empty machine NUMA node 2 has as many")


def test_one_device_is_not_judged() -> None:
    assert remarks_on({"a": 0}, 1) == []
