"""Another amount makes of a pod the one that its manifest describes with that amount."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from mooring.answers.base.changes.nearest import nearest_changes
from mooring.answers.base.changes.requests import Amount, with_amount
from mooring.answers.base.plan import Question
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import QoS
from mooring.engine.core.quantity import Quantity
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object

TWO_NODES = replace(parse_compact("sockets=2 cores=8 threads=2 memory=32Gi"), findings=())
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0,8",
    topology_manager_policy="restricted",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)


def manifest(whole: dict[str, Any], **limits: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": name, "resources": {"limits": amounts}} for name, amounts in limits.items()]
    return {"metadata": {"name": "pl"}, "spec": {"resources": whole, "containers": containers}}


LIMITS = manifest({"limits": {"cpu": 8, "memory": "4Gi"}}, a={"cpu": 4, "memory": "1Gi"}, b={"cpu": 4, "memory": "3Gi"})
REQUESTS = manifest(
    {"requests": {"cpu": 6, "memory": "2Gi"}}, a={"cpu": 4, "memory": "1Gi"}, b={"cpu": 2, "memory": "1Gi"}
)
NOTHING_SHARED = manifest(
    {"limits": {"cpu": 8, "memory": "4Gi"}},
    a={"cpu": 4, "memory": "1Gi"},
    b={"cpu": 4, "memory": "2Gi"},
    c={"memory": "1Gi"},
)
"""The containers with exclusive CPUs use all CPUs of the pod."""


def edited(content: dict[str, Any], container: str, part: str, resource: str, amount: str) -> dict[str, Any]:
    changed = deepcopy(content)
    places = {one["name"]: one["resources"] for one in changed["spec"]["containers"]} | {
        "": changed["spec"]["resources"]
    }
    places[container].setdefault(part, {})[resource] = amount
    return changed


@pytest.mark.parametrize("content", [LIMITS, REQUESTS], ids=["limits", "requests"])
@pytest.mark.parametrize("amount", ["1", "2"])
def test_defaults_at_pod_level_follow_the_containers(content: dict[str, Any], amount: str) -> None:
    pod = pod_from_object(content, source="pod.yaml")
    changed = with_amount(pod, "b", "cpu", Quantity.parse(amount), PodGates())
    assert changed == pod_from_object(edited(content, "b", "limits", "cpu", amount), source="pod.yaml")


def test_an_amount_at_pod_level_is_no_default_any_more() -> None:
    pod = pod_from_object(REQUESTS, source="pod.yaml")
    more = with_amount(pod, "", "cpu", Quantity.parse("7"), PodGates())
    assert more == pod_from_object(edited(REQUESTS, "", "requests", "cpu", "7"), source="pod.yaml")
    less = with_amount(more, "b", "cpu", Quantity.parse("1"), PodGates())
    assert less.resources is not None
    assert less.resources.requests["cpu"] == Quantity.parse("7")


def test_a_default_above_the_limit_of_the_pod_is_refused() -> None:
    pod = pod_from_object(LIMITS, source="pod.yaml")
    with pytest.raises(InputError, match="above the limit"):
        with_amount(pod, "a", "cpu", Quantity.parse("5"), PodGates())


def test_a_stored_pod_keeps_its_resources() -> None:
    stored = pod_from_object({**LIMITS, "status": {"qosClass": "Guaranteed"}}, source="pod.yaml")
    assert with_amount(stored, "a", "cpu", Quantity.parse("2"), PodGates()).resources == stored.resources


def test_no_change_is_proposed_that_makes_the_pod_burstable() -> None:
    pod = pod_from_object(NOTHING_SHARED, source="pod.yaml")
    assert pod.qos is QoS.GUARANTEED
    found = nearest_changes(Question(TWO_NODES, CONFIG, pods=(pod,)), pod.uid, 100)
    assert found
    assert not any(isinstance(change, Amount) and change.container for one in found for change in one.changes)
