"""Asking an extender's service without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw, structs

from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.run import Extender, extender_with
from mooring.cluster.extender.wire import BindArguments
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.logs import Traces

PATIENT = 60.0
"""Seconds for a request, on a machine that may stand still for some of them."""


@dataclass
class Recorder:
    """Takes binds in the place of an API server."""

    error: ClusterError | None = None
    bound: list[tuple[str, str]] | None = None
    pod: bytes = b""
    claims: dict[str, bytes] = field(default_factory=dict)

    def close(self) -> None:
        """Nothing is open."""

    def read_pod(self, namespace: str, name: str) -> bytes:
        if not self.pod:
            raise ClusterError(f"status 404: pods {namespace}/{name} not found", code=404)
        return self.pod

    def read_claim(self, namespace: str, name: str) -> bytes:
        if name not in self.claims:
            raise ClusterError(f"status 404: resourceclaims {namespace}/{name} not found", code=404)
        return self.claims[name]

    def pods_on(self, node: str) -> list[Raw]:
        raise ClusterError(f"the pods of {node} are read by one of several replicas only")

    def bind(self, asked: BindArguments) -> None:
        if self.error is not None:
            raise self.error
        self.bound = [*(self.bound or []), (asked.PodUID, asked.Node)]


def no_cluster() -> Cluster:
    raise ClusterError("there is no API server")


def ready_extender(
    options: ExtenderOptions | None = None, server: Recorder | None = None, traces: Traces | None = None
) -> Extender:
    """Return an extender that believes to have listed everything; it has time to answer unless the options say less."""
    usual = ExtenderOptions()
    options = options or usual
    if options.request_time == usual.request_time:
        options = structs.replace(options, request_time=PATIENT)
    made = extender_with(options, no_cluster, lambda _about, _problem: None, server or Recorder(), traces=traces)
    for follower in made.followers:
        follower.has_listed.set()
    return made


def ask(extender: Extender, path: str, body: bytes | Sequence[bytes], method: str = "POST") -> tuple[int, Any]:
    """Return status and content of an answer."""
    return asyncio.run(asking(extender, path, body, method))


async def asking(extender: Extender, path: str, body: bytes | Sequence[bytes], method: str = "POST") -> tuple[int, Any]:
    """Return status and content of an answer, beside other requests."""
    parts = [body] if isinstance(body, bytes) else list(body)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "asgi": {}}
    app = extender.service.webhook if path.startswith("/validate") else extender.service.app
    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent)
    is_json = content[:1] in (b"{", b"[")
    return sent[0]["status"], json.loads(content) if is_json else content.decode()
