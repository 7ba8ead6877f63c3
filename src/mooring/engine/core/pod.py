"""Pods and containers, reduced to what the resource managers read, and the gates for pod-level resources.

Source: v1 Pod; kubelet v1.37.1 and KEP-5526; spec: configuration.md section 6, pod-level.md section 1, README.md
glossary. The API server's defaults are applied before a pod becomes one of these values (:mod:`mooring.inputs.pods`),
as the kubelet sees them.

Devices of dynamic resource allocation: what slices offer, and what claims were given. Source: resource.k8s.io/v1 of
v1.37 (KEP-4381, KEP-5075 shares, KEP-5018 adminAccess). A device's full name is driver, pool and device. In the record
of devices (:class:`mooring.engine.devicemanager.state.DeviceState`) the driver is the resource and ``POOL/DEVICE`` the
id: a driver's name has no slash and cannot be a device plugin's resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, ValuesView
from enum import Enum
from itertools import chain
from typing import TypeAlias, TypeVar

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.quantity import Quantity
from mooring.lazy import dataclass, field, replace

AttributeValue: TypeAlias = bool | int | str | tuple[bool, ...] | tuple[int, ...] | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, AttributeValue]
"""Fully qualified name -> value; versions are texts."""


@dataclass(frozen=True, slots=True)
class DynamicDevice:
    """One device of a ResourceSlice."""

    driver: str
    pool: str
    name: str
    attributes: Attributes = field(default_factory=dict)
    is_shared: bool = False
    """Whether several claims can have it at once (``allowMultipleAllocations``)."""

    @property
    def id(self) -> str:
        """Its id among the driver's devices."""
        return f"{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """One device that a claim was given."""

    request: str
    """Name of the claim's request, ``REQUEST/SUBREQUEST`` where there are alternatives."""
    driver: str
    pool: str
    name: str
    admin_access: bool = False
    """Given for administration (adminAccess): its holder has it beside others, and no pod is placed near it."""
    share: str = ""
    """Id of the share of a device that several claims have."""

    @property
    def id(self) -> str:
        """Its id among the driver's devices."""
        return f"{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A claim, and what it was given."""

    namespace: str
    name: str
    uid: str = ""
    is_allocated: bool = False
    devices: tuple[ClaimedDevice, ...] = ()
    pods: frozenset[str] = frozenset()
    """Uids of the pods for which it is reserved."""


@dataclass(frozen=True, slots=True)
class LocationAttributes:
    """Attributes in which an older driver says where its devices are; empty where it has none."""

    numa_node: str = ""
    pci_bus_id: str = ""
    pcie_root: str = ""


ResourceList = Mapping[str, Quantity]
"""Resource name -> quantity."""

_Value = TypeVar("_Value")
_LARGE = 128
"""Entries of a dict that is copied for one more; more than the pods of almost every node."""
_NEWEST = 8
"""Entries of the newest layer."""

NO_RESOURCES: ResourceList = {}
NO_AMOUNTS: Mapping[str, int | str] = {}


class QoS(Enum):
    """Quality-of-service class; the value is the name in the API."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(Enum):
    """What a container is to the managers."""

    INIT = "init"
    """Regular init container: runs to its end before the next one starts."""
    SIDECAR = "sidecar"
    """Init container with restart policy Always: runs as long as the pod."""
    APP = "app"


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """What a container uses of a ResourceClaim of its pod's namespace."""

    claim: str
    """Name of the claim."""
    request: str = ""
    """One of its requests; empty for all of them."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)
    allocated: ResourceList | None = None
    """``allocatedResources`` of its status; None without a status, and where no release reads it."""
    claims: tuple[ClaimUse, ...] = ()
    """What it uses of the pod's ResourceClaims, as far as their names are known. No kubelet's decision reads it."""
    core_lists: tuple[tuple[str, CPUSet], ...] = field(default=(), compare=False)
    """CPUs that its command, arguments or environment name, each as it is written. No kubelet reads them."""


@dataclass(frozen=True, slots=True)
class PodResources:
    """Pod-level resources (KEP-2837), ``spec.resources``."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)
    given: PodResources | None = field(default=None, compare=False)
    """What the manifest gives, where the API server adds defaults to it: they follow from the containers, so that a
    change of a container changes them. None where it adds none, as to a pod that it has stored already."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, as the kubelet sees it after the API server's defaults."""

    uid: str
    name: str
    namespace: str = "default"
    containers: tuple[Container, ...] = ()
    """All containers in the order of the specification: init containers and sidecars first, then apps."""
    qos: QoS = QoS.BEST_EFFORT
    resources: PodResources | None = None
    """Pod-level resources; None when the field is absent."""
    overhead: ResourceList = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scale_down_grace: int | None = None
    """Seconds for which containers keep CPUs that a resize takes from them (KEP-6122); None when it says nothing."""
    priority: int = 0
    """``spec.priority``; decides which of several waiting resizes is tried first."""
    claims: tuple[str, ...] = ()
    """Names of its ResourceClaims, in its namespace, as far as they are known. They decide nothing here."""
    unmade_claims: tuple[str, ...] = ()
    """Its own names of claims that are still to be made from templates."""

    @staticmethod
    def of(
        name: str, cpu: int | str = "", memory: int | str = "", devices: Mapping[str, int | str] = NO_AMOUNTS
    ) -> Pod:
        """Return a pod with one container, whose requests are its limits.

        >>> pod = Pod.of("ai/train", cpu=4, memory="8Gi", devices={"nvidia.com/gpu": 1})
        >>> pod.namespace, pod.uid, pod.qos.value
        ('ai', 'ai/train', 'Guaranteed')

        Args:
            name: of the pod, after its namespace and ``/`` if that is not ``default``.
            cpu: such as 4 or ``"500m"``; empty for none.
            memory: such as ``"8Gi"``; empty for none.
            devices: amounts of other resources, huge pages too.

        Raises:
            QuantitySyntaxError: an amount is no quantity.
        """
        given = {"cpu": cpu, "memory": memory, **devices}
        amounts = {resource: Quantity.parse(str(amount)) for resource, amount in given.items() if amount != ""}
        namespace, _, own = name.rpartition("/")
        qos = QoS.GUARANTEED if {"cpu", "memory"} <= set(amounts) else QoS.BURSTABLE if amounts else QoS.BEST_EFFORT
        app = Container(own, requests=amounts, limits=amounts)
        return Pod(f"{namespace or 'default'}/{own}", own, namespace or "default", (app,), qos)

    @property
    def is_pod_level(self) -> bool:
        """Tell whether ``spec.resources`` names cpu, memory or huge pages (spec: README.md glossary)."""
        if self.resources is None:
            return False
        return any(is_supported(name) for part in (self.resources.requests, self.resources.limits) for name in part)

    def container(self, name: str) -> Container | None:
        """Return the container of a name; None when there is none."""
        return next((one for one in self.containers if one.name == name), None)


def without_status(pod: Pod) -> Pod:
    """Return a pod as it is created, when it has no status yet (spec: releases.md section 7, rule 1)."""
    if all(one.allocated is None for one in pod.containers):
        return pod
    return replace(pod, containers=tuple(replace(one, allocated=None) for one in pod.containers))


def is_supported(resource: str) -> bool:
    """Tell whether a resource can be set for a whole pod (KEP-2837)."""
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


class StatusSizes(Enum):
    """Whose ``allocatedResources`` of the pod's status replace the requests of the specification."""

    NONE = "none"
    APPS = "apps"
    APPS_AND_SIDECARS = "apps and sidecars"


@dataclass(frozen=True, slots=True)
class PodLevelGates:
    """What decides how the managers count the resources of a pod: the gates of pod-level resources above all."""

    resources: bool = True
    """PodLevelResources: the field is honoured at all."""
    managers: bool = False
    """PodLevelResourceManagers: the managers give such pods CPUs and memory of their own (KEP-5526)."""
    unknown_to_managers: bool = False
    """The managers of an older release do not know the field: the requests of containers decide."""
    statuses: StatusSizes = StatusSizes.NONE
    """In older releases the status decides the size of a container (rules status-resources-decide-size, up to v1.34,
    and status-of-init-containers-ignored, up to v1.32; spec: releases.md sections 7 and 8)."""

    def requests_of(self, container: Container) -> ResourceList:
        """Return what a container asks the managers for."""
        if container.allocated is None or self.statuses is StatusSizes.NONE:
            return container.requests
        if container.kind is ContainerKind.SIDECAR and self.statuses is StatusSizes.APPS:
            return container.requests
        return container.allocated

    def leaves_out(self, pod: Pod) -> bool:
        """Tell whether the managers keep their hands off the pod: a pod-level pod without both gates."""
        return pod.is_pod_level and not ((self.resources and self.managers) or self.unknown_to_managers)

    def manages(self, pod: Pod) -> bool:
        """Tell whether the pod takes the path of KEP-5526."""
        return self.managers and pod.is_pod_level


def guaranteed_equivalent(container: Container) -> bool:
    """Tell whether cpu and memory requests are non-zero and equal to the limits."""
    return all(
        (request := container.requests.get(resource)) is not None
        and (limit := container.limits.get(resource)) is not None
        and request.nano == limit.nano != 0
        for resource in ("cpu", "memory")
    )


def needed_at_once(
    pod: Pod, asked: Callable[[Container], Mapping[str, int]], wrap: Callable[[int], int]
) -> dict[str, int]:
    """Return how much of each resource a pod needs at once, those of its apps first.

    Regular init containers run one after another beside the sidecars started before them; apps run beside all sidecars.

    Args:
        pod: the pod.
        asked: what a container asks for.
        wrap: the number that Go keeps of a sum.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    apps: dict[str, int] = {}
    for container in pod.containers:
        for resource, amount in asked(container).items():
            if container.kind is ContainerKind.SIDECAR:
                sidecars[resource] = wrap(sidecars.get(resource, 0) + amount)
            elif container.kind is ContainerKind.INIT:
                peak[resource] = max(peak.get(resource, 0), wrap(sidecars.get(resource, 0) + amount))
            else:
                apps[resource] = wrap(apps.get(resource, 0) + amount)
    return {
        resource: max(peak.get(resource, 0), wrap(apps.get(resource, 0) + sidecars.get(resource, 0)))
        for resource in dict.fromkeys((*apps, *sidecars, *peak))
    }


@dataclass(frozen=True, slots=True, eq=False)
class ManyPods(Mapping[str, _Value]):
    """Values by pod uid, in order, in layers that this map shares with those that it grew from.

    Every layer has other keys, and is larger than those after it.
    """

    layers: tuple[Mapping[str, _Value], ...]

    def __getitem__(self, uid: str) -> _Value:
        for layer in self.layers:
            if uid in layer:
                return layer[uid]
        raise KeyError(uid)

    def __iter__(self) -> Iterator[str]:
        return chain(*self.layers)

    def __len__(self) -> int:
        return sum(map(len, self.layers))

    def values(self) -> ValuesView[_Value]:
        """Return the values in order."""
        return _Values(self)


class _Values(ValuesView[_Value]):
    _mapping: ManyPods[_Value]

    def __iter__(self) -> Iterator[_Value]:
        return chain.from_iterable(layer.values() for layer in self._mapping.layers)


def with_entry(known: Mapping[str, _Value], uid: str, value: _Value) -> Mapping[str, _Value]:
    """Return a map with one more entry, or with another value of one.

    A large one shares almost everything with the map that it grows from: n pods one after another cost n log n steps,
    and as much memory where all maps are kept.

    >>> with_entry({"a": 1}, "b", 2)
    {'a': 1, 'b': 2}
    """
    if (len(known) < _LARGE and isinstance(known, dict)) or uid in known:
        return {**known, uid: value}
    layers: tuple[Mapping[str, _Value], ...] = known.layers if isinstance(known, ManyPods) else (known,)
    if len(layers) > 1 and len(layers[-1]) < _NEWEST:
        return ManyPods((*layers[:-1], {**layers[-1], uid: value}))
    while len(layers) > 1 and len(layers[-2]) < 2 * len(layers[-1]):
        layers = (*layers[:-2], {**layers[-2], **layers[-1]})
    return ManyPods((*layers, {uid: value}))


def without_entry(known: Mapping[str, _Value], uid: str) -> Mapping[str, _Value]:
    """Return a map without an entry, if it has it; one that came last goes as cheaply as it came."""
    if isinstance(known, ManyPods) and uid in known.layers[-1]:
        return ManyPods((*known.layers[:-1], without_entry(known.layers[-1], uid)))
    return {other: value for other, value in known.items() if other != uid}
