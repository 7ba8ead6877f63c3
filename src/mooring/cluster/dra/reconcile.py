"""Periodic work of the driver: slices, claims that the agent lost, immediate allocation, and claims that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mooring.cluster.dra.allocation import Allocation, allocation_for, allocation_of, is_allocated, is_asked_for
from mooring.cluster.dra.cdi import CDISpecs
from mooring.cluster.dra.driver import Driver
from mooring.cluster.dra.objects import AgentNode, ClaimObjects, ClaimsClient, ClaimsError
from mooring.cluster.dra.slices import SlicePublisher
from mooring.engine.core.errors import MooringError
from mooring.service.cluster.apiserver import ClusterError
from mooring.service.logs import Log

_IMMEDIATE_PERIOD: Final = 5.0
"""Seconds between two checks for claims that want immediate allocation."""
_SWEEP_PERIOD: Final = 60.0
"""Seconds between two checks for claims of the agent that no longer exist."""


class Reconciler:
    """Reconciles the driver with the agent and the API server; called from one thread."""

    def __init__(
        self,
        driver: Driver,
        agent: ClaimsClient,
        objects: ClaimObjects,
        specs: CDISpecs,
        publisher: SlicePublisher,
        log: Log,
        *,
        immediate: bool = False,
    ) -> None:
        """Do nothing yet; :meth:`reconcile` does.

        Args:
            driver: of this node.
            agent: of the node's agent.
            objects: at the API server.
            specs: of prepared claims.
            publisher: of the slices.
            log: of the driver.
            immediate: whether claims may request immediate allocation.
        """
        self._driver, self._agent, self._objects, self._specs = driver, agent, objects, specs
        self._publisher, self._log, self._immediate = publisher, log, immediate
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
        node = self._agent.node()
        if not node.is_synchronized:
            raise ClaimsError("the agent waits for its container runtime")
        lost = {one.uid for one in self._specs.all()} - _held(node)
        if lost:
            self._driver.restore(lambda: _held(self._agent.node()))
            node = self._agent.node()
        if self._immediate and now - self._allocated >= _IMMEDIATE_PERIOD:
            self._allocated = now
            self._allocate()
            node = self._agent.node()
        if now - self._swept >= _SWEEP_PERIOD:
            self._swept = now
            self._sweep(node)
            node = self._agent.node()
        self._publisher.publish(node, now)

    def _allocate(self) -> None:
        """Allocate the claims that want it now, and let allocated ones hold their CPUs."""
        driver = self._driver
        wanted = [one for one in self._objects.claims() if is_asked_for(one, driver.node)]
        if not wanted:
            return
        classes = own_classes(self._objects.classes(), driver.name)
        for claim in wanted:
            name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
            try:
                node = self._agent.node()
                if is_allocated(claim):
                    self._hold(claim, node)
                    continue
                devices = self._publisher.devices(node)
                allocation = allocation_for(claim, driver.name, driver.node, classes, devices, node.room)
                self._take(claim, allocation)
                self._log.info("claim allocated immediately", claim=name)
            except MooringError as error:
                self._say_once(name, str(error))

    def _take(self, claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> None:
        """Allocate the CPUs before the claim is written, so that a written allocation always has its CPUs."""
        uid = claim["metadata"]["uid"]
        self._prepare(allocation_of({**claim, "status": {"allocation": allocation}}, *self._mine()))
        try:
            self._objects.allocate(claim, allocation)
        except ClusterError:
            self._agent.unprepare(uid)
            raise

    def _hold(self, claim: Mapping[str, Any], node: AgentNode) -> None:
        """Let a claim hold its CPUs between the pods that use it."""
        if claim["metadata"]["uid"] not in _held(node):
            self._prepare(allocation_of(claim, *self._mine()))

    def _prepare(self, allocated: Allocation) -> None:
        self._agent.prepare(
            allocated.uid,
            allocated.namespace,
            allocated.name,
            self._driver.shares(allocated),
            allocated.pods,
        )

    def _mine(self) -> tuple[str, str, Any]:
        return self._driver.name, self._driver.node, self._driver.device_cpus

    def _sweep(self, node: AgentNode) -> None:
        """Release the CPUs of claims that no longer exist and have no file, so that no pod can still use them."""
        for held in node.room.claims:
            if self._specs.read(held.uid) is not None:
                continue
            found = self._objects.claim(held.namespace, held.name)
            if found is None or found["metadata"]["uid"] != held.uid or not is_allocated(found):
                self._agent.unprepare(held.uid)
                self._log.warning("CPUs of a deleted claim released", claim=f"{held.namespace}/{held.name}")

    def _say_once(self, name: str, why: str) -> None:
        if (name, why) not in self._reported:
            if len(self._reported) > 1000:
                self._reported.clear()
            self._reported.add((name, why))
            self._log.warning("claim not allocated", claim=name, why=why)


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
