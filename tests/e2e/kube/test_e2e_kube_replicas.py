"""Two replicas of the extender share a Lease: whichever is killed, every pod gets its place, and none a place twice."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube.conftest import Parts, Playing
from tests.e2e.kube.nodes import Nodes, contradiction
from tests.e2e.kube.plane import Extender, extender, scheduler
from tests.e2e.kube.story import Story
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

NODES, PODS, KILLS = (8, 150, 3) if os.environ.get("MOORING_E2E_KUBE", "") != "full" else (50, 1000, 20)
NAME = {"namespace": "default", "name": "mooring-extender"}
LEASES = f"apis/coordination.k8s.io/v1/namespaces/{NAME['namespace']}/leases"


@pytest.fixture
def lease(api: APIServer) -> Iterator[None]:
    """The Lease, as ``deploy/extender.yaml`` has it."""
    api.post(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": NAME})
    yield
    api.cluster.http.delete(f"{LEASES}/{NAME['name']}")


def holder(api: APIServer) -> str:
    """Return the name of the replica that holds the Lease."""
    spec: dict[str, Any] = api.get(f"{LEASES}/{NAME['name']}").get("spec") or {}
    return str(spec.get("holderIdentity") or "").rpartition("_")[0]


def holds_another(api: APIServer, before: str) -> bool:
    return holder(api) not in ("", before)


def has_admitted(nodes: Nodes, count: int) -> bool:
    return len(nodes.admitted) > count


@contextlib.contextmanager
def service(replicas: list[Extender]) -> Iterator[str]:
    """Be a Service: each connection goes to the replica that is ready."""

    class Passing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            for one in replicas:
                with contextlib.suppress(OSError):
                    if one.is_ready():
                        with socket.create_connection(("127.0.0.1", one.port), timeout=1.0) as leader:
                            passed_on(self.request, leader)
                        return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Passing) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def passed_on(client: socket.socket, leader: socket.socket) -> None:
    """Pass bytes on both ways until a side ends it."""
    while ready := select.select([client, leader], [], [])[0]:
        for one in ready:
            if not (data := one.recv(1 << 16)):
                return
            (leader if one is client else client).sendall(data)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=lambda how: how.name)
@pytest.mark.usefixtures("lease")
def test_a_replica_that_ends_while_pods_are_bound_loses_no_decision(
    api: APIServer, parts: Parts, playing: Playing, folder: Path, how: signal.Signals
) -> None:
    with (
        playing(NODES, delay=1.0) as nodes,
        extender(folder, api.kubeconfig, lease=NAME) as first,
        extender(folder, api.kubeconfig, lease=NAME) as second,
        service([first, second]) as url,
        scheduler(parts.scheduler, folder, api.kubeconfig, url),
    ):
        replicas = {f"{socket.gethostname()}:{one.port}": one for one in (first, second)}
        story = Story(api, nodes, random.Random(how.name))  # noqa: S311 - no secret
        ended: list[str] = []

        def end_leaders() -> None:
            for _ in range(KILLS):
                until(partial(holds_another, api, ""), "one of them decides")
                before, count = holder(api), len(nodes.admitted)
                until(partial(has_admitted, nodes, count + 3), "the leader binds pods")
                os.kill(replicas[before].pid(), how)
                ended.append(before)
                until(partial(holds_another, api, before), "the other one takes over")
                if how is signal.SIGSTOP:
                    os.kill(replicas[before].pid(), signal.SIGCONT)  # it wakes up with what it had in hand
                replicas[before].kill()
                replicas[before].start()

        enemy = threading.Thread(target=end_leaders)
        enemy.start()
        story.run(PODS, patience=400.0)
        while enemy.is_alive():
            story.run(10, patience=400.0)
        assert len(ended) == KILLS
        story.settle()
        print(f"\n{how.name} {KILLS} times: {story.figures()}")
        assert not story.refused_by_promise()
        assert not [name for one in (first, second) for name in one.metrics() if name.startswith("mispredictions")]
        assert [found for node in nodes.played.values() if (found := contradiction(node))] == []
