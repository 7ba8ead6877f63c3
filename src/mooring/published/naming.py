"""Which pod is which: the kubelet lists names, its files have uids.

Exclusive CPUs and devices belong to one pod only, so that a container's own ones identify its uid. Uids of pods that
hold neither come from the API server where it may be asked; otherwise they stay unknown.

The kubelet's own record of devices is the only one that names their holders by uid. Source: kubelet v1.37.1,
pkg/kubelet/cm/devicemanager/checkpoint, ``device-plugins/kubelet_internal_checkpoint``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mooring.engine.checkpoint.device_file import HeldDevices
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.inputs.pods.pods import MIRROR
from mooring.published.objects import PodKey
from mooring.service.apiserver import Cluster, ClusterError, ClusterOnDemand
from mooring.service.following import CACHED, PODS, objects_at, pods_of
from mooring.service.podresources import ListedPod

Sets = Mapping[str, Mapping[str, int]]
"""Uid -> container -> CPUs as a mask."""
Names = Mapping[tuple[str, str], str]
"""Namespace and name -> uid."""


def disagreement(pods: Iterable[ListedPod], sets: Sets) -> str:
    """Return which container the kubelet lists with exclusive CPUs that its file does not have; empty if none.

    Until the two agree they are of different moments.
    """
    recorded = {(name, cpus) for containers in sets.values() for name, cpus in containers.items()}
    for pod in pods:
        for container in pod.containers:
            if container.cpus and (container.name, container.cpus) not in recorded:
                return f"container {container.name} of {pod.namespace}/{pod.name} has CPUs that the state file has not"
    return ""


def named(pods: Iterable[ListedPod], sets: Sets, held: Iterable[HeldDevices], told: Names) -> tuple[PodKey, ...]:
    """Return the pods with their uids as far as these can be known.

    Args:
        pods: as the kubelet lists them.
        sets: of the CPU manager's state.
        held: of the record of devices.
        told: what the API server says.
    """
    by_cpus = {(name, cpus): uid for uid, containers in sets.items() for name, cpus in containers.items() if cpus}
    by_devices = {(one.container, one.resource, name): one.uid for one in held for name in one.ids}
    found = []
    for pod in pods:
        uids = {by_cpus.get((one.name, one.cpus), "") for one in pod.containers}
        uids |= {
            by_devices.get((one.name, resource, device.id), "")
            for one in pod.containers
            for resource, device in one.devices
        }
        # What the node says is newer than what the API server said.
        uid = next(iter(uids - {""}), "") or told.get((pod.namespace, pod.name), "")
        found.append(PodKey(pod.namespace, pod.name, uid))
    return tuple(found)


def device_state(
    healthy: Mapping[str, tuple[Device, ...]],
    pods: Iterable[ListedPod],
    keys: Iterable[PodKey],
    held: Iterable[HeldDevices],
) -> DeviceState:
    """Return devices and holders.

    The kubelet's record also has what ended pods held, until it gives devices away again. Entries of pods that are
    not listed are left out when every listed pod's uid is known, because then no running pod can be meant.
    """
    devices = {resource: list(found) for resource, found in healthy.items()}
    pods, keys = list(pods), list(keys)
    # What containers hold and what is not among the healthy ones any more
    listed = [container for pod in pods for container in pod.containers]
    broken = [(name, Device(one.id, one.numa, healthy=False)) for each in listed for name, one in each.devices]
    broken += [(given.driver, Device(given.id, healthy=False)) for each in listed for _, given in each.dynamic]
    for resource, lost in broken:
        known = devices.setdefault(resource, [])
        if all(one.id != lost.id for one in known):
            known.append(lost)
    uids = {key.uid for key in keys}
    holdings: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for one in held:
        if one.uid in uids or "" in uids:
            holdings.setdefault(one.uid, {}).setdefault(one.container, {})[one.resource] = one.ids
    for pod, key in zip(pods, keys, strict=True):
        # What claims give stands in no record; a pod whose uid is not known holds it all the same.
        uid = key.uid or f"{key.namespace}_{key.name}"
        for container in pod.containers:
            drivers = holdings.setdefault(uid, {}).setdefault(container.name, {})
            for _, device in container.dynamic:
                drivers[device.driver] = drivers.get(device.driver, frozenset()) | {device.id}
    held_by = {
        uid: kept
        for uid, containers in holdings.items()
        if (kept := {name: resources for name, resources in containers.items() if resources})
    }
    return DeviceState({resource: tuple(found) for resource, found in sorted(devices.items())}, held_by)


class APINames:
    """Asks for them when they are needed; used by one thread."""

    def __init__(self, connect: Callable[[], Cluster], node: str) -> None:
        """Do not connect yet.

        Args:
            connect: opens the way to the API server.
            node: name of the node.
        """
        self._cluster, self._node = ClusterOnDemand(connect), node

    def __call__(self, _pods: object = None) -> Names:
        """Return uid by namespace and name; nothing when the API server does not tell."""
        try:
            return names_of(objects_at(self._cluster.http, PODS, {**pods_of(self._node), **CACHED}))
        except ClusterError:
            self.close()
            return {}

    def close(self) -> None:
        """Close the way to the API server."""
        self._cluster.close()


def uid_of(content: Mapping[str, Any]) -> str:
    """Return the uid by which its kubelet knows a pod, of a static pod not its mirror's; empty where there is none."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return str((metadata.get("annotations") or {}).get(MIRROR) or metadata.get("uid") or "")


def names_of(items: Iterable[dict[str, Any]]) -> Names:
    """Return uid by namespace and name; a static pod has the uid that its kubelet gave it, not its mirror's.

    >>> names_of([{"metadata": {"namespace": "a", "name": "b", "uid": "u"}}])
    {('a', 'b'): 'u'}
    >>> mirror = {"annotations": {"kubernetes.io/config.mirror": "hash"}, "uid": "mirror"}
    >>> names_of([{"metadata": {"namespace": "a", "name": "static", **mirror}}])
    {('a', 'static'): 'hash'}
    """
    found = {}
    for item in items:
        metadata = item.get("metadata") or {}
        found[str(metadata.get("namespace", "")), str(metadata.get("name", ""))] = uid_of(item)
    return found
