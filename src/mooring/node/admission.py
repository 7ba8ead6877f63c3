"""Admitting one pod: asking the providers, merging, allocating, in the order of the scope.

Source: kubelet v1.37.1, topologymanager scope_*.go; spec: topology-manager.md sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mooring.core.decision import Endless, Rejection
from mooring.core.observer import Observer
from mooring.core.pod import Container, Pod
from mooring.cpumanager import policy_hints
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.static import AllocationError, Reusable, allocate
from mooring.node.decision import NO_AFFINITY
from mooring.node.facts import HintsGiven, PodRejected
from mooring.node.settings import Settings
from mooring.topologymanager.hints import Hint, ResourceHints, merge_entries
from mooring.topologymanager.merge import NONE, merge

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
AFFINITY_MESSAGE = "Resources cannot be allocated with Topology locality"


@dataclass(slots=True)
class Admission:
    """One admission while it runs.

    Nothing is rolled back when it fails: leftovers go with the next stale-state removal.
    """

    settings: Settings
    pod: Pod
    cpu: CPUState
    reusable: Reusable
    stored: dict[str, Hint]
    """The topology manager's hints of this pod, by container."""
    observer: Observer | None
    hints: dict[str, ResourceHints] = field(default_factory=dict)
    pod_hints: ResourceHints | None = None

    def run(self) -> Rejection | Endless | None:
        """Decide; None means that the pod is admitted."""
        if self.settings.topology_policy == NONE:
            verdict = self._without_hints()
        elif self.settings.pod_scope:
            verdict = self._pod_scope()
        else:
            verdict = self._container_scope()
        if self.observer is not None and isinstance(verdict, Rejection):
            self.observer(PodRejected(self.pod.uid, verdict.reason, verdict.message))
        return verdict

    def _without_hints(self) -> Rejection | Endless | None:
        """Topology policy ``none``: allocate for every container, store nothing."""
        for container in self.pod.containers:
            verdict = self._allocate(container)
            if verdict is not None:
                return verdict
        return None

    def _container_scope(self) -> Rejection | Endless | None:
        for container in self.pod.containers:
            given = self._container_hints(container)
            self.hints[container.name] = given
            hint = self._merged(given, container.name)
            if hint is None:
                return Rejection(TOPOLOGY_AFFINITY_ERROR, AFFINITY_MESSAGE)
            self.stored[container.name] = hint
            verdict = self._allocate(container)
            if verdict is not None:
                return verdict
        return None

    def _pod_scope(self) -> Rejection | Endless | None:
        self.pod_hints = self._pod_hints()
        hint = self._merged(self.pod_hints, "")
        if hint is None:
            return Rejection(TOPOLOGY_AFFINITY_ERROR, AFFINITY_MESSAGE)
        for container in self.pod.containers:
            self.stored[container.name] = hint
            verdict = self._allocate(container)
            if verdict is not None:
                return verdict
        return None

    def _container_hints(self, container: Container) -> ResourceHints:
        policy = self.settings.cpu
        if policy is None:
            return {}
        return policy_hints.container_hints(policy, self.cpu, self.reusable, self.pod, container, self.observer) or {}

    def _pod_hints(self) -> ResourceHints:
        policy = self.settings.cpu
        if policy is None:
            return {}
        return policy_hints.pod_hints(policy, self.cpu, self.reusable, self.pod, self.observer) or {}

    def _merged(self, given: ResourceHints, container: str) -> Hint | None:
        """Merge; None when the policy does not admit."""
        if self.observer is not None:
            self.observer(HintsGiven(self.pod.uid, container, given))
        entries = merge_entries((given,))
        merged = merge(self.settings.topology_policy, entries, self.settings.numa, self.observer)
        return merged.hint if merged.admitted else None

    def _allocate(self, container: Container) -> Rejection | Endless | None:
        policy = self.settings.cpu
        if policy is None:
            return None
        affinity = self.stored.get(container.name, NO_AFFINITY).mask
        answer = allocate(policy, self.cpu, self.reusable, self.pod, container, affinity, self.observer)
        if isinstance(answer, Endless):
            return answer
        if isinstance(answer, AllocationError):
            if answer.reason:
                return Rejection(answer.reason, answer.message)
            return Rejection(
                UNEXPECTED_ADMISSION_ERROR, f"Allocate failed due to {answer.message}, which is unexpected"
            )
        self.cpu, self.reusable = answer.state, answer.reusable
        return None
