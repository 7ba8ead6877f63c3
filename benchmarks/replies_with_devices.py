"""Print how long the agent takes to answer CreateContainer, and its memory, without devices and with devices looked up.

Three processes as on a node: a runtime (this one), an agent with its state folder, and a kubelet's PodResources API
over gRPC. Every container gets an exclusive CPU; with devices each has a GPU whose NUMA node only the
kubelet knows. Every reply waits for the disk, so after each the disk alone is measured: 4 KiB in a new file, fsync,
rename, in the same folder.

    .venv/bin/python benchmarks/replies_with_devices.py [PODS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from startup import CONFIGURATION, Runtime, Watched, environment

from mooring.agent.nri import messages
from mooring.agent.nri.messages import PLUGIN_SERVICE
from mooring.service.messages import (
    PODRESOURCES_SERVICE,
    AllocatableResourcesRequestMessage,
    AllocatableResourcesResponseMessage,
    ContainerDevicesMessage,
    GetPodResourcesRequestMessage,
    GetPodResourcesResponseMessage,
    ListPodResourcesRequestMessage,
    ListPodResourcesResponseMessage,
    NUMANodeMessage,
    PodResourcesMessage,
    TopologyInfoMessage,
)

NODES = 8
MACHINE = f"sockets=2 numa={NODES} cores=128 threads=2 memory=256Gi"
GPU = "nvidia.com/gpu"
FOLLOWING = """
kubeletPodResourcesSocket: {folder}/kubelet.sock
---
kind: MooringConfiguration
extensions: [device-alignment]
"""


def devices(number: int) -> ContainerDevicesMessage:
    """Return the entry of one device."""
    topology = TopologyInfoMessage(nodes=[NUMANodeMessage(ID=number % NODES)])
    return ContainerDevicesMessage(resource_name=GPU, device_ids=[f"GPU-{number:04}"], topology=topology)


def known(number: int) -> PodResourcesMessage:
    """Return a pod with its device."""
    message = PodResourcesMessage(name=f"pod{number}", namespace="default")
    message.containers.add(name="main").devices.extend([devices(number)])
    return message


def serve(path: str, pods: int) -> None:
    """Be the kubelet's API until the process is ended."""
    all_pods = {f"pod{number}": known(number) for number in range(pods)}
    answers: dict[str, tuple[Any, Any]] = {
        "Get": (
            GetPodResourcesRequestMessage,
            lambda asked, _: GetPodResourcesResponseMessage(pod_resources=all_pods[asked.pod_name]),
        ),
        "List": (
            ListPodResourcesRequestMessage,
            lambda _asked, _: ListPodResourcesResponseMessage(pod_resources=list(all_pods.values())),
        ),
        "GetAllocatableResources": (
            AllocatableResourcesRequestMessage,
            lambda _asked, _: AllocatableResourcesResponseMessage(devices=[devices(number) for number in range(pods)]),
        ),
    }
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request.FromString, response_serializer=lambda made: made.SerializeToString()
        )
        for name, (request, answer) in answers.items()
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(PODRESOURCES_SERVICE, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    server.wait_for_termination()


def creation(number: int) -> bytes:
    """Return the runtime's request."""
    request = messages.ContainerRequestMessage()
    request.pod.id, request.pod.uid, request.pod.name = f"sandbox{number}", f"uid{number}", f"pod{number}"
    request.pod.namespace = "default"
    request.pod.linux.cgroup_parent = f"/kubepods/poduid{number}"
    request.container.id, request.container.pod_sandbox_id = f"container{number}", f"sandbox{number}"
    request.container.name = "main"
    cpu = request.container.linux.resources.cpu
    cpu.shares.value, cpu.quota.value, cpu.period.value = 1024, 100_000, 100_000
    request.container.linux.resources.memory.limit.value = 2**28
    return bytes(request.SerializeToString())


def kept(folder: Path) -> float:
    """Return the milliseconds in which the disk replaces a file of 4 KiB."""
    began = time.perf_counter()
    with (folder / "new").open("wb") as file:
        file.write(os.urandom(4096))
        file.flush()
        os.fsync(file.fileno())
    (folder / "new").replace(folder / "kept")
    return (time.perf_counter() - began) * 1000


def replies(pods: int, *, following: bool) -> tuple[list[float], list[float], float]:
    """Return the milliseconds of each reply, in order, those of the disk alone, and the agent's resident megabytes."""
    with tempfile.TemporaryDirectory(prefix="mooring-") as name:
        folder = Path(name)
        runtime = Runtime(folder / "nri.sock")
        text = CONFIGURATION.format(folder=folder) + (FOLLOWING.format(folder=folder) if following else "")
        text = text.replace("reservedSystemCPUs", "topologyManagerPolicy: best-effort\nreservedSystemCPUs", 1)
        (folder / "agent.yaml").write_text(text, encoding="utf-8")
        kubelet = subprocess.Popen([sys.executable, __file__, "serve", f"{folder}/kubelet.sock", str(pods)])
        words = [sys.executable, "-m", "mooring", "agent", "--config", f"{folder}/agent.yaml", "--machine", MACHINE]
        with (folder / "log").open("wb") as log:
            agent = subprocess.Popen(words, stdout=log, stderr=log, env=environment())
        runtime.watched = Watched(agent.pid)
        try:
            runtime.accept()
            assert runtime.registered.wait(60)
            runtime.call("Configure", runtime_name="containerd", runtime_version="v2.4.2", request_timeout=2000)
            runtime.call("Synchronize")
            found, disk = [], []
            for number in range(pods):
                request = creation(number)
                began = time.perf_counter()
                runtime.client.call(PLUGIN_SERVICE, "CreateContainer", request, 60.0)
                found.append((time.perf_counter() - began) * 1000)
                disk.append(kept(folder))
            resident = runtime.watched.resident()
        finally:
            for process in (agent, kubelet):
                process.terminate()
                process.wait()
    return found, disk, resident


def main(pods: int) -> None:
    """Measure and print."""
    for following in (False, True, False, True):
        times, disk, resident = replies(pods, following=following)
        what = "with devices" if following else "without"
        alone = f"disk alone: {spread(disk)} ({pods} creations)"
        sys.stdout.write(f"{what}: {spread(times)}; {alone}; resident {resident:.1f} MB\n")


def spread(times: list[float]) -> str:
    """Return median, p99 and longest in words."""
    late = statistics.quantiles(times, n=100)[98]
    return f"median {statistics.median(times):.1f}, p99 {late:.1f}, longest {max(times):.1f} ms"


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
