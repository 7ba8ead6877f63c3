"""Asking the managers about a pod that is resized: hints, merge and new sets in the scope's order.

In v1.37.1 the CPU and memory manager have no opinion about a resize and change nothing; devices are asked as ever.
With the extension exclusive-resize they answer by the rules of KEP-5554. Up to v1.36 they answer as for a new pod
(rule resize-asks-like-admission; spec: releases.md section 5). Nothing is kept of a resize that fails: it
works on values of its own. What can never be resized is refused before (:mod:`mooring.engine.node.resize.feasibility`).

Source: kubelet v1.37.1, topologymanager scope_*.go with operation resize; KEP-1287, KEP-5554; spec: resize.md
sections 1 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring.engine.core.decision import Endless, Rejection
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.moment import Moment
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.choice import near
from mooring.engine.cpumanager.policy import AllocationError
from mooring.engine.extensions import cpu_resize, memory_resize
from mooring.engine.extensions.scale_down import taken_over
from mooring.engine.memorymanager.static import MemoryRefusal
from mooring.engine.node.admission import (
    AFFINITY_MESSAGE,
    TOPOLOGY_AFFINITY_ERROR,
    UNEXPECTED_ADMISSION_ERROR,
    Admission,
)
from mooring.engine.node.decision import NO_AFFINITY
from mooring.engine.node.providers import Providers, hints_of_devices, policy_of
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.entries import ResourceHints, merge_entries
from mooring.engine.topologymanager.hints import Hint
from mooring.engine.topologymanager.merge import NONE, RESTRICTED, SINGLE_NUMA_NODE, merge


@dataclass(slots=True)
class ResizeAdmission:
    """One resize while the managers are asked about it."""

    settings: Settings
    before: Pod
    """With the resources that it has."""
    pod: Pod
    """With the resources that it requests."""
    providers: Providers
    now: Moment
    observer: Observer | None = None
    stored: dict[str, Hint] = field(default_factory=dict)
    """The merged hints, by container."""
    active: Mapping[str, Pod] = field(default_factory=dict)
    """Active pods by uid."""

    def run(self) -> Rejection | None:
        """Decide; None means that the managers agree.

        Raises:
            KubeletCrashError: the kubelet would not return.
        """
        if self.settings.release.rules.resize_asks_like_admission and not self._is_extended:
            return self._as_admission()
        by_pod = self.settings.pod_scope and self.settings.topology_policy != NONE
        refused = self._merge_pod() if by_pod else None
        if refused is not None:
            return refused
        for container in self.pod.containers:
            policy = policy_of(self.settings, self.providers, self.pod, container.name)
            if policy != NONE and not by_pod:
                hint = self._merged(self._container_hints(container), policy)
                if hint is None:
                    return _affinity_error()
                self.stored[container.name] = hint
            refused = self._resize_cpus(container) or self._resize_memory(container)
            if refused is not None:
                return refused
        return None

    @property
    def _is_extended(self) -> bool:
        cpu, memory = self.settings.cpu, self.settings.memory
        return (cpu is not None and cpu.resizes) or (memory is not None and memory.resizes)

    def _as_admission(self) -> Rejection | None:
        admission = Admission(
            settings=self.settings,
            pod=self.pod,
            active={**self.active, self.pod.uid: self.pod},
            providers=self.providers,
            stored={},
            sources_ready=True,
            observer=None,
            now=self.now,
        )
        verdict = admission.run()
        if isinstance(verdict, Endless):
            raise KubeletCrashError(f"the kubelet would not return (defect {verdict.defect})")
        self.providers, self.stored = admission.providers, admission.stored
        return verdict

    def _merge_pod(self) -> Rejection | None:
        hint = self._merged(self._pod_hints(), policy_of(self.settings, self.providers, self.pod, ""))
        if hint is None:
            return _affinity_error()
        self.stored = {container.name: hint for container in self.pod.containers}
        return None

    def _merged(self, given: tuple[ResourceHints | None, ...], policy: str) -> Hint | None:
        merged = merge(policy, merge_entries(given), self.settings.numa, self.observer)
        return merged.hint if merged.admitted else None

    def _container_hints(self, container: Container) -> tuple[ResourceHints | None, ...]:
        given, pod, observer = self.providers, self.pod, self.observer
        cpu, memory = self.settings.cpu, self.settings.memory
        devices = hints_of_devices(self.settings, given, pod, container, observer)
        cpus = blocks = None
        if cpu is not None and cpu.resizes:
            cpus = cpu_resize.container_hints(cpu, given.cpu, pod, container, observer)
        if memory is not None and memory.resizes:
            blocks = memory_resize.container_hints(memory, given.memory, pod, container, observer)
        return devices, cpus, blocks

    def _pod_hints(self) -> tuple[ResourceHints | None, ...]:
        given, pod, observer = self.providers, self.pod, self.observer
        cpu, memory = self.settings.cpu, self.settings.memory
        devices = hints_of_devices(self.settings, given, pod, None, observer)
        cpus = blocks = None
        if cpu is not None and cpu.resizes:
            cpus = cpu_resize.pod_hints(cpu, given.cpu, pod, observer)
        if memory is not None and memory.resizes:
            blocks = memory_resize.pod_hints(memory, given.memory, pod, observer)
        return devices, cpus, blocks

    def _resize_cpus(self, container: Container) -> Rejection | None:
        policy = self.settings.cpu
        if policy is None or not policy.resizes:
            return None
        if not self._asks_for_other_cpus(container):
            # A delay that runs for it continues: only a request for this container begins it again.
            return None
        hint, state = self.stored.get(container.name, NO_AFFINITY), self.providers.cpu
        found = cpu_resize.resized_set(policy, state, self.pod, container, hint.mask, self.observer)
        if isinstance(found, AllocationError):
            return Rejection(found.reason or UNEXPECTED_ADMISSION_ERROR, found.message)
        if found is not None:
            if self._breaks_its_promise(container.name, found):
                return _affinity_error()
            state = taken_over(policy, state, self.pod, container.name, found, self.now, self.observer)
            self.providers = replace(self.providers, cpu=state)
        return None

    def _breaks_its_promise(self, container: str, cpus: int) -> bool:
        """Tell whether a strict policy admitted a hint and new CPUs lie elsewhere.

        In pod scope one hint speaks for all containers: what one of them gives up counts as room for the next, also
        when it goes back later only. Such a resize succeeds in two steps.
        """
        hint, policy = self.stored.get(container, NO_AFFINITY), self.settings.cpu
        if policy is None or hint.mask is None or self.settings.topology_policy not in (RESTRICTED, SINGLE_NUMA_NODE):
            return False
        new = cpus & ~self.providers.cpu.assignments[self.pod.uid][container]
        return new & ~near(policy, new, hint.mask) != 0

    def _asks_for_other_cpus(self, container: Container) -> bool:
        before = next(one for one in self.before.containers if one.name == container.name)
        return before.requests.get("cpu") != container.requests.get("cpu")

    def _resize_memory(self, container: Container) -> Rejection | None:
        policy = self.settings.memory
        if policy is None or not policy.resizes:
            return None
        hint = self.stored.get(container.name, NO_AFFINITY)
        found = memory_resize.grown(policy, self.providers.memory, self.pod, container, hint, self.observer)
        if isinstance(found, MemoryRefusal):
            return Rejection(found.reason or UNEXPECTED_ADMISSION_ERROR, found.message)
        self.providers = replace(self.providers, memory=found)
        return None


def _affinity_error() -> Rejection:
    return Rejection(TOPOLOGY_AFFINITY_ERROR, AFFINITY_MESSAGE)
