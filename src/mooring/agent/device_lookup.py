"""What a pod wants of devices, and asking the node's kubelet what its containers hold, within the time of an answer.

The kubelet beside the agent has given a device plugin's devices when it admitted the pod, and has prepared the claims
before it makes the sandbox, so that its answer is there when the first container is created. Where it is not, it is
asked again until half of the time is over.

No API reports devices of init containers that end (kubelet v1.37.1, apis/podresources/server_v1.go), and CPUs that
these containers leave are used again. The kubelet's record on disk has a device plugin's devices of every container.
Where it cannot be read, an init container counts as holding as many devices of its pod as it requests: those that it
leaves are the first that the containers after it take (devicemanager manager.go, devicesToAllocate). A claim is one for
all of its containers. Resources that no device plugin serves are in neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mooring.agent.state import DevicesFound
from mooring.engine.checkpoint.device_file import device_record, read_device_file
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import ClaimedDevice, Container, ContainerKind, Pod, ResourceList
from mooring.engine.devicemanager.state import Device
from mooring.service import podresources

_Held = Mapping[str, Mapping[str, tuple[Device, ...]]]
"""Container -> resource -> devices."""


@dataclass(frozen=True, slots=True)
class WantedDevices:
    """Devices of one resource, or of one claim, that a container wants.

    >>> print(WantedDevices("train", "nvidia.com/gpu", 2)), print(WantedDevices("train", "", claim="nics"))
    2 nvidia.com/gpu of train
    claim nics of train
    (None, None)
    """

    container: str
    """Empty for any."""
    name: str
    """Of the resource; empty for a claim, whose driver is known only once it is reported."""
    count: int = 1
    claim: str = ""

    def __str__(self) -> str:
        what = f"claim {self.claim}" if self.claim else f"{self.count} {self.name}"
        return f"{what} of {self.container}" if self.container else self.name

    def is_told(self, held: _Held, claims: Collection[str]) -> bool:
        """Tell whether they are among what containers hold, and the claims whose devices are reported."""
        if self.claim:
            return self.claim in claims
        if self.container:
            return len(held.get(self.container, {}).get(self.name, ())) >= self.count
        return any(self.name in resources for resources in held.values())


def wanted_of(pod: Pod) -> list[WantedDevices]:
    """Return what the containers of a pod want; no API reports what init containers that end have."""
    found = []
    for one in pod.containers:
        if one.kind is ContainerKind.INIT:
            continue
        found += [WantedDevices(one.name, name, count) for name, count in _limits(one).items()]
        found += [WantedDevices(one.name, "", claim=claim) for claim in dict.fromkeys(use.claim for use in one.claims)]
    return [each for each in found if each.count]


def is_extended(resource: str) -> bool:
    """Tell whether a resource can be one of a device plugin's: it has a domain, and not Kubernetes' own.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu"), is_extended("hugepages-2Mi")
    (True, False, False)
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def without_devices(pod: Pod) -> Pod:
    """Return the pod without requests and limits of extended resources."""
    containers = tuple(replace(one, requests=_plain(one.requests), limits=_plain(one.limits)) for one in pod.containers)
    return pod if containers == pod.containers else replace(pod, containers=containers)


def _plain(amounts: ResourceList) -> ResourceList:
    return {name: amount for name, amount in amounts.items() if not is_extended(name)}


def with_init_containers(
    pod: Pod, held: _Held, claimed: Mapping[str, AbstractSet[tuple[str, str]]], socket: Path
) -> _Held:
    """Return what the containers of a pod hold, with those that end.

    Args:
        pod: with its limits and claims.
        held: container -> resource -> devices of the others.
        claimed: claim -> its devices as driver and id.
        socket: of the kubelet's PodResources API, beside which its record is.
    """
    ending = [one for one in pod.containers if one.kind is ContainerKind.INIT and (one.claims or _limits(one))]
    if not ending:
        return held
    known: dict[str, dict[str, Device]] = {}
    for resources in held.values():
        for resource, devices in resources.items():
            known.setdefault(resource, {}).update({device.id: device for device in devices})
    recorded: dict[tuple[str, str], tuple[Device, ...]] = {}
    if any(_limits(one) for one in ending):
        with suppress(InputError):
            record = device_record(read_device_file(socket.parent.parent))
            recorded = {(one.container, one.resource): one.devices for one in record.held if one.uid == pod.uid}
    found = {**held}
    for one in ending:
        mine = {
            resource: recorded.get((one.name, resource)) or (*known.get(resource, {}).values(),)[:count]
            for resource, count in _limits(one).items()
        }
        for use in one.claims:
            for driver, name in sorted(claimed.get(use.claim, ())):
                device = known.get(driver, {}).get(name)
                if device is not None and device not in mine.get(driver, ()):
                    mine[driver] = (*mine.get(driver, ()), device)
        if any(mine.values()):
            found[one.name] = {resource: devices for resource, devices in mine.items() if devices}
    return found


def _limits(container: Container) -> dict[str, int]:
    return {name: amount.units for name, amount in sorted(container.limits.items()) if is_extended(name)}


SHARE: Final = 0.5
"""Part of the time that is left for an answer which a lookup may take."""
LONGEST: Final = 2.0
"""Seconds that a lookup takes at most."""
PAUSE: Final = 0.01
"""Seconds between two questions about a pod whose devices are not there yet; the kubelet answers 100 a second."""
LEAST: Final = 0.05
"""Seconds that an answer of the kubelet is given, however little time is left."""
_ANY: Final = ""


Whereabouts = Callable[[str, str], Device | None]
"""Returns a device, named ``POOL/DEVICE``, of a driver; None while its driver's slice has not been seen."""


def by_name(_driver: str, name: str) -> Device:
    """Return a device of which no more than its name is known: there is no API server to ask."""
    return Device(name)


ClaimedNodes = Callable[[str, str, str], tuple[int, ...] | None]


class DeviceLookup:
    """Asks one kubelet; used by one thread."""

    def __init__(
        self,
        socket: Callable[[], str],
        whereabouts: Whereabouts = by_name,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
        claimed: ClaimedNodes = lambda _namespace, _claim, _device: None,
    ) -> None:
        """Do not connect yet; the first question does.

        Args:
            socket: returns the path of the kubelet's socket; an empty text for none.
            whereabouts: of devices that drivers have given.
            clock: seconds that only go forward.
            wait: waits for some seconds.
            claimed: returns the NUMA nodes of CPUs that a claim has, by namespace, claim and device; None for others.
        """
        self._socket, self._whereabouts, self._clock, self._wait = socket, whereabouts, clock, wait
        self._claimed = claimed
        self._client: podresources.PodResourcesClient | None = None
        self._path = ""
        self._plugins: Mapping[str, Mapping[str, Device]] = {}
        """Resources of device plugins, with their healthy devices, as last told."""

    @property
    def plugins(self) -> dict[str, tuple[Device, ...]]:
        """The healthy devices of plugins, by resource, as last told."""
        return {resource: tuple(devices.values()) for resource, devices in self._plugins.items()}

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def of_pod(self, pod: Pod, answer_by: float, *, is_derived: bool = False) -> DevicesFound | None:
        """Return what a pod holds; None when it wants no device. Never raises.

        Args:
            pod: as its source knows it, with its limits and claims.
            answer_by: when the runtime must have its answer, by the clock.
            is_derived: whether limits and claims are not known, so that any pod may hold devices.
        """
        if not is_derived and not any(one.claims or _limits(one) for one in pod.containers):
            return None
        wanted = wanted_of(pod)
        now = self._clock()
        deadline = now + min(max(answer_by - now, 0.0) * SHARE, LONGEST)
        while True:
            found = self._asked(pod, wanted, max(deadline - self._clock(), LEAST))
            if not found.unknown or self._clock() + PAUSE >= deadline:
                return found
            self._wait(PAUSE)

    def of_all(
        self, pods: Mapping[str, Pod], missing: Mapping[str, Iterable[str]], timeout: float
    ) -> dict[str, DevicesFound]:
        """Return what pods hold, by uid. Never raises.

        Args:
            pods: by uid, with or without their limits.
            missing: resources and drivers that were missed before, by uid.
            timeout: seconds for each answer of the kubelet.
        """
        try:
            listed = {(one.namespace, one.name): one for one in podresources.pods_in(self._connected().listed(timeout))}
            self._learn_plugins(timeout)
        except podresources.PodResourcesError as error:
            self.close()
            return {uid: _nothing(f"the kubelet does not tell: {error}", missing.get(uid, ())) for uid in pods}
        found = {}
        for uid, pod in pods.items():
            told = listed.get((pod.namespace, pod.name))
            wanted = [*wanted_of(pod), *(WantedDevices("", name) for name in missing.get(uid, ()) if name)]
            if told is None:
                found[uid] = _nothing("the kubelet does not list it", [one.name for one in wanted])
            else:
                found[uid] = self._understood(told, wanted, health=True)
        return found

    def _asked(self, pod: Pod, wanted: list[WantedDevices], timeout: float) -> DevicesFound:
        names = [one.name for one in wanted] or [_ANY]
        try:
            told = self._pod(pod, timeout)
            if told is None:
                return _nothing("the kubelet does not know the pod yet", names)
            found = self._understood(told, wanted)
            if any(one.name in found.missing and one.name not in self._plugins for one in wanted if one.name):
                # What no plugin serves cannot be held.
                self._learn_plugins(timeout)
                found = self._understood(told, [one for one in wanted if not one.name or one.name in self._plugins])
            found = replace(found, held=with_init_containers(pod, found.held, claimed_of(told), Path(self._path)))
        except podresources.PodResourcesError as error:
            self.close()
            return _nothing(f"the kubelet does not tell: {error}", names)
        return found

    def _pod(self, pod: Pod, timeout: float) -> podresources.ListedPod | None:
        client = self._connected()
        try:
            return client.get(pod.namespace, pod.name, timeout)
        except podresources.PodResourcesError as error:
            if error.is_transient:
                raise
        # An older kubelet does not know the question.
        listed = podresources.pods_in(client.listed(timeout))
        return next((one for one in listed if (one.namespace, one.name) == (pod.namespace, pod.name)), None)

    def _connected(self) -> podresources.PodResourcesClient:
        path = self._socket()
        if not path:
            raise podresources.PodResourcesError("kubeletPodResourcesSocket is empty")
        if self._client is None or path != self._path:
            self.close()
            self._client, self._path = podresources.PodResourcesClient(path), path
        return self._client

    def _learn_plugins(self, timeout: float) -> None:
        told = self._connected().devices(timeout)
        self._plugins = {resource: {one.id: one for one in devices} for resource, devices in told.items()}

    def _understood(
        self, told: podresources.ListedPod, wanted: Iterable[WantedDevices], *, health: bool = False
    ) -> DevicesFound:
        """Return what an answer says, and what of the wanted it does not say."""
        held = {one.name: self._held(told.namespace, one, health=health) for one in told.containers}
        given = [(claim, device) for one in told.containers for claim, device in one.dynamic]
        claims = {claim for claim, _ in given}
        drivers = [one.driver for claim, one in given if self._device(told.namespace, claim, one) is None]
        lacking = [one for one in wanted if not one.is_told(held, claims)]
        words = [
            *(str(one) for one in lacking),
            *(f"the slice of {driver} with its device" for driver in dict.fromkeys(drivers)),
        ]
        return DevicesFound(
            {name: devices for name, devices in held.items() if devices},
            f"not told yet: {', '.join(words)}" if words else "",
            tuple(dict.fromkeys([*(one.name for one in lacking), *drivers])),
        )

    def _device(self, namespace: str, claim: str, one: ClaimedDevice) -> Device | None:
        """Return a driver's device; CPUs of claims are where the claim has them."""
        nodes = self._claimed(namespace, claim, one.name)
        return self._whereabouts(one.driver, one.id) if nodes is None else Device(one.id, nodes)

    def _held(
        self, namespace: str, told: podresources.ListedContainer, *, health: bool
    ) -> dict[str, tuple[Device, ...]]:
        held: dict[str, dict[str, Device]] = {}
        for resource, device in told.devices:
            healthy = not health or device.id in self._plugins.get(resource, {})
            held.setdefault(resource, {})[device.id] = replace(device, healthy=healthy)
        for claim, one in told.dynamic:
            held.setdefault(one.driver, {})[one.id] = self._device(namespace, claim, one) or Device(one.id)
        return {resource: tuple(devices.values()) for resource, devices in held.items()}


def claimed_of(told: podresources.ListedPod) -> dict[str, frozenset[tuple[str, str]]]:
    """Return the devices of each claim of a pod, as driver and id."""
    found: dict[str, set[tuple[str, str]]] = {}
    for container in told.containers:
        for claim, one in container.dynamic:
            found.setdefault(claim, set()).add((one.driver, one.id))
    return {claim: frozenset(devices) for claim, devices in found.items()}


def _nothing(why: str, missing: Iterable[str]) -> DevicesFound:
    return DevicesFound({}, why, tuple(dict.fromkeys(missing)))
