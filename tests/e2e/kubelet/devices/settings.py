"""A node with devices in one of four settings: of device plugins or of claims, with the agent or the kubelet alone.

The same pods arrive as in ``scripts/device_alignment.py``, which plays such a node by the engine.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.containerd.images import BUSYBOX
from tests.e2e.containerd.runtime import SCRIPT, Runtime
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.arrival import remove_pods, runs
from tests.e2e.kubelet.cases import Case, policies
from tests.e2e.kubelet.claiming import CLAIMS, forget_claims, scheduler_on
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.devices.driver import (
    NUMA_NODE,
    Attributes,
    DeviceDriver,
    claim_for,
    drivers_on,
    numa_number,
    request_of,
)
from tests.e2e.kubelet.devices.following import held_by
from tests.e2e.kubelet.devices.plugin import DevicePlugin, plugins_on
from tests.e2e.kubelet.devices.relay import Relay, relay_on
from tests.e2e.kubelet.kubelet import NO_POLICIES, Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import Pinned, agent_beside
from tests.e2e.kubelet.placements import containers, given

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.topology import discover_topology
from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.loader import load_machine

if str(SCRIPT.parent) not in sys.path:
    sys.path.append(str(SCRIPT.parent))
alignment: Any = importlib.import_module("device_alignment")
"""The script."""
DRIVERS: Mapping[str, str] = {alignment.GPU: "gpu.example.com", alignment.NIC: "nic.example.com"}
"""Resource of a device plugin -> driver of the same devices."""
TOPOLOGY = "single-numa-node"


@dataclass(slots=True)
class DeviceNode:
    """A real node with devices."""

    api: APIServer
    runtime: Runtime
    kubelet: Kubelet
    both: Pinned | None
    """With the agent; None where the kubelet is alone."""
    machine: Machine
    plugins: Mapping[str, DevicePlugin]
    """Resource -> who offers it; empty where drivers do."""
    drivers: Mapping[str, DeviceDriver]
    """Resource -> who offers its devices; empty where device plugins do."""
    relay: Relay | None
    """Between the agent and the kubelet's PodResources API."""
    start_kubelet: Callable[[], Kubelet]
    """Ends the kubelet, and starts it again over the same files."""

    @property
    def claims(self) -> bool:
        """Whether drivers offer the devices."""
        return bool(self.drivers)

    def restart_kubelet(self, *, forget: bool) -> None:
        """Restart the kubelet, and register the device plugins again.

        Args:
            forget: whether its record of devices is lost.
        """
        if forget:
            (self.kubelet.device_plugins / "kubelet_internal_checkpoint").unlink()
        self.kubelet = self.start_kubelet()
        for one in self.plugins.values():
            one.die()
            one.start()

    @property
    def name(self) -> str:
        return self.kubelet.name

    def arrive(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod, with its claims, and wait until it runs or is refused by somebody."""
        return self.arrive_as(self.runnable(document))

    def arrive_as(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod whose claims are there, and wait as :meth:`arrive`."""
        made = self.api.create_pod(pod)
        until(lambda: self.refuses(made) or self.runs(made), f"{made['metadata']['name']} runs or is refused")
        return made

    def runnable(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pod of the script as one that runs here; its claims are made."""
        return self._claiming(document) if self.claims else _runnable(document, self.name)

    def sharing(self, name: str, claim: str, containers: int) -> dict[str, Any]:
        """Return a pod whose containers all have a claim that is there already."""
        each = {"limits": {"cpu": "2", "memory": "64Mi"}}
        document = {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": f"app{one}", "resources": each} for one in range(containers)]},
        }
        pod = _runnable(document, "")
        for container in pod["spec"]["containers"]:
            container["resources"]["claims"] = [{"name": "shared"}]
        pod["spec"]["resourceClaims"] = [{"name": "shared", "resourceClaimName": claim}]
        return pod

    def runs(self, made: Mapping[str, Any]) -> bool:
        """Tell whether all containers of a pod run."""
        return runs(self.runtime, made)

    def holds(self, made: Mapping[str, Any]) -> bool:
        """Tell whether the agent holds a pod back."""
        return self.both is not None and self.both.holds(made["metadata"]["uid"])

    def refuses(self, made: Mapping[str, Any]) -> bool:
        """Tell whether the scheduler has no place for a pod, or kubelet or agent refuses it."""
        uid = made["metadata"]["uid"]
        if self.kubelet.refused(uid) or self.holds(made):
            return True
        found = self.api.pod(made["metadata"]["name"]) or {}
        return any(one.get("reason") == "Unschedulable" for one in found.get("status", {}).get("conditions", ()))

    def leave(self, name: str) -> None:
        """Delete a pod, and what the controllers of a cluster would delete with it."""
        pod = self.api.pod(name)
        if pod is None:
            return
        self.api.delete(f"{PODS}/{name}", now=pod["status"]["phase"] == "Failed" or not pod["spec"].get("nodeName"))
        until(lambda: self.api.pod(name) is None, f"{name} is gone")
        headers = {"Content-Type": "application/merge-patch+json"}
        for one in pod["spec"].get("resourceClaims", ()):
            path = f"{CLAIMS}/{one['resourceClaimName']}"
            self.api.cluster.http.patch(f"{path}/status", json={"status": None}, headers=headers)
            self.api.delete(path)

    def held(self, made: Mapping[str, Any]) -> dict[str, dict[str, frozenset[str]]]:
        """Return the devices that the containers of a pod find in their environment: container -> resource -> ids."""
        found: dict[str, dict[str, frozenset[str]]] = {}
        for container in made["spec"]["containers"]:
            environment = self.environment(f"{made['metadata']['name']}/{container['name']}")
            found[container["name"]] = {
                resource: frozenset(environment[variable].split(","))
                for resource, variable in ((alignment.GPU, "E2E_GPU"), (alignment.NIC, "E2E_NIC"))
                if variable in environment
            }
        return found

    def granted(self, made: Mapping[str, Any]) -> dict[str, dict[str, frozenset[str]]]:
        """Return the devices that kubelet or scheduler gave a pod, whether it runs or not: as :meth:`held`."""
        if not self.claims:
            return {name: dict(each) for name, each in held_by(self.kubelet.root, made["metadata"]["uid"]).items()}
        resources = {driver: resource for resource, driver in DRIVERS.items()}
        found: dict[str, dict[str, frozenset[str]]] = {}
        for one in made["spec"]["resourceClaims"]:
            status = self.api.get(f"{CLAIMS}/{one['resourceClaimName']}").get("status", {})
            for result in status.get("allocation", {}).get("devices", {}).get("results", ()):
                each, resource = found.setdefault(one["name"], {}), resources[result["driver"]]
                each[resource] = each.get(resource, frozenset()) | {result["device"]}
        return found

    def environment(self, place: str) -> dict[str, str]:
        [one] = [one for one in containers(self.runtime) if one.place == place and one.state == "RUNNING"]
        lines = self.runtime.cri.execute(one.id, "env").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def told(self, made: Mapping[str, Any]) -> dict[str, tuple[str, CPUSet]]:
        """Return CPUs and memory nodes that the runtime was told of each container."""
        name, everything = made["metadata"]["name"], given(self.runtime)
        places = {one["name"]: everything[f"{name}/{one['name']}"] for one in made["spec"]["containers"]}
        return {key: (cpus, CPUSet.parse(mems)) for key, (cpus, mems) in places.items()}

    def numa_nodes(self, made: Mapping[str, Any]) -> dict[str, set[int]]:
        """Return the NUMA nodes of each container: of CPUs and memory as the runtime was told, and of its devices."""
        places = discover_topology(self.machine.info).places
        node_of = {
            device.id: device.numa[0] for devices in alignment.devices_on(self.machine).values() for device in devices
        }
        told, found = self.told(made), {}
        for name, resources in self.held(made).items():
            cpus, mems = told[name]
            nodes = {places[cpu].numa for cpu in CPUSet.parse(cpus)} | set(mems)
            found[name] = nodes | {node_of[one] for ids in resources.values() for one in ids}
        return found

    def outcome(self, made: Mapping[str, Any]) -> Any:
        """Return what became of a pod, as the script names it."""
        if self.refuses(made):
            return alignment.Outcome.REFUSED
        aligned = all(len(nodes) == 1 for nodes in self.numa_nodes(made).values())
        return alignment.Outcome.ALIGNED if aligned else alignment.Outcome.MISALIGNED

    def _claiming(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pod with a claim for each container, whose devices match by their NUMA node; make the claims."""
        pod = _runnable(document, "")
        claims = []
        for container in pod["spec"]["containers"]:
            limits = container["resources"]["limits"]
            counts = {driver: int(limits.pop(resource, 0)) for resource, driver in DRIVERS.items()}
            requests = [
                request_of(driver.partition(".")[0], driver.replace(".", "-"), count)
                for driver, count in counts.items()
                if count
            ]
            if not requests:
                continue
            name = f"{pod['metadata']['name']}-{container['name']}"
            self.api.post(CLAIMS, claim_for(name, *requests, match=NUMA_NODE))
            container["resources"]["claims"] = [{"name": container["name"]}]
            claims.append({"name": container["name"], "resourceClaimName": name})
        pod["spec"]["resourceClaims"] = claims
        return pod


@contextlib.contextmanager
def device_node(
    api: APIServer,
    kube: Any,
    playing: Playing,
    played: Played,
    machine: str,
    setting: Any,
    attributes: Callable[[Device], Attributes] = numa_number,
    **options: Any,
) -> Iterator[DeviceNode]:
    """Run a node until the end of the block.

    Args:
        api: with nothing in it.
        kube: of ``scripts/e2e_kube_parts.py``.
        playing: starts containerd.
        played: makes the machine's files.
        machine: a shipped one.
        setting: a ``Setting`` of the script.
        attributes: of a driver's devices.
        options: further fields of the agent's configuration.
    """
    case = Case(setting.name.lower().replace("_", "-"), machine, policies(TOPOLOGY), 0, 0)
    offered = alignment.devices_on(load_machine(machine))
    files = played(case)
    forget_claims(api)
    with contextlib.ExitStack() as opened:
        node = opened.enter_context(playing())
        life = opened.enter_context(contextlib.ExitStack())
        is_beside = setting in (alignment.Setting.AGENT_PLUGINS, alignment.Setting.AGENT_CLAIMS)
        manages = {**NO_POLICIES, "topologyManagerPolicy": TOPOLOGY} if is_beside else case.policies

        def start_kubelet() -> Kubelet:
            life.close()
            wanted = {**manages, **case.reservations}
            return life.enter_context(
                kubelet_on(node, kube.kubelet, case.name, wanted, machine=files, kubeconfig=api.kubeconfig)
            )

        kubelet = start_kubelet()
        until(lambda: api.has_node(case.name), "the node is registered")
        both, relay = None, None
        if is_beside:
            relay = opened.enter_context(relay_on(node.folder / "relay.sock", kubelet.pod_resources))
            socket = {"kubeletPodResourcesSocket": str(node.folder / "relay.sock")}
            both = opened.enter_context(
                agent_beside(node, kubelet, case, files, api=api, extensions=["device-alignment"], **socket, **options)
            )
        plugins: dict[str, DevicePlugin] = {}
        drivers: dict[str, DeviceDriver] = {}
        if setting in (alignment.Setting.KUBELET_CLAIMS, alignment.Setting.AGENT_CLAIMS):
            program = importlib.import_module("e2e_kube_parts").kube_program("kube-scheduler")
            opened.enter_context(scheduler_on(program, api, node.folder))
            for resource, driver in DRIVERS.items():
                rows = {one.id: attributes(one) for one in offered[resource]}
                drivers[resource] = DeviceDriver(driver, case.name, node, kubelet, api, rows)
            opened.enter_context(drivers_on(*drivers.values()))
        else:
            for resource in DRIVERS:
                plugins[resource] = DevicePlugin(kubelet.device_plugins, resource, offered[resource])
            opened.enter_context(plugins_on(*plugins.values()))
        made = DeviceNode(api, node, kubelet, both, load_machine(machine), plugins, drivers, relay, start_kubelet)
        yield made
        remove_pods(api)
    forget_claims(api)


def _runnable(document: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return a pod of the script as one that runs here."""
    spec = document["spec"]
    containers_ = [
        {
            **one,
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "resources": {"limits": dict(one["resources"]["limits"])},
        }
        for one in spec["containers"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": document["metadata"]["name"],
            "namespace": "default",
            "annotations": dict(document["metadata"].get("annotations", {})),
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            **({"nodeName": node} if node else {}),
            "containers": containers_,
        },
    }
