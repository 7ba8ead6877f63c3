"""Single fields of pods: annotations of extensions, scale-down delay, priority, claims, what a resize has allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.values import refusal

from mooring.agent.journal import pod_of_text, text_of_pod
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.fields import Document
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates
from mooring.inputs.pods.pod_files import pods_of
from mooring.inputs.pods.pods import pod_from_object

PLAIN = PodGates()
GATES = {
    "": PLAIN,
    "on": PodGates.of({DELAY_GATE: True}, {"scale-down-delay"}),
    "all": PodGates.of({"AllAlpha": True}, {"scale-down-delay"}),
    "off": PodGates.of({}, {"scale-down-delay"}),
}
CLAIMS = [{"name": "cpus", "resourceClaimName": "fast"}, {"name": "own", "resourceClaimTemplateName": "each"}]
MADE = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "web-own-x1"}, {"name": "gone"}]}


def table(name: str) -> Any:
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


def pod(
    spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    containers = [{"name": "app", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]
    metadata = {"name": "web", "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **(spec or {})}, "status": status}


def read(content: dict[str, Any], gates: PodGates = PLAIN) -> Pod:
    return pod_from_object(content, source="f.yaml", gates=gates)


def gates_of(case: dict[str, Any]) -> PodGates:
    return GATES.get(case.get("kubelet", "")) or PodGates.of({}, [case["kubelet"]])


def pod_of(case: dict[str, Any]) -> dict[str, Any]:
    return pod(case.get("spec"), case.get("annotations"), case.get("status"))


@pytest.mark.parametrize("case", table("fields-read.yaml"), ids=lambda case: str(case["name"]))
def test_a_field_is_read_and_what_no_extension_knows_is_passed_over(case: dict[str, Any]) -> None:
    found = getattr(read(pod_of(case), gates_of(case)), case["member"])
    assert (list(found) if isinstance(found, tuple) else found) == case["value"]


@pytest.mark.parametrize("case", table("fields-refused.yaml"), ids=lambda case: str(case["says"]))
def test_what_a_field_cannot_say_is_refused(case: dict[str, Any]) -> None:
    assert refusal(read, pod_of(case), gates_of(case)).startswith(f"f.yaml: {case['says']}")


def test_a_journal_keeps_claims() -> None:
    claiming = read(pod({"resourceClaims": CLAIMS}, {}, MADE))
    assert pod_of_text(text_of_pod(claiming)) == claiming


TWO, FOUR = {"cpu": "2", "memory": "1Gi"}, {"cpu": "4", "memory": "2Gi"}
BOTH = {"requests": FOUR, "limits": FOUR}


@pytest.mark.parametrize("init", [False, True], ids=["app", "sidecar"])
@pytest.mark.parametrize(
    ("resources", "allocated", "requests", "limits"),
    [
        (BOTH, {}, FOUR, FOUR),
        (BOTH, FOUR, FOUR, FOUR),
        # The memory manager looks at how an amount is written.
        (BOTH, {"cpu": "4000m", "memory": "2048Mi"}, FOUR, FOUR),
        (BOTH, {"nvidia.com/gpu": "1"}, FOUR, FOUR),
        (BOTH, TWO, TWO, TWO),
        ({"requests": {"cpu": "4"}}, TWO, {"cpu": "2"}, {}),
    ],
    ids=["nothing", "as wanted", "as wanted in other words", "another resource", "less", "not requested"],
)
def test_what_is_allocated_takes_the_place_of_what_is_wanted(
    resources: dict[str, Any],
    allocated: dict[str, str],
    requests: dict[str, str],
    limits: dict[str, str],
    *,
    init: bool,
) -> None:
    item = {"name": "one", "resources": resources, "restartPolicy": "Always"}
    statuses = [{"name": "other", "allocatedResources": TWO}, {"name": "one", "allocatedResources": allocated}]
    fields = ("initContainers", "initContainerStatuses") if init else ("containers", "containerStatuses")
    content = pod({fields[0]: [item]}, {}, {"phase": "Running", fields[1]: statuses})
    [found] = pods_of([Document(content, "f.json", 1, 1)])
    one = found.container("one")
    assert one is not None
    assert [{name: str(amount) for name, amount in part.items()} for part in (one.requests, one.limits)] == [
        requests,
        limits,
    ]
    assert item["resources"] is resources, "the object itself is not changed"


@pytest.mark.parametrize("statuses", [{}, [{"name": 5}]])
def test_a_status_of_the_wrong_shape_is_bad_input(statuses: Any) -> None:
    with pytest.raises(InputError):
        pods_of([Document(pod({}, {}, {"containerStatuses": statuses}), "f.json", 1, 1)])
