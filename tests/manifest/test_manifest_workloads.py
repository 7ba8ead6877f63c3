"""Pod templates in objects of other API groups: every one is found, with the pods that it stands for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.decoding.documents import load_documents
from mooring.manifest.pod_files import pods_of

FILES = Path(__file__).parent / "workloads"
"""Objects after the public API references of the projects, shortened."""


def names(path: Path, **more: Any) -> list[str]:
    return [pod.name for pod in pods_of(load_documents(path), **more)]


EXPECTED = {
    "volcano-job.yaml": {"mpi-mpimaster": 1, "mpi-mpiworker": 2},
    "jobset.yaml": {"paralleljobs-workers": 4, "paralleljobs-driver": 1},
    "leaderworkerset.yaml": {"vllm-leader": 2, "vllm-worker": 6},
    "leaderworkerset-one-template.yaml": {"group-worker": 8},
    "raycluster.yaml": {"raycluster-head": 1, "raycluster-small-group": 3, "raycluster-tpu": 8},
    "rayjob.yaml": {"sample-head": 1, "sample-cpu": 2, "sample-submitter": 1},
    "mpijob.yaml": {"pi-launcher": 1, "pi-worker": 2},
    "pytorchjob.yaml": {"simple-master": 1, "simple-worker": 3},
    "kueue-workload.yaml": {"sample-main": 3},
    "kueue-job.yaml": {"sample-job-0": 3},
    "rollout.yaml": {"rollouts-demo": 5},
    "appwrapper.yaml": {"inner": 2, "wrapped-worker": 1},
    "elasticsearch.yaml": {"logs-hot": 3},
}


@pytest.mark.parametrize("file", EXPECTED)
def test_templates_of_operators_give_their_pods(file: str) -> None:
    found = Counter(name.rpartition("-")[0] for name in names(FILES / file))
    assert found == EXPECTED[file]


def test_requests_of_a_template_are_those_of_its_pods() -> None:
    [leader, *_] = pods_of(load_documents(FILES / "leaderworkerset.yaml"))
    assert str(leader.containers[0].requests["cpu"]) == "8"
    assert leader.namespace == "inference"


def test_a_stream_of_helm_gives_its_pods_and_one_line_for_the_rest() -> None:
    found: list[Finding] = []
    assert names(FILES / "helm-template.yaml", report=found.append) == ["db-0", "web-0", "web-1", "db-migrate-0"]
    assert [(one.severity, one.message) for one in found if one.code == "MOOR-503"] == [
        ("info", "2 ConfigMap (web, db), 1 ServiceAccount (web), 1 Service (web)"),
        ("info", "1 Prometheus (main): no pod template found; --pod-template-path Prometheus=PATH names one"),
        ("info", "1 Pod (web-test-connection): Helm hooks that do not run on installation"),
    ]


def test_a_path_names_templates_that_are_not_recognized() -> None:
    paths = {"InferenceService": ("spec.predictor", "spec.explainers[*]")}
    assert names(FILES / "inferenceservice.yaml", paths=paths) == ["iris-predictor-0", "iris-a-0"]


@pytest.mark.parametrize(
    ("file", "paths", "message"),
    [
        (
            "inferenceservice.yaml",
            {"InferenceService": ("spec.predictr",)},
            "inferenceservice.yaml:2: spec.predictr: InferenceService iris has nothing there; name the field that",
        ),
        ("negative.yaml", {}, "negative.yaml: spec.tasks[0].replicas: must not be negative"),
        (
            "broken-template.yaml",
            {},
            "broken-template.yaml: spec.tasks[0].template.spec.containers[0].resources.limits.cpu",
        ),
    ],
)
def test_errors_name_the_field_in_the_object(file: str, paths: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(InputError) as error:
        names(FILES / file, paths=paths)
    assert message in str(error.value)


def test_misspelt_fields_of_a_template_are_named() -> None:
    found: list[Finding] = []
    names(FILES / "misspelt.yaml", report=found.append)
    [finding] = found
    assert "misspelt.yaml:10" in finding.message
    assert finding.message.endswith("Container has no field resource; did you mean resources?")
