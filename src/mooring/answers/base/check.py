"""Pods against node types: one case for each pod of the manifests and each node type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, RefusedPlan, start_error
from mooring.answers.base.plan_findings import DEVICES_NOT_DECLARED
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.documents import located
from mooring.inputs.pods.pod_files import PodOrigin
from mooring.inputs.pods.scheduling_fields import SchedulingFields, Taint, scheduling_fields_of

KEPT_AWAY = "MOOR-724"


@dataclass(frozen=True, slots=True)
class NodeType:
    """One kind of node, and its plan."""

    name: str
    plan: AnyPlan
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def devices(self) -> frozenset[str]:
        """Resources of which it has devices."""
        if isinstance(self.plan, RefusedPlan):
            return frozenset()
        return frozenset(self.plan.kubelet.node.providers.devices.devices)

    @property
    def is_yes(self) -> bool:
        """Tell whether its kubelet starts and admits every pod, those that run included."""
        plan = self.plan
        admitted = not plan.unasked and all(answer.admitted for answer in plan.answers)
        return admitted and not isinstance(plan, RefusedPlan)


@dataclass(frozen=True, slots=True)
class Case:
    """What a node type does with one pod."""

    pod: Pod
    node_type: NodeType
    answer: Answer | None
    """None if the pod was not asked about."""
    allowed: bool = True
    """Whether node selector, required node affinity, tolerations and devices let the scheduler bind the pod there."""

    @property
    def name(self) -> str:
        """``namespace/pod``."""
        return f"{self.pod.namespace}/{self.pod.name}"

    @property
    def admitted(self) -> bool:
        """Tell whether the pod can run on the node type."""
        return self.allowed and self.answer is not None and self.answer.admitted

    @property
    def code(self) -> str:
        """The code of the answer; of a pod that was not asked about that of the refusal, or of the last answer."""
        if not self.allowed:
            return KEPT_AWAY
        if self.answer is not None:
            return self.answer.code
        plan = self.node_type.plan
        return plan.refusal.code if isinstance(plan, RefusedPlan) else plan.answers[-1].code

    @property
    def why(self) -> str:
        """In words why the pod does not run there."""
        if not self.allowed:
            return "Its node selector, required node affinity, tolerations or devices do not allow this node type."
        if self.answer is not None:
            return self.answer.why
        error = start_error(self.node_type.plan)
        return f"The kubelet would not start: {error}" if error else "It comes after the last pod asked about."


@dataclass(frozen=True)
class Check:
    """The answer to "do these pods fit on these node types?"."""

    node_types: tuple[NodeType, ...]
    origins: Mapping[str, PodOrigin]
    """Uid of each pod of the manifests -> where it is described."""
    alone: bool = False
    """Whether each pod was asked about without the others; then labels and taints count."""
    settings: str = ""
    """The file that configures the node types; empty if there is none."""

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Every pod of the manifests on every node type, one node type after another."""
        found = []
        for one in self.node_types:
            asked = [(answer.pod, answer) for answer in one.plan.answers]
            for pod, answer in (*asked, *((pod, None) for pod in one.plan.unasked)):
                if pod.uid not in self.origins:
                    continue
                allowed = True
                if self.alone:
                    fields = self._fields[id(self.origins[pod.uid])]
                    wanted = {name for container in pod.containers for name in container.limits}
                    lacking = wanted & self._devices - one.devices
                    allowed = not lacking and fields.allows(one.labels, one.name) and fields.tolerates(one.taints)
                found.append(Case(pod, one, answer, allowed))
        return tuple(found)

    @cached_property
    def _devices(self) -> frozenset[str]:
        """Resources of which at least one node type declares devices: the others are known to have none."""
        return frozenset().union(*(one.devices for one in self.node_types))

    @cached_property
    def _fields(self) -> Mapping[int, SchedulingFields]:
        """What the scheduler reads of the pods, once for all replicas."""
        found: dict[int, SchedulingFields] = {}
        for origin in self.origins.values():
            if id(origin) not in found:
                with located(origin.document):
                    found[id(origin)] = scheduling_fields_of(origin.content, origin.field)
        return found

    @cached_property
    def _admitted_by(self) -> Mapping[str, tuple[str, ...]]:
        names: dict[str, tuple[str, ...]] = {}
        for case in self.cases:
            if case.admitted:
                names[case.pod.uid] = (*names.get(case.pod.uid, ()), case.node_type.name)
        return names

    def admitted_by(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the node types that admit a pod."""
        return self._admitted_by.get(pod.uid, ())

    @cached_property
    def is_yes(self) -> bool:
        """Tell whether one node type admits everything; of pods that are alone, whether one admits each."""
        if self.alone:
            return all(case.pod.uid in self._admitted_by for case in self.cases)
        return any(node_type.is_yes for node_type in self.node_types)

    def is_failure(self, case: Case) -> bool:
        """Tell whether a case is a reason for the answer no: a rejection that no other node type makes good.

        Of a node type where the pod may not run only if there is none where it may.
        """
        if case.admitted or not (case.allowed or case.pod.uid not in self._allowed_somewhere):
            return False
        return case.pod.uid not in self._admitted_by if self.alone else not self.is_yes

    @cached_property
    def _allowed_somewhere(self) -> frozenset[str]:
        return frozenset(case.pod.uid for case in self.cases if case.allowed)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the plans, each once."""
        found = (finding for one in self.node_types for finding in one.plan.findings)
        elsewhere = self._devices if self.alone else frozenset()
        return tuple(
            dict.fromkeys(one for one in found if not (one.code == DEVICES_NOT_DECLARED and one.subject in elsewhere))
        )
