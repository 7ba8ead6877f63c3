"""The policy of ``deploy/pinning-policy.yaml`` on a real API server: what kubectl prints, and what is denied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

POLICY = Path(__file__).resolve().parents[3] / "deploy" / "pinning-policy.yaml"
GROUP = "apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": f"{GROUP}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{GROUP}/validatingadmissionpolicybindings",
}
LABEL = "mooring.dev/pinning"


@pytest.fixture(scope="module")
def namespaces(cluster: APIServer) -> Iterator[APIServer]:
    """Namespaces ``warn``, ``deny`` and ``free``, with the policy in force."""
    for name in ("warn", "deny", "free"):
        labels = {} if name == "free" else {LABEL: name}
        cluster.post("api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    documents = yaml.safe_load_all(POLICY.read_text(encoding="utf-8"))
    made = [(KINDS[document["kind"]], document) for document in documents]
    for path, document in made:
        cluster.post(path, document)
    until(lambda: not created(cluster, "deny", pod(LOOSE))[0], "the policy is in force")
    yield cluster
    for path, document in made:
        cluster.delete(f"{path}/{document['metadata']['name']}")


def container(name: str, requests: dict[str, str] | None = None, **limits: str) -> dict[str, Any]:
    resources = {"limits": limits} | ({} if requests is None else {"requests": requests})
    return {"name": name, "image": "none", "resources": resources if limits else {}}


WHOLE = container("app", cpu="4", memory="1Gi")
LOOSE = [WHOLE, container("sidecar", cpu="100m")]


def pod(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    spec = {"containers": containers, "initContainers": init or []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}


def created(api: APIServer, namespace: str, content: dict[str, Any]) -> tuple[bool, str]:
    """Create an object in a dry run; tell whether that succeeds, and what kubectl prints besides."""
    kinds = {"Pod": "api/v1/namespaces/{}/pods", "Deployment": "apis/apps/v1/namespaces/{}/deployments"}
    path = kinds[content["kind"]].format(namespace)
    answer = api.cluster.http.post(path, json=content, params={"dryRun": "All"})
    said = answer.headers.get("Warning", "") if answer.is_success else answer.json()["message"]
    return answer.is_success, said


@pytest.mark.parametrize(
    ("containers", "init", "words"),
    [
        ([WHOLE], [], ""),
        ([WHOLE, container("sidecar", cpu="100m", memory="64Mi")], [], ""),
        ([container("app", requests={"cpu": "2"}, cpu="4", memory="1Gi")], [], ""),
        ([container("app", cpu="1500m")], [], ""),
        ([container("app")], [], ""),
        (LOOSE, [], "the pod is not Guaranteed: set limits of cpu and memory, and requests equal to them, in sidecar"),
        ([WHOLE], [container("load", cpu="1", memory="1Gi"), container("wait")], "equal to them, in wait"),
        ([container("app", cpu="4")], [], "equal to them, in app (MOOR-164)"),
        (
            [container("app", cpu="4000m", memory="1Gi"), container("odd", cpu="3", memory="1Gi")],
            [],
            "nodes with full-pcpus-only reject it (SMTAlignmentError): request a multiple of 2 CPUs in odd (MOOR-121)",
        ),
    ],
)
def test_what_loses_exclusive_cpus_is_a_warning_or_denied_and_nothing_else_is(
    namespaces: APIServer, containers: list[dict[str, Any]], init: list[dict[str, Any]], words: str
) -> None:
    succeeded, said = created(namespaces, "warn", pod(containers, init))
    assert succeeded
    assert (words in said, bool(said)) == (True, bool(words)), said
    assert created(namespaces, "free", pod(containers, init)) == (True, "")
    succeeded, said = created(namespaces, "deny", pod(containers, init))
    assert (succeeded, words in said) == (not words, True), said


def test_templates_of_workloads_are_looked_at(namespaces: APIServer) -> None:
    labels = {"app": "web"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod(LOOSE)["spec"]},
    }
    content = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    succeeded, said = created(namespaces, "warn", content)
    assert succeeded
    assert "equal to them, in sidecar" in said
