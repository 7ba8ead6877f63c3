"""Preparing and unpreparing claims, which the kubelet asks for, and the driver's periodic work.

A claim is prepared when its CPUs are its own at the agent and its file of the Container Device Interface is written.
Every step can be done again: the kubelet asks until it has an answer. Now and then: slices, claims that the agent lost,
immediate allocation, and claims that are gone.

The scheduler allocates a claim when a pod needs it. A claim with two annotations is allocated at once instead, by the
driver of the node that it names: the engine takes its CPUs first, then the driver writes the result into the claim.
The CPUs stay the claim's until it is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

import msgspec

from mooring.cluster.dra.cdi import CDISpecs, PreparedClaim, allocation_of, cpus_of, shares_of
from mooring.cluster.dra.devices import CAPACITY, CPUGroup, SlicePublisher, attribute_values, device_cpus
from mooring.cluster.dra.objects import AgentNode, ClaimableCPUs, ClaimsClient, ClaimsError
from mooring.cluster.dra.plugin import DeviceHealth
from mooring.engine.core.bits import list_text
from mooring.engine.core.errors import InputError, MooringError
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.topology import Topology, discover_topology
from mooring.service.apiserver import ClusterError
from mooring.service.messages import ClaimMessage, DeviceMessage, ShareMessage

_WAITING: Final = 10.0
"""Seconds that a call waits for others; with what it asks then it ends before the kubelet's patience of 45 does."""


class Driver:
    """Prepares claims of one node; usable from any thread."""

    def __init__(self, agent: ClaimsClient, specs: CDISpecs, publisher: SlicePublisher) -> None:
        """Start from the files of prepared claims.

        Args:
            agent: of the node's agent.
            specs: of prepared claims.
            publisher: knows the driver, its node and the devices.
        """
        self.name, self.node = publisher.driver, publisher.node
        self.objects, self.log = publisher.objects, publisher.log
        self.agent, self.specs, self.publisher = agent, specs, publisher
        self._lock = Lock()
        self._topology: Topology | None = None
        self._attributes: dict[str, dict[str, Any]] = {}

    def prepare(self, claim: ClaimMessage) -> list[DeviceMessage]:
        """Prepare a claim for a pod that is about to start.

        Raises:
            ClaimsError: the agent does not answer, or refuses.
            ClusterError: the API server does not answer, and the claim was not prepared before.
            InputError: the claim is another one, or is not allocated here.
        """
        with self._alone():
            before = self.specs.read(claim.uid)
            allocated = self._allocation(claim, before)
            prepared = self.given(allocated, before)
            if prepared != before:
                self.specs.write(prepared, self.node, self._attributes)
        self.log.info("claim prepared", claim=f"{claim.namespace}/{claim.name}", cpus=cpus_of(prepared.given))
        # Write into the claim's status which CPUs it has; nothing depends on it
        given = {(one.request, one.device): one.cpus for one in prepared.given}
        devices = [
            {"driver": self.name, "pool": self.node, "device": one.device}
            | ({"shareID": one.share} if one.share else {})
            | {"data": {"cpus": given[one.request, one.device], "request": one.request}}
            for one in prepared.results
        ]
        try:
            self.objects.apply_claim_devices(prepared.namespace, prepared.name, devices)
        except (ClusterError, InputError) as error:
            self.log.warning("claim status not written", claim=prepared.name, problem=str(error))
        return [
            DeviceMessage(
                request_names=[one.request],
                pool_name=self.node,
                device_name=one.device,
                cdi_device_ids=[self.specs.device(claim.uid, prepared.given_for(one))],
                share_id=one.share,
            )
            for one in prepared.results
        ]

    def unprepare(self, claim: ClaimMessage) -> None:
        """Release what a claim has; does nothing for a claim that has nothing.

        Raises:
            ClaimsError: the agent does not answer.
        """
        with self._alone():
            self.agent.unprepare(claim.uid)
            self.specs.remove(claim.uid)
        self.log.info("claim unprepared", claim=f"{claim.namespace}/{claim.name}")

    def restore(self, lost: Iterable[str]) -> None:
        """Allocate the CPUs of prepared claims that the agent lost again, the same ones where they are free.

        Args:
            lost: uids of the claims.

        Raises:
            ClaimsError: the agent does not answer, or refuses one; the others are restored all the same.
        """
        refused = None
        for uid in sorted(lost):
            try:
                with self._alone():
                    if (known := self.specs.read(uid)) is not None:
                        again = self.given(known, known)
                        if again != known:
                            self.specs.write(again, self.node, self._attributes)
                        self.log.warning("claim restored at the agent", claim=f"{again.namespace}/{again.name}")
            except ClaimsError as error:
                refused = error
        if refused is not None:
            raise refused

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other calls out. One that has waited long does nothing: the kubelet may have given it up, and more."""
        if not self._lock.acquire(timeout=_WAITING):
            raise ClaimsError("the driver is busy with other claims")
        try:
            yield
        finally:
            self._lock.release()

    def _allocation(self, claim: ClaimMessage, before: PreparedClaim | None) -> PreparedClaim:
        """Return the allocation; without an API server, the one with which the claim was prepared."""
        try:
            found = self.objects.claim(claim.namespace, claim.name)
        except ClusterError:
            if before is None:
                raise
            return before
        if found is None or found["metadata"]["uid"] != claim.uid:
            problem = "is not there" if found is None else "is another one of the same name"
            raise InputError(problem, source=f"claim {claim.namespace}/{claim.name}")
        return allocation_of(found, self.name, self.node, self.device_cpus)

    def given(self, allocated: PreparedClaim, before: PreparedClaim | None = None) -> PreparedClaim:
        """Ask the agent for the CPUs of an allocation: one share for each request and device.

        Args:
            allocated: to the claim.
            before: what it had, and is to have again where that is free.
        """
        wished = {} if before is None else {(one.request, one.device): one.cpus for one in before.given}
        shares = [
            ShareMessage(
                request=request,
                device=device,
                count=count,
                within=list_text(self.device_cpus(device)),
                wished=wished.get((request, device), ""),
                numa_nodes=numa_nodes,
            )
            for (request, device, numa_nodes), count in shares_of(allocated).items()
        ]
        given = self.agent.prepare(allocated.uid, allocated.namespace, allocated.name, shares, allocated.pods)
        return msgspec.structs.replace(allocated, given=given)

    def device_cpus(self, name: str) -> int:
        """Return the CPUs of a device as a mask; 0 when it is none of this node."""
        if self._topology is None:
            node = self.agent.node()
            self._topology = discover_topology(node.info)
            self._attributes = {one.name: attribute_values(one.attributes) for one in self.publisher.devices(node)}
        return device_cpus(self._topology, name)


_IMMEDIATE_PERIOD: Final = 5.0
"""Seconds between two checks for claims that want immediate allocation."""
_SWEEP_PERIOD: Final = 60.0
"""Seconds between two checks for claims of the agent that no longer exist."""


class Reconciler:
    """Reconciles the driver with the agent and the API server; called from one thread."""

    def __init__(self, driver: Driver, health: DeviceHealth, *, immediate: bool = False) -> None:
        """Do nothing yet; :meth:`reconcile` does.

        Args:
            driver: of this node.
            health: of the devices.
            immediate: whether claims may request immediate allocation.
        """
        self._driver, self._health, self._immediate = driver, health, immediate
        self._allocated = self._swept = float("-inf")
        self._reported: set[tuple[str, str]] = set()

    def reconcile(self, now: float) -> None:
        """Do what is due.

        Args:
            now: seconds that only go forward.

        Raises:
            ClaimsError: the agent does not answer, or has lost a claim and cannot give it again.
            ClusterError: the API server does not answer.
        """
        driver = self._driver
        node = driver.agent.node()
        if not node.is_synchronized:
            raise ClaimsError("the agent waits for its container runtime")
        if now - self._swept >= _SWEEP_PERIOD:
            self._swept = now
            # Release the CPUs of claims that no longer exist and have no file, so that no pod can still use them. This
            # comes first: a lost claim may be refused because one of these has its CPUs.
            for held in [one for one in node.room.claims if driver.specs.read(one.uid) is None]:
                found = driver.objects.claim(held.namespace, held.name)
                if found is None or found["metadata"]["uid"] != held.uid or not is_allocated(found):
                    driver.agent.unprepare(held.uid)
                    driver.log.warning("CPUs of a deleted claim released", claim=f"{held.namespace}/{held.name}")
            node = driver.agent.node()
        lost = {one.uid for one in driver.specs.all()} - _held(node)
        if lost:
            driver.restore(lost)
            node = driver.agent.node()
        if self._immediate and now - self._allocated >= _IMMEDIATE_PERIOD:
            self._allocated = now
            self._allocate()
            node = driver.agent.node()
        devices = driver.publisher.devices(node)
        self._health.update(devices, node.room.claims, now)
        driver.publisher.publish(devices, node.room, now)

    def _allocate(self) -> None:
        """Allocate the claims that want it now, and let allocated ones hold their CPUs."""
        driver = self._driver
        wanted = [one for one in driver.objects.claims() if is_asked_for(one, driver.node)]
        if not wanted:
            return
        classes = own_classes(driver.objects.classes(), driver.name)
        for claim in wanted:
            name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
            try:
                node = driver.agent.node()
                if is_allocated(claim):
                    # It holds its CPUs between the pods that use it.
                    if claim["metadata"]["uid"] not in _held(node):
                        driver.given(allocation_of(claim, driver.name, driver.node, driver.device_cpus))
                    continue
                devices = driver.publisher.devices(node)
                allocation = allocation_for(claim, driver.name, driver.node, classes, devices, node.room)
                # The CPUs are allocated before the claim is written, so that a written allocation always has them.
                made = {**claim, "status": {"allocation": allocation}}
                driver.given(allocation_of(made, driver.name, driver.node, driver.device_cpus))
                try:
                    driver.objects.allocate(claim, allocation)
                except ClusterError:
                    driver.agent.unprepare(claim["metadata"]["uid"])
                    raise
                driver.log.info("claim allocated immediately", claim=name)
            except MooringError as error:
                why = str(error)
                if (name, why) not in self._reported:
                    if len(self._reported) > 1000:
                        self._reported.clear()
                    self._reported.add((name, why))
                    driver.log.warning("claim not allocated", claim=name, why=why)


def own_classes(classes: list[dict[str, Any]], driver: str) -> frozenset[str]:
    """Return the device classes that mean every device of the driver, and nothing else.

    An expression is not evaluated here: known is the one that every such class has.
    """
    found = set()
    for one in classes:
        spec = one["spec"]
        expressions = [(each.get("cel") or {}).get("expression", "") for each in spec.get("selectors") or ()]
        if not spec.get("config") and ["".join(text.split()) for text in expressions] == [f'device.driver=="{driver}"']:
            found.add(one["metadata"]["name"])
    return frozenset(found)


def _held(node: AgentNode) -> frozenset[str]:
    return frozenset(claim.uid for claim in node.room.claims)


_ALLOCATE: Final = "mooring/allocate"
NODE: Final = "mooring/node"


def is_asked_for(claim: Mapping[str, Any], node: str) -> bool:
    """Tell whether a claim is to be allocated immediately on this node."""
    metadata = claim["metadata"]
    annotations = metadata.get("annotations") or {}
    if annotations.get(_ALLOCATE) != "immediate" or annotations.get(NODE) != node:
        return False
    return not metadata.get("deletionTimestamp")


def is_allocated(claim: Mapping[str, Any]) -> bool:
    """Tell whether the claim is allocated."""
    return bool((claim.get("status") or {}).get("allocation"))


def allocation_for(
    claim: Mapping[str, Any],
    driver: str,
    node: str,
    classes: Iterable[str],
    devices: Iterable[CPUGroup],
    room: ClaimableCPUs,
) -> dict[str, Any]:
    """Return an allocation of a claim on this node, as its status has it.

    Each request gets the group that has just enough left.

    Args:
        claim: without an allocation.
        driver: its name.
        node: its node.
        classes: device classes that are this driver's and want nothing else.
        devices: groups of the node.
        room: what they can give.

    Raises:
        InputError: the claim requests what only the scheduler can judge, or there is no room.
    """
    source = f"claim {claim['metadata']['namespace']}/{claim['metadata']['name']}"
    wanted = claim["spec"].get("devices") or {}
    if wanted.get("constraints") or wanted.get("config"):
        raise InputError("has constraints or parameters, which immediate allocation does not support", source=source)
    known = frozenset(classes)
    left = {one.name: (one.cpus & room.claimable).bit_count() for one in devices}
    results = []
    for request in wanted.get("requests") or ():
        count = _count(request, known, source, room)
        device = min((name for name in left if left[name] >= count), key=lambda name: left[name], default="")
        if not device:
            raise InputError(f"no group of {node} has {count} CPUs left", source=source)
        left[device] -= count
        results.append(
            {
                "request": request["name"],
                "driver": driver,
                "pool": node,
                "device": device,
                "shareID": str(uuid.uuid4()),
                "consumedCapacity": {CAPACITY: str(count)},
            }
        )
    if not results:
        raise InputError("requests nothing", source=source)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def _count(request: Mapping[str, Any], classes: frozenset[str], source: str, room: ClaimableCPUs) -> int:
    exact = request.get("exactly")
    if exact is None or exact.get("deviceClassName") not in classes:
        raise InputError(f"request {request['name']} is for no class of this driver alone", source=source)
    if (
        exact.get("selectors")
        or exact.get("allocationMode", "ExactCount") != "ExactCount"
        or exact.get("count", 1) != 1
    ):
        problem = f"request {request['name']} has selectors or requests several devices: leave it to the scheduler"
        raise InputError(problem, source=source)
    step = room.group_size if room.whole_cores else 1
    text = str(((exact.get("capacity") or {}).get("requests") or {}).get(CAPACITY, step))
    amount = Quantity.parse(text)
    if amount.milli <= 0:
        raise InputError(f"request {request['name']} is for {text} CPUs", source=source)
    return -(-amount.milli // (1000 * step)) * step
