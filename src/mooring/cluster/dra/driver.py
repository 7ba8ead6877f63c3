"""Preparing and unpreparing claims: what the kubelet asks a driver for.

A claim is prepared when its CPUs are its own at the agent and its file of the Container Device Interface is
written. Every step can be done again: the kubelet asks until it has an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from mooring.cluster.dra.allocation import Allocation, AllocationResult, allocation_of
from mooring.cluster.dra.cdi import CDISpecs, PreparedClaim
from mooring.cluster.dra.devices import device_cpus
from mooring.cluster.dra.objects import ClaimObjects, ClaimsClient, PreparedShare
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.topology import Topology, discover_topology
from mooring.service.cluster.apiserver import ClusterError
from mooring.service.logs import Log
from mooring.service.messages import ShareMessage


@dataclass(frozen=True, slots=True)
class ClaimName:
    """A claim as the kubelet names it."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device of a prepared claim, as the kubelet receives it."""

    request: str
    device: str
    cdi: str
    share: str


class Driver:
    """Prepares claims of one node; usable from any thread."""

    def __init__(
        self, name: str, node: str, agent: ClaimsClient, objects: ClaimObjects, specs: CDISpecs, log: Log
    ) -> None:
        """Start from the files of prepared claims.

        Args:
            name: of the driver.
            node: in the cluster.
            agent: of the node's agent.
            objects: at the API server.
            specs: of prepared claims.
            log: of the driver.
        """
        self.name, self.node = name, node
        self._agent, self._objects, self._specs, self._log = agent, objects, specs, log
        self._lock = Lock()
        self._topology: Topology | None = None

    def prepare(self, claim: ClaimName) -> Sequence[PreparedDevice]:
        """Prepare a claim for a pod that is about to start.

        Raises:
            ClaimsError: the agent does not answer, or refuses.
            ClusterError: the API server does not answer, and the claim was not prepared before.
            InputError: the claim is another one, or is not allocated here.
        """
        with self._lock:
            before = self._specs.read(claim.uid)
            allocated = self._allocation(claim, before)
            prepared = self._given(allocated, before)
            if prepared != before:
                self._specs.write(prepared)
        self._log.info("claim prepared", claim=f"{claim.namespace}/{claim.name}", cpus=cpus_of(prepared.given))
        self._write_status(prepared)
        return [
            PreparedDevice(one.request, one.device, self._specs.device(claim.uid, prepared.given_for(one)), one.share)
            for one in prepared.results
        ]

    def unprepare(self, claim: ClaimName) -> None:
        """Release what a claim has; does nothing for a claim that has nothing.

        Raises:
            ClaimsError: the agent does not answer.
        """
        with self._lock:
            self._agent.unprepare(claim.uid)
            self._specs.remove(claim.uid)
        self._log.info("claim unprepared", claim=f"{claim.namespace}/{claim.name}")

    def restore(self, held: Callable[[], frozenset[str]]) -> None:
        """Allocate the CPUs of prepared claims that the agent lost again, the same ones where they are free.

        Args:
            held: returns the uids of the claims in the agent.

        Raises:
            ClaimsError: the agent does not answer, or refuses one.
        """
        for prepared in self._specs.all():
            if prepared.uid in held():
                continue
            with self._lock:
                known = self._specs.read(prepared.uid)
                if known is None:
                    continue
                allocated = Allocation(known.uid, known.namespace, known.name, known.results, frozenset(known.pods))
                again = self._given(allocated, known)
                if again != known:
                    self._specs.write(again)
            self._log.warning("claim restored at the agent", claim=f"{again.namespace}/{again.name}")

    def _allocation(self, claim: ClaimName, before: PreparedClaim | None) -> Allocation:
        """Return the allocation; without an API server, the one with which the claim was prepared."""
        try:
            found = self._objects.claim(claim.namespace, claim.name)
        except ClusterError:
            if before is None:
                raise
            return Allocation(before.uid, before.namespace, before.name, before.results, frozenset(before.pods))
        if found is None or found["metadata"]["uid"] != claim.uid:
            problem = "is not there" if found is None else "is another one of the same name"
            raise InputError(problem, source=f"claim {claim.namespace}/{claim.name}")
        return allocation_of(found, self.name, self.node, self.device_cpus)

    def _given(self, allocated: Allocation, before: PreparedClaim | None) -> PreparedClaim:
        shares = self.shares(allocated, before)
        given = self._agent.prepare(allocated.uid, allocated.namespace, allocated.name, shares, allocated.pods)
        return PreparedClaim(
            allocated.uid, allocated.namespace, allocated.name, allocated.results, given, tuple(sorted(allocated.pods))
        )

    def shares(self, allocated: Allocation, before: PreparedClaim | None = None) -> list[ShareMessage]:
        """Return what an allocation asks of the agent: one share for each request and device.

        Args:
            allocated: to the claim.
            before: what it had, and is to have again where that is free.
        """
        wished = {} if before is None else {(one.request, one.device): one.cpus for one in before.given}
        counts: dict[tuple[str, str], int] = {}
        for one in allocated.results:
            counts[one.request, one.device] = counts.get((one.request, one.device), 0) + one.count
        return [
            ShareMessage(
                request=request,
                device=device,
                count=count,
                within=list_text(self.device_cpus(device)),
                wished=wished.get((request, device), ""),
            )
            for (request, device), count in counts.items()
        ]

    def device_cpus(self, name: str) -> int:
        """Return the CPUs of a device as a mask; 0 when it is none of this node."""
        if self._topology is None:
            self._topology = discover_topology(self._agent.node().info)
        return device_cpus(self._topology, name)

    def _write_status(self, prepared: PreparedClaim) -> None:
        """Write into the claim's status which CPUs it has; nothing depends on it."""
        given = {(one.request, one.device): one.cpus for one in prepared.given}
        devices = [self._status(one, given[one.request, one.device]) for one in prepared.results]
        try:
            self._objects.apply_claim_devices(prepared.namespace, prepared.name, devices)
        except (ClusterError, InputError) as error:
            self._log.warning("claim status not written", claim=prepared.name, problem=str(error))

    def _status(self, result: AllocationResult, cpus: str) -> dict[str, Any]:
        share = {"shareID": result.share} if result.share else {}
        data = {"cpus": cpus, "request": result.request}
        return {"driver": self.name, "pool": self.node, "device": result.device, **share, "data": data}


def cpus_of(given: Sequence[PreparedShare]) -> str:
    """Return all CPUs of a claim."""
    cpus = CPUSet()
    for one in given:
        cpus |= CPUSet.parse(one.cpus)
    return str(cpus)
