"""One kubelet for several variants, as long as they decide alike.

Variants that differ in settings of the topology manager only get the same hints from the same state. As long as their
policies merge these hints alike, the rest of an admission is the same, so that it is run once. Where they merge them
differently, the variants part, and each part goes on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.devicemanager.hints import pod_device_requests
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult
from mooring.engine.kubelet.events import Admit, Event, EventResult, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import Hint
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, merge
from mooring.engine.topologymanager.wide import ResourceHints, merge_entries

Followers: TypeAlias = Mapping[int, Settings]
"""Variants that share a kubelet: position -> settings; they differ in what the topology manager does only."""


@dataclass(frozen=True, slots=True)
class SharedKubelet:
    """The kubelet of all these variants: they have decided alike so far."""

    kubelet: Kubelet
    """With the settings of one of them."""
    followers: Followers

    def after(self, event: Event, mode: AdmitMode = AdmitMode.ADMISSION) -> Iterator[tuple[SharedKubelet, EventResult]]:
        """Let one thing happen to the node; yield every outcome with the variants that have it.

        Args:
            event: what happens.
            mode: how the kubelet is asked about pods.
        """
        left = dict(self.followers)
        while left:
            first = next(iter(left.values()))
            before = self.kubelet if self.kubelet.settings is first else _with_settings(self.kubelet, first)
            after, result = after_event(before, event, mode)
            follows = _following(before, event, result)
            alike = {position: settings for position, settings in left.items() if follows(settings)}
            left = {position: settings for position, settings in left.items() if position not in alike}
            yield SharedKubelet(after, alike), result


def _with_settings(kubelet: Kubelet, settings: Settings) -> Kubelet:
    return replace(kubelet, node=replace(kubelet.node, settings=settings))


def _following(before: Kubelet, event: Event, result: EventResult) -> Callable[[Settings], bool]:
    """Return the test whether a variant's kubelet would have come to the same result.

    The hints of an admission that crashed are not known, so that each variant has to be asked itself.
    """
    first = before.settings
    crashed = result.crashed or bool(result.crash)
    # With the extension device-alignment devices are merged before, by themselves, and not always by the node's policy.
    devices = before.node.providers.devices
    by_devices = first.device_alignments is not None and any(
        _has_devices(one.pod, devices) for one in result.admissions
    )
    scopes_agree = isinstance(event, Admit) and is_alike_in_both_scopes(event.pod, before.node.providers)
    asked = [hints for one in result.admissions for hints in _hints_of(one)]
    merges: dict[tuple[bool, int], list[Hint]] = {}

    def merged(settings: Settings) -> list[Hint | None]:
        # restricted merges as best-effort does, and rejects what is not preferred.
        key = settings.topology_policy == SINGLE_NUMA_NODE, id(settings.numa.distances)
        if key not in merges:
            policy = SINGLE_NUMA_NODE if settings.topology_policy == SINGLE_NUMA_NODE else BEST_EFFORT
            merges[key] = [merge(policy, merge_entries((hints,)), settings.numa).hint for hints in asked]
        is_needed = settings.topology_policy != BEST_EFFORT
        return [None if is_needed and not hint.preferred else hint for hint in merges[key]]

    def follows(settings: Settings) -> bool:
        if is_merged_alike(first, settings):
            return True
        if not result.admissions:
            return not crashed
        if crashed or by_devices or NONE in (first.topology_policy, settings.topology_policy):
            return False
        if settings.pod_scope is not first.pod_scope and not scopes_agree:
            return False
        try:
            return merged(settings) == merged(first)
        except KubeletCrashError:
            return False

    return follows


def is_merged_alike(one: Settings, other: Settings) -> bool:
    """Tell whether every kubelet with one of the settings merges as with the other one.

    Under the policy ``none`` no hint is requested: neither scope nor options are read (kubelet v1.37.1,
    topologymanager/scope_none.go).
    """
    if one.topology_policy != other.topology_policy:
        return False
    return one.topology_policy == NONE or (one.pod_scope is other.pod_scope and one.numa == other.numa)


def is_alike_in_both_scopes(pod: Pod, providers: Providers) -> bool:
    """Tell whether a new pod gets the same hints in the scopes ``container`` and ``pod``, and the same for them.

    It has one container, which is no init container, no resources of its own, and nothing yet that could be restored
    (spec: topology-manager.md section 4).
    """
    uid, cpu, memory = pod.uid, providers.cpu, providers.memory
    return (
        len(pod.containers) == 1
        and pod.containers[0].kind is ContainerKind.APP
        and pod.resources is None
        and not any(uid in held for held in (cpu.assignments, cpu.pods, memory.assignments, memory.pods))
        and uid not in {**providers.devices.held, **providers.devices.claimed}
        and uid not in (providers.reusable_cpus.pod, providers.reusable_memory.pod, providers.reusable_devices.pod)
    )


def _has_devices(pod: Pod, devices: DeviceState) -> bool:
    return pod.uid in devices.held or pod.uid in devices.claimed or bool(pod_device_requests(pod, devices))


def _hints_of(result: AdmitResult) -> Iterator[ResourceHints]:
    """Yield all hints that were merged in an admission, in their order."""
    decision = result.decision
    yield from (decision.hints or {}).values()
    if decision.pod_hints is not None:
        yield decision.pod_hints
