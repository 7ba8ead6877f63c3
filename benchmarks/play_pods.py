"""How many pods a second 1,000 played nodes admit, beside their API server and etcd on the same machine.

Run by hand: ``.venv/bin/python benchmarks/play_pods.py [NODES [PODS]]``. It needs etcd and the API server of
``scripts/e2e_kube_parts.py``. Pods are created with their node's name, by one process over four connections. The time
is from the first creation until the API server shows no pod that is Pending.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

CREATORS = 4
CLUSTER = """
apiVersion: mooring/v1alpha1
kind: Cluster
metadata: {{name: bench}}
groups:
- name: worker
  count: {nodes}
  machine: epyc-7763-2s-nps4
  kubelet: {{cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, reservedSystemCPUs: "0", maxPods: 250}}
"""


class Requests:
    """A connection to the API server of a kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        document = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        server = urlsplit(document["clusters"][0]["cluster"]["server"])
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.way = http.client.HTTPSConnection(server.hostname or "", server.port, context=context)
        self.token = document["users"][0]["user"]["token"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.way.request(method, path, json.dumps(body) if body else None, headers)
        reply = self.way.getresponse()
        content = reply.read()
        assert reply.status < 300, content[:500]
        return msgspec.json.decode(content)


def create(kubeconfig: str, nodes: int, pods: int) -> None:
    """Create pods bound to the nodes in turn."""

    def some(first: int) -> None:
        requests = Requests(kubeconfig)
        for number in range(first, pods, CREATORS):
            limits = {"cpu": str(1 + number % 4), "memory": "1Gi"}
            container = {"name": "app", "image": "none", "resources": {"limits": limits}}
            spec = {"automountServiceAccountToken": False, "enableServiceLinks": False, "containers": [container]}
            spec["nodeName"] = f"worker-{number % nodes}"
            requests.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": f"p-{number}"}, "spec": spec})

    threads = [threading.Thread(target=some, args=(first,)) for first in range(CREATORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def count(requests: Requests, phase: str) -> int:
    found = requests.ask("GET", f"/api/v1/pods?limit=1&fieldSelector=status.phase={phase}")
    return int(len(found["items"]) + found["metadata"].get("remainingItemCount", 0))


def seconds_of_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(nodes: int = 1000, pods: int = 20_000) -> None:
    """Print the figures."""
    apiserver = importlib.import_module("tests.e2e.kubelet.apiserver")
    free_ports = importlib.import_module("tests.e2e.kube.plane").free_ports
    parts = importlib.import_module("tests.e2e.kube.conftest").Parts
    made = importlib.import_module("e2e_kube_parts")
    with tempfile.TemporaryDirectory(prefix="play-") as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER.format(nodes=nodes), encoding="utf-8")
        programs = parts(made.etcd(), made.kube_program("kube-apiserver"), "")
        with apiserver.api_server(programs, folder, free_ports()) as api:
            kubeconfig = str(api.kubeconfig)
            words = ["mooring", "play", "-f", str(folder / "cluster.yaml"), "--kubeconfig", kubeconfig, "--keep"]
            began, requests = time.monotonic(), Requests(kubeconfig)
            play = subprocess.Popen([sys.executable, "-m", *words])
            try:
                while play.poll() is None and len(requests.ask("GET", "/api/v1/nodes")["items"]) < nodes:
                    time.sleep(0.5)
                print(f"{nodes} nodes registered in {time.monotonic() - began:.1f} s", flush=True)
                began, used = time.monotonic(), seconds_of_cpu(play.pid)
                subprocess.run([sys.executable, __file__, "create", kubeconfig, str(nodes), str(pods)], check=True)
                print(f"{pods} pods created in {time.monotonic() - began:.1f} s", flush=True)
                requests = Requests(kubeconfig)  # the API server has closed the other, which was silent
                while count(requests, "Pending"):
                    time.sleep(0.2)
                took = time.monotonic() - began
                print(f"all decided in {took:.1f} s: {pods / took:.0f} a second; {count(requests, 'Failed')} rejected")
                print(f"play: {seconds_of_cpu(play.pid) - used:.1f} s of CPU time")
            finally:
                play.terminate()
                play.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["create"]:
        create(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(*map(int, sys.argv[1:]))
