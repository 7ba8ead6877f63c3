"""etcd and a Kubernetes API server with certificates and keys of their own, and what tests ask of it."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from tests.e2e.kubelet.patience import until

from mooring.service.apiserver import Cluster, cluster_of, configuration_of


@dataclass(frozen=True, slots=True)
class Ports:
    """Of etcd, its peers, and the API server."""

    etcd: int = 12379
    peer: int = 12380
    secure: int = 16443
    address: str = "127.0.0.1"
    """Where the API server listens."""


PRIVATE = Ports()
"""For a network in which all are free (:mod:`tests.e2e.kubelet.network`)."""
PODS = "api/v1/namespaces/default/pods"


@dataclass(frozen=True, slots=True)
class APIServer:
    """An API server that runs."""

    kubeconfig: Path
    cluster: Cluster
    ports: Ports
    kill: Callable[[], None]
    """Ends the API server at once; etcd stays."""
    start: Callable[[], None]
    """Starts it again, and waits until it is ready."""

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return _document(self.cluster.http.get(path, params=query))

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        return _document(self.cluster.http.post(path, json=content))

    def patch(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        return _document(self.cluster.http.patch(path, json=content, headers=headers))

    def apply(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Make an object as the document says, whether it is there or not."""
        query, headers = {"fieldManager": "e2e", "force": "true"}, {"Content-Type": "application/apply-patch+yaml"}
        return _document(self.cluster.http.patch(path, params=query, json=content, headers=headers))

    def delete(self, path: str, *, now: bool = False) -> None:
        """Delete; ``now`` does not wait for the kubelet. What is gone already is no mistake."""
        response = self.cluster.http.delete(path, params={"gracePeriodSeconds": "0"} if now else {})
        assert response.is_success or response.status_code == 404, response.text

    def create_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        return self.post(PODS, pod)

    def pod(self, name: str) -> dict[str, Any] | None:
        response = self.cluster.http.get(f"{PODS}/{name}")
        return None if response.status_code == 404 else _document(response)

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(PODS)["items"]
        return found

    def has_node(self, name: str) -> bool:
        return bool(self.cluster.http.get(f"api/v1/nodes/{name}").is_success)

    def forget_everything(self) -> None:
        """Delete all pods and nodes, and do not wait for any kubelet."""
        for pod in self.pods():
            self.delete(f"{PODS}/{pod['metadata']['name']}", now=True)
        for node in self.get("api/v1/nodes")["items"]:
            self.delete(f"api/v1/nodes/{node['metadata']['name']}")

    def events(self, uid: str) -> list[dict[str, Any]]:
        """Return the events about a pod."""
        found: list[dict[str, Any]] = self.get("apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [event for event in found if event["regarding"].get("uid") == uid]


@contextlib.contextmanager
def api_server(
    parts: Any,
    folder: Path,
    ports: Ports = PRIVATE,
    nodes: Sequence[str] = (),
    gates: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Iterator[APIServer]:
    """Run etcd and an API server until the end of the block.

    Args:
        parts: of ``scripts/e2e_kube_parts.py``.
        folder: empty; everything goes there.
        ports: free ones.
        nodes: whose kubelets have credentials (:func:`as_kubelet`).
        gates: feature gates to switch on.
        flags: more of the API server's; the last one of a name counts.
    """
    token = secrets.token_hex(16)
    key = folder / "service-accounts.key"
    key.write_text(_fresh_key(), encoding="utf-8")
    users = [f'{token},admin,admin,"system:masters"\n']
    users += [f'{_kubelet_token(token, node)},system:node:{node},{node},"system:nodes"\n' for node in nodes]
    (folder / "tokens.csv").write_text("".join(users), encoding="utf-8")
    with contextlib.ExitStack() as running:
        running.enter_context(process(_etcd(parts, folder, ports), folder / "etcd.log"))
        kubeconfig, life = folder / "kubeconfig", running.enter_context(contextlib.ExitStack())

        def start() -> None:
            log = folder / "apiserver.log"
            words = [*_server(parts, folder, key, ports), *(f"--feature-gates={one}=true" for one in gates), *flags]
            server = life.enter_context(process(words, log))
            certificate = folder / "certificates" / "apiserver.crt"
            until(lambda: server.poll() is not None or certificate.exists(), "the API server has a certificate")
            kubeconfig.write_text(json.dumps(_kubeconfig(certificate, token, ports)), encoding="utf-8")
            until(lambda: server.poll() is not None or _answers(kubeconfig), "the API server is ready")
            assert server.poll() is None, log.read_text(encoding="utf-8")[-3000:]

        start()
        with cluster_of(configuration_of(str(kubeconfig))) as cluster:
            yield APIServer(kubeconfig, cluster, ports, life.close, start)


def as_user(api: APIServer, file: Path, user: dict[str, Any]) -> Path:
    """Write a kubeconfig for the same server with other credentials, and return its path."""
    content = json.loads(api.kubeconfig.read_text(encoding="utf-8"))
    content["users"][0]["user"] = user
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def as_kubelet(api: APIServer, folder: Path, node: str) -> Path:
    """Write a kubeconfig with the credentials of a node's kubelet, and return its path."""
    admin = json.loads(api.kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
    return as_user(api, folder / f"{node}.kubelet.kubeconfig", {"token": _kubelet_token(admin, node)})


def _kubelet_token(admin: str, node: str) -> str:
    return f"{admin}.{node}"


def _etcd(parts: Any, folder: Path, ports: Ports) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.peer}"
    return [
        str(parts.etcd),
        "--unsafe-no-fsync",
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def _server(parts: Any, folder: Path, key: Path, ports: Ports) -> list[str]:
    return [
        str(parts.apiserver),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        f"--bind-address={ports.address}",
        f"--advertise-address={ports.address}",
        f"--secure-port={ports.secure}",
        f"--cert-dir={folder / 'certificates'}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Nobody makes service accounts here.
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--anonymous-auth=false",
    ]


@contextlib.contextmanager
def process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end of the block; what it says is added to a file."""
    with log.open("ab") as said:
        made = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, cwd=log.parent
        )
    try:
        yield made
    finally:
        # At SIGTERM an API server waits for its watchers; nothing of it is kept.
        made.send_signal(signal.SIGKILL)
        made.wait()


def _fresh_key() -> str:
    """Return a P-256 key as RFC 5915 writes it without the public half, which its reader computes."""
    key = bytes.fromhex("30310201010420") + secrets.token_bytes(32) + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{b64encode(key).decode()}\n-----END EC PRIVATE KEY-----\n"


def _kubeconfig(certificate: Path, token: str, ports: Ports) -> dict[str, Any]:
    name = "e2e"
    server = {"server": f"https://{ports.address}:{ports.secure}", "certificate-authority": str(certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": {"token": token}}],
    }


def _answers(kubeconfig: Path) -> bool:
    with contextlib.suppress(httpx2.HTTPError), cluster_of(configuration_of(str(kubeconfig))) as cluster:
        return bool(cluster.http.get("readyz").is_success)
    return False


def _document(response: httpx2.Response) -> dict[str, Any]:
    assert response.is_success, response.text
    found: dict[str, Any] = response.json()
    return found
