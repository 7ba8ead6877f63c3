"""Pods of the API server while a resize is on its way."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agent.pods.fault_injector import pod_object

from mooring.agent.pods.resolve import pod_of_object
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import QoS


def resized(wanted: dict[str, Any], **status: Any) -> dict[str, Any]:
    obj = pod_object("web")
    obj["spec"]["containers"][0]["resources"] = wanted
    obj["status"]["containerStatuses"] = [{"name": "app", **status}]
    return obj


def amounts(obj: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    (one,) = pod_of_object(obj, source="test").containers
    return (
        {name: str(amount) for name, amount in one.requests.items()},
        {name: str(amount) for name, amount in one.limits.items()},
    )


def test_a_resize_that_is_not_accepted_yet_does_not_count() -> None:
    wanted = {"cpu": "4", "memory": "2Gi"}
    allocated = {"cpu": "2", "memory": "1Gi"}
    obj = resized({"requests": wanted, "limits": wanted}, allocatedResources=allocated)
    assert amounts(obj) == (allocated, allocated)


def test_a_limit_of_its_own_is_what_the_runtime_has() -> None:
    wanted = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    obj = resized(wanted, allocatedResources={"cpu": "1"}, resources={"limits": {"cpu": "3"}})
    obj["status"]["qosClass"] = "Burstable"
    assert amounts(obj) == ({"cpu": "1"}, {"cpu": "3"})


def test_init_containers_and_pod_level_resources_are_allocated_too() -> None:
    two, four = {"cpu": "2", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}
    obj = pod_object("web")
    obj["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": four, "limits": four}}
    ]
    obj["spec"]["resources"] = {"requests": {"cpu": "9", "memory": "4Gi"}, "limits": {"cpu": "9", "memory": "4Gi"}}
    obj["status"]["initContainerStatuses"] = [{"name": "side", "allocatedResources": two}]
    obj["status"]["allocatedResources"] = {"cpu": "5", "memory": "4Gi"}
    pod = pod_of_object(obj, source="test")
    assert str(pod.containers[0].limits["cpu"]) == "2"
    assert pod.resources is not None
    assert str(pod.resources.requests["cpu"]) == str(pod.resources.limits["cpu"]) == "5"
    assert pod.qos is QoS.GUARANTEED


def test_the_sum_of_a_pod_without_resources_of_its_own_is_not_taken_for_them() -> None:
    obj = pod_object("web", allocatedResources={"cpu": "1"})
    assert pod_of_object(obj, source="test").resources is None


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": 1},
        {"containerStatuses": [{"name": 1}]},
        {"containerStatuses": [{"name": "app", "allocatedResources": [1]}]},
        {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "many"}}]},
    ],
)
def test_a_status_of_the_wrong_shape_is_bad_input(status: dict[str, Any]) -> None:
    obj = pod_object("web", **status)
    with pytest.raises(InputError):
        pod_of_object(obj, source="test")
