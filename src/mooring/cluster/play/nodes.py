"""A played node: its kubelet is the engine's, faults happen to it, and its Node and Lease are what a kubelet writes.

Source: kubelet v1.37.1, pkg/kubelet: kubelet_node_status.go (initialNode), nodestatus/setters.go.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import EventResult, Living, Offline, Online, Restart, run
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.hotplug import check_known
from mooring.engine.releases.gates import declared_features
from mooring.fleet.cluster import Member, offered
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import cpu_list, pod_from_object
from mooring.inputs.pods.scheduling_fields import Taint

Document: TypeAlias = dict[str, Any]
PLAYED: Final = "mooring.dev/played"
"""Label of all played nodes and their leases; its value is the name of the cluster."""
FAULT: Final = "play.mooring.dev/fault"
"""Annotation of a node: what happens to it next."""
FAULTS: Final = (
    "restart", "lose-state", "offline=CPUS", "online=CPUS", "unhealthy=DEVICES", "healthy=DEVICES", "slow=DURATION",
)  # fmt: skip
"""What the annotation of a node can say."""
LEASE_SECONDS: Final = 40
STORAGE: Final = 2**40
"""Bytes of ephemeral storage: no machine file tells any, and every kubelet reports some."""
ADDRESSES: Final = IPv4Address("10.32.0.1")
"""The first one."""
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


@dataclass(slots=True)
class PlayedNode:
    """One node."""

    member: Member
    kubelet: Kubelet
    address: str
    problem: str = ""
    """Why its kubelet does not run; empty when it does."""
    waiting: dict[str, Document] = field(default_factory=dict)
    """Uid -> pod of which it will be notified when it runs again, or after :attr:`slow`."""
    slow: float = 0.0
    """Seconds after which it is notified of a pod."""
    reconciles: bool = False
    """Whether its next reconciliation is due at some time."""
    faulted: str = ""
    """What its annotation said last; that has happened."""

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.member.name

    def now(self) -> Node:
        """Return what it has given away."""
        return self.kubelet.node

    @property
    def period(self) -> int:
        """Nanoseconds between two reconciliations."""
        return self.kubelet.settings.config.cpu_manager_reconcile_period_ns

    def read(self, document: Mapping[str, Any]) -> Pod:
        """Return a pod as this kubelet understands it.

        Raises:
            InputError: it cannot be read.
        """
        gates = PodGates.of_node(self.kubelet.settings.config, self.kubelet.mooring)
        return pod_from_object(document, source=self.name, gates=gates)

    def happens(self, event: Living) -> EventResult:
        """Let the engine take an event."""
        happened = next(run(self.kubelet, (event,)))
        self.kubelet = happened.after
        return happened.result

    def fault(self, text: str) -> EventResult:
        """Let happen what an annotation says.

        Raises:
            InputError: it says nothing that is known.
        """
        what, _, about = text.partition("=")
        kubelet, devices = self.kubelet, self.kubelet.node.providers.devices
        if what == "restart":
            return self.happens(Restart())
        if what == "lose-state":
            emptied = kubelet.with_devices(replace(devices, held={}))
            self.kubelet = replace(emptied, cpu_file=None, memory_file=None)
            return self.happens(Restart())
        if what in ("offline", "online"):
            cpus = cpu_list(about, FAULT)
            check_known(kubelet.node, cpus, FAULT)
            return self.happens(Offline(cpus) if what == "offline" else Online(cpus))
        if what in ("unhealthy", "healthy"):
            ids = set(about.split(","))
            if unknown := ids - {one.id for known in devices.devices.values() for one in known}:
                raise InputError(f"the node has no device {min(unknown)!r:.60}", field=FAULT)
            healths = {
                resource: tuple(replace(one, healthy=what == "healthy") if one.id in ids else one for one in known)
                for resource, known in devices.devices.items()
            }
            self.kubelet = kubelet.with_devices(replace(devices, devices=healths))
            return EventResult()
        if what == "slow":
            self.slow = nanoseconds(about) / 1e9
            return EventResult()
        raise InputError(f"{text!r:.60} is not known", field=FAULT, remedy=f"write one of {', '.join(FAULTS)}")


def stamp(at: float | None = None, fraction: str = "") -> str:
    """Return a time of the API; now by default.

    >>> stamp(0.0), stamp(0.5, ".%f")
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:00.500000Z')
    """
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    return moment.strftime(f"%Y-%m-%dT%H:%M:%S{fraction}Z")


def node_object(member: Member, kubelet: Kubelet, cluster: str, address: str) -> dict[str, Any]:
    """Return the Node that a kubelet registers.

    Args:
        member: of the cluster.
        kubelet: as it has started.
        cluster: name of the played cluster.
        address: of the node.
    """
    system = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    labels = {**system, **member.labels, PLAYED: cluster}
    unknown = dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "kubeProxyVersion"), "")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": member.name, "labels": labels},
        "spec": {"taints": taints_of(member.group.taints)},
        "status": {
            **node_status(kubelet),
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": member.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                **unknown,
                "osImage": "played by Mooring",
                "containerRuntimeVersion": "mooring://play",
                "kubeletVersion": kubelet.mooring.release.tag,
                "operatingSystem": labels["kubernetes.io/os"],
                "architecture": labels["kubernetes.io/arch"],
            },
        },
    }


def taints_of(taints: Iterable[Taint]) -> list[dict[str, str]]:
    """Return taints as a Node has them."""
    return [{"key": one.key, "value": one.value, "effect": one.effect} for one in taints]


def node_status(kubelet: Kubelet, problem: str = "") -> dict[str, Any]:
    """Return what a node reports of itself.

    Args:
        kubelet: as it is by now.
        problem: why it does not start again; then its Ready condition is that of a node that is silent.
    """
    now = stamp()
    ready = ("True", "KubeletReady", "kubelet is posting ready status")
    silent = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    found = [(name, "False", reason, message) for name, reason, message in _PRESSURES]
    found.append(("Ready", *(silent if problem else ready)))
    offers, devices = offered(kubelet), kubelet.node.providers.devices.devices
    whole = {**kubelet.settings.reservation.capacity, **{name: len(known) for name, known in devices.items()}}
    storage = {"ephemeral-storage": str(STORAGE)}
    declared = declared_features(kubelet.settings.release.name, kubelet.settings.gates)
    return {
        "declaredFeatures": list(declared),
        "capacity": {**storage, **{name: str(one) for name, one in whole.items()}, "pods": str(offers["pods"])},
        "allocatable": storage | {name: f"{one}m" if name == "cpu" else str(one) for name, one in offers.items()},
        "conditions": [
            {"type": name, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now}
            for name, status, reason, message in found
        ],
    }


def lease_object(node: str, cluster: str) -> dict[str, Any]:
    """Return the Lease by which a node shows that it is alive."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "labels": {PLAYED: cluster}},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": stamp(fraction=".%f")},
    }
