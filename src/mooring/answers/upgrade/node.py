"""The node whose kubelet is replaced by one of another release: both are asked in two situations; what becomes of pods.

The API server's defaults and the QoS class of a pod depend on release and gates, so that pods are read again for
every kubelet that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, TypeAlias

from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, make_plan
from mooring.answers.base.plan_document import differing, placement_part
from mooring.documents.plan import Code, DocumentPart, PlacementPart, PodPart, one_of, told
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Placement
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.devicemanager.state import Device, Holdings
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.node.node import placements_of
from mooring.explanations.story import PodVerdict
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


class UpgradedPodPart(DocumentPart, kw_only=True):
    """What becomes of a pod."""

    uid: str
    namespace: str
    name: str
    running: Annotated[bool, told("Whether it runs before; otherwise it is admitted after the restart.")]
    outcome: Annotated[str, one_of("kept", "moved", "admitted", "rejected", "not asked")]
    changed: Annotated[bool, told("Whether the old kubelet, started again, would decide otherwise.")]
    admitted: bool
    reason: Annotated[str, told("The kubelet's; empty for admitted pods.")] = ""
    message: Annotated[str, told("The kubelet's; empty for admitted pods.")] = ""
    why: Annotated[str, told("One sentence for people; empty for admitted pods.")] = ""
    code: Code = ""
    before: Annotated[
        dict[str, PlacementPart],
        told("Container -> its CPUs and memory before the upgrade; empty where it had no place."),
    ]
    pod_before: Annotated[PlacementPart, told("The partition of the pod as a whole.")]
    after: Annotated[
        dict[str, PlacementPart],
        told("Container -> its CPUs and memory afterwards; empty if not admitted."),
    ]
    pod_after: Annotated[PlacementPart, told("The partition of the pod as a whole.")]

    @property
    def is_affected(self) -> bool:
        """Tell whether the pod does not keep what it has, and a restart of the old kubelet would not do the same."""
        return self.changed and self.outcome != PodVerdict.KEPT

    @property
    def as_pod(self) -> PodPart:
        """Its name."""
        return PodPart(self.uid, self.namespace, self.name)


_Placed: TypeAlias = tuple[Mapping[str, Placement], Placement]
"""What each container has, and the pod as a whole."""
_NOWHERE: _Placed = {}, Placement()


def pod_upgrades(old: AnyPlan, new: AnyPlan, running: Collection[str]) -> Iterator[UpgradedPodPart]:
    """Yield what becomes of the pods of a restart.

    Args:
        old: the restart of the old kubelet.
        new: the restart of the new kubelet on the same files.
        running: uids of the pods that run before.
    """
    before, different = {answer.pod.uid: answer for answer in old.answers}, differing(old, new)
    for answer in new.answers:
        decision, pod = answer.decision, answer.pod
        # By the state files, or as the old kubelet decides about a new pod
        earlier, held = before.get(pod.uid), _NOWHERE
        if answer.running:
            held = placements(new if isinstance(old, RefusedPlan) else old, pod)
        elif earlier is not None and earlier.admitted:
            held = earlier.decision.containers, earlier.decision.pod
        placed = (decision.containers, decision.pod) if decision.admitted else _NOWHERE
        same = (dict(placed[0]), placed[1]) == (dict(held[0]), held[1])
        outcome = PodVerdict.ADMITTED if not held[0] else PodVerdict.KEPT if same else PodVerdict.MOVED
        outcome = outcome if decision.admitted else PodVerdict.REJECTED
        part = _part(pod, outcome, held, placed, running=answer.running, changed=pod.uid in different)
        if not decision.admitted:
            defect = "" if decision.endless is None else decision.endless.defect
            part.reason = decision.reason or ("crash" if answer.crash else defect)
            part.message, part.why, part.code = decision.message or answer.crash, answer.why, answer.code
        yield part
    unasked_before = {pod.uid for pod in old.unasked}
    for pod in new.unasked:
        is_running = pod.uid in running
        held = placements(old, pod) if is_running else _NOWHERE
        changed = pod.uid not in unasked_before
        yield _part(pod, PodVerdict.NOT_ASKED, held, _NOWHERE, running=is_running, changed=changed)


def _part(
    pod: Pod, outcome: PodVerdict, held: _Placed, placed: _Placed, *, running: bool, changed: bool
) -> UpgradedPodPart:
    return UpgradedPodPart(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        running=running,
        outcome=outcome.value,
        changed=changed,
        admitted=outcome not in (PodVerdict.REJECTED, PodVerdict.NOT_ASKED),
        before={name: placement_part(one) for name, one in held[0].items()},
        pod_before=placement_part(held[1]),
        after={name: placement_part(one) for name, one in placed[0].items()},
        pod_after=placement_part(placed[1]),
    )


def placements(plan: AnyPlan, pod: Pod) -> _Placed:
    """Return what a pod has by the state files with which a plan begins."""
    return _NOWHERE if isinstance(plan, RefusedPlan) else placements_of(plan.began.node.providers, pod)
