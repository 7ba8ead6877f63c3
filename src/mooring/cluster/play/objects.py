"""What a kubelet writes to the API server: its Node and Lease, the status of its pods, and the event of a rejection.

Source: kubelet v1.37.1, pkg/kubelet: kubelet_node_status.go (initialNode), nodestatus/setters.go, status/generate.go,
status/status_manager.go, kubelet.go (rejectPod); spec: metrics.md section 3.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any, Final

from mooring.engine.core.decision import Rejection
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.releases.gates import declared_features
from mooring.fleet.cluster import Member, offered
from mooring.inputs.pods.cluster_objects import REJECTED
from mooring.inputs.pods.scheduling_fields import Taint

PLAYED: Final = "mooring.dev/played"
"""Label of all played nodes and their leases; its value is the name of the cluster."""
FAULT: Final = "play.mooring.dev/fault"
"""Annotation of a node: what happens to it next."""
STARTS: Final = "play.mooring.dev/starts-after"
RUNS: Final = "play.mooring.dev/runs-for"
STOPS: Final = "play.mooring.dev/stops-after"
"""Annotations of a pod: durations from its admission to Running, from there to its end, and from its deletion on."""
EXIT_CODE: Final = "play.mooring.dev/exit-code"
"""Annotation of a pod: how its containers end after :data:`RUNS`."""
LEASE_SECONDS: Final = 40
STORAGE: Final = 2**40
"""Bytes of ephemeral storage: no machine file tells any, and every kubelet reports some."""
ADDRESSES, _PODS = IPv4Address("10.32.0.1"), IPv4Address("10.64.0.1")
"""The first ones of nodes and of pods."""
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


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


@dataclass(slots=True)
class PlayedPod:
    """A pod of a played node, with what its status says besides the phase."""

    name: str
    namespace: str
    uid: str
    node: str
    host: str
    """Address of the node."""
    number: int
    """Of the pod, for its address."""
    generation: int
    containers: tuple[tuple[str, str], ...]
    """Names and images."""
    inits: tuple[tuple[str, str, bool], ...]
    """Names and images of init containers, and whether each is a sidecar."""
    on_host: bool
    """Whether it has the address of the node."""
    admitted: float
    """Seconds since 1970."""
    started: float = 0.0
    ran: bool = False
    """Whether it was admitted before these nodes were played."""
    starts: float = 0.0
    """Seconds from its admission to its start."""
    runs: float | None = None
    """Seconds from its start to its end; None where it does not end by itself."""
    stops: float = 0.0
    """Seconds from its deletion to its end."""
    exit_code: int = 0
    phase: str = "Pending"
    ends: bool = False
    """Whether it is being deleted."""

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"api/v1/namespaces/{self.namespace}/pods/{self.name}"


def rejected_status(pod: PlayedPod, rejection: Rejection) -> dict[str, Any]:
    """Return the status of a pod that its kubelet rejects."""
    return {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": REJECTED + rejection.message,
        "startTime": stamp(pod.admitted),
        "observedGeneration": pod.generation,
        "conditions": None,
    }


def rejected_event(pod: PlayedPod, rejection: Rejection) -> dict[str, Any]:
    """Return the event with which a kubelet reports a rejection."""
    now = stamp()
    source = {"component": "kubelet", "host": pod.node}
    about = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "apiVersion": "v1"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:200]}.{time.time_ns():x}", "namespace": pod.namespace},
        "involvedObject": about,
        "reason": rejection.reason,
        "message": rejection.message[:1024],
        "type": "Warning",
        "source": source,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "reportingComponent": source["component"],
        "reportingInstance": pod.node,
    }


def pod_status(pod: PlayedPod) -> dict[str, Any]:
    """Return the status of an admitted pod in its phase: its containers wait, run or have ended together."""
    own = pod.host if pod.on_host else str(_PODS + pod.number)
    return {
        "phase": pod.phase,
        "startTime": stamp(pod.admitted),
        "observedGeneration": pod.generation,
        "hostIP": pod.host,
        "hostIPs": [{"ip": pod.host}],
        **({} if pod.phase == "Pending" else {"podIP": own, "podIPs": [{"ip": own}]}),
        "conditions": [*_conditions(pod)],
        "containerStatuses": [_container(pod, name, image, pod.phase) for name, image in pod.containers],
        **({"initContainerStatuses": [*_inits(pod)]} if pod.inits else {}),
    }


def _conditions(pod: PlayedPod) -> Iterator[dict[str, str | None]]:
    runs, done = pod.phase == "Running", pod.phase in ("Succeeded", "Failed")
    names = " ".join(name for name, _ in pod.containers)
    completed = {"reason": "PodCompleted"} if pod.phase == "Succeeded" else {"reason": "PodFailed"}
    unready = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{names}]"}
    inits = " ".join(name for name, *_ in pod.inits)
    waits = {"reason": "ContainersNotInitialized", "message": f"containers with incomplete status: [{inits}]"}
    why = {} if runs else completed if done else unready
    for kind, holds, more in (
        ("PodReadyToStartContainers", runs, {}),
        ("Initialized", runs or done or not pod.inits, {} if runs or not pod.inits else completed if done else waits),
        ("Ready", runs, why),
        ("ContainersReady", runs, why),
        ("PodScheduled", True, {}),
    ):
        at = pod.admitted if kind == "PodScheduled" else None
        yield {
            "type": kind,
            "status": str(holds),
            "lastTransitionTime": stamp(at),
            "reason": None,
            "message": None,
            **more,
        }


def _inits(pod: PlayedPod) -> Iterator[dict[str, Any]]:
    for name, image, is_sidecar in pod.inits:
        yield _container(pod, name, image, pod.phase if is_sidecar or pod.phase == "Pending" else "Succeeded")


def _container(pod: PlayedPod, name: str, image: str, phase: str) -> dict[str, Any]:
    ended = phase in ("Succeeded", "Failed")
    identity = f"mooring://{pod.uid}/{name}"
    started = {"startedAt": stamp(pod.started)}
    code = pod.exit_code if phase == "Failed" else 0
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": stamp(), "containerID": identity}
    state: Mapping[str, Mapping[str, Any]] = {
        "Pending": {"waiting": {"reason": "ContainerCreating"}},
        "Running": {"running": started},
    }
    return {
        "name": name,
        "image": image,
        "imageID": "",
        "restartCount": 0,
        "ready": phase == "Running",
        "started": phase == "Running",
        "state": {"terminated": {**started, **end}} if ended else state[phase],
        **({} if phase == "Pending" else {"containerID": identity}),
    }
