"""Admitting one pod: asking the providers, merging, allocating, in the order of the scope.

Source: kubelet v1.37.1, topologymanager scope_*.go; spec: topology-manager.md sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mooring.engine.core.decision import AllocationError, Endless, Observer, Rejection
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager import pod_allocation as cpu_pod
from mooring.engine.cpumanager.static import allocate as allocate_cpus
from mooring.engine.devicemanager.allocation import allocate as allocate_devices
from mooring.engine.devicemanager.hints import pod_device_requests
from mooring.engine.extensions.scale_down import resumed_resize
from mooring.engine.memorymanager import static as memory_pod
from mooring.engine.memorymanager.static import allocate as allocate_memory
from mooring.engine.node import facts
from mooring.engine.node.decision import NO_AFFINITY, HintsAsked, with_plugins
from mooring.engine.node.providers import (
    Providers,
    hints_of,
    policy_of,
    without_stale_cpus,
    without_stale_devices,
    without_stale_memory,
)
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hint
from mooring.engine.topologymanager.merge import NONE, is_admitted, merge
from mooring.engine.topologymanager.wide import AnyHints, ResourceHints, merge_entries
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    import mooring.engine.plugins.facts as plugin_facts

if TYPE_CHECKING:
    from mooring.engine.plugins.facts import PluginFailed

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
AFFINITY_MESSAGE = "Resources cannot be allocated with Topology locality"
POD_SCOPE_MESSAGE = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
CONTAINER_SCOPE_MESSAGE = (
    "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
)

Verdict = Rejection | Endless | None
"""None means that nothing speaks against the pod so far."""


@dataclass(slots=True)
class Admission:
    """One admission while it runs.

    Nothing is rolled back when it fails: leftovers go with the next stale-state removal.
    """

    settings: Settings
    pod: Pod
    active: Mapping[str, Pod]
    """Active pods, this one included."""
    providers: Providers
    stored: dict[str, Hint]
    """The topology manager's hints of this pod, by container."""
    sources_ready: bool
    """Whether stale state may be removed; not while the kubelet starts."""
    observer: Observer | None
    now: Moment = field(default_factory=Moment)
    """Scale-down delays that start again begin now."""
    failures: list[PluginFailed] = field(default_factory=list)
    """Plugins that failed while they took part."""
    hints: dict[str, ResourceHints] = field(default_factory=dict)
    pod_hints: ResourceHints | None = None
    scored: dict[str, HintsAsked] = field(default_factory=dict)
    """What the hints were made of, for kubelets whose hints have scores."""
    asked: set[str] = field(default_factory=set)
    """Managers that have dropped their stale state."""
    suspects: Collection[str] | None = None
    """Pods that alone may have stale state; None where that is not known."""

    def run(self) -> Verdict:
        """Decide; None means that the pod is admitted."""
        if self.settings.plugins is not None:
            # Pass the pods to the plugins, and receive their failures
            plugins = self.settings.plugins.among(self.active)
            policy = self.settings.cpu
            if policy is not None:
                self.settings = replace(self.settings, cpu=replace(policy, chooser=plugins), plugins=plugins)
            told, failures = self.observer, self.failures

            def observe(fact: object) -> None:
                if isinstance(fact, plugin_facts.PluginFailed):
                    failures.append(fact)
                if told is not None:
                    told(fact)

            self.observer = observe
        if self.observer is not None:
            self.observer(facts.AdmissionBegun(self.pod.uid))
        if self.pod.uid in self.providers.devices.claimed:
            devices = self.providers.devices.with_claimed(self.pod.uid)
            self.providers = replace(self.providers, devices=devices)
        verdict = self._devices_first() or self.in_scope()
        if self.observer is not None:
            ended: object = facts.PodAdmitted(self.pod.uid, self.pod)
            if isinstance(verdict, Rejection):
                ended = facts.PodRejected(self.pod.uid, verdict.reason, verdict.message)
            elif verdict is not None:
                ended = facts.AdmissionEndless(self.pod.uid, verdict.defect)
            self.observer(ended)
        return verdict

    @property
    def _is_managed(self) -> bool:
        """Whether the pod takes the path of KEP-5526."""
        return self.settings.pod_level.manages(self.pod)

    def _devices_first(self) -> Verdict:
        """Let a kubelet that has no other resources give the devices (extension device-alignment).

        It is the kubelet beside the node agent, with the same topology policy and CPU and memory manager ``none``. Of a
        pod whose devices were given before, it has nothing to give.
        """
        settings = self.settings
        if settings.device_alignments is None or not pod_device_requests(self.pod, self.providers.devices):
            return None
        beside = replace(
            self,
            settings=replace(
                settings,
                cpu=None,
                memory=None,
                plugins=None,
                pod_level=replace(settings.pod_level, managers=False),
                device_alignments=None,
            ),
            stored={},
            hints={},
            failures=[],
            asked=set(),
            # Containers whose CPUs and memory are not yet decided are not reported as admitted.
            observer=diverted(self.observer, (facts.ContainerAdmitted,), []),
        )
        verdict = beside.in_scope()
        self.providers = beside.providers
        return verdict

    # Scopes.

    def in_scope(self) -> Verdict:
        """Decide in the scope of the topology manager; None means that the managers agree."""
        has_scopes = self.settings.topology_policy != NONE
        if has_scopes and self.settings.pod_scope:
            return self._pod_scope()
        for container in self.pod.containers:
            policy = policy_of(self.settings, self.providers, self.pod, container.name)
            # Topology policy ``none``: allocate for every container, store nothing; pod allocation is never used.
            # Containers that hold devices have hints all the same, with the extension device-alignment.
            if policy != NONE:
                hint = self._merged(policy, container)
                if isinstance(hint, Rejection):
                    return hint
                self.stored[container.name] = hint
            verdict = self._allocate(container)
            if verdict is not None:
                return verdict
            if has_scopes and self.observer is not None:
                self.observer(facts.ContainerAdmitted(self.pod.uid, container.name))
        return None

    def _pod_scope(self) -> Verdict:
        hint = self._merged(policy_of(self.settings, self.providers, self.pod, ""), None)
        if isinstance(hint, Rejection):
            return hint
        if self._is_managed:
            self.stored.update({container.name: hint for container in self.pod.containers})
            return self._allocate_pod(hint)
        for container in self.pod.containers:
            self.stored[container.name] = hint
            verdict = self._allocate(container)
            if verdict is not None:
                return verdict
        return None

    def _clean(self, *managers: str) -> None:
        """Drop the stale state of managers that are asked for the first time; nothing becomes stale meanwhile."""
        for manager in managers if self.sources_ready else ():
            if manager in self.asked:
                continue
            self.asked.add(manager)
            if manager == "devices":
                self.providers = without_stale_devices(self.providers, self.active)
            else:
                without = without_stale_cpus if manager == "cpus" else without_stale_memory
                self.providers = without(self.settings, self.providers, self.active, self.observer, self.suspects)

    # Hints.

    def _merged(self, policy: str, container: Container | None) -> Hint | Rejection:
        """Merge the hints for one container, or for the whole pod; a rejection when the policy does not admit."""
        self._clean("devices", "cpus", "memory")
        settings, observer, name = self.settings, self.observer, "" if container is None else container.name
        given = hints_of(settings, self.providers, self.pod, container, observer)
        if container is None:
            self.pod_hints = joined(given)
        else:
            self.hints[name] = joined(given)
        if observer is not None:
            observer(facts.HintsGiven(self.pod.uid, name, joined(given)))
        merged = merge(policy, merge_entries(given), settings.numa, observer)
        has_score = not settings.release.rules.hints_without_score
        if has_score or settings.plugins is not None:
            asked = HintsAsked(settings, self.providers, given, policy, self.pod if container is None else None)
            if has_score:
                self.scored[name] = asked
                if observer is not None:
                    observer(facts.HintScored(self.pod.uid, name, asked.merged(merged)))
            if settings.plugins is not None:
                merged = with_plugins(settings.plugins, asked, merged, self.pod, name, observer)
        if is_admitted(policy, merged):
            return merged
        message = AFFINITY_MESSAGE
        if self._is_managed:
            message = POD_SCOPE_MESSAGE if container is None else CONTAINER_SCOPE_MESSAGE
        return Rejection(TOPOLOGY_AFFINITY_ERROR, message)

    # Allocation: devices, CPUs, memory; the first error ends it.

    def _allocate(self, container: Container) -> Verdict:
        hint = self.stored.get(container.name, NO_AFFINITY)
        return (
            self._allocate_devices(container, hint)
            or self._allocate_cpus(container, hint)
            or self._allocate_memory(container, hint)
        )

    def _allocate_devices(self, container: Container, hint: Hint) -> Verdict:
        self._clean("devices")
        providers = self.providers
        if self.settings.device_alignments is not None or not providers.devices.devices:
            return None
        answer = allocate_devices(
            providers.devices,
            providers.reusable_devices,
            self.pod,
            container,
            hint.mask,
            self.observer,
            sources_ready=self.sources_ready,
        )
        if isinstance(answer, AllocationError):
            return _refused(answer)
        devices, reusable = answer
        if devices is not providers.devices or reusable is not providers.reusable_devices:
            self.providers = replace(providers, devices=devices, reusable_devices=reusable)
        return None

    def _allocate_cpus(self, container: Container, hint: Hint) -> Verdict:
        policy = self.settings.cpu
        if policy is None:
            return None
        self._clean("cpus")
        providers = self.providers
        if policy.resizes:
            resumed = resumed_resize(
                policy, providers.cpu, self.pod, container, hint.mask, self.now, observer=self.observer
            )
            if isinstance(resumed, AllocationError):
                return _refused(resumed)
            providers = replace(providers, cpu=resumed)
        answer = allocate_cpus(
            policy, providers.cpu, providers.reusable_cpus, self.pod, container, hint.mask, self.observer
        )
        if isinstance(answer, Endless | AllocationError):
            return _refused(answer)
        cpu, reusable = answer
        self.providers = replace(providers, cpu=cpu, reusable_cpus=reusable)
        return None

    def _allocate_memory(self, container: Container, hint: Hint) -> Verdict:
        policy = self.settings.memory
        if policy is None:
            return None
        self._clean("memory")
        providers = self.providers
        answer = allocate_memory(
            policy, providers.memory, providers.reusable_memory, self.pod, container, hint, self.observer
        )
        if isinstance(answer, AllocationError):
            return _refused(answer)
        memory, reusable = answer
        self.providers = replace(providers, memory=memory, reusable_memory=reusable)
        return None

    def _allocate_pod(self, hint: Hint) -> Verdict:
        """Serve a pod as a whole (KEP-5526)."""
        pod, observer, cpu, memory = self.pod, self.observer, self.settings.cpu, self.settings.memory
        if cpu is not None:
            given = self.providers
            left, found = cpu_pod.allocate_pod(cpu, given.cpu, pod, hint.mask, observer)
            self.providers = replace(given, cpu=left)
            if isinstance(found, Endless | AllocationError):
                return _refused(found)
        if memory is not None:
            given = self.providers
            answer = memory_pod.allocate_pod(memory, given.memory, pod, hint, observer)
            if isinstance(answer, AllocationError):
                return _refused(answer)
            self.providers = replace(given, memory=answer)
        return None


def diverted(observer: Observer | None, kinds: tuple[type, ...], kept: list[object]) -> Observer | None:
    """Return an observer that does not hear of facts of some kinds, which go into a list."""
    if observer is None:
        return None

    def observe(fact: object) -> None:
        if isinstance(fact, kinds):
            kept.append(fact)
        else:
            observer(fact)

    return observe


def joined(given: tuple[ResourceHints | None, ...]) -> ResourceHints:
    """Return the hints of all providers by resource; no two providers share one."""
    joined: dict[str, AnyHints | None] = {}
    for hints in given:
        joined.update(hints or {})
    return joined


def _refused(error: Endless | AllocationError) -> Verdict:
    """Return the kubelet's answer to a provider's error: its own text where it is typed, wrapped otherwise."""
    if isinstance(error, Endless):
        return error
    if error.reason:
        return Rejection(error.reason, error.message)
    return Rejection(UNEXPECTED_ADMISSION_ERROR, f"Allocate failed due to {error.message}, which is unexpected")
