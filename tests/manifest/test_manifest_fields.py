"""Single fields of pods: annotations of extensions, scale-down delay, priority, claims, what a resize has allocated."""

from __future__ import annotations

from typing import Any

import pytest
from tests.values import refusal

from mooring.agent.journal import pod_of_text, text_of_pod
from mooring.engine.core.config import DEVICE_ALIGNMENT, MIXED_CPUS
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.fields import Document
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates
from mooring.inputs.pods.pod_files import pods_of
from mooring.inputs.pods.pods import pod_from_object

PLAIN = PodGates()
ON = PodGates.of({DELAY_GATE: True}, {"scale-down-delay"})
GATE_OFF = PodGates.of({}, {"scale-down-delay"})
MIXED, ALIGNED = (PodGates.of({}, [extension]) for extension in (MIXED_CPUS, DEVICE_ALIGNMENT))
FIELD, DELAY = "scaleDownGracePeriodSeconds", "mooring/scale-down-grace-period-seconds"
SEVEN = {DELAY: "7"}
CLAIMS = [{"name": "cpus", "resourceClaimName": "fast"}, {"name": "own", "resourceClaimTemplateName": "each"}]
MADE = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "web-own-x1"}, {"name": "gone"}]}
TWICE = [{"name": name, "resourceClaimName": "fast"} for name in ("one", "two")]


def pod(
    spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    containers = [{"name": "app", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]
    metadata = {"name": "web", "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **(spec or {})}, "status": status}


def read(content: dict[str, Any], gates: PodGates = PLAIN) -> Pod:
    return pod_from_object(content, source="f.yaml", gates=gates)


@pytest.mark.parametrize(
    ("content", "gates", "member", "value"),
    [
        (pod({FIELD: 5}), ON, "scale_down_grace", 5),
        (pod({FIELD: 0}), ON, "scale_down_grace", 0),
        (pod({FIELD: 5}), PodGates.of({"AllAlpha": True}, {"scale-down-delay"}), "scale_down_grace", 5),
        (pod({FIELD: 5}, {}, {"qosClass": "Guaranteed"}), GATE_OFF, "scale_down_grace", 5),
        (pod(), ON, "scale_down_grace", None),
        (pod({FIELD: "no number"}), PLAIN, "scale_down_grace", None),
        (pod({}, SEVEN), ON, "scale_down_grace", 7),
        (pod({FIELD: 3}, SEVEN), ON, "scale_down_grace", 3),
        (pod({}, SEVEN), GATE_OFF, "scale_down_grace", 7),
        (pod({}, {DELAY: "x"}), PLAIN, "scale_down_grace", None),
        (pod(), PLAIN, "priority", 0),
        (pod({"priority": 1000}), PLAIN, "priority", 1000),
        (pod({"priority": -5}), PLAIN, "priority", -5),
        (pod({"priorityClassName": "system-cluster-critical"}), PLAIN, "priority", 2_000_000_000),
        (pod({"priorityClassName": "system-node-critical"}), PLAIN, "priority", 2_000_001_000),
        (pod({"priorityClassName": "mine"}), PLAIN, "priority", 0),
        (pod({"priorityClassName": "mine", "priority": 7}), PLAIN, "priority", 7),
        (pod({"resourceClaims": CLAIMS}), PLAIN, "claims", ("fast",)),
        (pod({"resourceClaims": CLAIMS}, {}, MADE), PLAIN, "claims", ("fast", "web-own-x1")),
        (pod({"resourceClaims": TWICE}), PLAIN, "claims", ("fast",)),
        (pod(), PLAIN, "claims", ()),
        (pod({"resourceClaims": None}), PLAIN, "claims", ()),
        (pod({}, {"mooring/mixed-cpus": "true"}), MIXED, "annotations", {"mooring/mixed-cpus": "true"}),
        (pod({}, {"mooring/mixed-cpus": "1"}), PLAIN, "name", "web"),
        (pod({}, {"mooring/device-alignment": "gpus=x"}), PLAIN, "name", "web"),
        (pod({}, {"mooring/device-alignment": "gpus=require"}), ALIGNED, "name", "web"),
    ],
)
def test_a_field_is_read_and_what_no_extension_knows_is_passed_over(
    content: dict[str, Any], gates: PodGates, member: str, value: Any
) -> None:
    assert getattr(read(content, gates), member) == value


@pytest.mark.parametrize(
    ("content", "gates", "message"),
    [
        *((pod({FIELD: value}), ON, f"spec.{FIELD}: ") for value in (-1, 11, 2**40, "5", True, 2.5)),
        *((pod({}, {DELAY: text}), ON, "metadata.annotations.") for text in ("", "11", "-1", "5s", "1.5", "٣")),
        (pod({FIELD: 5}), GATE_OFF, f"spec.{FIELD}: is forbidden while the feature gate {DELAY_GATE} is off"),
        (pod({"priority": "high"}), PLAIN, "spec.priority: "),
        (pod({"resourceClaims": "fast"}), PLAIN, "spec.resourceClaims: "),
        (
            pod({"resourceClaims": [{"name": "one", "resourceClaimName": 7}]}),
            PLAIN,
            "spec.resourceClaims[0].resourceClaimName: ",
        ),
        (
            pod({}, {"mooring/mixed-cpus": "1"}),
            MIXED,
            'metadata.annotations.mooring/mixed-cpus: \'1\' is neither true nor false; write "true" or "false"',
        ),
        (
            pod({}, {"mooring/mixed-cpus.ap": "true"}),
            MIXED,
            "metadata.annotations.mooring/mixed-cpus.ap: there is no such container; did you mean app?",
        ),
        (
            pod({}, {"mooring/device-alignment": "gpus=x"}),
            ALIGNED,
            "metadata.annotations.mooring/device-alignment: 'x' is not an al",
        ),
    ],
)
def test_what_a_field_cannot_say_is_refused(content: dict[str, Any], gates: PodGates, message: str) -> None:
    assert refusal(read, content, gates).startswith(f"f.yaml: {message}")


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
