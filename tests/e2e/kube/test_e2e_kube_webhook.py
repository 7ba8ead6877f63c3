"""The extender's webhook on a real API server: what kubectl prints, denial, an outage, certificates, rights."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.chart.test_e2e_chart_values import helm, rendered  # noqa: F401 - a fixture
from tests.e2e.kube.conftest import Playing
from tests.e2e.kube.kinds import names
from tests.e2e.kube.plane import Extender, extender, free_port
from tests.e2e.kube.pods import pod
from tests.e2e.kubelet.apiserver import APIServer, as_user
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import token_of

from mooring.cluster.deployment import AUTHORITY, SIDES, Content, renewed

HOOKS = "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RBAC = "apis/rbac.authorization.k8s.io/v1"
DENY = "mooring.dev/admission"
NAME = "mooring-extender"
NONE: Mapping[str, Content] = {AUTHORITY: {}, **{f"{side}-tls": {} for side in SIDES}}
LATER = "no node admits it now; 1 of 1 would if empty (MOOR-103)."


@dataclass(frozen=True, slots=True)
class Applying:
    """A cluster of one node with 12 free CPUs on each NUMA node, whose API server asks an extender."""

    api: APIServer
    asked: Extender
    port: int
    """Of the webhook."""
    folder: Path
    secrets: dict[str, Content]

    def install(self, secrets: Mapping[str, Content], *, trust: bytes = b"") -> None:
        """Replace the certificates as the kubelet does in a pod; tell the API server whom to trust."""
        self.secrets.update(secrets)
        content = self.secrets[f"{NAME}-tls"]
        for file in ("ca.crt", "tls.key", "tls.crt"):
            (self.folder / f"{file}.new").write_bytes(content[file])
            (self.folder / f"{file}.new").rename(self.folder / file)
        bundle = b64encode(trust or content["ca.crt"]).decode()
        change = [{"name": f"{one}.mooring.dev", "clientConfig": {"caBundle": bundle}} for one in ("warn", "deny")]
        self.api.patch(f"{HOOKS}/{NAME}", {"webhooks": change})

    def create(self, content: dict[str, Any], namespace: str = "default", *, dry: bool = True) -> tuple[bool, str]:
        """Create an object; tell whether that succeeds, and what kubectl prints besides."""
        kinds = {"Pod": "api/v1/namespaces/{}/pods", "Deployment": "apis/apps/v1/namespaces/{}/deployments"}
        content = {**content, "metadata": {**content["metadata"], "namespace": namespace}}
        answer = self.api.cluster.http.post(
            kinds[content["kind"]].format(namespace), json=content, params={"dryRun": "All"} if dry else {}
        )
        return answer.is_success, answer.headers.get("Warning", "") if answer.is_success else answer.json()["message"]


@pytest.fixture
def applying(api: APIServer, playing: Playing, folder: Path, helm: Path) -> Iterator[Applying]:  # noqa: F811
    """The chart's objects of the extender and of the webhook, with the account's own token."""
    port = free_port()
    values = {"extender": {"enabled": True}, "webhook": {"enabled": True, "caBundle": "QUJD"}}
    found = {(one["kind"], one["metadata"]["name"]): one for one in rendered(helm, values)}
    made: list[tuple[str, dict[str, Any]]] = []
    for name, labels in (("mooring", {}), ("strict", {DENY: "deny"})):
        made.append(("api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}))
    made.append(("api/v1/namespaces/mooring/serviceaccounts", found["ServiceAccount", NAME]))
    # The name leads to this machine, and the webhook's certificate is checked against the Service's.
    spec = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": port}]}
    made.append(("api/v1/namespaces/mooring/services", {"metadata": {"name": NAME}, "spec": spec}))
    made += [(f"{RBAC}/{one.lower()}s", found[one, NAME]) for one in ("ClusterRole", "ClusterRoleBinding")]
    hooks = found["ValidatingWebhookConfiguration", NAME]
    for hook in hooks["webhooks"]:
        hook["clientConfig"]["service"]["port"] = port
        del hook["clientConfig"]["caBundle"]
    for path, content in made:
        if not api.cluster.http.get(f"{path}/{content['metadata']['name']}").is_success:
            api.post(path, content)
    kubeconfig = as_user(api, folder / "extender.kubeconfig", {"token": token_of(api, NAME, "mooring", None)})
    secrets = renewed(NONE, "mooring", datetime.now(UTC) - timedelta(days=70))  # soon to end
    for file in ("ca.crt", "tls.key", "tls.crt"):
        (folder / file).write_bytes(secrets[f"{NAME}-tls"][file])
    tls = {"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key"), "clientCA": str(folder / "ca.crt")}
    fields = {"listen": f"127.0.0.1:{free_port()}", "webhookAddress": f"127.0.0.1:{port}", "tls": tls}
    with playing(1) as nodes, extender(folder, kubeconfig, **fields) as asked:
        [(node, _)] = names(1)
        limits = {"limits": {"cpu": "20", "memory": "1Gi"}}
        full = api.create_pod(pod("full", limits, others=[limits] * 7, node=node))
        until(lambda: full["metadata"]["uid"] in nodes.admitted, f"the node is filled: {nodes.refusals}")
        api.post(HOOKS, hooks)
        one = Applying(api, asked, port, folder, secrets)
        one.install({})
        until(lambda: LATER in one.create(whole("20"))[1], "the webhook is in force, and the state is published")
        yield one
        api.delete(f"{HOOKS}/{NAME}")
        for path, content in reversed(made[2:]):
            api.delete(f"{path}/{content['metadata']['name']}")


def whole(cpus: str) -> dict[str, Any]:
    return pod("web", {"limits": {"cpu": cpus, "memory": "1Gi"}})


def deployment(cpus: str, replicas: int = 1) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": whole(cpus)["spec"]["containers"]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def test_what_no_node_admits_is_a_warning_or_denied(applying: Applying) -> None:
    for make in (whole, deployment):
        assert applying.create(make("4")) == (True, "")
        succeeded, said = applying.create(make("20"))
        assert (succeeded, LATER in said, "With 12 CPUs in app-0 it is admitted now." in said) == (True, True, True), (
            said
        )
        succeeded, said = applying.create(make("33"))
        assert (succeeded, "no node ever admits it, not even if empty; 1 asked" in said) == (True, True), said
        assert applying.create(make("33"), "kube-system") == (True, "")
        assert applying.create(make("33"), "mooring") == (True, "")
        assert applying.create(make("20"), "strict")[0]
        denied, why = applying.create(make("33"), "strict")
        assert not denied
        assert 'admission webhook "deny.mooring.dev" denied the request: mooring: pod: no node ever admits it' in why
    # What is there already may be scaled, and deleted.
    applying.api.patch("api/v1/namespaces/strict", {"metadata": {"labels": {DENY: None}}})
    until(lambda: applying.create(deployment("33"), "strict")[0], "the namespace denies nothing")
    assert applying.create(deployment("33"), "strict", dry=False)[0]
    applying.api.patch("api/v1/namespaces/strict", {"metadata": {"labels": {DENY: "deny"}}})
    until(lambda: not applying.create(whole("33"), "strict")[0], "the namespace denies again")
    path = "apis/apps/v1/namespaces/strict/deployments/web"
    assert applying.api.patch(path, {"spec": {"replicas": 3}})["spec"]["replicas"] == 3
    change = {"spec": {"template": {"spec": {"containers": whole("34")["spec"]["containers"]}}}}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    refused = applying.api.cluster.http.patch(path, json=change, headers=headers)
    assert "no node ever admits it" in refused.json()["message"]
    applying.api.delete(path)


def test_kubectl_prints_the_warning_in_a_dry_run_as_otherwise(applying: Applying, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(deployment("20")), encoding="utf-8")
    printed = []
    for words in (["--dry-run=server"], []):
        command = [kubectl, f"--kubeconfig={applying.api.kubeconfig}", "apply", "-f", str(file), *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        printed.append(done.stderr)
    assert printed[0] == printed[1]
    assert printed[0].startswith(f"Warning: mooring: pod: {LATER} Container app-0 requests 20 exclusive CPUs, but")
    applying.api.delete("apis/apps/v1/namespaces/default/deployments/web")


def test_an_outage_of_the_webhook_holds_nothing_up(applying: Applying) -> None:
    applying.asked.kill()
    for namespace in ("default", "strict"):
        assert applying.create(whole("33"), namespace) == (True, "")
    applying.asked.start()
    until(lambda: "no node ever" in applying.create(whole("33"))[1], "the webhook answers again")
    assert not applying.create(whole("33"), "strict")[0]


def test_certificates_are_replaced_while_it_answers(applying: Applying) -> None:
    pid, now = applying.asked.pid(), datetime.now(UTC)
    another_certificate, another_authority = renewed(applying.secrets, "mooring", now), renewed(NONE, "mooring", now)
    assert AUTHORITY not in another_certificate
    for changed in (another_certificate, another_authority):
        applying.install(changed)
        until(lambda: LATER in applying.create(whole("20"))[1], "the API server and the webhook agree")
        served = ssl.get_server_certificate(("127.0.0.1", applying.port))
        assert served == changed[f"{NAME}-tls"]["tls.crt"].decode()
    assert applying.asked.pid() == pid
    # Where the API server does not trust it, it does not ask, and lets objects through.
    applying.install({}, trust=renewed(NONE, "mooring", now)[AUTHORITY]["tls.crt"])
    until(lambda: applying.create(whole("33"), "strict") == (True, ""), "the API server does not trust it")


def test_the_account_has_no_more_rights_than_the_extender_needs(applying: Applying) -> None:
    role = applying.api.get(f"{RBAC}/clusterroles/{NAME}")
    resources = {(one, verb) for rule in role["rules"] for one in rule["resources"] for verb in rule["verbs"]}
    assert resources == {
        *((one, verb) for one in ("nodefacts", "nodestates") for verb in ("list", "watch")),
        *(("pods", verb) for verb in ("get", "list", "watch")),
        *(("leases", verb) for verb in ("get", "update")),
        ("pods/binding", "create"),
    }
    counted = applying.asked.metrics()
    assert counted["reviews_total{answer=later}"] >= 1
    assert "watch_failures_total{what=pods}" not in counted
