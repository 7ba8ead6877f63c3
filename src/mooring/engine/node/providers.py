"""The state of all managers: the hints that they give for a pod, the removal of stale state, who shares with whom.

Source: kubelet v1.37.1, removeStaleState of both managers and topologymanager scope_*.go; spec: cpu-manager.md
sections 10 and 11, memory-manager.md section 6, topology-manager.md sections 3 and 4. CPUs of containers that a restart
finds in the middle of a resize are requested by the rules of the extension (spec: resize.md section 5.3).

What a container's CPUs and memory are shared with, and what that means for its CFS quota: cm/cpumanager,
cm/memorymanager and kuberuntime; KEP-5526; spec: pod-level.md section 5.

Mixed containers have CPUs of their own and the shared pool besides, so that one program can use both. The assignment
stays what the CPU manager gave: the pool has no owner, and a mixed container is one more that may run in it. So nothing
else of the engine knows of mixed containers, neither its decisions nor its state files. The extension ``mixed-cpus`` is
this project's; no kubelet has it. A program that polls on CPUs of its own has other threads too, which wait for files
and clients, and those must not run where it polls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final, TypeVar

from mooring.engine.core.config import MIXED_CPUS
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, guaranteed_equivalent
from mooring.engine.cpumanager import hints as cpu_hints
from mooring.engine.cpumanager.pod_allocation import without_orphans as without_orphaned_cpus
from mooring.engine.cpumanager.policy import StaticPolicy, whole_cpus
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


def hints_of(
    settings: Settings, given: Providers, pod: Pod, container: Container | None, observer: Observer | None
) -> tuple[ResourceHints | None, ...]:
    """Return the hints of each manager for one container, or for the whole pod, in the order of the managers."""
    cpu, memory = settings.cpu, settings.memory
    devices = hints_of_devices(settings, given, pod, container, observer)
    cpus = blocks = None
    if cpu is not None:
        asked = pod.containers if container is None else (container,)
        if cpu.resizes and any(is_resized(cpu, given.cpu, pod, one) for one in asked):
            cpus = hints_of_resize(cpu, given.cpu, pod, container, observer)
        elif container is None:
            cpus = cpu_hints.pod_hints(cpu, given.cpu, given.reusable_cpus, pod, observer)
        else:
            cpus = cpu_hints.container_hints(cpu, given.cpu, given.reusable_cpus, pod, container, observer)
    if memory is not None and container is None:
        blocks = memory_hints.pod_hints(memory, given.memory, given.reusable_memory, pod, observer)
    elif memory is not None and container is not None:
        blocks = memory_hints.container_hints(memory, given.memory, given.reusable_memory, pod, container, observer)
    return devices, cpus, blocks


def hints_of_resize(
    policy: StaticPolicy, state: CPUState, pod: Pod, container: Container | None, observer: Observer | None
) -> ResourceHints | None:
    """Return the CPU manager's hints for one container that is resized, or for the whole pod."""
    if container is None:
        return cpu_resize.pod_hints(policy, state, pod, observer)
    return cpu_resize.container_hints(policy, state, pod, container, observer)


class Isolation(Enum):
    """Whom a container shares its CPUs or its memory with."""

    HOST = "host"
    """With all pods on the node."""
    POD = "pod"
    """With the other containers of its pod."""
    CONTAINER = "container"
    """With no pod."""


def cpu_isolation(settings: Settings, providers: Providers, pod: Pod, container: Container) -> Isolation:
    """Return the isolation of a container's CPUs."""
    return isolation_with(settings, pod, container, providers.cpu.assignments.get(pod.uid, {}).get(container.name, 0))


def isolation_with(settings: Settings, pod: Pod, container: Container, held: int) -> Isolation:
    """Return the isolation of a container that is assigned these CPUs, given as a mask."""
    if not held:
        return Isolation.HOST
    exclusive = guaranteed_equivalent(container) and whole_cpus(container.limits) > 0
    return Isolation.POD if settings.pod_level.manages(pod) and not exclusive else Isolation.CONTAINER


def memory_isolation(settings: Settings, providers: Providers, pod: Pod, container: Container) -> Isolation:
    """Return the isolation of a container's memory."""
    if not providers.memory.assignments.get(pod.uid, {}).get(container.name):
        return Isolation.HOST
    if settings.pod_level.manages(pod) and not guaranteed_equivalent(container):
        return Isolation.POD
    return Isolation.CONTAINER


def container_runs_without_quota(settings: Settings, providers: Providers, pod: Pod, container: Container) -> bool:
    """Tell whether the CFS quota is lifted: the container has CPUs of its own, and a quota would only throttle it."""
    if settings.pod_level.managers:
        return cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER
    return bool(providers.cpu.assignments.get(pod.uid, {}).get(container.name))


def pod_runs_without_quota(settings: Settings, providers: Providers, pod: Pod) -> bool:
    """Tell whether the quota of the pod's cgroup and sandbox is lifted.

    With KEP-5526 a pod-level pod keeps it as soon as one of its containers shares.
    """
    if settings.pod_level.manages(pod):
        return bool(pod.containers) and all(
            cpu_isolation(settings, providers, pod, container) is Isolation.CONTAINER for container in pod.containers
        )
    held = providers.cpu.assignments.get(pod.uid, {})
    return any(held.get(container.name) for container in pod.containers)


ANNOTATION: Final = "mooring/mixed-cpus"
"""On a pod with the value ``true``: all containers with CPUs of their own; with ``.NAME`` appended that one alone."""
_WORDS: Final = {"true": True, "false": False}


def asks_to_mix(annotations: Mapping[str, str], name: str) -> bool:
    """Tell whether a container requests the pool besides its own CPUs; its own annotation wins over the pod's.

    A value that is no answer requests nothing: the caller of a running node cannot refuse it.

    >>> asks_to_mix({ANNOTATION: "true", f"{ANNOTATION}.poll": "false"}, "poll")
    False
    """
    own = annotations.get(f"{ANNOTATION}.{name}")
    return _WORDS.get((annotations.get(ANNOTATION, "") if own is None else own).strip().lower(), False)


def check_mixing(annotations: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse annotations that make no sense.

    Args:
        annotations: of a pod.
        names: of its containers.

    Raises:
        InputError: a value is neither ``true`` nor ``false``, or there is no such container.

    >>> check_mixing({f"{ANNOTATION}.pol": "true"}, ["poll"])
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: metadata.annotations.mooring/mixed-cpus.pol: there is no such container; \
did you mean poll?
    """
    for annotation, text in annotations.items():
        if annotation != ANNOTATION and not annotation.startswith(f"{ANNOTATION}."):
            continue
        field = f"metadata.annotations.{annotation}"
        if text.strip().lower() not in _WORDS:
            raise InputError(f"{text!r:.40} is neither true nor false", field=field, remedy='write "true" or "false"')
        name, known = annotation.removeprefix(ANNOTATION).removeprefix("."), [*names]
        if annotation != ANNOTATION and name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"the pod has {', '.join(known)}"
            raise InputError("there is no such container", field=field, remedy=remedy)


def is_mixed(settings: Settings, pod: Pod, container: Container, held: int, claimed: int = 0) -> bool:
    """Tell whether a container may run in the shared pool besides its own CPUs.

    A container that shares CPUs of its pod's own is not one of them: those are all that the pod requested.

    Args:
        settings: with or without the extension.
        pod: of the container.
        container: that asks or does not.
        held: CPUs that it is assigned, as a mask.
        claimed: CPUs that it has of claims, as a mask.
    """
    if MIXED_CPUS not in settings.extensions or not asks_to_mix(pod.annotations, container.name):
        return False
    isolation = isolation_with(settings, pod, container, held)
    return isolation is Isolation.CONTAINER or (isolation is Isolation.HOST and bool(claimed))


def mixed_containers(settings: Settings, providers: Providers, pod: Pod) -> tuple[str, ...]:
    """Return the containers of a pod that may use their own CPUs and the shared pool, in the pod's order.

    Claims are left out: requests that no plan knows decide about their use.
    """
    held = providers.cpu.assignments.get(pod.uid, {})
    return tuple(one.name for one in pod.containers if is_mixed(settings, pod, one, held.get(one.name, 0)))
