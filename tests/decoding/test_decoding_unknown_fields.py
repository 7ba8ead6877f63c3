"""A misspelt field of a pod, a workload or a configuration is named with its line and the nearest field."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.values import cases, refusal

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.pods.pod_files import load_pods

POD, DEPLOYMENT, CONFIGURATION = (
    (Path(__file__).parent / f"misspelt-{name}.yaml").read_text(encoding="utf-8")
    for name in ("pod", "deployment", "kubelet")
)


def warnings(folder: Path, text: str) -> list[str]:
    """Return what is reported about the pods of a text."""
    (folder / "pods.yaml").write_text(text, encoding="utf-8")
    found: list[Finding] = []
    load_pods([folder / "pods.yaml"], report=found.append)
    return [one.message.removeprefix(f"{folder}/") for one in found if one.code == "MOOR-512"]


MANY = ", ".join(
    f'{{"metadata": {{"name": "p{n}", "x": 1}}, "spec": {{"containers": [{{"name": "c"}}]}}}}' for n in "abc"
)
OTHER = '{"kind": "PodGroup", "apiVersion": "vendor.com/v1", "metadata": {"nonsense": 1}, "spec": {"x": 1}}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{POD}---\n{DEPLOYMENT}",
            [
                "10:5: Container has no field resource; did you mean resources?",
                "16:3: DeploymentSpec has no field replica; did you mean replicas?",
                "22:11: ResourceRequirements has no field limit; did you mean limits?",
            ],
        ),
        (
            f'{{"kind": "PodList",\n "items": [{MANY}]}}',
            ["2:40: ObjectMeta has no field x (here and in 2 more places)"],
        ),
        (f'{{"kind": "List", "items": [{OTHER}]}}', []),
        ("kind: Pod\nmetadata: {name: 0a.b-c}\nspec: {containers: [{name: c-1}]}", []),
    ],
    ids=["of documents and templates", "of many pods once", "of unknown kinds", "names that are taken"],
)
def test_unknown_fields_are_named_with_their_lines(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert [one.removeprefix("pods.yaml:") for one in warnings(tmp_path, text)] == expected


def test_fields_in_the_parts_of_a_configuration_are_checked(tmp_path: Path) -> None:
    (tmp_path / "k.yaml").write_text(CONFIGURATION, encoding="utf-8")
    found = load_config(tmp_path / "k.yaml").findings
    assert [(one.subject, one.message.removeprefix(f"{tmp_path}/")) for one in found] == [
        ("authentication.anonymus", "k.yaml:3:3: KubeletAuthentication has no field anonymus; did you mean anonymous?"),
        ("reservedMemory[0].numaNodes", "k.yaml:5:3: MemoryReservation has no field numaNodes; did you mean numaNode?"),
    ]


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
        *cases(__file__, "refused-names.yaml", "text", "says"),
        (f"kind: Pod\nmetadata: {{name: {'a' * 254}}}\nspec: {{containers: [{{name: c}}]}}", "at most 253"),
    ],
)
def test_names_and_objects_that_no_api_server_takes_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in refusal(warnings, tmp_path, text)
