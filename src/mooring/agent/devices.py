"""What a running agent has to learn of devices: asking the node's kubelet what containers hold, in time and again.

The kubelet beside the agent has given a device plugin's devices when it admitted the pod, and has prepared the claims
before it makes the sandbox, so that its answer is there when the first container is created. Where it is not, it is
asked again until half of the time is over.

Later it is asked soon again where something is unknown, now and then everywhere. A thread of its own asks, so that a
kubelet that hangs holds up nothing; the reactor learns of news only. Opened with the extension device-alignment only: a
second watch at the API server is a good part of the agent's memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from mooring.agent.executor import WorkQueue
from mooring.agent.pods.cluster import AgentAccount, connector, own_accounts
from mooring.agent.reactor.create_container import nodes_of_claim
from mooring.agent.reactor.devices import Held, device_limits, follows_devices, untold_devices, with_init_containers
from mooring.agent.reactor.hotplug import devices_learned, is_news_of_devices
from mooring.agent.state import DevicesFound
from mooring.agent.state_holder import StateHolder
from mooring.engine.checkpoint.device_file import device_record, read_device_file
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import ClaimedDevice, Pod
from mooring.engine.devicemanager.state import Device
from mooring.inputs.decoding.fields import Report
from mooring.lazy import lazily
from mooring.service import podresources
from mooring.service.logs import Log

with lazily():
    from mooring.agent.pods import api as pods_api

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
        if not is_derived and not any(one.claims or device_limits(one) for one in pod.containers):
            return None
        now = self._clock()
        deadline = now + min(max(answer_by - now, 0.0) * SHARE, LONGEST)
        while True:
            found = self._asked(pod, max(deadline - self._clock(), LEAST))
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
            before = [name for name in missing.get(uid, ()) if name]
            if (told := listed.get((pod.namespace, pod.name))) is None:
                names = [name for name, _ in untold_devices(pod, {}, ())]
                found[uid] = _nothing("the kubelet does not list it", [*names, *before])
                continue
            held = self._held(told, health=True)
            reported = {name for resources in held.values() for name in resources}
            lacking = [*untold_devices(pod, held, claimed_of(told))]
            lacking += [(name, name) for name in before if name not in reported]
            found[uid] = self._understood(told, held, lacking)
        return found

    def _asked(self, pod: Pod, timeout: float) -> DevicesFound:
        names = [name for name, _ in untold_devices(pod, {}, ())] or [_ANY]
        try:
            told = self._pod(pod, timeout)
            if told is None:
                return _nothing("the kubelet does not know the pod yet", names)
            held, claimed = self._held(told), claimed_of(told)
            lacking = [*untold_devices(pod, held, claimed)]
            if any(name and name not in self._plugins for name, _ in lacking):
                self._learn_plugins(timeout)
            # What no plugin serves cannot be held.
            lacking = [(name, words) for name, words in lacking if not name or name in self._plugins]
            found = self._understood(told, held, lacking)
            return replace(found, held=with_init_containers(pod, found.held, claimed, lambda: self._recorded(pod.uid)))
        except podresources.PodResourcesError as error:
            self.close()
            return _nothing(f"the kubelet does not tell: {error}", names)

    def _recorded(self, uid: str) -> dict[tuple[str, str], tuple[Device, ...]]:
        """Return what the kubelet's record, which is beside its socket, says of a pod; nothing without one."""
        try:
            record = device_record(read_device_file(Path(self._path).parent.parent))
        except InputError:
            return {}
        return {(one.container, one.resource): one.devices for one in record.held if one.uid == uid}

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

    def _understood(self, told: podresources.ListedPod, held: Held, lacking: Iterable[tuple[str, str]]) -> DevicesFound:
        """Return what an answer says, and what of the wanted it does not say."""
        given = [(claim, device) for one in told.containers for claim, device in one.dynamic]
        drivers = dict.fromkeys(one.driver for claim, one in given if self._device(told.namespace, claim, one) is None)
        words = [*(text for _, text in lacking), *(f"the slice of {driver} with its device" for driver in drivers)]
        return DevicesFound(
            {name: devices for name, devices in held.items() if devices},
            f"not told yet: {', '.join(words)}" if words else "",
            tuple(dict.fromkeys([*(name for name, _ in lacking), *drivers])),
        )

    def _device(self, namespace: str, claim: str, one: ClaimedDevice) -> Device | None:
        """Return a driver's device; CPUs of claims are where the claim has them."""
        nodes = self._claimed(namespace, claim, one.name)
        return self._whereabouts(one.driver, one.id) if nodes is None else Device(one.id, nodes)

    def _held(self, told: podresources.ListedPod, *, health: bool = False) -> dict[str, dict[str, tuple[Device, ...]]]:
        """Return what the containers of a pod hold; with ``health``, as far as their plugins say it of devices."""
        found = {}
        for container in told.containers:
            held: dict[str, dict[str, Device]] = {}
            for resource, device in container.devices:
                healthy = not health or device.id in self._plugins.get(resource, {})
                held.setdefault(resource, {})[device.id] = replace(device, healthy=healthy)
            for claim, one in container.dynamic:
                held.setdefault(one.driver, {})[one.id] = self._device(told.namespace, claim, one) or Device(one.id)
            found[container.name] = {resource: tuple(devices.values()) for resource, devices in held.items()}
        return found


def claimed_of(told: podresources.ListedPod) -> dict[str, frozenset[tuple[str, str]]]:
    """Return the devices of each claim of a pod, as driver and id."""
    found: dict[str, set[tuple[str, str]]] = {}
    for container in told.containers:
        for claim, one in container.dynamic:
            found.setdefault(claim, set()).add((one.driver, one.id))
    return {claim: frozenset(devices) for claim, devices in found.items()}


def _nothing(why: str, missing: Iterable[str]) -> DevicesFound:
    return DevicesFound({}, why, tuple(dict.fromkeys(missing)))


SOON: Final = 1.0
"""Seconds until the next look while devices of a pod are not known; doubled by each look that brings no news."""
LOOKING: Final = 10.0
"""Seconds between two looks otherwise."""
TIMEOUT: Final = 5.0
"""Seconds for an answer, which nothing waits for."""


class DeviceAccess:
    """Open ways to learn of devices; it keeps the record of those of pods that are there."""

    def __init__(
        self,
        lookup: DeviceLookup,
        again: DeviceLookup,
        slices: pods_api.SliceWatch | None,
        holder: StateHolder,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look for the first time after a while: Synchronize has asked already.

        Args:
            lookup: for the thread that answers the runtime.
            again: asks for the record; no other thread uses it.
            slices: of drivers; None without an API server.
            holder: has the state.
            log: of the agent.
            clock: seconds that only go forward.
        """
        self.lookup, self.slices = lookup, slices
        self._again, self._holder, self._clock = again, holder, clock
        self._worker = WorkQueue(lambda error: log.error("internal error", exc_info=error), 1)
        self._worker.start()
        self._looked = clock()
        self._pause = SOON
        self._unknown: Mapping[str, object] = {}

    def reconcile(self) -> bool:
        """Look when it is time to; waits for nothing. Return whether it was time."""
        state, now = self._holder.state, self._clock()
        if state.without_devices != self._unknown:
            self._unknown, self._pause = state.without_devices, SOON
        if now - self._looked < (min(self._pause, LOOKING) if self._unknown else LOOKING):
            return False
        if not follows_devices(state) or not self._worker.put(self.look):
            return False
        self._looked = now
        self._pause *= 2
        return True

    def look(self) -> None:
        """Ask what all pods hold, and take up what is new."""
        state = self._holder.state
        missing = {uid: one.missing for uid, one in state.without_devices.items()}
        found = self._again.of_all(state.kubelet.node.active, missing, TIMEOUT)
        if is_news_of_devices(self._holder.state, found):
            self._holder.apply(lambda now, observer: devices_learned(now, found, observer))

    def offered(self) -> dict[str, tuple[Device, ...]]:
        """Return the devices of the node as last told, by resource and by driver; from any thread."""
        slices = {} if self.slices is None else self.slices.offered()
        return {**slices, **self._again.plugins}

    def address(self, driver: str, device: str) -> str:
        """Return the PCI address of a driver's device; empty when none is known."""
        return "" if self.slices is None else self.slices.address(driver, device)

    def close(self, patience: float) -> None:
        """End what runs, and wait for it for some seconds."""
        self._worker.finish(patience)
        self._again.close()
        if self.slices is not None:
            self.slices.stop(patience)
        self.lookup.close()


def open_device_access(
    kubeconfig: str,
    node: str,
    machine: Machine,
    socket: Callable[[], str],
    report: Report,
    holder: StateHolder,
    log: Log,
) -> DeviceAccess:
    """Open what there is.

    Args:
        kubeconfig: of the API server; empty for none, so that devices of drivers are known by name only.
        node: name of the node.
        machine: whose PCI devices tell where others are.
        socket: returns the path of the kubelet's socket.
        report: receives what goes wrong on the way.
        holder: has the state.
        log: of the agent.

    Raises:
        InputError: the kubeconfig cannot be used.
    """

    def claimed(namespace: str, claim: str, device: str) -> tuple[int, ...] | None:
        return nodes_of_claim(holder.state, namespace, claim, device)

    slices = None
    if kubeconfig:
        connect = own_accounts(kubeconfig).get(AgentAccount.PODS) or connector(kubeconfig)
        slices = pods_api.SliceWatch(
            connect, node, machine.pci, lambda: holder.state.kubelet.mooring.device_attributes, report
        )
        slices.start()
    whereabouts = by_name if slices is None else slices.device
    lookup, again = (DeviceLookup(socket, whereabouts, claimed=claimed) for _ in range(2))
    return DeviceAccess(lookup, again, slices, holder, log)
