"""A real kubelet's node is published in a real API server: on every change, as it is, and with what is really left."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.kubelet import kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.publishing import publishing

from mooring.engine.core.machine import Finding
from mooring.published.facts_document import facts_of
from mooring.published.objects import state_of

DEPLOY = Path(__file__).parents[3] / "deploy"
CASE = Case(
    "published",
    "epyc-7763-2s-nps4",
    MappingProxyType(
        {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node"}
    ),
    4,
    40,
)
OURS = "apis/mooring.dev/v1alpha1"
DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def definitions(api: APIServer) -> None:
    for file in sorted((DEPLOY / "crds").iterdir()):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not api.cluster.http.get(f"{DEFINITIONS}/{document['metadata']['name']}").is_success:
            api.post(DEFINITIONS, document)
    until(lambda: all(is_served(api, plural) for plural in ("nodefacts", "nodestates")), "the definitions are served")


def is_served(api: APIServer, plural: str) -> bool:
    return bool(api.cluster.http.get(f"{OURS}/{plural}").is_success)


@pytest.mark.usefixtures("definitions")
def test_every_change_of_a_kubelet_is_published(api: APIServer, kube: Any, playing: Playing, played: Played) -> None:
    machine, policies = played(CASE), {**CASE.policies, **CASE.reservations}
    with (
        playing() as node,
        kubelet_on(node, kube.kubelet, CASE.name, policies, machine=machine, kubeconfig=api.kubeconfig) as kubelet,
    ):
        until(lambda: api.has_node(CASE.name), "the node is registered")
        with publishing(api, CASE.name, kubelet.root, kubelet.configuration, machine) as told:
            path = f"{OURS}/nodestates/{CASE.name}"

            def available() -> int:
                found = api.cluster.http.get(path)
                counts = found.json().get("status", {}).get("exclusiveCPUs") if found.is_success else None
                return counts["available"] if counts else -1

            until(lambda: available() == 255, said(told))
            for name in ("one", "two"):
                api.create_pod({**pod_of(name, Wants("app", "4", "64Mi")), "spec": spec(name)})
            until(lambda: available() == 247, said(told))
            document = api.get(path)
            state = state_of(document)
            assert state.files.cpu == kubelet.state("cpu")
            assert state.files.memory == kubelet.state("memory")
            pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in api.pods()}
            assert {key.name: key.uid for key in state.pods} == pods
            facts = facts_of(api.get(f"{OURS}/nodefacts/{state.facts}"))
            assert facts.config.topology_manager_policy == "single-numa-node"
            uid = api.get(f"api/v1/nodes/{CASE.name}")["metadata"]["uid"]
            assert document["metadata"]["ownerReferences"][0]["uid"] == uid
            api.delete(f"{PODS}/one")
            until(lambda: available() == 251, said(told))
            assert not [finding for finding in told if finding.severity == "warning"], told


def spec(name: str) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(name, Wants("app", "4", "64Mi"))["spec"]
    return {**found, "nodeName": CASE.name}


def said(told: list[Finding]) -> str:
    return f"the change is published; the publisher said {json.dumps([one.message for one in told])}"
