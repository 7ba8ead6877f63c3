"""Objects of small live clusters for the tests of fleet, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring.fleet.live_cluster import LiveCluster, live_cluster
from mooring.inputs.decoding.fields import Document
from mooring.published.cluster_objects import ClusterObjects, cluster_objects

MACHINE = "*:sockets=2 cores=8 memory=16Gi"
"""Two NUMA nodes of four CPUs each."""
ALIGNED: Mapping[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}


def node(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Node of eight CPUs, one of them reserved."""
    labels = {"kubernetes.io/hostname": name, **spec.pop("labels", {})}
    amounts = {"cpu": "7", "memory": "15Gi", "pods": "110"}
    status = {"capacity": {**amounts, "cpu": "8"}, "allocatable": {**amounts, **spec.pop("devices", {})}}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(name: str, bound: str, cpu: str, *, owner: str = "ReplicaSet", second: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a Guaranteed pod of one container."""
    amounts = {"cpu": cpu, "memory": "64Mi"}
    owners = [{"kind": owner, "name": name, "controller": True}] if owner else []
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"app": name}, "ownerReferences": owners}
    started = f"2026-11-01T00:00:{second:02d}Z"
    containers = [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
    return {
        "kind": "Pod",
        "metadata": {**metadata, "namespace": "default", "creationTimestamp": started},
        "spec": {"nodeName": bound, "containers": containers, **spec},
        "status": {"phase": "Running", "startTime": started} if bound else {"phase": "Pending"},
    }


def budget(app: str, allowed: int = 0) -> dict[str, Any]:
    """Return a PodDisruptionBudget of the pods of an app."""
    metadata, spec = {"name": "b", "namespace": "default"}, {"selector": {"matchLabels": {"app": app}}}
    status = {"disruptionsAllowed": allowed}
    return {"kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec, "status": status}


def objects(*found: Mapping[str, Any]) -> ClusterObjects:
    """Return objects as a file has them."""
    content: Any = {"kind": "List", "items": list(found)}
    return cluster_objects([Document(content, "cluster.json", 1, 1)], "cluster.json")


def live(
    *found: Mapping[str, Any], config: Mapping[str, Any] = ALIGNED, machines: Sequence[str] = (MACHINE,)
) -> LiveCluster:
    """Return the cluster of some objects."""
    content: Any = dict(config)
    return live_cluster(objects(*found), machines, [Document(content, "kubelet.yaml", 1, 1)])
