"""The pod's own scale-down delay and its priority."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.errors import InputError
from mooring.inputs.archive.reduction import reduced_pods
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates
from mooring.inputs.pods.pod_fields import SCALE_DOWN_ANNOTATION, SCALE_DOWN_FIELD
from mooring.inputs.pods.pods import pod_from_object

ON = PodGates.of({DELAY_GATE: True}, {"scale-down-delay"})
GATE_OFF = PodGates.of({}, {"scale-down-delay"})


def pod(
    annotations: dict[str, str] | None = None, spec: dict[str, Any] | None = None, status: dict[str, str] | None = None
) -> dict[str, Any]:
    containers = [{"name": "app", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]
    return {
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": annotations or {}},
        "spec": {"containers": containers, **(spec or {})},
        "status": status or {},
    }


def with_field(value: Any, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return pod(annotations, {SCALE_DOWN_FIELD: value})


def grace(content: dict[str, Any], gates: PodGates = ON) -> int | None:
    return pod_from_object(content, source="f.yaml", gates=gates).scale_down_grace


def test_the_field_is_read_with_the_extension_only() -> None:
    assert grace(with_field(5)) == 5
    assert grace(with_field(0)) == 0
    assert grace(pod()) is None
    assert grace(with_field("no number"), PodGates()) is None


def test_the_annotation_stands_in_for_the_field_and_yields_to_it() -> None:
    assert grace(pod({SCALE_DOWN_ANNOTATION: "7"})) == 7
    assert grace(with_field(3, {SCALE_DOWN_ANNOTATION: "7"})) == 3
    assert grace(pod({SCALE_DOWN_ANNOTATION: "7"}), GATE_OFF) == 7
    assert grace(pod({SCALE_DOWN_ANNOTATION: "x"}), PodGates()) is None


@pytest.mark.parametrize("value", [-1, 11, 2**40, "5", True, 2.5])
def test_other_values_of_the_field_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match=rf"f\.yaml: spec\.{SCALE_DOWN_FIELD}"):
        grace(with_field(value))


@pytest.mark.parametrize("text", ["", "11", "-1", "5s", "1.5", "٣"])
def test_other_texts_of_the_annotation_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="annotations"):
        grace(pod({SCALE_DOWN_ANNOTATION: text}))


def test_a_new_pod_with_the_field_needs_the_gate_and_one_that_the_api_server_took_does_not() -> None:
    with pytest.raises(InputError, match=DELAY_GATE):
        grace(with_field(5), GATE_OFF)
    assert grace(pod({}, {SCALE_DOWN_FIELD: 5}, {"qosClass": "Guaranteed"}), GATE_OFF) == 5


def test_all_alpha_switches_the_gate_on() -> None:
    assert grace(with_field(5), PodGates.of({"AllAlpha": True}, {"scale-down-delay"})) == 5


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({}, 0),
        ({"priority": 1000}, 1000),
        ({"priority": -5}, -5),
        ({"priorityClassName": "system-cluster-critical"}, 2_000_000_000),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ({"priorityClassName": "mine"}, 0),
        ({"priorityClassName": "mine", "priority": 7}, 7),
    ],
    ids=["nothing", "number", "negative", "cluster", "node", "unknown class", "class with number"],
)
def test_priority_comes_from_the_number_or_a_class_that_every_cluster_has(spec: dict[str, Any], priority: int) -> None:
    assert pod_from_object(pod({}, spec), source="x").priority == priority


def test_a_priority_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match=r"spec\.priority"):
        pod_from_object(pod({}, {"priority": "high"}), source="x")


def test_an_archive_keeps_delay_and_priority() -> None:
    given = pod(
        {SCALE_DOWN_ANNOTATION: "7", "other": "x"}, {"priorityClassName": "system-node-critical", SCALE_DOWN_FIELD: 3}
    )
    (reduced,) = reduced_pods([given])
    kept, whole = (pod_from_object(content, source="x", gates=ON) for content in (reduced, given))
    assert (kept.scale_down_grace, kept.priority) == (whole.scale_down_grace, whole.priority)
    assert reduced["metadata"]["annotations"] == {SCALE_DOWN_ANNOTATION: "7"}
