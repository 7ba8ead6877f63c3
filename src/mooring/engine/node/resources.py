"""What a node has room for: the node resources check of new pods, and which resizes are feasible or wait for room.

Do the requests of all admitted pods fit the node's allocatable?

The kubelet applies it after its managers, so a pod can be placed by them and still be refused here. It is not part of
the managers' recordings.

Source: kubelet v1.37.1, pkg/kubelet/lifecycle/predicate.go and the scheduler's NodeResourcesFit; spec: metrics.md
section 3.

Resizing a pod in place: Source: kubelet v1.37.1, pkg/kubelet/allocation; KEP-1287; spec: resize.md sections 1 and 3.

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
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.extensions.cpu_resize import check_feasible as check_cpus
from mooring.engine.extensions.memory_resize import check_feasible as check_memory
from mooring.engine.node.reservation import Reservation
from mooring.engine.node.settings import Settings
from mooring.lazy import dataclass, field, replace

POD_LEVEL = ("cpu", "memory")
NO_DEVICES: Mapping[str, int] = {}


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return what a pod asks of the node: cpu in millicores, everything else in whole units.

    Apps and sidecars run together; a regular init container runs beside the sidecars started before it; pod-level
    requests replace the containers' where they are set; overhead comes on top.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    apps: dict[str, int] = {}
    for container in pod.containers:
        amounts = {resource: _amount(resource, quantity) for resource, quantity in container.requests.items()}
        if container.kind is ContainerKind.SIDECAR:
            _add(sidecars, amounts)
        elif container.kind is ContainerKind.APP:
            _add(apps, amounts)
        else:
            beside = dict(sidecars)
            _add(beside, amounts)
            for resource, amount in beside.items():
                peak[resource] = max(peak.get(resource, 0), amount)
    _add(apps, sidecars)
    total = {resource: max(apps.get(resource, 0), peak.get(resource, 0)) for resource in {**apps, **peak}}
    if pod.resources is not None:
        for resource, quantity in pod.resources.requests.items():
            if resource in POD_LEVEL or resource.startswith("hugepages-"):
                total[resource] = _amount(resource, quantity)
    _add(total, {resource: _amount(resource, quantity) for resource, quantity in pod.overhead.items()})
    return total


def _amount(resource: str, quantity: Quantity) -> int:
    return quantity.milli if resource == "cpu" else quantity.units


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def allocatable(reservation: Reservation) -> dict[str, int]:
    """Return what the node advertises; pools of huge pages are taken off its memory."""
    amounts = {resource: reservation.allocatable(resource) for resource in reservation.capacity}
    huge = sum(amount for resource, amount in amounts.items() if resource.startswith("hugepages-"))
    amounts["memory"] = max(amounts.get("memory", 0) - huge, 0)
    return amounts


def check_fit(pod: Pod, running: Iterable[Pod], reservation: Reservation, max_pods: int) -> Rejection | None:
    """Return the kubelet's rejection for the first resource that does not suffice, or None.

    Args:
        pod: the pod to be admitted.
        running: the pods admitted before it, without it.
        reservation: of the node.
        max_pods: how many pods the node runs at most.
    """
    others = list(running)
    return check_amounts(pod_requests(pod), total_requests(others), len(others), reservation, max_pods)


def total_requests(pods: Iterable[Pod]) -> dict[str, int]:
    """Return what pods that run together ask of the node."""
    total: dict[str, int] = {}
    for pod in pods:
        _add(total, pod_requests(pod))
    return total


def check_amounts(
    wanted: Mapping[str, int],
    used: Mapping[str, int],
    running: int,
    reservation: Reservation,
    max_pods: int,
    devices: Mapping[str, int] = NO_DEVICES,
) -> Rejection | None:
    """Make the same check with sums that are known, for callers that ask about many pods one after another.

    Args:
        wanted: what the pod requests (:func:`pod_requests`).
        used: what the pods admitted before it request together (:func:`total_requests`).
        running: how many pods these are.
        reservation: of the node.
        max_pods: how many pods the node runs at most.
        devices: how many devices the node has of the resources that the pod requests. The device manager has given the
            pod its own before, so that they are short only while pods count that have released theirs.
    """
    if running + 1 > max_pods:
        return _out_of("pods", 1, running, max_pods)
    # Sizes of huge pages that a node does not list are no extended resources, which a kubelet leaves out.
    pages = dict.fromkeys((resource for resource in wanted if resource.startswith("hugepages-")), 0)
    capacity = {**pages, **allocatable(reservation), **devices}
    for resource in sorted(capacity, key=lambda resource: (resource != "cpu", resource != "memory", resource)):
        amount = wanted.get(resource, 0)
        if amount > 0 and amount > capacity[resource] - used.get(resource, 0):
            return _out_of(resource, amount, used.get(resource, 0), capacity[resource])
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}",
        Shortage(resource, requested, used, capacity),
    )


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
    releases: Mapping[str, PreAssignment]
    """CPUs that go back later, by container."""
    baseline: Mapping[str, CPUSet]
    """What each container got at first; it never has less."""
    shared_pool: CPUSet
    events: tuple[str, ...] = field(default=())
    """Names of the kubelet's events that it would record."""


def delay_left(release: PreAssignment, now: Moment) -> int:
    """Return the nanoseconds until a delay is over; 0 when it is, or when the time is of another boot."""
    at = release.apply_at
    return max(at.since_boot - now.since_boot, 0) if at.boot == now.boot else 0


def retry_order(waiting: Iterable[Waiting], active: Mapping[str, Pod]) -> list[Waiting]:
    """Return the deferred resizes in the order in which the kubelet tries them again.

    First those that raise neither CPU nor memory requests, then by priority, then Guaranteed pods before others, then
    those that wait longest.
    """

    def place(one: Waiting) -> tuple[bool, int, bool, Moment]:
        old, new = pod_requests(active[one.pod.uid]), pod_requests(one.pod)
        raises = any(new.get(resource, 0) > old.get(resource, 0) for resource in ("cpu", "memory"))
        return raises, -one.pod.priority, one.pod.qos is not QoS.GUARANTEED, one.since

    return sorted((one for one in waiting if one.reason == DEFERRED), key=place)


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


def check_feasible(settings: Settings, cpu: CPUState, before: Pod, after: Pod) -> Rejection | None:
    """Return why a pod can never be resized so; None when nothing speaks against it.

    The reason is the kubelet's ``reason_detail``, or the type of the error where KEP-5554 has one.

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
        return Rejection("feature_gate_off", f"{ANY_RESIZE} is disabled")
    if before.resources != after.resources and not gates[POD_LEVEL_RESIZE]:
        return Rejection("plr_feature_gate_off", f"{POD_LEVEL_RESIZE} is disabled")
    refused = _by_policy(settings, before, after) or _beyond_node(settings, after)
    if refused is not None:
        return refused
    # The extension exclusive-resize asks for each container.
    for container in after.containers:
        if settings.cpu is not None and settings.cpu.resizes:
            cpus = check_cpus(settings.cpu, cpu, before, after, container)
            if cpus is not None:
                return Rejection(cpus.reason, cpus.message)
        if settings.memory is not None and settings.memory.resizes:
            memory = check_memory(settings.memory, before, after, container)
            if memory is not None:
                return Rejection(memory.reason, memory.message)
    return None


def _by_policy(settings: Settings, before: Pod, after: Pod) -> Rejection | None:
    if before.qos is not QoS.GUARANTEED:
        return None
    older, gates = settings.release.rules, settings.gates
    cpu = settings.cpu is not None and not older.static_cpu_policy_not_asked
    memory = settings.memory is not None and not older.static_memory_policy_not_asked
    if older.static_policies_refuse_every_resize:
        # Whatever changes, and one gate speaks for both policies.
        if cpu and not gates[EXCLUSIVE_CPUS]:
            return Rejection(BY_CPU_POLICY, f"{_GUARANTEED} CPU Manager static policy")
        if memory and not gates[EXCLUSIVE_CPUS]:
            return Rejection(BY_MEMORY_POLICY, f"{_GUARANTEED} Memory Manager static policy")
        return None
    if cpu and not gates[EXCLUSIVE_CPUS] and _changes(before, after, "cpu"):
        return Rejection(BY_CPU_POLICY, STATIC_CPUS if older.resize_names_policies else _BY_MODE.format("CPU"))
    if memory and not gates[EXCLUSIVE_MEMORY] and _changes(before, after, "memory"):
        text = STATIC_MEMORY if older.resize_names_policies else _BY_MODE.format("memory")
        return Rejection(BY_MEMORY_POLICY, text)
    return None


def _beyond_node(settings: Settings, pod: Pod) -> Rejection | None:
    """Return the refusal of what the whole node does not have, up to v1.35 (rule resize-beyond-node-refused).

    What the node has, and how a pod is counted, changed in v1.34 (rules resize-leaves-eviction-threshold and
    resize-counts-sidecars-alone).
    """
    older, reservation = settings.release.rules, settings.reservation
    if not older.resize_beyond_node_refused:
        return None
    if older.resize_counts_sidecars_alone:
        # The pod as v1.33 counts it: each init container by itself, sidecars too
        kinds = {ContainerKind.SIDECAR: ContainerKind.INIT}
        pod = replace(pod, containers=tuple(replace(one, kind=kinds.get(one.kind, one.kind)) for one in pod.containers))
    requests = pod_requests(pod)
    node = allocatable(reservation)
    if not older.resize_leaves_eviction_threshold:
        node = {name: reservation.allocatable_absolute(name) for name in ("cpu", "memory")}
    for resource in ("memory", "cpu"):
        asked, has = requests.get(resource, 0), node[resource]
        if asked > has:
            message = f"Node didn't have enough capacity: {resource}, requested: {asked}, capacity: {has}"
            return Rejection(BEYOND_NODE, message, Shortage(resource, asked, 0, has))
    return None


def _changes(before: Pod, after: Pod, resource: str) -> bool:
    old, new = (
        {one.name: quantity.nano if (quantity := one.requests.get(resource)) else 0 for one in pod.containers}
        for pod in (before, after)
    )
    return any(amount != old[name] for name, amount in new.items())
