"""What the agent follows at the API server: this node's pods, and the ResourceSlices of its drivers.

A thread keeps each list up to date, others read it. A driver without a slice of this node offers devices that belong to
no NUMA node.

Source: resource.k8s.io/v1 of v1.37, field selector spec.nodeName (pkg/apis/resource/v1/conversion.go).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.resolve import pod_of_object, wanted_pod
from mooring.agent.pods.source import is_static
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, PCIDevice
from mooring.engine.core.pod import DynamicDevice, Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import LocationRules, dynamic_devices, located, pci_address_of
from mooring.inputs.decoding.fields import Report, ignore, mapping_at, text_at, texts_at
from mooring.inputs.pods.claims import ResourceSlice, current_devices, slice_of
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import DEFAULT_GATES, MIRROR
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import CACHED, PODS, Follower, OutageReport, mapping_of, pods_of

PATIENCE = 0.1
"""Seconds that a pod is waited for, out of the reply budget of half a second."""
_SUBJECT = "API server"
MOST_REMEMBERED = 512
"""Uids that are remembered as missed."""


class APIPods:
    """Pods of one node as the API server has them.

    Of each pod only what decides is kept: containers, resources, and the agent's own annotations. While the API server
    is not reachable, what is known stays, and no request waits for more.
    """

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        *,
        gates: PodGates = DEFAULT_GATES,
        report: Report = ignore,
        patience: float = PATIENCE,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            connect: opens the way to the API server, again after every failure, so that renewed credentials are read.
            node: name of the node, as it is registered.
            gates: the kubelet's feature gates.
            report: receives outages, recoveries and pods that cannot be used; called by the thread.
            patience: seconds that :meth:`pod` waits for a pod that is not there yet.
            wait: waits before another try; without one it ends early when :meth:`stop` is called.
        """
        self._patience, self._gates, self._report = patience, gates, report
        self._outage = OutageReport(
            report,
            _SUBJECT,
            f"lost contact with the API server; pods of node {node} may be stale",
            f"contact with the API server is restored; pods of node {node} are current",
        )
        self._pods = KnownPods()
        # What follows is the follower's thread's.
        self._wanted: dict[str, Pod] = {}
        """Pods with the resources that they are to have, by uid."""
        self._tried = threading.Event()
        """Set when the pods have been listed or that has failed."""
        self._unusable: dict[str, str] = {}
        self._follower = Follower(
            connect,
            PODS,
            self,
            query=pods_of(node),
            first=CACHED,
            opened=self._pods.fresh,
            answered=self._answered,
            name=node,
            wait=wait,
        )

    def start(self) -> None:
        """Begin to list and watch."""
        self._follower.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, in the middle of a watch too, and wait for it for a while."""
        self._follower.stop(patience)
        self._pods.stale()

    def wait_until_listed(self, patience: float) -> bool:
        """Wait until all pods have been listed once; tell whether they have."""
        return self._follower.has_listed.wait(patience)

    def wait_until_tried(self, patience: float) -> bool:
        """Wait until the pods have been listed once or that has failed once; tell whether they have been listed."""
        self._tried.wait(patience)
        return self._follower.has_listed.is_set()

    @property
    def is_live(self) -> bool:
        """Whether changes arrive at the moment; for readiness and metrics."""
        return self._pods.is_live

    def __len__(self) -> int:
        return len(self._pods)

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox; waits for one that is not there yet, once, unless it is a static pod."""
        return self._pods.find(sandbox.uid, 0.0 if is_static(sandbox) else self._patience)

    def known(self, sandboxes: Iterable[PodSandbox]) -> Mapping[str, Pod]:
        """Return the pods of sandboxes that are there already, by uid."""
        found = ((one.uid, self._pods.find(one.uid)) for one in sandboxes)
        return {uid: pod for uid, pod in found if pod is not None}

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod with the resources that it is to have, where a resize of it was not allocated yet."""
        return self._wanted.get(sandbox.uid) or self._pods.find(sandbox.uid)

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Learn everything that there is."""
        items = [mapping_of(item) for page in pages for item in page]
        self._wanted = {}
        pods = {pod.uid: pod for pod in map(self._converted, items) if pod is not None}
        self._pods.replace_all(pods)
        self._unusable = {uid: text for uid, text in self._unusable.items() if uid not in pods}

    def changed(self, item: msgspec.Raw) -> None:
        """Learn of a pod, or of a change of it."""
        content = mapping_of(item)
        pod = self._converted(content)
        if pod is None:
            self._forget(kubelet_uid(content))
        else:
            self._pods.put(pod)

    def deleted(self, item: msgspec.Raw) -> None:
        """Learn that a pod is gone."""
        uid = kubelet_uid(mapping_of(item))
        self._forget(uid)
        self._unusable.pop(uid, None)

    def failed(self, error: ClusterError, times: int) -> None:
        """Hear of an outage; it is reported at its beginning, and now and then."""
        self._tried.set()
        self._pods.stale()
        self._outage.failed(error, times)

    def _answered(self) -> None:
        """Report that an outage, if there was one, is over."""
        self._tried.set()
        self._outage.answered()

    def _forget(self, uid: str) -> None:
        self._pods.drop(uid)
        self._wanted.pop(uid, None)

    def _converted(self, item: Mapping[str, Any]) -> Pod | None:
        """Return the pod, or None when it has finished or cannot be used."""
        try:
            if text_at(mapping_at(item, "status"), "phase") in FINISHED:
                return None
            pod = pod_of_object(item, source=_SUBJECT, gates=self._gates)
            wanted = wanted_pod(item, source=_SUBJECT, gates=self._gates)
        except InputError as error:
            uid, message = kubelet_uid(item), str(error)
            if self._unusable.get(uid) != message:
                self._unusable[uid] = message
                self._report(Finding("warning", f"pod {uid}", f"the API server's object cannot be used: {message}"))
            return None
        if wanted is None:
            self._wanted.pop(pod.uid, None)
        else:
            self._wanted[pod.uid] = wanted
        return pod


def kubelet_uid(content: Mapping[str, Any]) -> str:
    """Return the uid that the kubelet uses for an object of the API server: that of the manifest for a mirror pod."""
    try:
        metadata = mapping_at(content, "metadata")
        return texts_at(metadata, "annotations").get(MIRROR) or text_at(metadata, "uid")
    except InputError:
        return ""


class KnownPods:
    """Pods by uid.

    A reader may wait for a pod that is about to become known: the kubelet's watch and the agent's get it at
    about the same time, and whose comes first is chance.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pods: dict[str, Pod] = {}
        self._missed: OrderedDict[str, None] = OrderedDict()
        self.is_live = False
        """Whether changes arrive."""

    def replace_all(self, pods: Mapping[str, Pod]) -> None:
        """Learn everything that there is; what is not among it is gone."""
        with self._changed:
            self._pods = dict(pods)
            self.is_live = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, pod: Pod) -> None:
        """Learn of a pod, or of a change of it."""
        with self._changed:
            self._pods[pod.uid] = pod
            self._changed.notify_all()

    def drop(self, uid: str) -> None:
        """Learn that a pod is gone."""
        with self._changed:
            self._pods.pop(uid, None)

    def stale(self) -> None:
        """Learn that no more changes arrive for now: no reader waits any longer, what is known stays."""
        with self._changed:
            self.is_live = False
            self._changed.notify_all()

    def fresh(self) -> None:
        """Learn that changes arrive again."""
        with self._changed:
            self.is_live = True

    def find(self, uid: str, patience: float = 0.0) -> Pod | None:
        """Return a pod, waiting for at most ``patience`` seconds, and only the first time that this uid is missed."""
        with self._changed:
            if uid not in self._pods and self.is_live and uid not in self._missed and patience > 0:
                self._changed.wait_for(lambda: uid in self._pods or not self.is_live, patience)
            found = self._pods.get(uid)
            if found is not None:
                self._missed.pop(uid, None)
                return found
            # A reader that does not wait takes nothing from one that would.
            if patience > 0:
                self._missed[uid] = None
                if len(self._missed) > MOST_REMEMBERED:
                    self._missed.popitem(last=False)
            return None


SLICES: Final = "apis/resource.k8s.io/v1/resourceslices"
_OF_SLICES: Final = "ResourceSlices"


class SliceWatch:
    """Follows the slices of one node; read from any thread."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        pci: tuple[PCIDevice, ...],
        rules: Callable[[], LocationRules],
        report: Report = ignore,
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            connect: opens the way to the API server, again after every failure.
            node: name of the node.
            pci: the machine's PCI devices.
            rules: returns the configured attributes of drivers.
            report: receives outages, recoveries and slices that cannot be read; called by the thread.
        """
        self._pci, self._rules, self._report = pci, rules, report
        self._lock = threading.Lock()
        self._slices: dict[str, ResourceSlice] = {}
        self._devices: Mapping[tuple[str, str], DynamicDevice] = {}
        self._drivers: frozenset[str] = frozenset()
        self._has_listed = False
        self._outage = OutageReport(
            report, _OF_SLICES, f"slices of node {node} may be stale", f"slices of node {node} are current again"
        )
        self._follower = Follower(
            connect,
            SLICES,
            self,
            query={"fieldSelector": f"spec.nodeName={node}"},
            first=CACHED,
            answered=self._outage.answered,
            name=node,
        )

    def start(self) -> None:
        """Begin to list and watch."""
        self._follower.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, and wait for it for a while."""
        self._follower.stop(patience)

    def device(self, driver: str, name: str) -> Device | None:
        """Return a device, named ``POOL/DEVICE``; None while slices are not known, or its driver's lack it."""
        with self._lock:
            found, is_known = self._devices.get((driver, name)), self._has_listed and driver not in self._drivers
        if found is None:
            return Device(name) if is_known else None
        return Device(name, located(driver, found.attributes, self._pci, self._rules()))

    def offered(self) -> dict[str, tuple[Device, ...]]:
        """Return all devices of the node's slices, by driver."""
        with self._lock:
            devices = tuple(self._devices.values())
        return dynamic_devices(devices, self._pci, self._rules())

    def address(self, driver: str, name: str) -> str:
        """Return the PCI address of a device, named ``POOL/DEVICE``; empty when none is known."""
        with self._lock:
            found = self._devices.get((driver, name))
        return "" if found is None else pci_address_of(driver, found.attributes, self._rules())

    # What the follower's thread tells.

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all slices that there are."""
        found = [self._slice(item) for page in pages for item in page]
        self._slices = {one.name: one for one in found if one is not None}
        self._take(has_listed=True)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a slice that is new or changed."""
        found = self._slice(item)
        if found is not None:
            self._slices[found.name] = found
            self._take()

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget a slice."""
        found = self._slice(item)
        if found is not None:
            self._slices.pop(found.name, None)
            self._take()

    def failed(self, error: ClusterError, times: int) -> None:
        """Hear of an outage; it is reported at its beginning, and now and then. What is known stays."""
        self._outage.failed(error, times)

    def _slice(self, item: msgspec.Raw) -> ResourceSlice | None:
        try:
            return slice_of(mapping_of(item), source=_OF_SLICES)
        except InputError as error:
            self._report(Finding("warning", _OF_SLICES, f"a slice cannot be read: {error}"))
            return None

    def _take(self, *, has_listed: bool = False) -> None:
        devices = {(one.driver, one.id): one for one in current_devices(self._slices.values())}
        drivers = frozenset(one.driver for one in self._slices.values())
        with self._lock:
            self._devices, self._drivers = devices, drivers
            self._has_listed = self._has_listed or has_listed
