"""The scheduler and the driver of claims as processes of their own, and claims as people write them."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.kubelet import Kubelet
from tests.e2e.kubelet.patience import until

DRIVER = "cpu.mooring.dev"
CLASS = "mooring-cpu"
GROUP = "apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
_SCHEDULER_PORT = 10259


@contextlib.contextmanager
def scheduler_on(
    program: Path, api: APIServer, folder: Path, gates: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scheduler with some feature gates on until the end of the block."""
    configuration = folder / "scheduler.json"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(api.kubeconfig)},
        "leaderElection": {"leaderElect": False},
    }
    configuration.write_text(json.dumps(content), encoding="utf-8")
    words = [
        str(program),
        f"--config={configuration}",
        f"--secure-port={_SCHEDULER_PORT}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder / 'scheduler-certificates'}",
        *(f"--feature-gates={one}=true" for one in gates),
    ]
    with (folder / "scheduler.log").open("wb") as log:
        made = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        yield made
    finally:
        made.send_signal(signal.SIGKILL)
        made.wait()


@dataclass(slots=True)
class DriverProcess:
    """A driver that can be started more than once, over the same folders."""

    node: Runtime
    kubelet: Kubelet
    api: APIServer
    agent: str
    """The agent's socket for claims."""
    machine: str
    more: Sequence[str] = ()
    kubeconfig: Path | None = None
    """In whose name it speaks to the API server; None for the one who may do everything."""
    codes: list[int] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> list[dict[str, Any]]:
        path = self.node.folder / "driver.log"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]

    @property
    def cdi(self) -> Path:
        return self.node.folder / "cdi"

    def said(self, event: str) -> int:
        return sum(line["event"] == event for line in self.log)

    def start(self) -> None:
        """Start, and wait until the kubelet has taken the driver."""
        path = self.node.folder / "driver.log"
        path.touch()
        registered = self.said("driver registered by the kubelet")
        words = [
            *(sys.executable, "-m", "mooring", "dra", "--agent", self.agent),
            *("--kubeconfig", str(self.kubeconfig or self.api.kubeconfig), "--cdi-root", str(self.cdi)),
            *("--kubelet-root", str(self.kubelet.root), "--kubelet-config", str(self.kubelet.configuration)),
            *("--machine", self.machine, "--log-level", "debug", *self.more),
        ]
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until(lambda: self._ended() or self.said("driver registered by the kubelet") > registered, "registered")
        assert not self._ended(), path.read_text(encoding="utf-8")[-2000:]

    def end(self, sign: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(sign)
            self.codes.append(self._process.wait(timeout=30))
            self._process = None

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


@contextlib.contextmanager
def driver_on(driver: DriverProcess) -> Iterator[DriverProcess]:
    """Run a driver until the end of the block; it ends at SIGTERM with code 0."""
    driver.start()
    try:
        yield driver
    finally:
        driver.end()
    assert driver.codes[-1] == 0


def device_class() -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }


def claim_of(name: str, *requests: tuple[str, int], **metadata: Any) -> dict[str, Any]:
    """Return a claim with requests of some CPUs of a group each."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": request,
                        "exactly": {
                            "deviceClassName": CLASS,
                            "capacity": {"requests": {"dra.cpu/cpu": str(count)}},
                        },
                    }
                    for request, count in requests
                ]
            }
        },
    }


def claim_of_devices(name: str, request: str, count: int) -> dict[str, Any]:
    """Return a claim with a request of some devices, where a device is a CPU."""
    claim = claim_of(name)
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}
    claim["spec"]["devices"]["requests"] = [{"name": request, "exactly": exactly}]
    return claim


def with_claims(pod: dict[str, Any], claims: dict[str, str], **used: list[dict[str, str]]) -> dict[str, Any]:
    """Return a pod with claims by its own names for them, and what its containers use of them."""
    spec = pod["spec"]
    containers = [
        {**one, "resources": {**one["resources"], "claims": used[one["name"]]}} if one["name"] in used else one
        for one in spec["containers"]
    ]
    named = [{"name": name, "resourceClaimName": claim} for name, claim in claims.items()]
    return {**pod, "spec": {**spec, "containers": containers, "resourceClaims": named}}


def forget_claims(api: APIServer) -> None:
    """Delete all claims, slices and classes; nobody is there to take the finalizers away."""
    for claim in api.get(f"{GROUP}/resourceclaims")["items"]:
        path = f"{CLAIMS}/{claim['metadata']['name']}"
        headers = {"Content-Type": "application/merge-patch+json"}
        # A claim that is allocated and reserved is not let go.
        api.cluster.http.patch(f"{path}/status", json={"status": None}, headers=headers)
        api.cluster.http.patch(path, json={"metadata": {"finalizers": None}}, headers=headers)
        api.delete(path)
    for kind in ("resourceslices", "deviceclasses"):
        for one in api.get(f"{GROUP}/{kind}")["items"]:
            api.delete(f"{GROUP}/{kind}/{one['metadata']['name']}")
