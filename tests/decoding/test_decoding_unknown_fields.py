"""A misspelt field of a pod, a workload or a configuration is named with its line and the nearest field."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.pods.pod_files import load_pods

POD = """\
kind: Pod
metadata:
  name: web
  annotations: {vendor.com/anything: "1"}
  labels: {any-key: x}
spec:
  nodeSelector: {vendor.com/gpu: "true"}
  containers:
  - name: app
    resource:
      limits: {cpu: 2}
"""
DEPLOYMENT = """\
kind: Deployment
metadata: {name: web}
spec:
  replica: 3
  template:
    spec:
      containers:
      - name: app
        resources:
          limit: {cpu: 2}
"""
CONFIGURATION = """\
kind: KubeletConfiguration
authentication:
  anonymus: {enabled: true}
reservedMemory:
- numaNodes: 0
  limits: {memory: 1Gi}
evictionHard: {memory.available: 100Mi}
"""


def warnings(folder: Path, text: str) -> list[str]:
    """Return what is reported about the pods of a text."""
    (folder / "pods.yaml").write_text(text, encoding="utf-8")
    found: list[Finding] = []
    load_pods([folder / "pods.yaml"], report=found.append)
    return [one.message.removeprefix(f"{folder}/") for one in found if one.code == "MOOR-512"]


def test_a_misspelt_field_of_a_container_is_named_with_its_line(tmp_path: Path) -> None:
    assert warnings(tmp_path, POD) == ["pods.yaml:10:5: Container has no field resource; did you mean resources?"]


def test_the_lines_of_a_later_document_and_of_a_template_are_those_of_the_file(tmp_path: Path) -> None:
    assert warnings(tmp_path, f"{POD}---\n{DEPLOYMENT}") == [
        "pods.yaml:10:5: Container has no field resource; did you mean resources?",
        "pods.yaml:16:3: DeploymentSpec has no field replica; did you mean replicas?",
        "pods.yaml:22:11: ResourceRequirements has no field limit; did you mean limits?",
    ]


def test_a_field_that_many_pods_have_is_reported_once(tmp_path: Path) -> None:
    pods = ", ".join(
        f'{{"metadata": {{"name": "p{n}", "x": 1}}, "spec": {{"containers": [{{"name": "c"}}]}}}}' for n in "abc"
    )
    (found,) = warnings(tmp_path, f'{{"kind": "PodList",\n "items": [{pods}]}}')
    assert found.startswith("pods.yaml:2:40: ObjectMeta has no field x (here and in 2 more places)")


def test_objects_of_unknown_kinds_are_not_checked(tmp_path: Path) -> None:
    other = '{"kind": "PodGroup", "apiVersion": "vendor.com/v1", "metadata": {"nonsense": 1}, "spec": {"x": 1}}'
    assert warnings(tmp_path, f'{{"kind": "List", "items": [{other}]}}') == []


def test_fields_in_the_parts_of_a_configuration_are_checked(tmp_path: Path) -> None:
    (tmp_path / "k.yaml").write_text(CONFIGURATION, encoding="utf-8")
    found = load_config(tmp_path / "k.yaml").findings
    assert [(one.subject, one.message.removeprefix(f"{tmp_path}/")) for one in found] == [
        ("authentication.anonymus", "k.yaml:3:3: KubeletAuthentication has no field anonymus; did you mean anonymous?"),
        ("reservedMemory[0].numaNodes", "k.yaml:5:3: MemoryReservation has no field numaNodes; did you mean numaNode?"),
    ]


def test_a_missing_field_that_is_misspelt_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"PodSpec has no field container \(spec.container\); did you mean containers"):
        warnings(tmp_path, "kind: Pod\nmetadata: {name: x}\nspec:\n  container: []\n")


def test_an_unknown_field_leaves_another_refusal_its_remedy_and_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(DEPLOYMENT.replace("limit: {cpu: 2}", "limits: {hugepage-2Mi: 1}"), encoding="utf-8")
    found: list[Finding] = []
    with pytest.raises(InputError, match=r"hugepage-2Mi: is not a container resource; did you mean hugepages-2Mi\?"):
        load_pods([path], report=found.append)
    assert [(one.subject, one.message) for one in found] == [
        ("spec.replica", f"{path}:4:3: DeploymentSpec has no field replica; did you mean replicas?")
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("metadata: {name: x}\nspec: {containers: [{name: c}]}", "kind: must not be empty"),
        ("kind: Pod\nmetadata: {name: A_b}\nspec: {containers: [{name: c}]}", "'A_b' is not a valid name; write a-b"),
        ("kind: Pod\nmetadata: {name: a..b}\nspec: {containers: [{name: c}]}", "'a..b' is not a valid name"),
        (
            "kind: Pod\nmetadata: {name: a, namespace: a.b}\nspec: {containers: [{name: c}]}",
            "'a.b' is not a valid name",
        ),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: C1}]}", "'C1' is not a valid name; write c1"),
        (f"kind: Pod\nmetadata: {{name: {'a' * 254}}}\nspec: {{containers: [{{name: c}}]}}", "at most 253"),
    ],
)
def test_names_and_objects_that_no_api_server_takes_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        warnings(tmp_path, text)
    assert complaint in str(refused.value)


def test_names_that_the_api_server_takes_are_taken(tmp_path: Path) -> None:
    assert warnings(tmp_path, "kind: Pod\nmetadata: {name: 0a.b-c}\nspec: {containers: [{name: c-1}]}") == []
