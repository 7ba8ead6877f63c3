"""A driver of dynamic resource allocation for devices that are only names with attributes, on the real interfaces.

Its sockets and slices are made as ``mooring dra`` makes its own; what it prepares is a variable in the container. It
runs in the tests' process, so that it can fall silent, come back and change its slices in the middle.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.arrival import remove_pods
from tests.e2e.kubelet.claiming import GROUP
from tests.e2e.kubelet.kubelet import Kubelet
from tests.e2e.kubelet.patience import until

from mooring.cluster.dra.devices import slices
from mooring.cluster.dra.driver import Driver
from mooring.cluster.dra.plugin import DeviceHealth, DriverMetrics, Plugin
from mooring.engine.core.errors import InputError
from mooring.engine.devicemanager.state import Device
from mooring.service.logs import Log
from mooring.service.messages import ClaimMessage, DeviceMessage

NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
Attributes = Mapping[str, Mapping[str, Any]]
"""Attributes of a device as a slice has them: name -> value by its type."""


def numa_number(device: Device) -> Attributes:
    """Return the attribute as every API server takes it."""
    return {} if device.numa is None else {NUMA_NODE: {"int": device.numa[0]}}


def numa_list(device: Device) -> Attributes:
    """Return the attribute as a list, which needs the gate DRAListTypeAttributes."""
    return {} if device.numa is None else {NUMA_NODE: {"ints": list(device.numa)}}


@dataclass(slots=True)
class DeviceDriver:
    """A driver of one node."""

    name: str
    node: str
    """Name of the node, and of the pool."""
    runtime: Runtime
    kubelet: Kubelet
    api: APIServer
    devices: Mapping[str, Attributes]
    """Device -> attributes."""
    prepared: list[str] = field(default_factory=list)
    """Names of claims, in the order in which the kubelet asked."""
    log: Log = field(default_factory=lambda: Log("e2e"))
    _generation: int = 0
    _plugin: Plugin | None = None

    @property
    def device_class(self) -> str:
        return self.name.replace(".", "-")

    @property
    def variable(self) -> str:
        """The variable in which a container finds the devices of a request."""
        return f"E2E_{self.name.partition('.')[0].upper()}"

    def start(self) -> None:
        """Serve, publish, and wait until the kubelet has taken the driver."""
        folder = self.kubelet.root / "plugins" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        registry = self.kubelet.root / "plugins_registry"
        registry.mkdir(exist_ok=True)
        metrics = DriverMetrics(lambda: True)
        self._plugin = Plugin(cast("Driver", self), folder, registry, metrics, DeviceHealth(self.node, Path("/sys")))
        until(self._plugin.registered.is_set, f"the kubelet has taken {self.name}")
        self.publish(self.devices)

    def stop(self) -> None:
        """Fall silent; the slices stay until the kubelet takes them away."""
        if self._plugin is not None:
            self._plugin.close()
            self._plugin = None

    def publish(self, devices: Mapping[str, Attributes]) -> None:
        """Write the slices anew."""
        self.devices = devices
        self._generation += 1
        rows = [{"name": name, "attributes": dict(attributes)} for name, attributes in devices.items()]
        uid = self.api.get(f"api/v1/nodes/{self.node}")["metadata"]["uid"]
        for one in slices(self.name, self.node, rows, self._generation, uid):
            self.api.apply(f"{GROUP}/resourceslices/{one['metadata']['name']}", one)

    def prepare(self, claim: ClaimMessage) -> list[DeviceMessage]:
        """Answer NodePrepareResources for one claim, as the class of ``mooring dra`` does."""
        self.prepared.append(claim.name)
        found = self.api.get(f"{GROUP}/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
        results = [one for one in found["status"]["allocation"]["devices"]["results"] if one["driver"] == self.name]
        if not results:
            raise InputError(f"nothing of {self.name} is allocated", source=claim.name)
        requests = dict.fromkeys(one["request"] for one in results)
        kind = f"{self.name}/device"
        content = {
            "cdiVersion": "0.6.0",
            "kind": kind,
            "devices": [
                {
                    "name": f"{claim.uid}-{request}",
                    "containerEdits": {
                        "env": [
                            f"{self.variable}={','.join(one['device'] for one in results if one['request'] == request)}"
                        ]
                    },
                }
                for request in requests
            ],
        }
        path = self._specification(claim.uid)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
        return [
            DeviceMessage(
                request_names=[one["request"]],
                pool_name=self.node,
                device_name=one["device"],
                cdi_device_ids=[f"{kind}={claim.uid}-{one['request']}"],
                share_id=one.get("shareID", ""),
            )
            for one in results
        ]

    def unprepare(self, claim: ClaimMessage) -> None:
        """Answer NodeUnprepareResources."""
        self._specification(claim.uid).unlink(missing_ok=True)

    def _specification(self, uid: str) -> Path:
        return self.runtime.folder / "cdi" / f"{self.name}-{uid}.json"


@contextlib.contextmanager
def drivers_on(*drivers: DeviceDriver) -> Iterator[None]:
    """Run drivers until the end of the block, with a class of devices for each; then there are no pods any more."""
    with contextlib.ExitStack() as opened:
        for one in drivers:
            one.api.post(f"{GROUP}/deviceclasses", class_of(one.device_class, one.name))
            opened.callback(one.stop)
            one.start()
        yield
        # A kubelet does not let a pod go whose driver is away.
        remove_pods(drivers[0].api)


def class_of(name: str, driver: str) -> dict[str, Any]:
    """Return the class of all devices of a driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def request_of(name: str, device_class: str, count: int = 1, cpus: int = 0) -> dict[str, Any]:
    """Return a request for some devices of a class, or for some CPUs of a group."""
    exactly: dict[str, Any] = {"deviceClassName": device_class}
    if cpus:
        exactly["capacity"] = {"requests": {"dra.cpu/cpu": str(cpus)}}
    else:
        exactly |= {"allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": exactly}


def claim_for(name: str, *requests: Mapping[str, Any], match: str = "") -> dict[str, Any]:
    """Return a claim; ``match`` names an attribute that all its devices must have in common."""
    devices: dict[str, Any] = {"requests": list(requests)}
    if match:
        devices["constraints"] = [{"requests": [one["name"] for one in requests], "matchAttribute": match}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": devices},
    }
