"""``mooring serve --cluster`` on a real API server: it follows nodes and pods, and people see what they may list."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.e2e.kube.conftest import Playing
from tests.e2e.kube.plane import free_port
from tests.e2e.kubelet.apiserver import APIServer, as_user
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import binding_of, token_of

RBAC = "apis/rbac.authorization.k8s.io/v1"
VIEWER = "mooring-serve"
RIGHTS = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["mooring.dev"], "resources": ["nodefacts", "nodestates"], "verbs": ["list", "watch"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
"""What docs/reference/serve.md says."""
POD = {"containers": [{"name": "app", "image": "none", "resources": {"limits": {"cpu": "999", "memory": "1Gi"}}}]}


def account(api: APIServer, name: str, namespace: str) -> str:
    """Make a service account, and return its token."""
    api.apply(
        f"api/v1/namespaces/{namespace}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
    )
    api.apply(
        f"api/v1/namespaces/{namespace}/serviceaccounts/{name}",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
    )
    return token_of(api, name, namespace, None)


def may_list_pods(api: APIServer, name: str, namespace: str) -> None:
    """Let a service account list the pods of its namespace."""
    metadata = {"name": "lists-pods", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    kinds = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    api.apply(
        f"{RBAC}/namespaces/{namespace}/roles/lists-pods",
        {**kinds, "kind": "Role", "metadata": metadata, "rules": rules},
    )
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lists-pods"}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    binding = {**kinds, "kind": "RoleBinding", "metadata": metadata, "roleRef": reference, "subjects": subjects}
    api.apply(f"{RBAC}/namespaces/{namespace}/rolebindings/lists-pods", binding)


@pytest.fixture
def kubeconfig(api: APIServer, folder: Path) -> Path:
    """Credentials of the page: with the rights that it needs and no others."""
    token = account(api, VIEWER, "default")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": VIEWER},
        "rules": RIGHTS,
    }
    api.apply(f"{RBAC}/clusterroles/{VIEWER}", role)
    api.apply(f"{RBAC}/clusterrolebindings/{VIEWER}", binding_of(VIEWER, VIEWER, "default"))
    return as_user(api, folder / "serve.kubeconfig", {"token": token})


@contextmanager
def serving(kubeconfig: Path, host: str) -> Iterator[str]:
    """Run ``mooring serve --cluster`` until the end of the block; gives its address."""
    port = free_port()
    words = ["serve", "--cluster", "--kubeconfig", str(kubeconfig), "--listen", f"{host}:{port}"]
    program = subprocess.Popen([sys.executable, "-m", "mooring", *words])
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(address) or program.poll() is not None, "the page is served")
        assert program.poll() is None
        yield address
    finally:
        program.terminate()
        assert program.wait(30) == 0


def answers(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def seen(address: str, path: str, token: str = "") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.get(f"{address}/{path}", headers=headers, timeout=60)


def test_people_see_the_pods_of_namespaces_that_they_may_list(
    api: APIServer, playing: Playing, kubeconfig: Path
) -> None:
    one, other, none = (
        account(api, "person", "team-one"),
        account(api, "person", "team-two"),
        account(api, "no", "team-one"),
    )
    may_list_pods(api, "person", "team-one")
    may_list_pods(api, "person", "team-two")
    with playing(3), serving(kubeconfig, "0.0.0.0") as address:  # noqa: S104 - so that tokens are asked for
        for namespace in ("team-one", "team-two"):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"of-{namespace}"}, "spec": POD}
            api.post(f"api/v1/namespaces/{namespace}/pods", pod)
        assert seen(address, "").status_code == 401
        assert seen(address, "", "forged").status_code == 401
        until(lambda: "of-team-one" in seen(address, "body", one).text, "the page knows the pod")
        until(lambda: "of-team-two" in seen(address, "body", other).text, "the page knows the other pod")
        assert "of-team-two" not in seen(address, "body", one).text
        nothing = seen(address, "body", none)
        assert nothing.status_code == 200
        assert "of-team" not in nothing.text
        uid = re.search(r'data-uid="([^"]+)"', seen(address, "body", one).text)
        assert uid is not None
        assert "0 nodes would take it" in seen(address, f"pod?uid={uid[1]}", one).text
        assert seen(address, f"pod?uid={uid[1]}", other).status_code == 404
        tiles = re.findall(r'data-node="([^"]+)"', seen(address, "body", one).text)
        assert len(tiles) == 3
        assert "<svg" in seen(address, f"nodes/{tiles[0]}/", one).text
    for namespace in ("team-one", "team-two"):
        api.delete(f"api/v1/namespaces/{namespace}/pods/of-{namespace}", now=True)


def test_the_page_goes_on_while_the_api_server_is_down(api: APIServer, playing: Playing, kubeconfig: Path) -> None:
    with playing(2), serving(kubeconfig, "127.0.0.1") as address:
        until(lambda: seen(address, "body").text.count("data-node") == 2, "both nodes are shown")
        api.kill()
        try:
            assert seen(address, "body").text.count("data-node") == 2
        finally:
            api.start()
        api.post("api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}})
        until(lambda: seen(address, "body").text.count("data-node") == 3, "the new node is shown")
