"""A node with a running agent, a driver and the kubelet's side of its sockets; the API server is made up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node
from tests.e2e.folders import short_folder

from mooring.cluster.dra.cdi import CDISpecs
from mooring.cluster.dra.devices import Grouping, SlicePublisher
from mooring.cluster.dra.driver import Driver, Reconciler
from mooring.cluster.dra.health import (
    DeviceHealth,
    DriverMetrics,
    NodeWatchResourcesRequestMessage,
    NodeWatchResourcesResponseMessage,
)
from mooring.cluster.dra.objects import ClaimsClient
from mooring.cluster.dra.run import Plugin
from mooring.service import messages
from mooring.service.apiserver import ClusterError
from mooring.service.logs import Log

DRIVER, NODE = "cpu.example", "edge-7"


@dataclass
class MadeUpObjects:
    """What the driver asks of an API server."""

    known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    devices: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    away: bool = False
    has_gates: bool = True

    def add(self, name: str, *results: dict[str, Any], pods: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
        """Add a claim, allocated when there are results."""
        content: dict[str, Any] = {
            "metadata": {"uid": f"uid-{name}", "namespace": "default", "name": name, **metadata},
            "status": {"reservedFor": [{"resource": "pods", "uid": uid} for uid in pods]},
        }
        if results:
            content["status"]["allocation"] = {"devices": {"results": list(results)}}
        self.known["default", name] = content
        return content

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        self._ask()
        return self.known.get((namespace, name))

    def claims(self) -> list[dict[str, Any]]:
        self._ask()
        return [*self.known.values()]

    def classes(self) -> list[dict[str, Any]]:
        expression = f'device.driver == "{DRIVER}"'
        return [{"metadata": {"name": "cpus"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}]

    def slices(self, _driver: str, _node: str) -> list[dict[str, Any]]:
        self._ask()
        return [*self.published.values()]

    def node_uid(self, _name: str) -> str:
        return "uid-of-node"

    def apply_slice(self, content: dict[str, Any]) -> dict[str, Any]:
        self._ask()
        if not self.has_gates:
            devices = [{**one, "nodeAllocatableResources": {}} for one in content["spec"]["devices"]]
            content = {**content, "spec": {**content["spec"], "devices": devices}}
        self.published[content["metadata"]["name"]] = content
        return content

    def delete_slice(self, name: str) -> None:
        self.published.pop(name, None)

    def apply_claim_devices(self, _namespace: str, name: str, devices: list[dict[str, Any]]) -> None:
        self._ask()
        self.devices[name] = devices

    def allocate(self, claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> None:
        self._ask()
        if claim["metadata"].get("conflict"):
            raise ClusterError("changed meanwhile", code=409)
        self.known["default", claim["metadata"]["name"]]["status"]["allocation"] = allocation

    def _ask(self) -> None:
        if self.away:
            raise ClusterError("nobody answers")


@dataclass
class ClaimNode:
    """Everything of one node."""

    node: Node
    runtime: RuntimeSide
    objects: MadeUpObjects
    grouping: Grouping = Grouping.NUMA
    now: float = 0.0
    metrics: DriverMetrics = field(default_factory=lambda: DriverMetrics(lambda: True))

    @property
    def agent_socket(self) -> str:
        return str(self.node.folder / "claims.sock")

    @property
    def specs(self) -> CDISpecs:
        return CDISpecs(self.node.folder / "cdi", DRIVER)

    @contextlib.contextmanager
    def driver(self) -> Iterator[Kubelet]:
        """Run a driver, and return the kubelet's side of it."""
        objects: Any = self.objects
        log = Log("test")
        agent = ClaimsClient(self.agent_socket)
        publisher = SlicePublisher(DRIVER, NODE, self.grouping, objects, log)
        driver = Driver(DRIVER, NODE, agent, objects, self.specs, publisher, log)
        health = DeviceHealth(NODE, self.node.folder)
        reconciler = Reconciler(driver, agent, objects, self.specs, publisher, health, log, immediate=True)
        with short_folder("dra-") as root:
            plugin = Plugin(driver, root / "p", root / "r", log, self.metrics, health)
            kubelet = Kubelet(self, root / "r" / f"{DRIVER}-reg.sock", reconciler, publisher, plugin)
            try:
                yield kubelet
            finally:
                kubelet.close()
                plugin.close()

    def claims(self) -> dict[str, str]:
        """Return what the agent says: name -> CPUs."""
        return {one["name"]: one["cpus"] for one in self.node.status.get("claims", [])}

    def pods(self) -> dict[str, list[str]]:
        return {one["name"]: one["pods"] for one in self.node.status.get("claims", [])}


class Kubelet:
    """Speaks to a driver as a kubelet does."""

    def __init__(
        self, place: ClaimNode, registration: Path, reconciler: Reconciler, publisher: SlicePublisher, plugin: Plugin
    ) -> None:
        self.place, self.reconciler, self.publisher, self.plugin = place, reconciler, publisher, plugin
        self._channels: list[grpc.Channel] = []
        self.info: Any = self._call(
            str(registration),
            messages.REGISTRATION_SERVICE,
            "GetInfo",
            messages.InfoRequestMessage(),
            messages.PluginInfoMessage,
        )
        self._registration = str(registration)

    def notify(self, *, registered: bool, error: str = "") -> None:
        self._call(
            self._registration,
            messages.REGISTRATION_SERVICE,
            "NotifyRegistrationStatus",
            messages.RegistrationStatusMessage(plugin_registered=registered, error=error),
            messages.RegistrationStatusResponseMessage,
        )

    def prepare(self, name: str, uid: str = "") -> Any:
        return self._claims("NodePrepareResources", name, uid)

    def unprepare(self, name: str, uid: str = "") -> str:
        return str(self._claims("NodeUnprepareResources", name, uid).error)

    def reconcile(self, seconds: float = 100.0) -> None:
        self.place.now += seconds
        self.reconciler.reconcile(self.place.now)

    def watch(self, service: str) -> Iterator[dict[str, tuple[int, str]]]:
        """Yield what the driver reports of its devices."""
        channel = grpc.insecure_channel(f"unix:{self.info.endpoint}", [("grpc.default_authority", "localhost")])
        self._channels.append(channel)
        call: Any = channel.unary_stream(
            f"/{service}/NodeWatchResources",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=NodeWatchResourcesResponseMessage.FromString,
        )
        for report in call(NodeWatchResourcesRequestMessage(), timeout=60):
            assert {one.device.pool_name for one in report.devices} <= {NODE}
            yield {one.device.device_name: (one.health, one.message) for one in report.devices}

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _claims(self, method: str, name: str, uid: str) -> Any:
        uid = uid or f"uid-{name}"
        request, response = (getattr(messages, f"{method}{what}Message") for what in ("Request", "Response"))
        asked = request(claims=[messages.ClaimMessage(namespace="default", uid=uid, name=name)])
        return self._call(self.info.endpoint, messages.DRA_SERVICE, method, asked, response).claims[uid]

    def _call(self, path: str, service: str, method: str, request: Any, response: Any) -> Any:
        channel = grpc.insecure_channel(f"unix:{path}", [("grpc.default_authority", "localhost")])
        self._channels.append(channel)
        call: Any = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return call(request, timeout=60)


def result(device: str, count: int, request: str = "r", share: str = "") -> dict[str, Any]:
    return {
        "request": request,
        "driver": DRIVER,
        "pool": NODE,
        "device": device,
        **({"shareID": share} if share else {}),
        "consumedCapacity": {"dra.cpu/cpu": str(count)},
    }
