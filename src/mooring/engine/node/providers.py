"""The state of all managers: the hints that they give for a pod, and the removal of stale state.

Source: kubelet v1.37.1, removeStaleState of both managers and topologymanager scope_*.go; spec: cpu-manager.md
sections 10 and 11, memory-manager.md section 6, topology-manager.md sections 3 and 4. CPUs of containers that a restart
finds in the middle of a resize are requested by the rules of the extension (spec: resize.md section 5.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from mooring.engine.core.decision import Observer
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager import hints as cpu_hints
from mooring.engine.cpumanager.pod_allocation import without_orphans as without_orphaned_cpus
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import remove_pods as remove_pods_cpus
from mooring.engine.devicemanager import hints as device_hints
from mooring.engine.devicemanager.allocation import drop_stale
from mooring.engine.devicemanager.state import DeviceState, ReusableDevices
from mooring.engine.extensions import cpu_resize, device_alignment
from mooring.engine.extensions.owners import OwnerKind, hidden_key, state_owner
from mooring.engine.extensions.scale_down import is_resized, release
from mooring.engine.memorymanager import hints as memory_hints
from mooring.engine.memorymanager.pod_partition import without_orphans as without_orphaned_memory
from mooring.engine.memorymanager.state import MemoryState, ReusableMemory
from mooring.engine.memorymanager.static import remove as remove_memory
from mooring.engine.memorymanager.static import remove_pods as remove_pods_memory
from mooring.engine.node.facts import StaleStateRemoved
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.wide import ResourceHints
from mooring.lazy import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Providers:
    """What the managers have given away, and what they remember of the pod now being admitted."""

    cpu: CPUState
    memory: MemoryState
    devices: DeviceState = field(default_factory=DeviceState)
    reusable_cpus: Reusable = field(default_factory=Reusable)
    reusable_memory: ReusableMemory = field(default_factory=ReusableMemory)
    reusable_devices: ReusableDevices = field(default_factory=ReusableDevices)


def without_stale_cpus(
    settings: Settings,
    providers: Providers,
    active: Mapping[str, Pod],
    observer: Observer | None = None,
    suspects: Collection[str] | None = None,
) -> Providers:
    """Drop the CPUs of every container that is in no active pod, as far as it is one of the suspects' or all are."""
    policy = settings.cpu
    if policy is None:
        return providers
    state = without_orphaned_cpus(policy, providers.cpu, active, observer)
    stale = _stale(state.assignments, active, suspects)
    hides = any(hidden_key(uid) in state.assignments for uid, _ in stale)
    if observer is None and not (state.pods or state.pre_assignments or state.displaced or hides):
        state, stale = _without_pods(state, stale, remove_pods_cpus)
    for uid, container in stale:
        state = release(policy, state, uid, container, observer)
    _report(stale, observer)
    return providers if state is providers.cpu else replace(providers, cpu=state)


def without_stale_memory(
    settings: Settings,
    providers: Providers,
    active: Mapping[str, Pod],
    observer: Observer | None = None,
    suspects: Collection[str] | None = None,
) -> Providers:
    """Drop the memory of every container that is in no active pod, as far as it is one of the suspects' or all are."""
    policy = settings.memory
    if policy is None:
        return providers
    state = without_orphaned_memory(policy, providers.memory, active)
    stale = _stale(state.assignments, active, suspects)
    if observer is None and not state.pods:
        state, stale = _without_pods(state, stale, remove_pods_memory)
    for uid, container in stale:
        state = remove_memory(policy, state, uid, container, observer)
    _report(stale, observer)
    return providers if state is providers.memory else replace(providers, memory=state)


def without_stale_devices(providers: Providers, active: Mapping[str, Pod]) -> Providers:
    """Drop the devices of every pod that is not active."""
    devices = drop_stale(providers.devices, active)
    return providers if devices is providers.devices else replace(providers, devices=devices)


def after_removal(
    settings: Settings,
    providers: Providers,
    active: Mapping[str, Pod],
    observer: Observer | None = None,
    suspects: Collection[str] | None = None,
) -> Providers:
    """Drop what no active pod holds of CPUs and memory.

    The device manager looks only when it is asked the next time, so that a pod that comes back finds its devices.

    Args:
        settings: of the node.
        providers: before.
        active: the active pods.
        observer: receives what was dropped.
        suspects: pods that alone may have something stale; None where that is not known.
    """
    providers = without_stale_cpus(settings, providers, active, observer, suspects)
    return without_stale_memory(settings, providers, active, observer, suspects)


def _stale(
    assignments: Mapping[str, Mapping[str, object]], active: Mapping[str, Pod], suspects: Collection[str] | None
) -> list[tuple[str, str]]:
    stale: list[tuple[str, str]] = []
    for key in assignments if suspects is None else {*suspects, *map(hidden_key, suspects)}:
        if key not in assignments:
            continue
        containers = assignments[key]
        # Almost all owners are active pods, which is found out at once.
        pod = active.get(key)
        if pod is None:
            owner = state_owner(key)
            # Claims stay until they are released (node.claims), hidden threads as long as their container.
            if owner.kind is OwnerKind.CLAIM:
                continue
            pod = active.get(owner.uid)
        known = pod.containers if pod is not None else ()
        # Plain loops: this is asked of every container of the node each time that a manager is asked anything.
        if len(known) == len(containers) == 1 and known[0].name in containers:
            continue
        for name in containers:
            for container in known:
                if container.name == name:
                    break
            else:
                stale.append((key, name))
    return sorted(stale)


_Managed = TypeVar("_Managed", CPUState, MemoryState)


def _without_pods(
    state: _Managed, stale: list[tuple[str, str]], remove: Callable[[_Managed, Iterable[str]], _Managed]
) -> tuple[_Managed, list[tuple[str, str]]]:
    """Return the state without pods of which everything is stale, and what else is stale.

    In one step: container after container the state of all other pods is copied each time.
    """
    if not stale:
        return state, stale
    count = Counter(uid for uid, _ in stale)
    whole = {uid: None for uid, containers in count.items() if containers == len(state.assignments[uid])}
    if not whole:
        return state, stale
    return remove(state, whole), [one for one in stale if one[0] not in whole]


def _report(stale: list[tuple[str, str]], observer: Observer | None) -> None:
    if stale and observer is not None:
        observer(StaleStateRemoved(tuple(sorted({uid for uid, _ in stale}))))


def hints_of_devices(
    settings: Settings, given: Providers, pod: Pod, container: Container | None, observer: Observer | None
) -> ResourceHints | None:
    """Return the hints of devices for one container, or for the whole pod.

    They are those of the kubelet's device manager, and with the extension device-alignment what is held already.
    """
    nodes, older, alignments = settings.numa_ids, settings.release.rules, settings.device_alignments
    if alignments is not None:
        name = "" if container is None else container.name
        return device_alignment.held_hints(alignments, given.devices, nodes, pod, name, observer)
    if container is None:
        return device_hints.pod_hints(given.devices, nodes, pod, observer, older)
    return device_hints.container_hints(given.devices, given.reusable_devices, nodes, pod, container, observer, older)


def policy_of(settings: Settings, given: Providers, pod: Pod, container: str) -> str:
    """Return the topology policy under which a container, or for an empty name the whole pod, is decided."""
    policy, alignments = settings.topology_policy, settings.device_alignments
    if alignments is None:
        return policy
    return device_alignment.policy_for(alignments, given.devices, settings.numa_ids, pod, container, policy)


def container_hints(
    settings: Settings, given: Providers, pod: Pod, container: Container, observer: Observer | None
) -> tuple[ResourceHints | None, ...]:
    """Return the hints of each manager for one container, in the order of the managers."""
    cpu, memory = settings.cpu, settings.memory
    devices = hints_of_devices(settings, given, pod, container, observer)
    cpus = blocks = None
    if cpu is not None and is_resized(cpu, given.cpu, pod, container):
        cpus = cpu_resize.container_hints(cpu, given.cpu, pod, container, observer)
    elif cpu is not None:
        cpus = cpu_hints.container_hints(cpu, given.cpu, given.reusable_cpus, pod, container, observer)
    if memory is not None:
        blocks = memory_hints.container_hints(memory, given.memory, given.reusable_memory, pod, container, observer)
    return devices, cpus, blocks


def pod_hints(
    settings: Settings, given: Providers, pod: Pod, observer: Observer | None
) -> tuple[ResourceHints | None, ...]:
    """Return the hints of each manager for a whole pod, in the order of the managers."""
    cpu, memory = settings.cpu, settings.memory
    devices = hints_of_devices(settings, given, pod, None, observer)
    cpus = blocks = None
    if cpu is not None and any(is_resized(cpu, given.cpu, pod, container) for container in pod.containers):
        cpus = cpu_resize.pod_hints(cpu, given.cpu, pod, observer)
    elif cpu is not None:
        cpus = cpu_hints.pod_hints(cpu, given.cpu, given.reusable_cpus, pod, observer)
    if memory is not None:
        blocks = memory_hints.pod_hints(memory, given.memory, given.reusable_memory, pod, observer)
    return devices, cpus, blocks
