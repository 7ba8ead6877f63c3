"""Five workloads on the same played nodes, by the default scheduler alone and with Mooring's extender: one table.

Run by hand: ``.venv/bin/python benchmarks/play_schedulers.py [WORKLOAD...]``. It needs the parts of
``scripts/e2e_kube_parts.py`` (etcd, API server, scheduler). Scheduler and extender have the settings of
``deploy/scheduler.yaml``, and the default scheduler its defaults. A pod that its node rejects is deleted and made anew,
as a ReplicaSet does, until a minute has passed without any pod that starts to run.
"""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from tests.e2e.kube.conftest import Parts  # noqa: E402
from tests.e2e.kube.plane import define, extender, free_ports, scheduler  # noqa: E402
from tests.e2e.kubelet.apiserver import PODS, APIServer, api_server  # noqa: E402

from mooring.cluster.play.kubelets import Play  # noqa: E402
from mooring.cluster.play.run import PlayedCluster  # noqa: E402
from mooring.fleet.event_files import load_cluster  # noqa: E402
from mooring.service.apiserver import cluster_of, configuration_of  # noqa: E402

GPU = "nvidia.com/gpu"
CLUSTER = """
apiVersion: mooring/v1alpha1
kind: Cluster
metadata: {name: bench}
groups:
  - name: gpu
    count: 2
    machine: hgx-8gpu
    kubelet: &kubelet
      cpuManagerPolicy: static
      topologyManagerPolicy: single-numa-node
      reservedSystemCPUs: "0"
      maxPods: 250
  - {name: numa, count: 2, machine: epyc-7763-2s-nps4, kubelet: *kubelet}
"""
SILENCE = 30.0
"""Seconds without a pod that starts after which what waits is taken to wait for ever."""


def pod(cpus: int, gpus: int = 0) -> dict[str, Any]:
    limits = {"cpu": str(cpus), "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    return {"limits": limits}


def workloads() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield names and resources of pods in their order; together they ask for less than the nodes have."""
    draw = random.Random(1)  # noqa: S311 - no secret
    yield "services of 4 CPUs", [pod(4)] * 220
    yield "databases of 20 CPUs", [pod(20)] * 35
    yield "mixed sizes", [pod(draw.choice((2, 3, 6, 10, 14, 24))) for _ in range(80)]
    yield "training, 1 to 4 GPUs", [pod(8 * gpus, gpus) for gpus in draw.sample((1, 1, 1, 1, 2, 2, 4, 4), 8)]
    yield "large after small", [*[pod(6)] * 60, *[pod(18)] * 20]


def run(parts: Parts, folder: Path, resources: list[dict[str, Any]], *, extended: bool) -> str:
    """Run a workload in a cluster of its own, and return its row."""
    (folder / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    cluster = load_cluster(str(folder / "cluster.yaml")).cluster
    with ExitStack() as life:
        api = life.enter_context(api_server(parts, folder, free_ports()))
        define(api)
        connect = partial(cluster_of, configuration_of(str(api.kubeconfig)))
        played = PlayedCluster(cluster, connect, lambda *_: None, publishes=True, keep=True)
        play = life.enter_context(played.playing())
        asked = life.enter_context(extender(folder, api.kubeconfig) if extended else nullcontext())
        life.enter_context(scheduler(parts.scheduler, folder, api.kubeconfig, asked.url if asked else ""))
        began = time.monotonic()
        named = {f"pod-{number}": one for number, one in enumerate(resources)}
        for name, one in named.items():
            create(api, name, one)
        retries, last = retried(api, named, play)
        runs = {pod.name for pod in play.pods.values() if pod.phase == "Running"}
        rejected = play.counts.total() - play.counts["admitted"]
        waiting = [one for name, one in named.items() if name not in runs]
        cells = [len(runs), len(waiting), rejected, retries, f"{last - began:.0f} s", *stranded(play, waiting)]
        return " | ".join(map(str, cells))


def create(api: APIServer, name: str, resources: dict[str, Any]) -> None:
    container = {"name": "app", "image": "none", "resources": resources}
    spec = {"automountServiceAccountToken": False, "enableServiceLinks": False, "containers": [container]}
    api.create_pod({"metadata": {"name": name}, "spec": spec})


def retried(api: APIServer, resources: dict[str, dict[str, Any]], play: Play) -> tuple[int, float]:
    """Make rejected pods anew; return how often, and when the last pod started to run."""
    retries, admitted, last = 0, 0, time.monotonic()
    while admitted < len(resources) and time.monotonic() - last < SILENCE:
        for one in api.get(PODS, fieldSelector="status.phase=Failed")["items"]:
            name = one["metadata"]["name"]
            api.delete(f"{PODS}/{name}", now=True)
            create(api, name, resources[name])
            retries += 1
        if play.counts["admitted"] > admitted:
            admitted, last = play.counts["admitted"], time.monotonic()
        time.sleep(0.5)
    return retries, last


def stranded(play: Play, waiting: list[dict[str, Any]]) -> Iterator[int]:
    """Yield the CPUs and GPUs that are free while pods wait that ask for some."""
    nodes = [node.kubelet for node in play.nodes.values()]
    cpus = [one.node.cpu.default.bit_count() - one.settings.reservation.cpus.mask.bit_count() for one in nodes]
    gpus = [len(one.node.providers.devices.available(GPU)) for one in nodes]
    yield sum(cpus) if waiting else 0
    yield sum(gpus) if any(GPU in one["limits"] for one in waiting) else 0


def main(wanted: list[str]) -> None:
    """Print the table."""
    made = importlib.import_module("e2e_kube_parts")
    parts = Parts(made.etcd(), made.kube_program("kube-apiserver"), made.kube_program("kube-scheduler"))
    print("| workload | scheduler | run | wait | rejected | retries | time | stranded CPUs | stranded GPUs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, resources in workloads():
        for extended in (False, True) if not wanted or any(one in name for one in wanted) else ():
            with tempfile.TemporaryDirectory(prefix="play-") as folder:
                row = run(parts, Path(folder), resources, extended=extended)
            print(f"| {name} | {'with the extender' if extended else 'default'} | {row} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
