"""Pods with claims: which devices they have been given, which they ask for, and how a node is asked about them.

A node whose agent lets CPUs and memory follow devices (extension device-alignment) refuses what cannot be aligned. What
is allocated is known: the engine decides with it, above all when the pod is bound, because the scheduler allocates
between filter and bind. What is not allocated yet is asked for like devices of a plugin: the node is good where CPUs,
memory and as many free devices of the driver go together. Which devices the scheduler then takes is its own affair.

What a request narrows in another way than by number and driver is not read: selectors, alternatives, all devices,
shares, constraints but the one on NUMA nodes. Then a refusal holds all the same and a good node may prove wrong, which
is reported once for each claim (MOOR-627).

Source: resource.k8s.io/v1 of v1.37; a DeviceClass whose selectors name one driver stands for it, of others nothing is
known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock
from typing import Any, Final

from mooring.engine.core.pod import Pod, PodLevelGates, ResourceClaim
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.extensions.device_alignment import STANDARD, claimed_devices
from mooring.engine.kubelet.admit import ASKED, PodShape
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.decoding.fields import count_at, flag_at, list_at, mapping_at, text_at
from mooring.inputs.pods.claims import claim_of

_DRIVER: Final = re.compile(r"""\s*device\.driver\s*==\s*["']([a-z0-9.-]{1,63})["']\s*""")
SOURCE: Final = "API server"
UNDECIDED: Final = "MOOR-627"
"""Code of a claim of which the filter cannot say which devices it will get."""
Given = Mapping[str, Mapping[str, frozenset[str]]]
"""Container -> driver -> ids."""


@dataclass(frozen=True, slots=True)
class KnownClaim:
    """A claim, and how many devices of which class each of its requests asks for."""

    claim: ResourceClaim
    asked: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Request -> class and number, of requests that ask for a number of devices of one class."""
    unread: tuple[str, ...] = ()
    """What of its spec narrows the devices and is not read."""
    version: int = 0
    """Of the object, which grows."""


class ClaimView:
    """Claims and classes of the cluster; used from any thread."""

    def __init__(self) -> None:
        """Begin without any."""
        self._lock = Lock()
        self._claims: dict[tuple[str, str], KnownClaim] = {}
        self._drivers: dict[str, str] = {}
        self._reported: set[tuple[str, str]] = set()

    def put_claim(self, content: Mapping[str, Any], *, listed: bool = False) -> ResourceClaim:
        """Take a claim and return it; one that is older than what is known is left alone.

        Args:
            content: of the object.
            listed: whether it is from a list, which is believed whatever its version.

        Raises:
            InputError: it cannot be understood.
        """
        found, spec = claim_of(content, source=SOURCE), mapping_at(content, "spec")
        key, version = (found.namespace, found.name), text_at(mapping_at(content, "metadata"), "resourceVersion")
        known = KnownClaim(found, *_read(spec), int(version) if version.isdecimal() else 0)
        with self._lock:
            before = self._claims.get(key)
            if before is None or listed or known.version >= before.version:
                self._claims[key] = known
        return found

    def drop_claim(self, namespace: str, name: str) -> None:
        """Forget a claim."""
        with self._lock:
            self._claims.pop((namespace, name), None)
            self._reported.discard((namespace, name))

    def keep_claims(self, keys: Iterable[tuple[str, str]]) -> None:
        """Forget all other claims."""
        kept = set(keys)
        with self._lock:
            self._claims = {key: one for key, one in self._claims.items() if key in kept}
            self._reported &= kept

    def put_class(self, content: Mapping[str, Any]) -> None:
        """Take a DeviceClass.

        Raises:
            InputError: it cannot be understood.
        """
        name = text_at(mapping_at(content, "metadata"), "name")
        # Return the driver whose devices are those of a class; empty where the selectors say more, or nothing
        spec = mapping_at(content, "spec")
        selectors = list_at(spec, "selectors")
        item = selectors[0] if len(selectors) == 1 else None
        expression = text_at(mapping_at(item, "cel"), "expression") if isinstance(item, dict) else ""
        found = _DRIVER.fullmatch(expression)
        with self._lock:
            self._drivers[name] = found[1] if found else ""

    def drop_class(self, name: str) -> None:
        """Forget a class."""
        with self._lock:
            self._drivers.pop(name, None)

    def given_to(self, pod: Pod) -> Given:
        """Return what the containers of a bound pod have by claims that are reserved for it."""
        with self._lock:
            own = {name: self._claims.get((pod.namespace, name)) for name in pod.claims}
        return claimed_devices(pod, {name: one.claim for name, one in own.items() if one and pod.uid in one.claim.pods})

    def undecided(self, pod: Pod) -> dict[str, str]:
        """Return why the filter cannot say which devices a pod's claims will get, by claim; each claim once."""
        found = {}
        with self._lock:
            for name in pod.claims:
                key = pod.namespace, name
                one = self._claims.get(key)
                if one is None or one.claim.is_allocated or key in self._reported:
                    continue
                classes = dict.fromkeys(kind for kind, _ in one.asked.values() if not self._drivers.get(kind))
                unread = [*one.unread, *(f"DeviceClass {kind} names no single driver" for kind in classes)]
                if unread:
                    self._reported.add(key)
                    found[name] = "; ".join(unread)
        return found

    def shaped(self, shape: PodShape, pod: Pod, devices: Mapping[str, tuple[Device, ...]]) -> PodShape:
        """Return the shape of a pod with its claims on a node.

        Args:
            shape: of the pod without them.
            pod: with the names of its claims.
            devices: that the node has published.
        """
        if not pod.claims:
            return shape
        with self._lock:
            known = {name: self._claims.get((pod.namespace, name)) for name in pod.claims}
            drivers = dict(self._drivers)
        claims = {name: one.claim for name, one in known.items() if one is not None and one.claim.is_allocated}
        held = _held(claimed_devices(pod, claims), devices)
        asked = _counts(pod, {name: one for name, one in known.items() if one and name not in claims}, drivers)
        for (container, driver), count in Counter(one[:2] for one in held if asked).items():
            # What it has of a driver ties it; what else it asks of the same driver is not told apart.
            asked.setdefault(container, Counter())[driver] = count
        if not held and not asked:
            return shape
        wanted = {
            container: {driver: Quantity.parse(str(count)) for driver, count in counts.items()}
            for container, counts in asked.items()
        }
        containers = tuple(
            replace(one, limits={**one.limits, **wanted.get(one.name, {})}) for one in shape.pod.containers
        )
        key = blake2b(repr((shape.key, held, sorted(asked.items()))).encode(), digest_size=16).digest()
        made = replace(shape.pod, containers=containers)
        return PodShape(key, made, shape.requests, given=held, asks_devices=bool(asked))


def asked_node(kubelet: Kubelet, shape: PodShape) -> Kubelet:
    """Return the node as it is asked about a shape: with the devices that the pod has been given.

    Where devices are still to be allocated, the topology manager merges CPUs, memory and free devices as if all came
    from providers of hints: that tells whether there are devices with which the pod can be aligned.
    """
    node = kubelet.node
    if node.settings.device_alignments is None or not (shape.given or shape.asks_devices):
        return kubelet
    state = node.providers.devices
    claimed: dict[str, dict[str, frozenset[str]]] = {}
    added: dict[str, tuple[Device, ...]] = {}
    for number, (container, driver, nodes) in enumerate(shape.given):
        # Nodes of one key share an answer, whatever their devices are called.
        device = Device(f"{ASKED}/{number}", nodes or None)
        added[driver] = (*added.get(driver, state.devices.get(driver, ())), device)
        drivers = claimed.setdefault(container, {})
        drivers[driver] = drivers.get(driver, frozenset()) | {device.id}
    devices = DeviceState({**state.devices, **added}, state.held, {ASKED: claimed} if claimed else {})
    settings = replace(node.settings, device_alignments=None) if shape.asks_devices else node.settings
    return replace(kubelet, node=replace(node, settings=settings)).with_devices(devices)


def _held(
    found: Mapping[str, Mapping[str, frozenset[str]]], devices: Mapping[str, tuple[Device, ...]]
) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Return container, driver and NUMA nodes of devices; those that the node has not published tie no container."""
    held = []
    for container, drivers in found.items():
        for driver, ids in drivers.items():
            near = {device.id: device.numa for device in devices.get(driver, ())}
            held += [(container, driver, nodes) for one in sorted(ids) if (nodes := near.get(one))]
    return tuple(sorted(held))


def _counts(pod: Pod, claims: Mapping[str, KnownClaim], drivers: Mapping[str, str]) -> dict[str, Counter[str]]:
    """Return how many devices of each driver containers ask for; of a claim that several use, the first one asks."""
    counts: dict[str, Counter[str]] = {}
    told: set[tuple[str, str]] = set()
    for container in pod.containers:
        for use in container.claims:
            known = claims.get(use.claim)
            for request, (name, count) in (known.asked if known else {}).items():
                driver = drivers.get(name, "")
                if not driver or use.request not in ("", request) or (use.claim, request) in told:
                    continue
                told.add((use.claim, request))
                counts.setdefault(container.name, Counter())[driver] += count
    return counts


def _read(spec: Mapping[str, Any]) -> tuple[dict[str, tuple[str, int]], tuple[str, ...]]:
    """Return the requests for a number of devices of one class, and in words what narrows devices and is not read."""
    asked: dict[str, tuple[str, int]] = {}
    unread = []
    devices = mapping_at(spec, "devices")
    for item in list_at(devices, "requests"):
        exact, name = (mapping_at(item, "exactly"), text_at(item, "name")) if isinstance(item, dict) else ({}, "")
        mode = text_at(exact, "allocationMode", "ExactCount")
        if not exact:
            unread.append(f"request {name} has alternatives (firstAvailable)")
        elif mode != "ExactCount":
            unread.append(f"request {name} asks for all devices (allocationMode {mode})")
        elif exact.get("capacity"):
            unread.append(f"request {name} asks for a share of a device (capacity)")
        elif not flag_at(exact, "adminAccess", default=False):
            asked[name] = text_at(exact, "deviceClassName"), max(count_at(exact, "count", 1), 1)
        if list_at(exact, "selectors"):
            unread.append(f"request {name} has selectors of its own")
    constraints = [one if isinstance(one, dict) else {} for one in list_at(devices, "constraints")]
    others = [one for one in constraints if one.get("matchAttribute") != STANDARD.numa_node]
    unread += [f"a constraint other than matchAttribute {STANDARD.numa_node}"] * len(others)
    return asked, tuple(unread)


def wants_exclusive(pod: Pod) -> bool:
    """Tell whether a kubelet with static CPU manager policy would give the pod CPUs of its own."""
    gates = PodLevelGates(True, True)
    of_pod = pod.is_pod_level and exclusive_cpus_of_pod(pod, gates)
    return bool(of_pod) or any(exclusive_cpus(pod, container, gates) for container in pod.containers)
