"""Resizing a pod in place: the answer to one request, and the pods that wait for room.

Source: kubelet v1.37.1, pkg/kubelet/allocation; KEP-1287; spec: resize.md sections 1 and 3.

What can never be resized: the checks before any manager is asked, the first that refuses decides.

v1.37.1 refuses by gate and by policy; what the whole node does not have is left to the node resources check, which
defers. Older kubelets compare with the whole node here, and up to v1.33 a policy refuses every resize of a Guaranteed
pod: each is a named rule. v1.38.0-beta.0 names the allocation mode of the resource where older ones name a policy (rule
resize-names-policies). Not modelled: swap and the sizes of memory-backed volumes, which no input of Mooring tells.

Source: kubelet v1.37.1, pkg/kubelet/allocation/handlers.go; v1.34.4 and v1.35.4, allocation_manager.go, canResizePod;
v1.31.14 to v1.33.13, pkg/kubelet/kubelet.go, canResizePod; KEP-1287, KEP-5554; spec: resize.md sections 2 and 4,
releases.md sections 6 and 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement, Rejection, Shortage
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import ContainerKind, Pod, QoS
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.cpu_resize import check_feasible as check_cpus
from mooring.engine.extensions.memory_resize import check_feasible as check_memory
from mooring.engine.node.resources import allocatable, pod_requests
from mooring.engine.node.settings import Settings
from mooring.lazy import dataclass, field, replace

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"
DEFERRED = "Deferred"
INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A resize that was not taken: the pod as it wants to be, and what its condition says."""

    pod: Pod
    rejection: Rejection
    """Who refused it, and in which words."""
    reason: str
    """``Deferred``: it is tried again when something changes. ``Infeasible``: only another request helps."""
    since: Moment
    """When the condition got this reason."""


@dataclass(frozen=True, slots=True)
class DelayedRelease:
    """CPUs that a container releases when its delay is over."""

    cpus: CPUSet
    """What it is going to have."""
    apply_at: Moment

    def left(self, now: Moment) -> int:
        """Return the nanoseconds until the delay is over; 0 when it is, or when the time is of another boot."""
        return max(self.apply_at.since_boot - now.since_boot, 0) if self.apply_at.boot == now.boot else 0


@dataclass(frozen=True, slots=True)
class Resize:
    """The answer to one resize."""

    uid: str
    accepted: bool
    """Whether the pod has been given the resources; a reverted resize is neither accepted nor refused."""
    condition: str
    """``PodResizePending``, ``PodResizeInProgress``, or empty when nothing is left to do."""
    reason: str
    message: str
    rejection: Rejection | None
    """The reason that the refusing check gave, such as ``OutOfcpu``."""
    containers: Mapping[str, Placement]
    """What each container holds now."""
    releases: Mapping[str, DelayedRelease]
    """CPUs that go back later, by container."""
    baseline: Mapping[str, CPUSet]
    """What each container got at first; it never has less."""
    shared_pool: CPUSet
    events: tuple[str, ...] = field(default=())
    """Names of the kubelet's events that it would record."""


def releases_of(state: CPUState, uid: str) -> dict[str, DelayedRelease]:
    """Return what a pod's containers release later."""
    return {
        name: DelayedRelease(CPUSet(pre.cpus), pre.apply_at)
        for name, pre in sorted(state.pre_assignments.get(uid, {}).items())
    }


def retry_order(waiting: Iterable[Waiting], active: Mapping[str, Pod]) -> list[Waiting]:
    """Return the deferred resizes in the order in which the kubelet tries them again.

    First those that raise neither CPU nor memory requests, then by priority, then Guaranteed pods before others, then
    those that wait longest.
    """
    deferred = [one for one in waiting if one.reason == DEFERRED]
    return sorted(
        deferred,
        key=lambda one: (
            _raises(active[one.pod.uid], one.pod),
            -one.pod.priority,
            one.pod.qos is not QoS.GUARANTEED,
            one.since,
        ),
    )


def _raises(before: Pod, after: Pod) -> bool:
    old, new = pod_requests(before), pod_requests(after)
    return any(new.get(resource, 0) > old.get(resource, 0) for resource in ("cpu", "memory"))


ANY_RESIZE = "InPlacePodVerticalScaling"
EXCLUSIVE_CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
EXCLUSIVE_MEMORY = "InPlacePodVerticalScalingExclusiveMemory"
POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
BY_CPU_POLICY = "guaranteed_pod_cpu_manager_static_policy"
BY_MEMORY_POLICY = "guaranteed_pod_memory_manager_static_policy"
BEYOND_NODE = "insufficient_node_allocatable"
_GUARANTEED = "Resize is infeasible for Guaranteed Pods alongside"
STATIC_CPUS = f'{_GUARANTEED} CPU Manager policy "static"'
STATIC_MEMORY = f'{_GUARANTEED} Memory Manager policy "Static"'
_BY_MODE = "Resize is infeasible for Guaranteed Pods when {} allocation mode is exclusive"


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Why a resize is refused for good."""

    message: str
    detail: str
    """The kubelet's ``reason_detail``, or the type of the error where KEP-5554 has one."""
    shortage: Shortage | None = None
    """Of the whole node."""


def check_feasible(settings: Settings, cpu: CPUState, before: Pod, after: Pod) -> Infeasible | None:
    """Return why a pod can never be resized so; None when nothing speaks against it.

    The checks of the policies look at the requests of the containers only: they do not ask whether a container has
    CPUs or memory of its own, and a change of pod-level resources alone passes them.

    Args:
        settings: of the node.
        cpu: the CPU manager's state.
        before: the pod with the resources that it has.
        after: the pod with those that it requests.
    """
    gates = settings.gates
    if not gates[ANY_RESIZE]:
        return Infeasible(f"{ANY_RESIZE} is disabled", "feature_gate_off")
    if before.resources != after.resources and not gates[POD_LEVEL_RESIZE]:
        return Infeasible(f"{POD_LEVEL_RESIZE} is disabled", "plr_feature_gate_off")
    refused = _by_policy(settings, before, after) or _beyond_node(settings, after)
    return refused or _extended(settings, cpu, before, after)


def _by_policy(settings: Settings, before: Pod, after: Pod) -> Infeasible | None:
    if before.qos is not QoS.GUARANTEED:
        return None
    older, gates = settings.release.rules, settings.gates
    cpu = settings.cpu is not None and not older.static_cpu_policy_not_asked
    memory = settings.memory is not None and not older.static_memory_policy_not_asked
    if older.static_policies_refuse_every_resize:
        # Whatever changes, and one gate speaks for both policies.
        if cpu and not gates[EXCLUSIVE_CPUS]:
            return Infeasible(f"{_GUARANTEED} CPU Manager static policy", BY_CPU_POLICY)
        if memory and not gates[EXCLUSIVE_CPUS]:
            return Infeasible(f"{_GUARANTEED} Memory Manager static policy", BY_MEMORY_POLICY)
        return None
    if cpu and not gates[EXCLUSIVE_CPUS] and _changes(before, after, "cpu"):
        return Infeasible(STATIC_CPUS if older.resize_names_policies else _BY_MODE.format("CPU"), BY_CPU_POLICY)
    if memory and not gates[EXCLUSIVE_MEMORY] and _changes(before, after, "memory"):
        text = STATIC_MEMORY if older.resize_names_policies else _BY_MODE.format("memory")
        return Infeasible(text, BY_MEMORY_POLICY)
    return None


def _beyond_node(settings: Settings, pod: Pod) -> Infeasible | None:
    """Return the refusal of what the whole node does not have, up to v1.35 (rule resize-beyond-node-refused).

    What the node has, and how a pod is counted, changed in v1.34 (rules resize-leaves-eviction-threshold and
    resize-counts-sidecars-alone).
    """
    older, reservation = settings.release.rules, settings.reservation
    if not older.resize_beyond_node_refused:
        return None
    requests = pod_requests(_with_sidecars_alone(pod) if older.resize_counts_sidecars_alone else pod)
    node = allocatable(reservation)
    if not older.resize_leaves_eviction_threshold:
        node = {name: reservation.allocatable_absolute(name) for name in ("cpu", "memory")}
    for resource in ("memory", "cpu"):
        asked, has = requests.get(resource, 0), node[resource]
        if asked > has:
            message = f"Node didn't have enough capacity: {resource}, requested: {asked}, capacity: {has}"
            return Infeasible(message, BEYOND_NODE, Shortage(resource, asked, 0, has))
    return None


def _with_sidecars_alone(pod: Pod) -> Pod:
    """Return the pod as v1.33 counts it: each init container by itself, sidecars too."""
    alone = (
        replace(one, kind=ContainerKind.INIT) if one.kind is ContainerKind.SIDECAR else one for one in pod.containers
    )
    return replace(pod, containers=tuple(alone))


def _extended(settings: Settings, cpu: CPUState, before: Pod, after: Pod) -> Infeasible | None:
    """Apply the checks of the extension exclusive-resize, container by container."""
    for container in after.containers:
        if settings.cpu is not None and settings.cpu.resizes:
            cpus = check_cpus(settings.cpu, cpu, before, after, container)
            if cpus is not None:
                return Infeasible(cpus.message, cpus.reason)
        if settings.memory is not None and settings.memory.resizes:
            memory = check_memory(settings.memory, before, after, container)
            if memory is not None:
                return Infeasible(memory.message, memory.reason)
    return None


def _changes(before: Pod, after: Pod, resource: str) -> bool:
    old, new = (
        {one.name: quantity.nano if (quantity := one.requests.get(resource)) else 0 for one in pod.containers}
        for pod in (before, after)
    )
    return any(amount != old[name] for name, amount in new.items())
