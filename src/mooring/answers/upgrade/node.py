"""The node whose kubelet is replaced by one of another release, and the two situations in which both are asked.

The API server's defaults and the QoS class of a pod depend on release and gates, so that pods are read again for
every kubelet that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, make_plan
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.devicemanager.state import Device, Holdings
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.pods.defaults import PodGates

REJECTED_BEFORE = "MOOR-582"


@dataclass(frozen=True, slots=True)
class NodePods:
    """The pods of a node, as a kubelet with some gates reads them."""

    running: tuple[Pod, ...] = ()
    arriving: tuple[Pod, ...] = ()
    """Pods that the new kubelet admits after the running ones."""
    rejected: tuple[Pod, ...] = ()
    """Pods that the old kubelet rejects; they are asked about where all pods are created anew."""

    @property
    def every(self) -> tuple[Pod, ...]:
        """All of them."""
        return (*self.running, *self.rejected, *self.arriving)

    def only(self, uids: Collection[str]) -> NodePods:
        """Return those with certain uids."""
        parts = (self.running, self.arriving, self.rejected)
        return NodePods(*(tuple(pod for pod in pods if pod.uid in uids) for pods in parts))


PodReader: TypeAlias = Callable[[PodGates], NodePods]


@dataclass(frozen=True, slots=True)
class KubeletSetup:
    """A kubelet that is asked: its release and its configuration."""

    release: Release
    config: KubeletConfig


class UpgradeSituation(Enum):
    """When pods are asked about."""

    RESTART = "restart"
    """The kubelet starts on the state files, admits the running pods again and then the arriving ones."""
    RECREATED = "recreated"
    """All pods are created anew, in order, on the empty node."""


@dataclass(frozen=True, slots=True)
class UpgradedNode:
    """A node before the upgrade of its kubelet."""

    name: str
    machine: Machine
    config: KubeletConfig
    pods: PodReader
    mooring: MooringConfig = field(default_factory=MooringConfig)
    """Its release is not used."""
    files: StateTexts = field(default_factory=StateTexts)
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    held: Holdings = field(default_factory=dict)
    claimed: Holdings = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    """Names of the fields that the KubeletConfiguration sets."""
    findings: tuple[Finding, ...] = ()

    def pods_of(self, setup: KubeletSetup) -> NodePods:
        """Return the pods as a kubelet reads them."""
        return self.pods(PodGates.of_node(setup.config, self._mooring(setup)))

    def plan(self, situation: UpgradeSituation, setup: KubeletSetup) -> AnyPlan:
        """Ask a kubelet in a situation."""
        if situation is UpgradeSituation.RESTART:
            pods = self.pods_of(setup)
            return make_plan(self._question(setup, pods.running, pods.arriving, self.files))
        return make_plan(self._question(setup, (), self.pods(self._new(setup)).every, StateTexts()))

    def _reading(self, change: Callable[[NodePods], NodePods]) -> UpgradedNode:
        """Return the node with other pods, however they are read."""
        return replace(self, pods=lambda gates: change(self.pods(gates)))

    def leaving_out(self, uids: Collection[str]) -> UpgradedNode:
        """Return the node without some of its pods, on the same files."""
        return self._reading(lambda pods: pods.only({pod.uid for pod in pods.every}.difference(uids)))

    def without_arriving(self) -> UpgradedNode:
        """Return the node to which no pod comes."""
        return self._reading(lambda pods: NodePods(pods.running))

    def all_running(self) -> UpgradedNode:
        """Return the node on which the arriving pods run too."""
        return self._reading(lambda pods: replace(pods, running=(*pods.running, *pods.arriving), arriving=()))

    def without_pods(self, uids: Collection[str], setup: KubeletSetup) -> UpgradedNode:
        """Return the node after a kubelet was started on it and some running pods have ended."""
        question = self._question(setup, self.pods_of(setup).running, (), self.files)
        plan = make_plan(replace(question, leaving={"": tuple(uids)}))
        return replace(self, files=plan.files).leaving_out(uids)

    def arriving_again(self, uids: Collection[str], original: UpgradedNode) -> UpgradedNode:
        """Return the node to which some pods of another one come as new pods."""

        def read(gates: PodGates) -> NodePods:
            here, there = self.pods(gates), original.pods(gates)
            come = (pod for pod in there.running if pod.uid in uids)
            return replace(here, arriving=(*come, *here.arriving))

        return replace(self, pods=read)

    def only(self, uids: Collection[str]) -> UpgradedNode:
        """Return the node with some of its pods, and without state files."""
        return replace(self._reading(lambda pods: pods.only(uids)), files=StateTexts(), findings=())

    def prepared(self, setup: KubeletSetup, first: PodReader | None = None) -> UpgradedNode:
        """Return the node with the state files of a kubelet on it.

        Args:
            setup: the kubelet before the upgrade; on a node without state files it has admitted the running pods.
            first: reads pods that it admits besides; what it rejects does not run.
        """
        gates = self._new(setup)
        active, new = self.pods(gates).running, first(gates).running if first is not None else ()
        if self.files == StateTexts():
            active, new = (), (*active, *new)
        if not new:
            return self
        plan, running = make_plan(self._question(setup, active, new, self.files)), {pod.uid for pod in active}
        gone = {answer.pod.uid for answer in plan.answers if not answer.admitted} | {pod.uid for pod in plan.unasked}

        def read(gates: PodGates) -> NodePods:
            pods = self.pods(gates)
            every = (*pods.running, *(first(gates).running if first is not None else ()))
            if isinstance(plan, RefusedPlan):
                come = (pod for pod in every if pod.uid not in running)
                runs = tuple(pod for pod in every if pod.uid in running)
                return NodePods(runs, (*come, *pods.arriving), pods.rejected)
            stay = tuple(pod for pod in every if pod.uid not in gone)
            return NodePods(stay, pods.arriving, (*pods.rejected, *(pod for pod in every if pod.uid in gone)))

        if isinstance(plan, RefusedPlan):
            return replace(self, pods=read)
        rejected = [answer for answer in plan.answers if not answer.admitted]
        findings = tuple(
            Finding(
                "warning",
                f"{answer.pod.namespace}/{answer.pod.name}",
                f"kubelet {setup.release} rejects it already ({answer.decision.reason or 'no answer'}), so that it is "
                "not counted as running",
                REJECTED_BEFORE,
            )
            for answer in rejected
        )
        return replace(self, files=plan.files, pods=read, findings=(*self.findings, *findings))

    def _question(
        self, setup: KubeletSetup, active: tuple[Pod, ...], pods: tuple[Pod, ...], files: StateTexts
    ) -> Question:
        asked = Question(self.machine, setup.config, self._mooring(setup), pods, active, files, self.devices, self.held)
        return replace(asked, claimed=self.claimed)

    def _new(self, setup: KubeletSetup) -> PodGates:
        """Return the gates of pods that have no status yet (spec: releases.md section 7, rule 1)."""
        return replace(PodGates.of_node(setup.config, self._mooring(setup)), reads_statuses=False)

    def _mooring(self, setup: KubeletSetup) -> MooringConfig:
        return replace(self.mooring, release=setup.release)
