"""Runs of the confined agent under strace, for ``scripts/record_seccomp.py``: everything that it can do."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from tests.e2e.containerd.confined import ConfinedAgent, Rights, confined, everything
from tests.e2e.containerd.conftest import KINDS
from tests.e2e.containerd.runtime import parts_named, running
from tests.patience import until


class _Refuses(BaseHTTPRequestHandler):
    """An API server that is out of order."""

    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, *_arguments: object) -> None:
        return


def unconfined(rights: Rights) -> Rights:
    """Return the rights with a filter that forbids next to nothing: runc loads none that forbids nothing."""
    forbidden = {"names": ["reboot"], "action": "SCMP_ACT_ERRNO"}
    return replace(rights, seccomp={"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [forbidden]})


def traces(folder: Path) -> Iterator[Path]:
    """Run, and yield the trace of each start of the agent."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.trace"):
        old.unlink()
    for kind in KINDS:
        place = Path(tempfile.mkdtemp(prefix="nri-", dir="/tmp"))
        try:
            with running(parts_named(kind), place) as node, confined(node, unconfined) as agent:
                agent.tracer = lambda number, kind=kind: (  # type: ignore[misc]
                    *("strace", "-f", "-qq", "-s", "0", "-o", str(folder / f"{kind}-{number}.trace")),
                )
                _asked(agent)
                everything(node, agent)
        finally:
            shutil.rmtree(place)
    yield from sorted(folder.glob("*.trace"))


def _asked(agent: ConfinedAgent) -> None:
    """Let clients ask it, its API server refuse it, and its operator reload it."""
    server = ThreadingHTTPServer(("localhost", 0), _Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        agent.metrics = free.getsockname()[1]
    agent.api_port = server.server_address[1]
    try:
        agent.start()
        for path in ("metrics", "healthz", "readyz"):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{agent.metrics}/{path}", timeout=10).close()
        with grpc.insecure_channel(f"unix:{agent.folders['run']}/pod-resources.sock") as channel:
            call: Any = channel.unary_unary("/v1.PodResourcesLister/List")
            call(b"", timeout=10)
        os.kill(agent.pid, signal.SIGHUP)
        until(lambda: any("configuration" in line["event"] for line in agent.log), "the reload is in the log")
        assert agent.end() == 0
    finally:
        server.shutdown()
        server.server_close()
