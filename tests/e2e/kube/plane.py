"""The processes of a cluster without nodes: API server, scheduler and extender."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.kube.pods import URGENT
from tests.e2e.kubelet.apiserver import APIServer, Ports, process
from tests.e2e.kubelet.patience import until

from mooring.cluster.extender.service import NOT_LEADING

DEPLOY = Path(__file__).parents[3] / "deploy"
OURS = "apis/mooring.dev/v1alpha1"
DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERBS = ("filter", "prioritize", "preempt", "bind")


def free_port() -> int:
    """Return a port of the loopback that nobody has at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def free_ports() -> Ports:
    """Return ports for etcd and an API server."""
    return Ports(free_port(), free_port(), free_port())


def define(api: APIServer) -> None:
    """Bring what a cluster with Mooring has and is not there yet: the definitions of its objects, and a priority."""
    content: dict[str, Any] = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": URGENT},
        "value": 9,
    }
    wanted = [("apis/scheduling.k8s.io/v1/priorityclasses", content)]
    for file in sorted((DEPLOY / "crds").iterdir()):
        wanted.append((DEFINITIONS, yaml.safe_load(file.read_text(encoding="utf-8"))))  # noqa: PERF401 - clearer so
    for path, document in wanted:
        if not api.cluster.http.get(f"{path}/{document['metadata']['name']}").is_success:
            api.post(path, document)
    paths = [f"{OURS}/{plural}" for plural in ("nodefacts", "nodestates")]
    until(lambda: all(api.cluster.http.get(path).is_success for path in paths), "the definitions are served")


@dataclass(frozen=True, slots=True)
class Extender:
    """An extender that runs as a process."""

    port: int
    log: Path
    pid: Callable[[], int]
    kill: Callable[[], None]
    start: Callable[[], None]

    @property
    def url(self) -> str:
        """Where the scheduler finds it."""
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        """Whether it has heard of everything, and decides."""
        with contextlib.suppress(httpx2.HTTPError):
            return bool(httpx2.get(f"{self.url}/readyz").is_success)
        return False

    def stands_by(self) -> bool:
        """Whether it has heard of everything, and another replica decides."""
        with contextlib.suppress(httpx2.HTTPError):
            return httpx2.get(f"{self.url}/readyz").text == f"{NOT_LEADING}\n"
        return False

    def metrics(self) -> Mapping[str, float]:
        """Return what it counts, without the beginning of the names; labels in braces."""
        return read_metrics(httpx2.get(f"{self.url}/metrics").text, "mooring_extender_")

    def ask(self, verb: str, body: Mapping[str, Any]) -> Any:
        """Ask as the scheduler does."""
        response = httpx2.post(f"{self.url}/{verb}", json=dict(body), timeout=20)
        assert response.is_success, response.text
        return response.json()

    @property
    def most_memory(self) -> int:
        """The largest resident size so far, in bytes."""
        return peak_memory(self.pid())


def peak_memory(pid: int) -> int:
    """Return the largest resident size of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@contextlib.contextmanager
def extender(folder: Path, kubeconfig: Path, **fields: Any) -> Iterator[Extender]:
    """Run ``mooring extender`` until the end of the block; with ``listen``, it is asked at its health address."""
    port, folder = free_port(), folder / f"extender-{free_port()}"
    folder.mkdir()
    address = "healthAddress" if "listen" in fields else "listen"
    content = {"apiVersion": "mooring/v1alpha1", "kind": "ExtenderConfiguration", address: f"127.0.0.1:{port}"}
    configuration, log = folder / "extender.json", folder / "extender.log"
    configuration.write_text(json.dumps({**content, **fields}), encoding="utf-8")
    words = ["-m", "mooring", "extender", "--config", str(configuration), "--kubeconfig", str(kubeconfig)]
    running: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as life:

        def start() -> None:
            running[:] = [life.enter_context(process([sys.executable, *words], log))]
            until(lambda: running[0].poll() is not None or made.is_ready() or made.stands_by(), "the extender is ready")
            assert running[0].poll() is None, log.read_text(encoding="utf-8")[-3000:]

        made = Extender(port, log, lambda: running[0].pid, life.close, start)
        start()
        yield made


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler that runs."""

    port: int
    log: Path
    pid: int

    def metrics(self) -> Mapping[str, float]:
        """Return what it counts, without the beginning of the names."""
        found = httpx2.get(f"https://127.0.0.1:{self.port}/metrics", verify=False)
        return read_metrics(found.text, "scheduler_")


@contextlib.contextmanager
def scheduler(
    program: Path,
    folder: Path,
    kubeconfig: Path,
    url: str = "",
    *,
    ignorable: bool = False,
    words: Sequence[str] = (),
    plugins: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Scheduler]:
    """Run a scheduler until the end of the block.

    Args:
        program: kube-scheduler.
        folder: for its files.
        kubeconfig: of the API server.
        url: of an extender; empty for none.
        ignorable: what the scheduler is told about that.
        words: more flags.
        plugins: arguments of its plugins, as in ``pluginConfig``.
    """
    port = free_port()
    folder = folder / f"scheduler-{port}"
    folder.mkdir()
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        **({"extenders": [_told(url, ignorable=ignorable)]} if url else {}),
        **({"profiles": [{"pluginConfig": list(plugins)}]} if plugins else {}),
    }
    file = folder / "scheduler.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    command = [
        str(program),
        f"--config={file}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authorization-always-allow-paths=/metrics,/healthz,/readyz",
        "--v=2",
        *words,
    ]
    log = folder / "scheduler.log"
    with process(command, log) as running:
        until(lambda: running.poll() is not None or _answers(port), "the scheduler is ready")
        assert running.poll() is None, log.read_text(encoding="utf-8")[-3000:]
        yield Scheduler(port, log, running.pid)


def _told(url: str, *, ignorable: bool) -> dict[str, Any]:
    """Return what ``deploy/scheduler.yaml`` says, for this address and without TLS."""
    documents = yaml.safe_load_all((DEPLOY / "scheduler.yaml").read_text(encoding="utf-8"))
    [configuration] = [one["data"]["scheduler.yaml"] for one in documents if one["kind"] == "ConfigMap"]
    [shipped] = yaml.safe_load(configuration)["extenders"]
    kept = {name: value for name, value in shipped.items() if name not in ("enableHTTPS", "tlsConfig")}
    return {**kept, "urlPrefix": url, "ignorable": ignorable}


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return bool(httpx2.get(f"https://127.0.0.1:{port}/readyz", verify=False).is_success)
    return False


def read_metrics(text: str, prefix: str) -> Mapping[str, float]:
    """Return name and labels -> value of all samples whose names begin so."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(prefix):
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                found[sample.name.removeprefix(prefix) + (f"{{{labels}}}" if labels else "")] = sample.value
    return found
