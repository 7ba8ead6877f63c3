"""What ``mooring shadow`` costs beside a busy node: CPU time as a share of a core, and resident memory.

Run ``.venv/bin/python benchmarks/shadow.py [MINUTES]`` (10). In real time, a node with 256 CPUs, 8 NUMA nodes and 250
pods is played: state files, PodResources API and an API server on the loopback, with 10 changes a minute. Every other
one is a pod that arrives: bound, listed, its status written twice; the next one is a pod that ends and is deleted.
The shadow is a process of its own, as an operator starts it, with a folder and the other configuration of --would-be.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from shapes import config, machine

from mooring.agent.state import AgentState
from mooring.agent.status import Snapshot
from mooring.engine.checkpoint.device_file import DEVICE_FILE, device_text
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.inputs.pods.pods import pod_from_object
from mooring.published.facts_document import kubelet_document
from mooring.service.logs import Log
from mooring.service.podresources import PodResourcesClient, serve_pod_resources

NODES, PODS, A_MINUTE = 8, 250, 10
PINNED = 25
"""Pods with exclusive CPUs; those that come and go have some, too."""
NODE = "node-1"
WARM = 20.0
"""Seconds from the first line until measuring begins."""


@dataclass
class PlayedCluster:
    """Pods of one node, listed and watched."""

    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, pod: Mapping[str, Any], kind: str = "MODIFIED") -> None:
        """Let everything that watches know of a pod."""
        with self.changed:
            name = pod["metadata"]["name"]
            version = {"resourceVersion": str(len(self.events) + 1)}
            content = {**pod, "metadata": {**pod["metadata"], **version}}
            self.events.append({"type": kind, "object": content})
            if kind == "DELETED":
                del self.items[name]
            else:
                self.items[name] = content
            self.changed.notify_all()

    def later(self, version: int) -> list[dict[str, Any]]:
        """Wait for events after a version."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.events) > version, 60.0)
            return self.events[version:]


class Answers(BaseHTTPRequestHandler):
    """Of the API server."""

    protocol_version = "HTTP/1.1"
    cluster: PlayedCluster

    def do_GET(self) -> None:
        """Answer a list, a watch or a Node."""
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        if query.get("watch"):
            self.watch(int(query["resourceVersion"]))
            return
        metadata = {"resourceVersion": str(len(self.cluster.events))}
        content: dict[str, Any] = {"kind": "List", "metadata": metadata, "items": []}
        if parts.path == "/api/v1/pods":
            content["items"] = list(self.cluster.items.values())
        elif parts.path.startswith("/api/v1/nodes/"):
            content = {"kind": "Node", "metadata": {"name": NODE}, "status": {}}
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def watch(self, version: int) -> None:
        """Send events for as long as the client listens."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                for event in self.cluster.later(version):
                    data = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                    version += 1
        except OSError:
            self.close_connection = True

    def log_message(self, *_args: object) -> None:
        """Print nothing."""


@dataclass
class PlayedNode:
    """The engine with the files, the socket and the API server of a kubelet."""

    root: Path
    cluster: PlayedCluster
    kubelet: Kubelet
    made: int = 0

    def snapshot(self) -> Snapshot:
        """Return what the PodResources API lists."""
        return Snapshot(Machine("played", self.kubelet.info), AgentState(self.kubelet))

    def write(self) -> None:
        """Replace the files, as a kubelet does."""
        files = self.kubelet.files
        texts = {"cpu_manager_state": files.cpu, "memory_manager_state": files.memory, DEVICE_FILE: device_text([], {})}
        for name, text in texts.items():
            new = self.root / f"{name}.new"
            new.write_text(text or "", encoding="utf-8")
            new.rename(self.root / name)

    def arrive(self, *, pinned: bool) -> None:
        """Bind a pod, admit it, and write its status."""
        self.made += 1
        content = pod_object(f"pod-{self.made}", pinned=pinned)
        self.cluster.put(content, "ADDED")
        self.kubelet, decision = self.kubelet.admit(pod_from_object(content, source="benchmark"))
        if not decision.admitted:
            raise ValueError(decision.message)
        self.write()
        state = {"running": {"startedAt": content["metadata"]["creationTimestamp"]}}
        statuses = [{"name": "main", "containerID": f"containerd://{'0' * 64}", "image": "i", "state": state}]
        for phase in ("Pending", "Running"):
            self.cluster.put(
                {**content, "status": {**content["status"], "phase": phase, "containerStatuses": statuses}}
            )

    def end(self) -> None:
        """End the oldest pod that came after the first ones."""
        name = next(name for name in self.cluster.items if int(name.partition("-")[2]) > PODS)
        content = self.cluster.items[name]
        self.cluster.put({**content, "metadata": {**content["metadata"], "deletionTimestamp": "2026-01-02T00:00:00Z"}})
        self.kubelet, _ = self.kubelet.remove(content["metadata"]["uid"])
        self.write()
        self.cluster.put({**self.cluster.items[name], "status": {**content["status"], "phase": "Succeeded"}})
        self.cluster.put(self.cluster.items[name], "DELETED")


def pod_object(name: str, *, pinned: bool) -> dict[str, Any]:
    """Return a pod as an API server has it, with what takes room and decides nothing."""
    amounts = {"cpu": "4", "memory": "1Gi"} if pinned else {"cpu": "100m", "memory": "64Mi"}
    container = {
        "name": "main",
        "image": "registry.example/team/service:1.2.3",
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)],
        "volumeMounts": [{"name": f"volume-{number}", "mountPath": f"/mnt/{number}"} for number in range(4)],
        "resources": {"requests": amounts, "limits": amounts if pinned else {}},
    }
    number = int(name.partition("-")[2])
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 7}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "creationTimestamp": f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            "labels": {f"label-{number}": "y" * 20 for number in range(6)},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:field-{one}": {} for one in range(60)}}],
        },
        "spec": {"nodeName": NODE, "containers": [container]},
        "status": {"phase": "Pending", "qosClass": "Guaranteed" if pinned else "Burstable"},
    }


def configured(policy: str) -> KubeletConfig:
    """Return the configuration of the figures, for more pods."""
    return replace(config(policy, machine(NODES).num_cores), max_pods=2 * PODS)


def played(root: Path) -> PlayedNode:
    """Return the node with its first pods."""
    info = machine(NODES)
    start = start_kubelet(info, configured("best-effort"), MooringConfig(), StateTexts())
    if isinstance(start, NotStarted):
        raise SystemExit(start.refusal.message)
    node = PlayedNode(root, PlayedCluster(), start)
    for number in range(PODS):
        node.arrive(pinned=number < PINNED)
    return node


def used(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, name: str) -> float:
    """Return a line of a process's status, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def change(node: PlayedNode, minutes: float) -> None:
    """Let pods come and go in real time."""
    begun = time.monotonic()
    for number in range(int(minutes * A_MINUTE)):
        if number % 2:
            node.end()
        else:
            node.arrive(pinned=number % 4 == 0)
        time.sleep(max(begun + (number + 1) * 60 / A_MINUTE - time.monotonic(), 0.0))


def shadow(node: PlayedNode, port: int, folder: Path, more: list[str]) -> subprocess.Popen[bytes]:
    """Start a shadow, and wait until it watches."""
    kubeconfig = {
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    files = {
        "kubeconfig": kubeconfig,
        "config.yaml": kubelet_document(node.kubelet.settings.config),
        "other.yaml": kubelet_document(configured("restricted")),
        "machine.json": machine_info_document(node.kubelet.info),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    words = [
        *("--kubeconfig", str(folder / "kubeconfig"), "--config", str(folder / "config.yaml"), "--node-name", NODE),
        *("--machine", str(folder / "machine.json"), "--state", str(node.root), "--kubelet-version", "v1.37.1"),
        *("--folder", str(folder / "kept"), "--would-be", str(folder / "other.yaml"), "-o", "json"),
        *("--to", str(folder / "shadow.json")),
    ]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen([*(more or [sys.executable, "-m", "mooring"]), "shadow", *words], stderr=said)
    while "watching" not in (folder / "said").read_text(encoding="utf-8"):
        if process.poll() is not None:
            raise ValueError((folder / "said").read_text(encoding="utf-8"))
        time.sleep(0.1)
    return process


def main(minutes: float, more: list[str]) -> None:
    """Print what it costs."""
    with tempfile.TemporaryDirectory(prefix="shadow-") as path:
        folder, root = Path(path), Path(path) / "kubelet"
        for name in ("device-plugins", "pod-resources"):
            (root / name).mkdir(parents=True)
        node = played(root)
        socket = str(root / "pod-resources/kubelet.sock")
        service = serve_pod_resources(socket, lambda: node.snapshot().state.kubelet.node, Log("benchmark"))
        # The agent's socket is replaced when the first client connects; a kubelet's is not.
        client = PodResourcesClient(socket)
        client.listed()
        client.close()
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("PlayedAnswers", (Answers,), {"cluster": node.cluster}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        process = shadow(node, int(server.server_address[1]), folder, more)
        try:
            started = used(process.pid)
            time.sleep(WARM)
            before, begun, first = used(process.pid), time.monotonic(), memory(process.pid, "VmRSS")
            change(node, minutes)
            spent, seconds = used(process.pid) - before, time.monotonic() - begun
            resident, peak = memory(process.pid, "VmRSS"), memory(process.pid, "VmHWM")
            own = memory(process.pid, "RssAnon")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            server.shutdown()
            service.close()
        found = json.loads((folder / "shadow.json").read_text(encoding="utf-8"))
        counts = {name: found[name] for name in ("agreed", "differs", "unknown", "blind")}
        print(f"{seconds:.0f} s, {int(minutes * A_MINUTE)} changes: {counts}")
        print(f"start {started:.1f} s of CPU, then {spent / seconds:.2%} of a core")
        files = "the rest are pages of programs and libraries"
        print(f"resident {first:.0f} MB, then {resident:.0f} MB, {own:.0f} MB its own, {files}; highest {peak:.0f} MB")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, sys.argv[2:])
