"""A cluster and its work: nodes and what they offer, events of both, and what each pod asks and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.admit import PodShape, is_plain, shape_of
from mooring.engine.kubelet.events import Offline, Online, Resizing, Restart
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import allocatable, pod_requests
from mooring.inputs.node_groups import NodeGroup
from mooring.inputs.pods.pod_relations import HOSTNAME, NO_RELATIONS, ZONE, PodRelations
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, SchedulingFields, Taint

if TYPE_CHECKING:
    from mooring.fleet.live_objects import LivePod


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


UNSET: Final[Mapping[str, Quantity]] = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("200Mi")}
"""What the plugin NodeResourcesFit counts for a container without a request while it scores."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What pods of one kind ask of the scheduler and of a node; shared by replicas."""

    shape: PodShape
    fields: SchedulingFields = NO_FIELDS
    priority: int = 0
    relations: PodRelations = NO_RELATIONS
    preempts: bool = True
    """Whether pods of lower priority may be evicted for it."""
    scored: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Requests of cpu and memory as they count in scores."""
    plain: bool = field(default=False, compare=False)
    """Whether no manager of a node gives it anything."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests as they count in filters; cpu in millicores."""
        return self.shape.requests

    @property
    def key(self) -> tuple[bytes, SchedulingFields, int, PodRelations, bool]:
        """What equal pods share."""
        return self.shape.key, self.fields, self.priority, self.relations, self.preempts


def asked_of(
    pod: Pod, fields: SchedulingFields = NO_FIELDS, relations: PodRelations = NO_RELATIONS, *, preempts: bool = True
) -> PodDemand:
    """Return what a pod asks.

    Args:
        pod: the pod.
        fields: which nodes it may run on.
        relations: what it asks of other pods.
        preempts: whether pods of lower priority may be evicted for it.

    >>> asked_of(Pod("1", "web")).requests
    {}
    """
    filled = tuple(replace(one, requests={**UNSET, **one.requests}) for one in pod.containers)
    amounts = pod_requests(replace(pod, containers=filled))
    scored = {name: amounts.get(name, 0) for name in UNSET}
    return PodDemand(shape_of(pod), fields, pod.priority, relations, preempts, scored, is_plain(pod))


REMADE: Final = "~"
"""Between the name of a pod and the number of one that was created for it."""


@dataclass(frozen=True, slots=True)
class PodArrival:
    """A pod that is created."""

    name: str
    """``namespace/name``; unique in its work."""
    asked: PodDemand
    at: float
    """Seconds since the beginning."""
    runs: float | None = None
    """Seconds from its admission to its end; None for a pod that does not end by itself."""
    leaves: float | None = None
    """When it is deleted wherever it is; None for never."""
    owner: str = ""
    """Controller that makes a new pod when this one fails; empty for a pod of its own."""


class ControllerKind(Enum):
    """What creates pods; the value is the kind in the API."""

    DEPLOYMENT = "Deployment"
    """Its ReplicaSet; the same for a ReplicaSet or ReplicationController of its own."""
    STATEFUL_SET = "StatefulSet"
    JOB = "Job"


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller and the pods that it creates."""

    name: str
    """``namespace/name``; unique in its work."""
    kind: ControllerKind
    asked: PodDemand
    at: float = 0.0
    """When it is created, in seconds since the beginning."""
    pods: int = 1
    """Replicas, or completions of a Job."""
    parallelism: int = 0
    """Pods of a Job at the same time; 0 for all."""
    backoff_limit: int = 6
    """Failures after which a Job has failed."""
    ordered: bool = False
    """Whether a pod is created only when those before it run (StatefulSets with OrderedReady)."""
    first: int = 0
    """Number of the first pod."""
    runs: float | None = None
    """Seconds from the admission of a pod to its end."""
    leaves: float | None = None
    """When it is deleted with all its pods; None for never."""
    alone: bool = False
    """Whether its one pod has its name."""

    def pod_name(self, index: int) -> str:
        """Return the first name of one of its pods."""
        return self.name if self.alone else f"{self.name}-{self.first + index}"


@dataclass(frozen=True, slots=True)
class Work:
    """Pods in the order in which they come, and controllers."""

    name: str
    arrivals: tuple[PodArrival, ...]
    findings: tuple[str, ...] = field(default=(), compare=False)
    """What was assumed or left out while it was read."""
    workloads: tuple[Workload, ...] = ()

    @property
    def pods(self) -> int:
        """Pods that are wanted, without those that are created for failed ones."""
        return len(self.arrivals) + sum(one.pods for one in self.workloads)

    @property
    def ends(self) -> float:
        """The last time that it names."""
        arrivals = max((max(one.at, one.leaves or 0.0) for one in self.arrivals), default=0.0)
        return max(arrivals, max((max(one.at, one.leaves or 0.0) for one in self.workloads), default=0.0))

    @property
    def asking(self) -> tuple[Workload | PodArrival, ...]:
        """What wants pods; where nothing does, the workloads that are scaled to 0."""
        return (*(one for one in self.workloads if one.pods), *self.arrivals) or self.workloads

    def demands(self) -> Iterator[tuple[PodDemand, int]]:
        """Yield what pods ask, with the number of these pods."""
        for arrival in self.arrivals:
            yield arrival.asked, 1
        for workload in self.workloads:
            yield workload.asked, workload.pods


def work_of(
    name: str, arrivals: Sequence[PodArrival], findings: Sequence[str] = (), workloads: Sequence[Workload] = ()
) -> Work:
    """Return arrivals and controllers as work, in the order of their times.

    Raises:
        InputError: two have one name, or one ends before it begins.
    """
    _check(name, arrivals)
    _check(name, workloads)
    return Work(
        name,
        tuple(sorted(arrivals, key=lambda one: one.at)),
        tuple(findings),
        tuple(sorted(workloads, key=lambda one: one.at)),
    )


def _check(name: str, found: Iterable[PodArrival] | Iterable[Workload]) -> None:
    seen: set[str] = set()
    for one in found:
        if one.name in seen:
            raise InputError("is there twice", source=name, field=one.name, remedy="give each its own name")
        if one.leaves is not None and one.leaves < one.at:
            raise InputError(
                f"ends at {one.leaves:g} s, before it begins at {one.at:g} s",
                source=name,
                field=one.name,
                remedy="correct its times",
            )
        seen.add(one.name)


class PodPhase(Enum):
    """What became of a pod."""

    RAN = "ran"
    """It was admitted and has ended."""
    RUNS = "runs"
    """It is on its node at the end."""
    WAITS = "waits"
    """No node takes it, at the end."""
    LEFT = "left"
    """It was deleted before a node took it."""
    REFUSED = "refused"
    """Its kubelet refused it."""
    EVICTED = "evicted"
    """It was admitted, and had to leave: its node was drained or removed, or it was preempted."""
    HELD = "held"
    """The agent of its node has no room for it, at the end; it waits there."""


@dataclass(slots=True)
class Record:
    """What became of one pod."""

    arrival: PodArrival
    fate: PodPhase = PodPhase.WAITS
    node: int | None = None
    """Place of its node, also of the one that refused it."""
    place: str = ""
    """Its name in the node's state."""
    admitted: float | None = None
    """When its node took it."""
    ended: float | None = None
    code: str = ""
    """Of the cause of a refusal."""
    numa_nodes: int = 0
    """NUMA nodes on which its own CPUs, devices and memory lay when it was admitted; 0 when it had none."""
    tries: int = 0
    """How often the scheduler has sought a node for it."""
    tried: float = 0.0
    """When it did so last."""

    @property
    def waited(self) -> float | None:
        """Seconds from its creation to its admission; None when it never came to that."""
        return None if self.admitted is None else self.admitted - self.arrival.at
