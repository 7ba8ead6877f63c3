"""A cluster of one node with everything that pods of a chart need: controllers, Services, names and a pod network."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.chart.names import name_server
from tests.e2e.containerd.images import write_program_image
from tests.e2e.containerd.runtime import Runtime, inside, running
from tests.e2e.kube.plane import scheduler
from tests.e2e.kubelet.apiserver import APIServer, Ports, api_server, process
from tests.e2e.kubelet.kubelet import NO_POLICIES, Kubelet, kubelet_on
from tests.e2e.kubelet.network import NODE_ADDRESS, private_network
from tests.e2e.kubelet.patience import until

NODE = "chart-node"
SERVICES = "10.0.0.0/24"
SCHEDULER_IMAGE = "localhost/mooring/kube-scheduler:1"
CHART = Path(__file__).resolve().parents[3] / "charts" / "mooring"
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.124.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that runs."""

    api: APIServer
    node: Runtime
    kubelet: Kubelet
    folder: Path
    helm_program: Path

    def helm(self, *words: str, fails: bool = False) -> str:
        """Run Helm; return what it says.

        Args:
            words: of the command.
            fails: whether it must.
        """
        environment = {f"HELM_{one}_HOME": str(self.folder / f"helm-{one}") for one in ("CACHE", "CONFIG", "DATA")}
        command = [str(self.helm_program), "--kubeconfig", str(self.api.kubeconfig), "--namespace", "mooring", *words]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        assert bool(done.returncode) == fails, f"{' '.join(words[:2])}: {done.stdout}{done.stderr}{self.troubles()}"
        return done.stdout + done.stderr

    def troubles(self) -> str:
        """Return what pods of the chart wait for, and the last words of their containers."""
        lines = []
        for pod in self.api.get("api/v1/namespaces/mooring/pods").get("items", []):
            name, status = pod["metadata"]["name"], pod["status"]
            states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
            if status.get("phase") != "Succeeded" and not all(one["ready"] for one in states or [{"ready": False}]):
                lines.append(f"{name}: {status.get('phase')} {json.dumps([one['state'] for one in states])}")
                lines += [f"  {line}" for line in self.log_of(name).splitlines()[-12:]]
        events = self.api.get("api/v1/namespaces/mooring/events").get("items", [])
        lines += [f"{one['involvedObject']['name']}: {one['message']}" for one in events if one["type"] == "Warning"][
            -15:
        ]
        return "\n".join(["", *lines])

    def log_of(self, pod: str) -> str:
        """Return what the containers of a pod have written."""
        files = sorted((self.kubelet.folder / "pod-logs").glob(f"*_{pod}_*/*/*.log"))
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        return "\n".join(line.split(" ", 3)[-1] for line in lines)

    @contextlib.contextmanager
    def forwarded(self, kubectl: str, service: str, port: int) -> Iterator[int]:
        """Let kubectl forward a port of the loopback to a Service until the end of the block; gives the port."""
        words = [kubectl, "--kubeconfig", str(self.api.kubeconfig), "--namespace", "mooring"]
        with subprocess.Popen(
            [*words, "port-forward", f"service/{service}", f":{port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as forwarding:
            assert forwarding.stdout is not None
            line = forwarding.stdout.readline()
            try:
                assert line.startswith("Forwarding from 127.0.0.1:"), line
                yield int(line.partition("127.0.0.1:")[2].split()[0])
            finally:
                forwarding.terminate()

    def cpuset_of(self, pod: dict[str, Any]) -> Path:
        """Return the file with the CPUs of a pod's only container."""
        [status] = pod["status"]["containerStatuses"]
        identity = status["containerID"].rpartition("/")[2]
        roots = [Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup")]
        root = next(one for one in roots if (one / self.node.cgroup_parent.lstrip("/")).exists())
        [found] = (root / self.node.cgroup_parent.lstrip("/")).rglob(f"*{identity}*")
        return found / "cpuset.cpus"


@contextlib.contextmanager
def cluster_of_one(parts: Any, kube: Any, image: Path, folder: Path) -> Iterator[Cluster]:
    """Run a cluster until the end of the block.

    Args:
        parts: containerd and its companions.
        kube: kubelet, API server and etcd.
        image: Mooring's, as an archive.
        folder: empty; everything goes there.
    """
    made = importlib.import_module("e2e_kube_parts")
    (folder / "api").mkdir()
    (folder / "n").mkdir()
    # Pods reach it through the Service kubernetes.
    ports = Ports(address=NODE_ADDRESS)
    flags = ["--endpoint-reconciler-type=lease", "--kubelet-preferred-address-types=InternalIP"]
    with contextlib.ExitStack() as running_:
        enter = running_.enter_context
        enter(private_network(parts.busybox))
        # A node has a way to everywhere; without one programs of the node reach no Service.
        route = [str(parts.busybox), "ip", "route", "add", SERVICES, "dev", "lo", "src", NODE_ADDRESS]
        subprocess.run(route, check=True, capture_output=True)
        api = enter(api_server(kube, folder / "api", ports=ports, flags=flags))
        enter(process(_controllers(made, folder / "api", api), folder / "controllers.log"))
        enter(process(_proxy(made, api), folder / "proxy.log"))
        enter(scheduler(made.kube_program("kube-scheduler"), folder, api.kubeconfig))
        enter(name_server(NODE_ADDRESS, lambda name, namespace: _address(api, name, namespace)))
        _bring_network(folder / "n")
        node = enter(running(parts, folder / "n"))
        _import(node, image)
        program = folder / "scheduler.tar"
        write_program_image(program, SCHEDULER_IMAGE, made.kube_program("kube-scheduler"))
        _import(node, program)
        names = {"clusterDNS": [NODE_ADDRESS], "clusterDomain": "cluster.local"}
        kubelet = enter(
            kubelet_on(
                node,
                kube.kubelet,
                NODE,
                # One CPU cannot be exclusive, and nearly all of both can be requested.
                {**NO_POLICIES, **names, "kubeReserved": {"cpu": "1m"}, "enableServer": True},
                kubeconfig=api.kubeconfig,
                within=inside(node.holder),
            )
        )
        until(lambda: _is_ready(api), "the node is ready")
        api.patch(f"api/v1/nodes/{NODE}", {"spec": {"taints": None}})  # what the controller that is left out does
        yield Cluster(api, node, kubelet, folder, made.helm())


def _import(node: Runtime, archive: Path) -> None:
    node.run([str(node.parts.ctr), "-a", str(node.cri_socket), "-n", "k8s.io", "images", "import", str(archive)])


def _controllers(made: Any, folder: Path, api: APIServer) -> Sequence[str]:
    return [
        str(made.kube_program("kube-controller-manager")),
        f"--kubeconfig={api.kubeconfig}",
        "--controllers=*,-node-lifecycle-controller",  # a described node has no kubelet
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--secure-port=10257",
        f"--cert-dir={folder / 'controllers'}",
        f"--root-ca-file={folder / 'certificates' / 'apiserver.crt'}",
        f"--service-account-private-key-file={folder / 'service-accounts.key'}",
    ]


def _proxy(made: Any, api: APIServer) -> Sequence[str]:
    return [
        str(made.kube_program("kube-proxy")),
        f"--kubeconfig={api.kubeconfig}",
        f"--hostname-override={NODE}",
        "--proxy-mode=iptables",
        "--masquerade-all",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--metrics-bind-address=127.0.0.1:10249",
        "--healthz-bind-address=127.0.0.1:10256",
    ]


def _address(api: APIServer, name: str, namespace: str) -> str:
    response = api.cluster.http.get(f"api/v1/namespaces/{namespace}/services/{name}")
    return str(response.json()["spec"]["clusterIP"]) if response.is_success else ""


def _bring_network(folder: Path) -> None:
    programs = Path("/usr/lib/cni")
    (folder / "cni" / "net.d").mkdir(parents=True)
    (folder / "cni" / "bin").symlink_to(programs)
    content = json.loads(json.dumps(_NETWORK))
    content["plugins"][0]["ipam"]["dataDir"] = str(folder / "cni" / "addresses")
    (folder / "cni" / "net.d" / "10-pods.conflist").write_text(json.dumps(content), encoding="utf-8")


def _is_ready(api: APIServer) -> bool:
    if not api.has_node(NODE):
        return False
    conditions = api.get(f"api/v1/nodes/{NODE}")["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
