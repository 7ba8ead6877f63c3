"""A cluster: its nodes, the machines they offer, and what happens to nodes and pods beside the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from mooring.engine.kubelet.events import Offline, Online, Resizing, Restart
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import allocatable
from mooring.fleet.inputs.live_objects import LivePod
from mooring.inputs.node_groups import NodeGroup
from mooring.inputs.pods.pod_relations import HOSTNAME, ZONE
from mooring.inputs.pods.scheduling_fields import Taint


class NodeAction(Enum):
    """What happens to a node without any detail; the value is the word in a file."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    """It is cordoned, and its pods are evicted."""
    REMOVE = "remove"
    """It leaves the cluster with its pods."""
    ADD = "add"
    """It joins the cluster; until then it is not there."""


@dataclass(frozen=True, slots=True)
class NodeTaints:
    """A node has other taints from here on; ``NoExecute`` evicts the pods that do not tolerate them."""

    taints: tuple[Taint, ...]


NodeChange: TypeAlias = NodeAction | NodeTaints | Restart | Offline | Online
"""A restart is on the state files, with the pods that run; CPUs are for the extension cpu-hotplug."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something happens to one node."""

    at: float
    """Seconds since the beginning."""
    node: str
    change: NodeChange


@dataclass(frozen=True, slots=True)
class PodResize:
    """A pod wants other resources."""

    at: float
    """Seconds since the beginning."""
    pod: str
    """``namespace/name``."""
    wanted: Resizing


ClusterEvent: TypeAlias = NodeEvent | PodResize


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A node of a live cluster, as it is now."""

    kubelet: Kubelet
    """With the pods that hold something, under their uids."""
    pods: tuple[LivePod, ...]
    """All that the scheduler counts on it, in the order of their start."""
    offers: Mapping[str, int]
    """Allocatable resources as the cluster has them, ``pods`` included; cpu in millicores."""
    closed: str = ""
    """Why it takes no new pods; empty where it does."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a group."""

    name: str
    group: NodeGroup
    zone: str = ""
    now: RunningNode | None = None
    """The node as it is; None for an empty one."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels, the well-known ones included."""
        zone = {ZONE: self.zone} if self.zone else {}
        return {**self.group.labels, HOSTNAME: self.name, **zone}


@dataclass(frozen=True, slots=True)
class NodeCluster:
    """Groups of nodes."""

    name: str
    groups: tuple[NodeGroup, ...]
    findings: tuple[str, ...] = ()
    """What was assumed while it was read."""
    events: tuple[ClusterEvent, ...] = ()
    now: Mapping[str, RunningNode] = field(default_factory=dict)
    """The nodes of groups of one that run already, by the name of the group."""

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return sum(group.count for group in self.groups)

    def started(self, group: NodeGroup) -> Kubelet:
        """Return the kubelet of a node at the beginning: empty, or with the pods that run.

        Raises:
            InputError: it does not start.
        """
        return self.now[group.name].kubelet if group.name in self.now else group.started()

    def members(self) -> Iterator[Member]:
        """Yield the nodes, group by group; a group of one node has the node's name."""
        for group in self.groups:
            for index in range(group.count):
                name = group.name if group.count == 1 else f"{group.name}-{index}"
                zone = group.zones[index % len(group.zones)] if group.zones else ""
                yield Member(name, group, zone, self.now.get(group.name))


def offers_of(now: RunningNode | None, kubelet: Kubelet) -> Mapping[str, int]:
    """Return what the scheduler takes for the allocatable resources of a node.

    Args:
        now: the node as it was at the beginning; None for an empty one.
        kubelet: as it is by now. A live node offers more or less than it does as far as this kubelet does.
    """
    amounts = offered(kubelet)
    if now is None:
        return amounts
    before = offered(now.kubelet)
    return {name: amount + amounts.get(name, 0) - before.get(name, 0) for name, amount in now.offers.items()}


def offered(kubelet: Kubelet) -> dict[str, int]:
    """Return the allocatable resources of a node, its devices and ``pods`` included; cpu in millicores."""
    amounts = allocatable(kubelet.settings.reservation)
    devices = kubelet.node.providers.devices.devices
    amounts.update({name: sum(device.healthy for device in found) for name, found in devices.items()})
    return {**amounts, "pods": kubelet.settings.max_pods}
