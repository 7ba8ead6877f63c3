"""What is counted of a pod while a resize is on its way; the agent and the extender read pods by it."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.errors import InputError
from mooring.inputs.pods.pod_fields import with_allocated

TWO, FOUR = {"cpu": "2", "memory": "1Gi"}, {"cpu": "4", "memory": "2Gi"}


def pod(resources: dict[str, Any], status: dict[str, Any], field: str = "containers") -> dict[str, Any]:
    return {"spec": {field: [{"name": "app", "image": "app:1", "resources": resources}]}, "status": status}


@pytest.mark.parametrize(
    "allocated", [{}, {"cpu": "4", "memory": "2Gi"}, {"cpu": "4000m", "memory": "2048Mi"}, {"nvidia.com/gpu": "1"}]
)
def test_without_a_resize_the_object_stays_as_it_is(allocated: dict[str, str]) -> None:
    """Also because the memory manager looks at how an amount is written."""
    obj = pod(
        {"requests": FOUR, "limits": FOUR}, {"containerStatuses": [{"name": "app", "allocatedResources": allocated}]}
    )
    assert with_allocated(obj) is obj


@pytest.mark.parametrize(
    ("field", "statuses"),
    [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")],
)
def test_what_is_allocated_takes_the_place_of_what_is_wanted_and_all_else_stays(field: str, statuses: str) -> None:
    status = {statuses: [{"name": "other", "allocatedResources": FOUR}, {"name": "app", "allocatedResources": TWO}]}
    obj = pod({"requests": FOUR, "limits": FOUR, "claims": [{"name": "c"}]}, status, field)
    (container,) = with_allocated(obj)["spec"][field]
    assert container == {
        "name": "app",
        "image": "app:1",
        "resources": {"requests": TWO, "limits": TWO, "claims": [{"name": "c"}]},
    }
    assert obj["spec"][field][0]["resources"]["requests"] == FOUR, "the object itself is not changed"


def test_what_is_not_requested_is_not_taken_from_the_status() -> None:
    obj = pod({"requests": {"cpu": "4"}}, {"containerStatuses": [{"name": "app", "allocatedResources": TWO}]})
    (container,) = with_allocated(obj)["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2"}, "limits": {}}


@pytest.mark.parametrize("status", [{"containerStatuses": {}}, {"containerStatuses": [{"name": 5}]}])
def test_a_status_of_the_wrong_shape_is_bad_input(status: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        with_allocated(pod({"requests": FOUR}, status))
