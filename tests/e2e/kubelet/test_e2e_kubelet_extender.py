"""The shipped manifests of the extender: its rights, its configuration, and what the scheduler is told, over HTTPS."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from tests.e2e.kube.plane import OURS, define
from tests.e2e.kubelet.apiserver import PODS, APIServer, process
from tests.e2e.kubelet.authority import Authority, authority
from tests.e2e.kubelet.cases import Wants, pod_of
from tests.e2e.kubelet.patience import until
from tests.scheduling.extender_cluster import facts_with, started, state_of_node

from mooring.cluster.extender.binding import ClusterPodAPI
from mooring.published.facts_document import facts_document
from mooring.published.objects import state_document
from mooring.service.apiserver import cluster_of, configuration_of

DEPLOY = Path(__file__).parents[3] / "deploy"
NODE = "described"
PORT = 18888
RBAC = "apis/rbac.authorization.k8s.io/v1"
WHERE = {
    "Lease": "apis/coordination.k8s.io/v1/namespaces/mooring/leases",
    "Namespace": "api/v1/namespaces",
    "ServiceAccount": "api/v1/namespaces/mooring/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
PAST_ITS_RIGHTS = [
    ("DELETE", f"{PODS}/fits"),
    ("PATCH", f"{PODS}/fits/status"),
    ("POST", PODS),
    ("GET", "api/v1/nodes"),
    ("GET", "api/v1/namespaces/mooring/secrets"),
    ("POST", f"{OURS}/nodestates"),
    ("DELETE", f"{OURS}/nodestates/{NODE}"),
]


def shipped(file: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8")) if one]


def account(api: APIServer, folder: Path) -> Path:
    """Bring the extender's account with its rights; return the kubeconfig of its pods."""
    for document in [*shipped("namespace.yaml"), *shipped("extender.yaml")]:
        path = WHERE.get(document["kind"])
        if path and not api.cluster.http.get(f"{path}/{document['metadata']['name']}").is_success:
            api.post(path, document)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    given = api.post(f"{WHERE['ServiceAccount']}/mooring-extender/token", asked)
    content = json.loads(api.kubeconfig.read_text(encoding="utf-8"))
    content["users"][0]["user"] = {"token": given["status"]["token"]}
    file = folder / "account"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def describe_node(api: APIServer) -> None:
    """Make a node with two NUMA nodes of four CPUs, of which one CPU is reserved, and publish it."""
    facts = facts_with("sockets=1 numa=2 cores=8 threads=1 memory=16Gi", topology_manager_policy="single-numa-node")
    amounts = {"cpu": "7", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    api.post("api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": status})
    document = facts_document(facts)
    if not api.cluster.http.get(f"{OURS}/nodefacts/{document['metadata']['name']}").is_success:
        api.post(f"{OURS}/nodefacts", document)
    api.post(f"{OURS}/nodestates", state_document(state_of_node(facts, started(facts), node=NODE)))


def extender_file(folder: Path, signer: Authority) -> Path:
    """Return the shipped configuration, with an address and certificates of this test."""
    (content,) = (
        yaml.safe_load(one["data"]["extender.yaml"]) for one in shipped("extender.yaml") if one["kind"] == "ConfigMap"
    )
    own = signer.issue("extender", "subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    tls = {"certificate": str(own.certificate), "key": str(own.key), "clientCA": str(signer.certificate)}
    assert set(tls) == set(content["tls"])
    file = folder / "extender.json"
    file.write_text(json.dumps({**content, "listen": f"127.0.0.1:{PORT}", "tls": tls}), encoding="utf-8")
    return file


def scheduler_file(folder: Path, signer: Authority, kubeconfig: Path) -> Path:
    """Return what the scheduler is told as it is shipped, with an address and certificates of this test."""
    (shipped_text,) = [one["data"]["scheduler.yaml"] for one in shipped("scheduler.yaml") if one["kind"] == "ConfigMap"]
    content = yaml.safe_load(shipped_text)
    del content["profiles"]  # here it is the cluster's own scheduler
    (told,) = content["extenders"]
    own = signer.issue("scheduler", "basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth")
    tls = {"certFile": str(own.certificate), "keyFile": str(own.key), "caFile": str(signer.certificate)}
    assert set(tls) == set(told["tlsConfig"])
    content["extenders"] = [{**told, "urlPrefix": f"https://127.0.0.1:{PORT}", "tlsConfig": tls}]
    content |= {"clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}
    file = folder / "scheduler.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.fixture
def deployed(api: APIServer, folder: Path) -> Iterator[Path]:
    """A cluster with the extender of the manifests and a scheduler that asks it; the kubeconfig of the account."""
    parts = importlib.import_module("e2e_kube_parts")
    try:
        program = parts.kube_program("kube-scheduler")
    except importlib.import_module("e2e_parts").UnavailableError as why:
        pytest.skip(f"e2e kubelet: {why}")
    define(api)
    describe_node(api)
    signer, kubeconfig = authority(folder, "authority"), account(api, folder)
    extender = ["extender", "--config", str(extender_file(folder, signer)), "--kubeconfig", str(kubeconfig)]
    extender += ["--advertise", f"127.0.0.1:{PORT}"]
    scheduler = [f"--config={scheduler_file(folder, signer, api.kubeconfig)}", f"--cert-dir={folder}"]
    log = folder / "extender.log"
    with contextlib.ExitStack() as running:
        asked = running.enter_context(process([sys.executable, "-m", "mooring", *extender], log))
        until(lambda: asked.poll() is not None or '"tls": true' in log.read_text(encoding="utf-8"), "it begins")
        assert asked.poll() is None, log.read_text(encoding="utf-8")
        running.enter_context(process([str(program), *scheduler, "--v=3"], folder / "scheduler.log"))
        running.callback(show, api, log, folder / "scheduler.log")
        yield kubeconfig
        api.delete(f"{OURS}/nodestates/{NODE}")
    assert "status 403" not in log.read_text(encoding="utf-8")


def show(api: APIServer, *logs: Path) -> None:
    """Print what explains a failure."""
    for pod in api.pods():
        print(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"])
    for log in logs:
        print(log.read_text(encoding="utf-8")[-5000:])


def condition(api: APIServer, name: str) -> str:
    found = (api.pod(name) or {}).get("status", {}).get("conditions", [])
    return next((str(one.get("message", "")) for one in found if one["type"] == "PodScheduled"), "")


def test_with_the_shipped_rights_and_files_pods_are_bound_where_they_fit(api: APIServer, deployed: Path) -> None:
    api.create_pod(pod_of("fits", Wants("app", "2", "64Mi")))
    until(lambda: (api.pod("fits") or {})["spec"].get("nodeName") == NODE, "the pod is bound")
    # Five CPUs are left, and no NUMA node has more than four.
    api.create_pod(pod_of("wide", Wants("app", "5", "64Mi")))
    until(lambda: condition(api, "wide"), "the scheduler says why it waits")
    assert "(MOOR-102, TopologyAffinityError)" in condition(api, "wide")
    with cluster_of(configuration_of(str(deployed))) as account:
        answers = {(verb, path): refused(account.http, verb, path) for verb, path in PAST_ITS_RIGHTS}
    assert answers == dict.fromkeys(answers, 403)
    # A pod that is to be bound and has not been heard of yet.
    with closing(ClusterPodAPI(lambda: cluster_of(configuration_of(str(deployed))))) as server:
        assert b'"fits"' in server.read_pod("default", "fits")


def refused(http: httpx2.Client, verb: str, path: str) -> int:
    headers = {"Content-Type": "application/merge-patch+json" if verb == "PATCH" else "application/json"}
    content = None if verb in ("GET", "DELETE") else b"{}"
    return http.request(verb, path, content=content, headers=headers).status_code
